"""Make samples of other extents: small ones, those around powers of two, multiples, and equal ones made unequal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import is_float
from cuassay.testing.generated.execution import is_safely_taken, refusal_of
from cuassay.testing.generated.selection import generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, is_permutation, is_sorted
from cuassay.testing.terms import arrays_of

__all__ = [
    "MOST_OF_SMALL",
    "apart",
    "around_powers",
    "elements_of",
    "extents_of",
    "has_expected_shape",
    "is_quick",
    "longest_axis",
    "multiples",
    "numbers_like",
    "one_each",
    "resized",
    "seconds_of_reference",
    "shape_on_host",
    "swapped",
]


def elements_of(sample: Sample, extents: Mapping[int, int] | None = None) -> int:
    """The number of elements of all arrays of a call, or of those that `resized` gives for `extents`."""
    return sum(math.prod(swapped(array.shape, extents or {})) for array in arrays_of(*sample.host()))


def extents_of(sample: Sample) -> list[int]:
    """The different extents of the call's arrays that are above 1, in ascending order."""
    return sorted({extent for array in arrays_of(*sample.host()) for extent in array.shape if extent > 1})


def longest_axis(sample: Sample) -> int:
    """The largest extent of the call's arrays; 0 if no array has an axis."""
    return max((extent for array in arrays_of(*sample.host()) for extent in array.shape), default=0)


#: Seconds of the reference for one of many small samples.
_PATIENCE_S = 2.0


def is_quick(seconds: float, before: Sample, larger: Sample) -> bool:
    """Whether the reference, which took `seconds` for `before`, will not take long for `larger`.

    Two nested Python loops over the elements of a small sample take many seconds, so time is assumed to grow with the
    square of the size.
    """
    growth = elements_of(larger) / max(elements_of(before), 1)
    return seconds * growth**2 <= _PATIENCE_S


def seconds_of_reference(spec: OpSpec, sample: Sample) -> float:
    """Seconds that the reference takes for one call; 0 if it or the function rejects the sample."""
    return spec.timed(sample)[1] if is_safely_taken(spec, sample) else 0.0


def has_expected_shape(spec: OpSpec, sample: Sample) -> bool:
    """Whether the function, on the host, gives the reference's shape: few references are meant for tiny inputs."""
    shape = shape_on_host(spec, sample)
    return shape is not None and shape == spec.expected(sample).shape


def shape_on_host(spec: OpSpec, sample: Sample) -> tuple[int, ...] | None:
    """The shape of the function's result on the host; None if it does not run there, or the reference does not."""
    if not is_safely_taken(spec, sample):
        return None
    try:
        with np.errstate(all="ignore"):
            return tuple(np.shape(spec.run("cpu", *sample.copied())))
    except Exception:  # noqa: BLE001  a function for one device may break in any way on the host's arrays
        return None


#: Extents that may be smaller than an option, and those around which tails and paddings end.
_SMALL = (1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1_019, 1_021)
#: The most elements of a call of negligible cost.
MOST_OF_SMALL = 2**14


def around_powers(sample: Sample) -> Iterator[Sample]:
    """The sample with the longest extent of its first array replaced by each of `_SMALL`."""
    arrays = arrays_of(*sample.host())
    extent = max(arrays[0].shape, default=0) if arrays else 0
    if extent > 1:
        others = ({extent: length} for length in _SMALL if length != extent)
        yield from (resized(sample, one) for one in others if elements_of(sample, one) <= MOST_OF_SMALL)


def multiples(spec: OpSpec, sample: Sample) -> Iterator[Sample]:
    """The sample with an extent doubled and tripled, for each extent that cannot grow by one.

    Such an extent must be a multiple of something, as if the array holds pairs of numbers.
    """
    for extent in extents_of(sample):
        if not is_safely_taken(spec, resized(sample, {extent: extent + 1})):
            others = ({extent: times * extent} for times in (2, 3))
            yield from (resized(sample, one) for one in others if elements_of(sample, one) <= MOST_OF_SMALL)


def one_each(spec: OpSpec, sample: Sample) -> Iterator[Sample]:
    """The sample with each extent longer by one, each extent that the result also has reduced to one, and all of them.

    The first changes odd to even lengths. The second finds an axis that is squeezed away, such as a batch of one. The
    last gives arrays of one element: code that divides by a number of elements less one then divides by zero.
    """
    shape = spec.expected(sample).shape
    extents = extents_of(sample)
    for extent in extents:
        longer = resized(sample, {extent: extent + 1})
        if elements_of(longer) <= MOST_OF_SMALL and has_expected_shape(spec, longer):
            yield longer
        single = resized(sample, {extent: 1})
        is_taken = extent in shape and refusal_of(spec, single) is None
        if is_taken and spec.expected(single).shape == swapped(shape, {extent: 1}):
            yield single
    if len(extents) > 1:
        yield from _of_one_element(spec, sample, dict.fromkeys(extents, 1))


def _of_one_element(spec: OpSpec, sample: Sample, extents: dict[int, int]) -> Iterator[Sample]:
    """The sample with these extents reduced to one, if the reference's result is finite and changes its shape alike."""
    single = resized(sample, extents)
    if refusal_of(spec, single) is None:
        expected = spec.expected(single)
        is_alike = expected.shape == swapped(spec.expected(sample).shape, extents)
        if is_alike and np.isfinite(expected).all():
            yield single


