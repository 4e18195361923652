"""Good calls of every public function, to change one argument of, and the answer to a changed call.

The functions are those of each ``__all__``, their parameters those of the signature: a new public function is called as
soon as it is public.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import pytest
from bad_values import BAD, contents, offence

import cuassay
from cuassay import Device, from_host, ops
from cuassay.ops import Op
from cuassay.testing.specs import SPECS

__all__ = [
    "MODULES",
    "NOT_CALLED",
    "answer",
    "files_land_elsewhere",
    "functions",
    "hangs_are_ended",
    "op_call",
    "parameters",
    "required",
    "state_restored",
    "told",
]

MODULES = ("cuassay", "cuassay.devices", "cuassay.linalg", "cuassay.random", "cuassay.amp", "cuassay.optim")

#: Public and not called here, with the reason.
NOT_CALLED = {
    "cuassay.amp.Rule": "an enum, which is not made by a call",
    "cuassay.linalg.QR": "a named tuple of results",
    "cuassay.linalg.SVD": "a named tuple of results",
    "cuassay.linalg.Eigen": "a named tuple of results",
    "cuassay.linalg.LeastSquares": "a named tuple of results",
    "cuassay.linalg.LinAlgError": "an error",
    "cuassay.Capabilities": "made by cuassay.capabilities",
}

#: Functions that open a file: the system's errors are theirs too.
OPENS_FILE = (cuassay.optim.save, cuassay.optim.load)

#: What a parameter of that name is given where it is not the one under test; a function's own entry counts first.
GOOD: dict[str, Callable[[Device], Any]] = {
    "a": lambda device: _matrix(device),
    "b": lambda device: _matrix(device),
    "array": lambda device: _matrix(device),
    "src": lambda device: _matrix(device),
    "dst": lambda device: _matrix(device),
    "like": lambda device: _matrix(device),
    "p": lambda device: 0.5,
    "bernoulli.p": lambda device: _matrix(device),
    "from_host.array": lambda device: np.ones((2, 2), np.float32),
    "low": lambda device: 0,
    "high": lambda device: 1,
    "shape": lambda device: (2, 2),
    "dtype": lambda device: None,
    "empty.dtype": lambda device: "float32",
    "full.dtype": lambda device: "float32",
    "zeros.dtype": lambda device: "float32",
    "empty_pinned.dtype": lambda device: "float32",
    "fill_value": lambda device: 1.0,
    "device": str,
    "name": str,
    "device_type": lambda device: device.kind,
    "kind": lambda device: device.kind,
    "op": lambda device: ops.add,
    "custom_rule.op": lambda device: "add",
    "rule_of.op": lambda device: "add",
    "rule": lambda device: None,
    "text": lambda device: "graphs",
    "mode": lambda device: "ieee",
    "use_deterministic_algorithms.mode": lambda device: False,
    "qr.mode": lambda device: "reduced",
    "debug_mode": lambda device: 0,
    "precision": lambda device: "highest",
    "seed": lambda device: 3,
    "params": lambda device: [_matrix(device)],
    "optimizer": lambda device: cuassay.optim.Adam([_matrix(device)]),
    "path": lambda device: "/nonexistent/adam.bin",
    "function": lambda device: lambda: None,
    "why_unsupported.dtype": lambda device: "float32",
}


def _matrix(device: Device) -> Any:
    return from_host(np.array([[2.0, 1.0], [1.0, 3.0]], np.float32), device)


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function and class by its path, each once, without the package's name."""
    seen: list[Any] = []
    for module in MODULES:
        loaded = import_module(module)
        for name in loaded.__all__:
            found = getattr(loaded, name)
            if not callable(found) or f"{module}.{name}" in NOT_CALLED or any(found is one for one in seen):
                continue
            seen.append(found)
            yield f"{module}.{name}".removeprefix("cuassay."), found


def parameters(function: Any) -> tuple[str, ...]:
    """The names of what `function` takes, but for further keywords."""
    found = inspect.signature(function).parameters.values()
    return tuple(one.name for one in found if one.kind is not one.VAR_KEYWORD)


def required(function: Any, device: Device) -> dict[str, Any]:
    """Good values for the parameters of `function` without defaults, by name."""
    found = inspect.signature(function).parameters.values()
    wanted = [one.name for one in found if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    name = function.__name__
    return {one: GOOD.get(f"{name}.{one}", GOOD.get(one, lambda device: None))(device) for one in wanted}


@cache
def _sample(op: Op) -> Any:
    """The spec of `op`, and of its first samples the smallest that has elements."""
    spec = next(spec for spec in SPECS if spec.op is op)
    dtype = next((one for one in ("float32", "int32") if one in spec.dtypes), spec.dtypes[0])
    drawn = list(islice(spec.draw(0, dtype), 6))
    return spec, min((one for one in drawn if _size(one)), key=_size, default=drawn[0])


def _size(sample: Any) -> int:
    return sum(map(len, contents(list(sample.args))))


def op_call(op: Op, device: Device) -> dict[str, Any] | None:
    """The arguments of a good call by name, fresh arrays on `device`; None where it does not run there."""
    spec, sample = _sample(op)
    first = sample.args[0]
    dtype = str((first[0] if isinstance(first, list | tuple) else first).dtype)
    return None if spec.why_unsupported(str(device), dtype) else op.schema.bind(*sample.on(device))


def answer(call: Callable[..., Any], kwargs: dict[str, Any]) -> str | None:
    """What is wrong with how a call ends, or None: it gives a value, or refuses and has written nothing."""
    return _answer(call, kwargs)[0]


def offences(call: Callable[..., Any], good: Callable[[], dict[str, Any]], parameter: str) -> dict[str, str]:
    """What is wrong with how calls end that have each bad value of one parameter, by the value's name.

    A call that refuses has written nothing, so that the next one gets the same good arguments.
    """
    found: dict[str, str] = {}
    kwargs: dict[str, Any] | None = None
    for name, make in BAD.items():
        kwargs = good() if kwargs is None else kwargs
        offence_of_call, has_refused = _answer(call, {**kwargs, parameter: make()})
        if offence_of_call is not None:
            found[name] = offence_of_call
        if not has_refused:
            kwargs = None
    return found


def _answer(call: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[str | None, bool]:
    """What is wrong with how a call ends, or None; and whether it raised an error and has written nothing."""
    before = list(contents(kwargs))
    try:
        made = call(**kwargs)
        if hasattr(made, "__enter__") and not isinstance(made, memoryview):
            with made:
                pass
    except Exception as error:  # noqa: BLE001  which errors may come is the question
        if list(contents(kwargs)) != before:
            return f"written before {type(error).__name__}: {error!s:.100}", False
        return offence(error, opens_file=call in OPENS_FILE), True
    return None, False


def told(offences: dict[str, str]) -> str:
    """One line for each."""
    return "\n".join(f"{name}: {' '.join(found.split())}" for name, found in offences.items())


@pytest.fixture(autouse=True)
def state_restored() -> Iterator[None]:
    """Some of these values are good ones for switches of the process."""
    yield
    cuassay.set_deterministic_debug_mode(0)
    cuassay.set_default_precision(None)
    cuassay.linalg.preferred_linalg_library("default")
    cuassay.amp.clear_autocast_cache()


@pytest.fixture(autouse=True)
def files_land_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Any str is a path that `optim.save` can write."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def hangs_are_ended() -> Iterator[None]:
    """A call that does not end fails after a minute."""

    def give_up(*_: Any) -> None:
        raise RuntimeError("the call did not end within a minute")

    former = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)
