"""Compare two arrays: first shape, dtype and device, then values; and say what to print if they differ.

Values are compared as intervals. A result passes if it lies between ``expected - tolerance`` and
``expected + tolerance``, both rounded to the result's dtype. Overflow to infinity, NaN and signed zeros thus need no
special rules. `cuassay.testing.tolerance` decides how wide the tolerance is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import COMPLEX, as_dtype, dtype_name
from cuassay.arrays.rounding import narrowed
from cuassay.core.device import Device
from cuassay.devices import to_host
from cuassay.ops import registry
from cuassay.testing.failures import ErrorMap, error_map, inputs_there, number
from cuassay.testing.tolerance import GENERAL, allowed

__all__ = [
    "ERROR_MAPS",
    "HEADROOM",
    "REFUSED_ENDS",
    "Verdict",
    "assert_close",
    "assert_same_bits",
    "collecting",
    "describe_case",
    "is_within_units",
    "judge",
]

#: Collects each comparison's error divided by its tolerance, where 1 is the limit; None if nothing is collected.
HEADROOM: ContextVar[list[float] | None] = ContextVar("cuassay_headroom", default=None)

#: Collects the error maps of failed comparisons; None if nothing is collected.
ERROR_MAPS: ContextVar[list[ErrorMap] | None] = ContextVar("cuassay_error_maps", default=None)

#: Collects ends of declared integer ranges that a reference refuses, each with the reason; None if nothing collects.
REFUSED_ENDS: ContextVar[list[tuple[str, str]] | None] = ContextVar("cuassay_refused_ends", default=None)

_context: ContextVar[tuple[object, ...]] = ContextVar("cuassay_comparison", default=())


@contextmanager
def collecting(told: dict[str, Any]) -> Iterator[None]:
    """Store what comparisons inside the block find in `told`: the worst ``headroom`` and the last ``error_map``.

    The ends that `REFUSED_ENDS` collects are stored as ``refused_ends``.
    """
    ratios: list[float] = []
    maps: list[ErrorMap] = []
    ends: list[tuple[str, str]] = []
    tokens = HEADROOM.set(ratios), ERROR_MAPS.set(maps), REFUSED_ENDS.set(ends)
    try:
        yield
    finally:
        HEADROOM.reset(tokens[0])
        ERROR_MAPS.reset(tokens[1])
        REFUSED_ENDS.reset(tokens[2])
        if ratios:
            told["headroom"] = float(max(ratios))
        if maps:
            told["error_map"] = maps[-1].as_row()
        if ends:
            told["refused_ends"] = [list(one) for one in ends]  # xdist sends lists and strings


@contextmanager
def describe_case(*lines: object) -> Iterator[None]:
    """Append these lines, such as the case and how to repeat it, to the message of a failed comparison inside.

    A line that is there already is not repeated. Lines that are not strings become text when a comparison fails.
    """
    before = _context.get()
    token = _context.set((*before, *(line for line in lines if line not in before)))
    try:
        yield
    finally:
        _context.reset(token)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison of values.

    Attributes
    ----------
    bad, total : int
        The number of elements out of tolerance, and of all elements.
    ratio : float
        The largest error divided by its tolerance.
    index : tuple of int
        The index of that element.
    error, limit : float
        Its absolute error and its absolute tolerance.
    where : numpy.ndarray or None
        Which elements are out of tolerance.
    """

    bad: int
    total: int
    ratio: float
    index: tuple[int, ...] = ()
    error: float = 0.0
    limit: float = 0.0
    where: NDArray[np.bool_] | None = None


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    tolerance: Any = None,
    dtype: Any = None,
    device: str | Device | None = None,
    check_dtype: bool = True,
    inputs: Any = None,
    note: str = "",
) -> None:
    """Raise `AssertionError` unless `actual` agrees with `expected`.

    Parameters
    ----------
    actual, expected : array
        Arrays of any device kind or of NumPy, or Python numbers. NaN equals NaN, and an infinity equals itself.
    rtol, atol : float, optional
        The tolerance is ``atol + rtol * abs(expected)``; give either or both. By default it depends on the dtype, by
        the table in `cuassay.testing.tolerance`.
    tolerance : array, optional
        The absolute tolerance of each element.
    dtype : dtype, optional
        The dtype that `actual` must have. Default: the dtype of `expected`.
    device : Device, optional
        The device that `actual` must be on. Default: that of `expected`, unless it is a NumPy array or a number.
    check_dtype : bool
        False to compare values of different dtypes.
    inputs : tuple, optional
        The positional and keyword arguments of the call, as NumPy arrays. A failure prints their elements at the worst
        index.
    note : str
        A failure of shape or values prints it after these.

    Raises
    ------
    AssertionError
        If shape, dtype, device or values differ.
    """
    __tracebackhide__ = True
    _check_place(actual, expected, device)
    got, want = _host(actual), _host(expected)
    if got.shape != want.shape:
        noted = [f"note: {note}"] if note else []
        raise AssertionError(_message("\n  ".join([f"shape is {got.shape}; expected {want.shape}", *noted])))
    wanted = want.dtype if dtype is None else as_dtype(dtype)
    if check_dtype and got.dtype != wanted:
        raise AssertionError(_message(f"dtype is {dtype_name(got.dtype)}; expected {dtype_name(wanted)}"))
    limit = _absolute(want, got.dtype, rtol, atol) if tolerance is None else tolerance
    verdict = judge(got, want, limit)
    _collect_ratio(verdict.ratio)
    if verdict.bad:
        found = None if verdict.where is None else error_map(verdict.where)
        _collect_map(found)
        there = inputs_there(verdict.index, got.shape, inputs)
        lines = [*there, *([f"note: {note}"] if note else []), *(found.lines() if found is not None else ())]
        raise AssertionError(_message("\n  ".join([_difference_text(verdict, got, want), *lines])))


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Raise `AssertionError` unless both arrays have the same bytes, including NaN payloads and signs of zeros."""
    __tracebackhide__ = True
    got, want = _host(actual), _host(expected)
    if got.dtype != want.dtype or got.shape != want.shape:
        raise AssertionError(
            _message(f"is {got.shape} {dtype_name(got.dtype)}; expected {want.shape} {dtype_name(want.dtype)}")
        )
    unequal = (_bytes(got) != _bytes(want)).any(axis=-1)
    if unequal.any():
        flat = int(np.argmax(unequal))
        index = tuple(int(i) for i in np.unravel_index(flat, got.shape))
        bad = int(unequal.sum())
        raise AssertionError(
            _message(
                f"{bad:,} of {got.size:,} elements differ in their bits; the first at {index}: "
                f"got {number(got[index])}, expected {number(want[index])}"
            )
        )


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)


def judge(got: NDArray[Any], want: NDArray[Any], tolerance: Any) -> Verdict:
    """Compare values; `got` is in its own dtype, and `want` in the same or a wider one."""
    if not got.size:
        return Verdict(0, 0, 0.0)
    if dtype_name(got.dtype) in COMPLEX or np.iscomplexobj(want):
        parts = [judge(np.asarray(pick(got)), np.asarray(pick(want)), tolerance) for pick in (np.real, np.imag)]
        worst = max(parts, key=lambda part: part.ratio)
        bad = np.logical_or(*(np.asarray(part.where) for part in parts))
        return replace(worst, bad=int(bad.sum()), where=bad)
    if got.dtype in _EXACT_BOUNDS and (verdict := _within(got, want, tolerance)) is not None:
        return verdict
    room = _room(np.broadcast_to(tolerance, got.shape))
    ratio, error, limit = _ratios(got, want, room)
    flat = int(np.argmax(ratio))
    index = tuple(int(i) for i in np.unravel_index(flat, got.shape))
    bad = ratio > 1
    there = float(ratio[index]), index, float(error[index]), float(limit[index])
    return Verdict(int(bad.sum()), got.size, *there, where=bad)


#: Dtypes for which rounding the bounds changes the ratio of error to tolerance by too little to matter.
_EXACT_BOUNDS = (np.float32, np.float64)


#: The number of elements that are compared at a time; temporaries of this size stay in the processor's cache.
_BLOCK = 2**15


def _within(got: NDArray[Any], want: NDArray[Any], tolerance: Any) -> Verdict | None:
    """A fast path: the verdict if each error is within its tolerance even before the bounds are rounded, else None."""
    worst, place, done = (-1.0, 0.0, 0.0), 0, 0
    blocks = np.nditer(
        [got, want, np.asarray(tolerance)], ["external_loop", "buffered"], [["readonly"]] * 3, order="C",
        buffersize=_BLOCK,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        for value, centre, allowed_here in blocks:
            error, room = np.abs(np.subtract(value, centre, dtype=np.float64)), _room(allowed_here)
            if not (error <= room).all():  # false for NaN
                return None
            ratio = np.divide(error, room, out=np.zeros(error.shape), where=room > 0)
            most = int(np.argmax(ratio))
            if ratio[most] > worst[0]:
                worst, place = (float(ratio[most]), float(error[most]), float(room[most])), done + most
            done += error.size
    index = tuple(int(i) for i in np.unravel_index(place, got.shape))
    return Verdict(0, got.size, worst[0], index, *worst[1:], where=np.zeros(got.shape, np.bool_))


def is_within_units(got: NDArray[Any], want: NDArray[Any], units: float) -> bool:
    """Whether arrays of finite floats differ nowhere by more than `units` of `want`; False where it is not certain.

    It compares block by block, ends at the first difference, and makes no array of tolerances: a third of the time.
    """
    is_plain = got.dtype in _EXACT_BOUNDS and want.dtype in _EXACT_BOUNDS and got.shape == want.shape
    if not is_plain or not got.flags.c_contiguous or not want.flags.c_contiguous:
        return False
    flat, flat_want = got.reshape(-1), want.reshape(-1)
    error, size = np.empty(_BLOCK), np.empty(_BLOCK)
    with np.errstate(all="ignore"):
        for first in range(0, flat.size, _BLOCK):
            value, centre = flat[first : first + _BLOCK], flat_want[first : first + _BLOCK]
            room = np.abs(centre, out=size[: centre.size])
            room *= units
            off = np.subtract(value, centre, out=error[: value.size], dtype=np.float64)
            np.abs(off, out=off)
            if not ((off <= room) & (off < np.inf)).all():  # false for NaN; next to an infinity the room is infinite
                return False
    return True


def _room(tolerance: NDArray[Any]) -> NDArray[Any]:
    """The tolerance; 0 where it is infinite or NaN."""
    return np.where(tolerance < np.inf, tolerance, 0.0)


def _ratios(got: NDArray[Any], want: NDArray[Any], tolerance: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """The elements' error divided by tolerance, error, and tolerance; the first is infinite if the tolerance is 0."""
    if got.dtype.kind in "biu" and want.dtype.kind in "biu" and (got.dtype.kind == "b" or not np.any(tolerance)):
        return _exact_ratios(got, want)
    with np.errstate(all="ignore"):
        value, centre = _wide(got), _wide(want)
        low, high = (_wide(_rounded(centre + sign * tolerance, got.dtype)) for sign in (-1.0, 1.0))
        error = np.where(value == centre, 0.0, np.abs(value - centre))
        limit = np.maximum(np.abs(high - centre), np.abs(low - centre))
        inside = ((low <= value) & (value <= high)) | (np.isnan(value) & (np.isnan(low) | np.isnan(high)))
        ratio = np.where(inside, np.clip(np.nan_to_num(error / limit), 0.0, 1.0), np.inf)
        outside = ~inside & (limit > 0) & np.isfinite(error)
        ratio[outside] = np.maximum((error / limit)[outside], np.nextafter(1.0, 2.0))
    return ratio, error, limit


