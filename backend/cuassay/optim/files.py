"""An optimizer's state in one ``.npz`` file, without pickle: arrays by name, hyperparameters as JSON."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from cuassay.errors import ArgumentError
from cuassay.optim.adam import Adam

__all__ = ["load", "save"]

_GROUPS = "param_groups"


def save(optimizer: Adam, path: str | Path) -> None:
    """Write ``optimizer.state_dict()`` to `path`; waits for the device."""
    state = optimizer.state_dict()
    arrays = {f"{number}.{name}": array for number, one in state["state"].items() for name, array in one.items()}
    with Path(path).open("wb") as file:
        np.savez(file, **{_GROUPS: np.array(json.dumps(state[_GROUPS])), **arrays})


def load(optimizer: Adam, path: str | Path) -> None:
    """Load what `save` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    ArgumentError, ShapeError
        If it is not such a file, or is of another optimizer; see `Adam.load_state_dict`.
    """
    with _opened(path) as file:
        if _GROUPS not in file:
            raise ArgumentError(
                f"{path} holds no optimizer's state; it has {', '.join(file)[:200]}; give what save wrote"
            )
        try:
            state = _read(file)
        except ValueError as error:
            raise ArgumentError(f"{path} holds no optimizer's state: {error}; give what save wrote") from error
        optimizer.load_state_dict(state)


def _read(file: NpzFile) -> dict[str, Any]:
    """Raises `ValueError` if a name holds no number, or the groups are not JSON."""
    state: dict[int, dict[str, Any]] = {}
    for key in file:
        if key != _GROUPS:
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = file[key]
    return {"state": state, _GROUPS: json.loads(str(file[_GROUPS]))}


def _opened(path: str | Path) -> NpzFile:
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArgumentError(
            f"{path} holds no optimizer's state: it is not an .npz file; give what save wrote"
        ) from error
    if not isinstance(found, NpzFile):
        raise ArgumentError(f"{path} holds no optimizer's state: it is one array; give a file that save wrote")
    return found
