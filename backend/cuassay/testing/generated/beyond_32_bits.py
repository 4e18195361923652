"""A check of arrays with more elements than 32 bits count, for functions that work element by element.

A kernel with an index of 32 bits wraps around there, and leaves a part out or computes another part twice. The inputs
repeat a short period of numbers. So the result must repeat that of one period, and can be compared on the device.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, is_complex, is_float
from cuassay.core.device import Device
from cuassay.core.units import format_bytes
from cuassay.errors import CuassayError
from cuassay.testing.generated.cases import name_dtype
from cuassay.testing.generated.comparison import compare, on_host
from cuassay.testing.generated.execution import (
    check,
    explained,
    is_function,
    is_raised_on_purpose,
    on_sample,
    refusal_of,
    run_sample,
    runs_on_host,
)
from cuassay.testing.generated.extents import numbers_like
from cuassay.testing.generated.selection import axes_of, generator, options_key, samples_of
from cuassay.testing.generated.sizes import check_larger
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, is_permutation, is_sorted
from cuassay.testing.terms import arrays_of, is_elementwise
from cuassay.testing.tolerance import largest_size

Array = NDArray[Any]

#: The least number of elements: more than an index of 31 bits counts, with a tail that no block or vector divides.
_LENGTH = 2**31 + 4_099
#: About how many elements a period has. Each shows whether the reference is too slow for the next one. Their number
#: along the axis that is made long is odd, so an index that is wrong by a power of two reads another number.
_PERIODS = (67, 1_031, 49_157)
#: The free memory that is needed, as a multiple of inputs and result: the function may need some for itself.
_ROOM = 4
#: The most elements that are compared at a time.
_CHUNK = 2**26
#: Seconds that function and reference may take on the host for a period, if time grows with the square of the length.
_PATIENCE_S = 1.0
#: Seconds that the host may be busy in the large call, as two short ones predict; 60 are 1.4 ms for a period.
_HOST_PATIENCE_S = 60.0
#: The most samples that are tried until one shows that the function works element by element.
_TRIES = 6
#: What the memory of the result holds before the call, so that a part left out does not hold an earlier right result.
_SPOILT = 0xA5


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A call whose arrays repeat: one period as a sample, and the shape of the arrays of the large call."""

    base: Sample
    period: Sample
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements of each large array."""
        return math.prod(self.shape)

    def labelled(self) -> Sample:
        """The period, with a label that names the large call."""
        size = next(array.size for array in arrays_of(*self.period.host()) if array.size > 1)
        shape = "x".join(map(str, self.shape))
        return replace(self.period, label=f"{self.base.label}, resized to {shape}, repeating {size:,} numbers")


@dataclass(frozen=True, slots=True)
class _Difference:
    """How a large result differs from a repeated period: the first index, and numbers that bound those at each place.

    Each of `rows` has the shape of a period. The result at each place of all periods lies between those of two rows.
    """

    index: int
    rows: tuple[Any, ...]


@check(is_function, needs=("device_memory", "memory>=16GiB"), is_alone=True)
def check_beyond_32_bits(spec: OpSpec, device: Device) -> None:
    """A function that works element by element is right for arrays of more than 2^31 elements.

    One dtype is tested, the smallest that is declared. It needs four times the memory of inputs and result, and runs
    alone on the device. A `ValueError`, or a `RuntimeError` that is raised on purpose, counts as a refusal.
    """
    dtype = _smallest(spec, device)
    repeated = _repeated(spec, device, dtype)
    if repeated is None:
        return
    period = repeated.period
    with on_sample(period):
        small = run_sample(spec, device, period)
    check_larger(spec, device, dtype, period, repeated.base, is_grown=True, result=small)
    if getattr(small, "shape", None) != spec.expected(period).shape:
        return  # only if `check_larger` compares nothing, and then `values` reports it
    _skip_without_memory(spec, device, repeated, small)
    _skip_loops(spec, device, repeated)
    labelled = repeated.labelled()
    with on_sample(labelled):
        found = _difference(spec, device, repeated, small)
    if found is not None:
        _compare_rows(spec, device, dtype, labelled, found, small)


def _smallest(spec: OpSpec, device: Device) -> Any:
    """The declared dtype with the fewest bytes that runs on `device`; real ones come before complex ones."""
    reasons = {name: spec.why_unsupported(device, name) for name in spec.dtypes}
    usable = [as_dtype(name) for name, reason in reasons.items() if reason is None]
    if not usable:
        pytest.skip("; ".join(dict.fromkeys(filter(None, reasons.values()))))
    found = min(usable, key=lambda dtype: (is_complex(dtype), dtype.itemsize))
    name_dtype(found)
    return found


# ------------------------------------------------------------------------------------------------ element by element


def _repeated(spec: OpSpec, device: Device, dtype: Any) -> _Repeated | None:
    """A call that can be repeated, of the sample with the fewest axes that has one; None if there is none."""
    different: dict[tuple[int, str], Sample] = {}
    for sample in samples_of(spec, device, dtype, "values"):
        if max((array.size for array in arrays_of(*sample.host())), default=0) > 1:
            different.setdefault((axes_of(sample), options_key(sample)), sample)
    tried = sorted(different.values(), key=axes_of)[:_TRIES]
    return next((found for base in tried for found in _lengthened(spec, base)), None)


def _lengthened(spec: OpSpec, base: Sample) -> Iterator[_Repeated]:
    """The sample with one of its axes made long, the last one first, if the result repeats with the inputs."""
    if not _seems_elementwise(spec, base):
        return
    is_taken = partial(_is_taken, spec, runs_there=runs_on_host(spec, base))
    shape = spec.expected(base).shape
    for axis in reversed(range(len(shape))):
        others = math.prod(shape) // shape[axis]
        found, seconds = None, spec.timed(base)[1] * _PERIODS[0] / math.prod(shape)
        for length, longer in zip(_PERIODS, (*_PERIODS[1:], _PERIODS[-1]), strict=True):
            along = max(length // others, 3) | 1
            period = _filled(base, _with(shape, axis, along), numbers_like)
            began = time.thread_time()
            if seconds > _PATIENCE_S or not _is_repeated(spec, period, _with(shape, axis, 2 * along + 2), is_taken):
                break
            found = _Repeated(base, period, _with(shape, axis, -(-_LENGTH // others)))
            seconds = (time.thread_time() - began) * (longer / length) ** 2
        if found is not None:
            yield found


def _with(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _seems_elementwise(spec: OpSpec, base: Sample) -> bool:
    """Whether inputs and result have one shape, and an element of the result depends on few numbers.

    Sorted numbers and permutations are left out: repeated, they are neither.
    """
    if refusal_of(spec, base) is not None:
        return False
    expected, arrays = spec.expected(base), arrays_of(*base.host())
    large = [array for array in arrays if array.size > 1]
    if any(array.shape != expected.shape or is_sorted(array) or is_permutation(array) for array in large):
        return False
    return is_elementwise(spec.scale(base, expected)[1], arrays, expected)


def _filled(sample: Sample, shape: tuple[int, ...], make: Callable[..., Array]) -> Sample:
    """The sample with each array, except those of one element, replaced by ``make(array, shape, generator)``."""
    chance = generator()

    def put(array: Any) -> Any:
        is_large = isinstance(array, np.ndarray) and array.size > 1
        return HostArray(np.ascontiguousarray(make(array, shape, chance))) if is_large else array

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, resized to {'x'.join(map(str, shape))}")


def _is_taken(spec: OpSpec, sample: Sample, *, runs_there: bool) -> bool:
    """Whether the reference takes the sample, and the function as well, if it runs on the host at all."""
    return refusal_of(spec, sample) is None and (not runs_there or runs_on_host(spec, sample))


def _is_repeated(spec: OpSpec, period: Sample, longer: tuple[int, ...], is_taken: Callable[[Sample], bool]) -> bool:
    """Whether the reference's result moves with the inputs if they are shuffled, and repeats if they are repeated."""
    if not is_taken(period):
        return False
    expected = spec.expected(period)
    order = generator().permutation(expected.size)
    if any(array.shape != expected.shape for array in arrays_of(*period.host()) if array.size > 1):
        return False
    shuffled = _filled(period, expected.shape, lambda array, shape, _: array.reshape(-1)[order].reshape(shape))
    repeated = _filled(period, longer, lambda array, shape, _: np.resize(array, shape))
    moved = expected.reshape(-1)[order].reshape(expected.shape)
    wanted = ((shuffled, moved), (repeated, np.resize(expected, longer)))
    return all(is_taken(sample) and _agrees(spec.expected(sample), result) for sample, result in wanted)