def apart(spec: OpSpec, sample: Sample) -> Iterator[Sample]:
    """The sample with an axis made longer in one or two arrays only, although others have the same extent.

    A function may mix up extents that are equal in all of its samples, such as the widths of keys and of values. Only
    samples for which function and reference give the same shape are yielded. Of several arrays the reference must read
    the added elements: one that ignores them was not meant for arrays of different lengths.
    """
    shapes = [getattr(array, "shape", ()) for array in sample.args]
    met = Counter(extent for shape in shapes for extent in shape)
    axes = [(place, axis) for place, shape in enumerate(shapes) for axis in range(len(shape)) if met[shape[axis]] > 1]
    if spec.is_its_own_reference:
        return
    alone = [{one} for one in axes]
    pairs = [{one, other} for one, other in combinations(axes, 2) if one[0] != other[0]]
    for chosen in (*alone, *pairs[:_PAIRS]):
        extents = {shapes[place][axis] for place, axis in chosen}
        if len(extents) == 1 and min(extents) > 1 and elements_of(sample) <= MOST_OF_SMALL:
            longer = _lengthened(sample, chosen)
            if has_expected_shape(spec, longer) and (len(shapes) == 1 or _reads_added(spec, longer, chosen)):
                yield longer


#: The most pairs of axes that are tried: each costs a call of the reference, which rejects most of them.
_PAIRS = 24
#: The number of elements by which an axis is made longer.
_LONGER = 3


def _reads_added(spec: OpSpec, longer: Sample, axes: AbstractSet[tuple[int, int]]) -> bool:
    """Whether the reference gives something else if the elements that were added to these axes are others."""
    args = list(longer.args)
    for place, axis in axes:
        values = args[place].values
        if is_permutation(values) or is_sorted(values):
            return True
        ends = np.split(values, [_LONGER, values.shape[axis] - _LONGER], axis=axis)
        args[place] = HostArray(np.ascontiguousarray(np.concatenate([*ends[:2], ends[0]], axis=axis)))
    changed = replace(longer, args=tuple(args))
    if refusal_of(spec, changed) is not None:
        return True
    return not np.array_equal(spec.expected(longer), spec.expected(changed), equal_nan=True)


def _lengthened(sample: Sample, axes: AbstractSet[tuple[int, int]]) -> Sample:
    """The sample with these axes, given as (argument, axis), made longer; they are filled with its own numbers."""
    args = list(sample.args)
    for place in sorted({place for place, _ in axes}):
        values, chance = sample.host()[0][place], generator()
        shape = tuple(extent + _LONGER * ((place, axis) in axes) for axis, extent in enumerate(values.shape))
        drawn = chance.permutation(shape[0]) if is_permutation(values) else numbers_like(values, shape, chance)
        drawn = drawn.astype(values.dtype)
        args[place] = HostArray(np.sort(drawn) if is_sorted(values) else np.ascontiguousarray(drawn))
    shapes = ", ".join("x".join(map(str, array.shape)) for array in args if hasattr(array, "shape"))
    return replace(sample, args=tuple(args), label=f"{sample.label}, extents apart: {shapes}")


def swapped(shape: Sequence[int], extents: Mapping[int, int]) -> tuple[int, ...]:
    """The shape with extents replaced according to `extents`."""
    return tuple(extents.get(extent, extent) for extent in shape)


def resized(sample: Sample, extents: dict[int, int]) -> Sample:
    """The sample with other extents, filled with its own numbers in random order; sorted arrays stay sorted."""
    chance = generator()
    met = Counter(extent for array in arrays_of(*sample.host()) for extent in array.shape)

    def put(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or not value.ndim:
            return value
        shape = swapped(value.shape, extents)
        if is_permutation(value):
            return HostArray(chance.permutation(shape[0]).astype(value.dtype))
        drawn = numbers_like(value, shape, chance)
        if not is_sorted(value):
            return HostArray(np.ascontiguousarray(drawn))
        are_positions = value.ndim == 1 and met[value.size] == 1  # row labels are excluded: there is one for each row
        return HostArray(_between_ends(np.sort(drawn), value, extents if are_positions else {}))

    args, kwargs = sample.changed(put)
    shapes = ", ".join("x".join(map(str, array.shape)) for array in args if hasattr(array, "shape"))
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, resized to {shapes}")


def _between_ends(drawn: NDArray[Any], value: NDArray[Any], extents: dict[int, int]) -> NDArray[Any]:
    """Give sorted numbers the first and the last number of `value`.

    Positions along an axis, which run from 0 to its extent, are scaled to the axis's new extent.
    """
    if drawn.ndim != 1 or drawn.size < 2:
        return drawn
    drawn[0], drawn[-1] = value[0], value[-1]
    if drawn.dtype.kind in "iu" and value[0] == 0 and int(value[-1]) in extents:
        old = int(value[-1])
        drawn = (drawn.astype(np.int64) * extents[old] // max(old, 1)).astype(value.dtype)
    return drawn


def numbers_like(value: NDArray[Any], shape: tuple[int, ...], chance: np.random.Generator) -> NDArray[Any]:
    """Random numbers like those of `value`, repeated in a long array.

    Floats are drawn between two numbers of `value`. Integers, and floats that are all integral, are drawn from them.
    """
    if not value.size:
        return np.zeros(shape, value.dtype)
    flat, count = value.reshape(-1), min(math.prod(shape), _TILE)
    first = flat[chance.integers(0, flat.size, count)]
    if is_float(value.dtype) and not (np.floor(flat.astype(np.float64)) == flat).all():
        other, part = flat[chance.integers(0, flat.size, count)], chance.uniform(0, 1, count)
        first = np.asarray((first + (other.astype(np.float64) - first) * part).astype(value.dtype))
    return np.resize(first, shape)


#: The length after which a long array repeats: drawing a million numbers takes longer than most functions of them. It
#: is a prime, so that an index that is wrong by a power of two, or by a row, reads another number.
_TILE = 49_157