def _exact_ratios(got: NDArray[Any], want: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    wrong = got != want.astype(got.dtype)
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return np.where(wrong, np.inf, 0.0), error, np.zeros(got.shape)


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64)


def _rounded(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values rounded to `dtype`; integers are left alone, as a cast would widen a bound to the next integer."""
    return values if dtype.kind in "biu" else narrowed(values, dtype)


def _absolute(want: NDArray[Any], dtype: np.dtype[Any], rtol: float | None, atol: float | None) -> Any:
    if rtol is None and atol is None:
        return allowed(GENERAL, dtype, terms=1, magnitude=want)
    return (atol or 0.0) + (rtol or 0.0) * np.abs(_finite(want))


def _finite(want: NDArray[Any]) -> NDArray[Any]:
    return np.nan_to_num(want.astype(np.complex128 if np.iscomplexobj(want) else np.float64), posinf=0.0, neginf=0.0)


def _check_place(actual: Any, expected: Any, device: str | Device | None) -> None:
    wanted = Device(device) if device is not None else _place(expected)
    if wanted is None or (device is None and wanted.kind == "cpu"):
        return
    here = _place(actual)
    if here != wanted:
        got = f"on {here}" if here else f"a {type(actual).__qualname__}"
        remedy = "make it by xp, or of its inputs" if here else "give an array of the device"
        raise AssertionError(_message(f"the result is {got}, not on {wanted}; {remedy}"))


def _place(value: Any) -> Device | None:
    owner = registry.backend_of(type(value))
    return None if owner is None else owner.device_of(value)


def _host(value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray) or registry.backend_of(type(value)) is None:
        return np.asarray(value)
    return np.asarray(to_host(value))


def _collect_ratio(ratio: float) -> None:
    collected = HEADROOM.get()
    if collected is not None:
        collected.append(ratio)


def _collect_map(found: ErrorMap | None) -> None:
    collected = ERROR_MAPS.get()
    if collected is not None and found is not None:
        collected.append(found)


def _difference_text(verdict: Verdict, got: NDArray[Any], want: NDArray[Any]) -> str:
    index = verdict.index
    share = verdict.bad / verdict.total
    told = (
        f"{verdict.bad:,} of {verdict.total:,} elements ({share:.2%}) are out of tolerance\n"
        f"  {f'worst at {index}: ' if index else ''}got {number(got[index])}, expected {number(want[index])}"
    )
    if not np.isfinite(verdict.error) or not np.isfinite(verdict.limit):
        return f"{told}\n  no tolerance applies to nan and infinities"
    over = f"{verdict.ratio:.3g}x over" if np.isfinite(verdict.ratio) else "none allowed"
    return f"{told}\n  error {verdict.error!r} against tolerance {verdict.limit!r} ({over})"


def _message(problem: str) -> str:
    return "\n".join([problem, *(f"  {line}" for line in _context.get())])