def _agrees(expected: Array, wanted: Array) -> bool:
    """Whether both are equal but for roundings that depend on the place, as those of vector units do."""
    if expected.shape != wanted.shape or expected.dtype.kind not in "fc":
        return np.array_equal(expected, wanted)
    largest = largest_size(wanted)
    return np.allclose(expected, wanted, rtol=_ROUNDING, atol=_ROUNDING * largest, equal_nan=True)


#: Far more than roundings of float64, and far less than what another number makes of a result.
_ROUNDING = 2.0**-30


# ------------------------------------------------------------------------------------------------ the large call


def _skip_without_memory(spec: OpSpec, device: Device, repeated: _Repeated, small: Any) -> None:
    each = sum(array.itemsize for array in arrays_of(*repeated.period.host()) if array.size > 1) + small.dtype.itemsize
    nbytes = repeated.size * each
    _release(device)
    free, _ = devices.backend(device.kind).memory_info(device.index)
    if free < _ROOM * nbytes:
        pytest.skip(
            f"{spec.name} in arrays of {repeated.size:,} elements needs {format_bytes(_ROOM * nbytes)} of free memory, "
            f"{_ROOM} times its inputs and result; {device} has {format_bytes(free)}"
        )


def _skip_loops(spec: OpSpec, device: Device, repeated: _Repeated) -> None:
    """Skip a function that keeps the host busy for each element: a Python loop would take hours for long arrays."""
    extra = _host_seconds(spec, device, repeated.period) - _host_seconds(spec, device, repeated.base)
    seconds = max(extra, 0.0) * repeated.size / np.size(spec.expected(repeated.period))
    if seconds > _HOST_PATIENCE_S:
        pytest.skip(
            f"{spec.name} would keep the host busy for some {seconds:,.0f} s with {repeated.size:,} elements, as a "
            "Python loop over them does"
        )


