"""Whether a constant of a function is wrong in a late digit, which hides within the rounding of float32.

The function is run on the host in float64, where its formula is exact but for its constants. Each float constant that
it reads is changed a little in turn. Where what the results are off by is what one constant makes when it is off, that
constant is named, with the number for which function and reference agree.
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

Function = Callable[..., Any]

#: What results in float64 are off by, as parts of the largest: less is rounding, more is seen in float32 as well.
_LEAST, _MOST = 1e-10, 1e-4
#: A constant's error as a part of it: three times that of one rounded to float32 and more, up to what is another one.
_WRONG, _OTHER = 1.5 * epsilon("float32"), 1e-3
#: Part of the errors that the constant may leave unexplained, and results that are needed to tell it from another.
_LEFT, _ENOUGH = 0.02, 8
#: Part of a constant by which it is changed.
_STEP = 2.0**-16
#: Calls of functions within functions that are followed.
_DEEPEST = 3


def _is_of_float32(spec: OpSpec) -> bool:
    is_declared = spec.op is None and spec.reference is not None and spec.tolerance is None
    return is_declared and "float32" in spec.dtypes and "float64" not in spec.dtypes


@check(_is_of_float32)
def check_constants(spec: OpSpec, device: Device) -> None:
    """No constant of a function is off by more than its rounding to float32; run in float64 on the host, that shows."""
    if not isinstance(spec.fn, FunctionType) or spec.why_unsupported(device, "float32") is not None:
        return
    sample = one(spec, device, as_dtype("float32"), most=4096)
    exact, got = spec.expected(sample), _in_float64(spec, spec.fn, sample)
    if got is None or got.shape != exact.shape or exact.size < _ENOUGH:
        return
    with np.errstate(all="ignore"):
        error = _finite(got - exact)
    if not _LEAST < float(np.abs(error).max()) / max(float(np.abs(_finite(exact)).max()), sys.float_info.min) < _MOST:
        return
    for number, changed in variants(spec.fn):
        moved = _in_float64(spec, changed, sample)
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


def _in_float64(spec: OpSpec, fn: Function, sample: Any) -> NDArray[np.float64] | None:
    """What a function gives on the host for the numbers of a sample in float64; None if it is not of float64."""
    args, kwargs = widened(sample)
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(as_one(fn(devices.namespace(Device("cpu")), *args, **kwargs)))
    except Exception:  # noqa: BLE001  it may take other dtypes only
        return None
    return result if result.dtype == np.float64 else None


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0))


def _explaining(slope: NDArray[Any], error: NDArray[Any]) -> float | None:
    """By how much a constant must be off so that results of this `slope` have the `error`; None if nothing fits."""
    scale = float(np.abs(slope).max())
    if not scale or np.count_nonzero(np.abs(slope) > scale * _LEFT) < _ENOUGH:
        return None
    off = float((slope * error).sum() / (slope * slope).sum())
    rest = float(np.linalg.norm(error - off * slope))
    return off if rest <= _LEFT * float(np.linalg.norm(error)) else None


# ------------------------------------------------------------------------------------------------ other constants


def variants(fn: FunctionType, depth: int = _DEEPEST) -> Iterator[tuple[float, FunctionType]]:
    """Each float constant that `fn` reads, with the function in which it is larger by a small part.

    Those of its code, of the variables that it closes over, of globals of its module, and of functions among these.
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
    """The number, larger by a small part of it."""
    return number * (1 + _STEP)


def _is_number(value: Any) -> bool:
    return type(value) is float and value != 0 and bool(np.isfinite(value))


def _values(fn: FunctionType, value: Any, depth: int) -> Iterator[tuple[float, Any]]:
    """A float, changed; a function of the same module with each of its own."""
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
