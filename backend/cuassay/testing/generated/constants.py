"""A check that finds a constant that is wrong in a late digit, where rounding to float32 hides the error.

The function runs on the host in float64, where only its constants make it inexact. Each float constant that it reads
is changed a little in turn. If the error of the results is proportional to the effect of one constant, the failure
names that constant and the value for which function and reference agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, epsilon
from cuassay.core.device import Device
from cuassay.testing.answers import as_one, widened
from cuassay.testing.generated.execution import check
from cuassay.testing.generated.named import content_of
from cuassay.testing.generated.selection import one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

Function = Callable[..., Any]

#: Relative errors in float64 that are investigated: smaller ones are rounding, larger ones fail in float32 as well.
_LEAST, _MOST = 1e-10, 1e-4
#: Relative errors of a constant that are reported: from three times the rounding to float32, up to where it is another.
_WRONG, _OTHER = 1.5 * epsilon("float32"), 1e-3
#: The fraction of the error that a constant may leave unexplained, and the least number of results that distinguish it.
_LEFT, _ENOUGH = 0.02, 8
#: The relative change of a constant.
_STEP = 2.0**-16
#: The depth to which functions called by the function are followed.
_DEEPEST = 3


def _is_of_float32(spec: OpSpec) -> bool:
    is_declared = spec.op is None and spec.reference is not None and spec.tolerance is None
    return is_declared and "float32" in spec.dtypes and "float64" not in spec.dtypes


@check(_is_of_float32)
def check_constants(spec: OpSpec, device: Device) -> None:
    """No constant of the function is off by more than its rounding to float32, as a float64 run on the host shows."""
    if not isinstance(spec.fn, FunctionType) or spec.why_unsupported(device, "float32") is not None:
        return
    sample = one(spec, device, as_dtype("float32"), most=4096)
    exact, got = spec.expected(sample), _in_float64(spec.fn, sample)
    if got is None or got.shape != exact.shape or exact.size < _ENOUGH:
        return
    with np.errstate(all="ignore"):
        error = _finite(got - exact)
    if not _LEAST < float(np.abs(error).max()) / max(float(np.abs(_finite(exact)).max()), sys.float_info.min) < _MOST:
        return
    for number, changed in variants(spec.fn):
        moved = _in_float64(changed, sample)
        if moved is not None and moved.shape == got.shape:
            with np.errstate(all="ignore"):
                slope = _finite(moved - got) / (number * _STEP)
            off = _explaining(slope, error)
            if off is not None and _WRONG < abs(off / number) < _OTHER:
                raise AssertionError(
                    f"the constant {number!r} is wrong: with {number - off:.10g} the function agrees with the reference"
                    f"\n  relative error {abs(off / number):.2g}, where that of rounding to float32 is at most "
                    f"{epsilon('float32') / 2:.2g}\n  sample: {sample.label}"
                )


def _in_float64(fn: Function, sample: Sample) -> NDArray[np.float64] | None:
    """The function's result on the host for the sample's numbers in float64; None if it is not float64."""
    args, kwargs = widened(sample)
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(as_one(fn(devices.namespace(Device("cpu")), *args, **kwargs)))
    except Exception:  # noqa: BLE001  the function may not accept float64
        return None
    return result if result.dtype == np.float64 else None


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.nan_to_num(array, posinf=0.0, neginf=0.0))


def _explaining(slope: NDArray[Any], error: NDArray[Any]) -> float | None:
    """The error of a constant that explains `error`, if `slope` is the derivative by it; None if it does not fit."""
    scale = float(np.abs(slope).max())
    if np.count_nonzero(np.abs(slope) > scale * _LEFT) < _ENOUGH:
        return None
    off = float((slope * error).sum() / (slope * slope).sum())
    rest = float(np.linalg.norm(error - off * slope))
    return off if rest <= _LEFT * float(np.linalg.norm(error)) else None


# ------------------------------------------------------------------------------------------------ other constants


def variants(fn: FunctionType, depth: int = _DEEPEST) -> Iterator[tuple[float, FunctionType]]:
    """Each float constant that `fn` reads, with a copy of the function in which that constant is slightly larger.

    The constants are those of its code, of the variables that it closes over, of its module's globals, and of
    functions among these.
    """
    for number, code in _codes(fn.__code__):
        yield number, _copy(fn, code=code)
    for place, cell in enumerate(fn.__closure__ or ()):
        for number, value in _values(fn, content_of(cell), depth):
            cells = list(fn.__closure__ or ())
            cells[place] = CellType(value)
            yield number, _copy(fn, closure=tuple(cells))
    for name in fn.__code__.co_names:
        for number, value in _values(fn, fn.__globals__.get(name), depth):
            yield number, _copy(fn, names={**fn.__globals__, name: value})


def _codes(code: CodeType) -> Iterator[tuple[float, CodeType]]:
    for place, constant in enumerate(code.co_consts):
        found: list[tuple[float, Any]] = [(constant, changed(constant))] if _is_number(constant) else []
        for number, value in _codes(constant) if isinstance(constant, CodeType) else found:
            yield number, code.replace(co_consts=(*code.co_consts[:place], value, *code.co_consts[place + 1 :]))


def changed(number: float) -> float:
    """The number, made larger by the relative change `_STEP`."""
    return number * (1 + _STEP)


def _is_number(value: Any) -> bool:
    return type(value) is float and value != 0 and bool(np.isfinite(value))


def _values(fn: FunctionType, value: Any, depth: int) -> Iterator[tuple[float, Any]]:
    """A float with its changed value; a function of the same module with a copy for each of its own constants."""
    if _is_number(value):
        yield value, changed(value)
    elif isinstance(value, FunctionType) and value.__module__ == fn.__module__ and depth:
        yield from variants(value, depth - 1)


def _copy(
    fn: FunctionType, *, code: CodeType | None = None, closure: Any = None, names: dict[str, Any] | None = None
) -> FunctionType:
    made = FunctionType(
        code or fn.__code__, names or fn.__globals__, fn.__name__, fn.__defaults__, closure or fn.__closure__
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    return made