def _host_seconds(spec: OpSpec, device: Device, sample: Sample) -> float:
    """The least seconds of three calls that the host is busy, without waiting for the device or copying the inputs."""
    took = []
    for _ in range(3):
        args, kwargs = sample.on(device)  # a copy to a device that is in use can keep the host busy for milliseconds
        began = time.thread_time()
        with np.errstate(all="ignore"):
            spec.run(device, args, kwargs)
        took.append(time.thread_time() - began)
    return min(took)


def _difference(spec: OpSpec, device: Device, repeated: _Repeated, small: Any) -> _Difference | None:
    """Run the large call and find out where its result differs from the repeated `small`; None if nowhere.

    The memory of the large arrays is free when it returns, and also if it raises.
    """
    try:
        with _releasing(device), devices.backend(device.kind).activate(device.index), np.errstate(all="ignore"):
            return _run(spec, device, repeated, small)
    except MemoryError as error:
        reason = f"{spec.name} needs more memory for {repeated.size:,} elements than {device} has: {error}"
    except CuassayError:  # some are a ValueError: a launch that is rejected, for example
        raise
    except (RuntimeError, ValueError) as error:
        if not (isinstance(error, NotImplementedError | ValueError) or is_raised_on_purpose(error)):
            raise  # a driver's, for example
        reason = f"{spec.name} refuses arrays of {repeated.size:,} elements: {type(error).__name__}: {error}"
    pytest.skip(reason)


@contextmanager
def _releasing(device: Device) -> Iterator[None]:
    """Release cached memory afterwards; the frames of an error drop their arrays, as reports of tests keep errors."""
    try:
        yield
    except BaseException as error:
        one: BaseException | None = error
        while one is not None:
            traceback.clear_frames(one.__traceback__)
            one = one.__cause__ or one.__context__
        raise
    finally:
        _release(device)


def _release(device: Device) -> None:
    release = getattr(devices.backend(device.kind), "release_cached", None)
    if release is not None:
        release(device.index)


