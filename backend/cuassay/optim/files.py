"""Save and load an optimizer's state as one ``.npz`` file without pickle: named arrays, and hyperparameters as JSON."""

from __future__ import annotations

import json
import zipfile
from os import PathLike, fsencode
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.optim.adam import Adam

__all__ = ["load", "save"]

_GROUPS = "param_groups"


def save(optimizer: Adam, path: str | Path) -> None:
    """Write ``optimizer.state_dict()`` to `path`. Waits for the device.

    Raises
    ------
    OSError
        If the file cannot be written.
    ArgumentError
        If `optimizer` is not an optimizer of this package, or `path` is not a path.
    """
    _check(optimizer, path)
    state = optimizer.state_dict()
    arrays = {f"{number}.{name}": array for number, one in state["state"].items() for name, array in one.items()}
    with Path(path).open("wb") as file:
        np.savez(file, **{_GROUPS: np.array(json.dumps(state[_GROUPS])), **arrays})


def load(optimizer: Adam, path: str | Path) -> None:
    """Load a file that `save` wrote.

    Raises
    ------
    OSError
        If the file cannot be read; `FileNotFoundError` if it does not exist.
    ArgumentError, ShapeError
        If it is not such a file, or belongs to another optimizer; see `Adam.load_state_dict`.
    """
    _check(optimizer, path)
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


def _check(optimizer: Any, path: Any) -> None:
    if not isinstance(optimizer, Adam):
        raise ArgumentError(f"optimizer must be an Adam or AdamW; got {shown(optimizer)}; give one of cuassay.optim")
    if not _is_name(path):
        raise ArgumentError(f"path must be a str or pathlib.Path; got {shown(path)}; give the name of a file")


def _is_name(path: Any) -> bool:
    """Return whether `path` can be the name of a file."""
    try:
        return isinstance(path, str | PathLike) and b"\0" not in fsencode(path)
    except UnicodeEncodeError:
        return False


def _read(file: NpzFile) -> dict[str, Any]:
    """Read the state dict. Raises `ValueError` if a name holds no number, or the groups are not JSON."""
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