def _run(spec: OpSpec, device: Device, repeated: _Repeated, small: Any) -> _Difference | None:
    xp = devices.namespace(device)

    def put(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or array.size < 2:
            return array
        row = devices.from_host(array.reshape(-1), device)
        words = _words(row)
        made = _repeat(xp, words, repeated.size * words.size // row.size)
        return made.view(row.dtype).reshape(repeated.shape)

    args, kwargs = Sample(*repeated.period.changed(put)).on(device)
    _spoil(xp, repeated.size * small.dtype.itemsize)
    result = spec.run(device, args, kwargs)
    if result.shape != repeated.shape or result.dtype != small.dtype:
        raise AssertionError(
            f"the result has shape {tuple(result.shape)} and dtype {result.dtype}; {repeated.shape} and {small.dtype} "
            "were expected"
        )
    return _compared(xp, result.reshape(-1), small)


def _words(flat: Any) -> Any:
    """The bits of an array of one axis as unsigned integers: two for a complex number, else one for each element."""
    itemsize = flat.dtype.itemsize // (2 if is_complex(flat.dtype) else 1)
    return flat.view(f"uint{8 * itemsize}")


def _repeat(xp: Any, row: Any, size: int) -> Any:
    """The numbers of `row`, repeated until there are `size`."""
    made, whole = xp.empty(size, row.dtype), size - size % row.size
    made[:whole].reshape(-1, row.size)[...] = row
    made[whole:] = row[: size - whole]
    return made


def _spoil(xp: Any, nbytes: int) -> None:
    """Write to memory of this size and free it, so that the next array of the size gets it."""
    xp.empty(nbytes, "uint8")[...] = _SPOILT


def _compared(xp: Any, result: Any, small: Any) -> _Difference | None:
    """Where the bits of the result differ from those of `small`, repeated; None if nowhere."""
    words, row = _words(result), _words(small.reshape(-1))
    step = max(_CHUNK // row.size, 1) * row.size
    first, bounds = None, []
    for start in range(0, words.size, step):
        part = words[start : start + step]
        whole = part.size - part.size % row.size
        for begin, block in ((start, part[:whole].reshape(-1, row.size)), (start + whole, part[whole:].reshape(1, -1))):
            differs = block != row[: block.shape[1]]
            if differs.any():
                first = begin + int(xp.argmax(differs)) if first is None else first
                bounds.append(_bounds(xp, block, row))
    if first is None:
        return None
    rows = _bounds(xp, xp.concatenate(bounds), row)
    return _Difference(
        first * small.size // row.size, tuple(one.view(small.dtype).reshape(small.shape) for one in rows)
    )


def _bounds(xp: Any, block: Any, row: Any) -> Any:
    """Four rows between which lie the numbers at each place of the rows of `block`; a short one is filled from `row`.

    As integers without a sign, floats are sorted from 0 to infinity and then from -0 to -infinity; as integers with a
    sign, the second half comes first. So the extremes of both are the largest and the smallest number of each sign.
    """
    signed = block.view(block.dtype.str.replace("u", "i"))
    found = xp.empty((4, row.size), row.dtype)
    found[...] = row
    for place, (least, numbers) in enumerate(((xp.min, block), (xp.max, block), (xp.min, signed), (xp.max, signed))):
        found[place, : block.shape[1]] = least(numbers, axis=0).view(row.dtype)
    return found


# ------------------------------------------------------------------------------------------------ the comparison


def _compare_rows(spec: OpSpec, device: Device, dtype: Any, sample: Sample, found: _Difference, small: Any) -> None:
    """Compare with the function's own result for a period, of which another order of roundings may differ a little."""
    own = on_host(small)
    own = own.astype(np.complex128 if is_complex(own.dtype) else np.float64 if is_float(own.dtype) else own.dtype)
    sentence = (
        f"right for {own.size:,} numbers, wrong if a larger array repeats them: the first element that differs has "
        f"index {found.index:,}; is an index, a size or a number of bytes kept in 32 bits?"
    )
    for row in found.rows:
        with on_sample(sample), explained(sentence):
            compare(spec, device, dtype, sample, row, expected=own)
