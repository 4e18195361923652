"""Inputs with other numbers than the declared samples draw, and checks that results depend on a moved number.

A candidate may be right only for the drawn numbers: it may omit some of them, clip larger ones, or use an approximation
that holds only in their range. An array that the declaration draws between `low` and `high` keeps this range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_complex, is_float
from cuassay.judging.probes import LARGE, Draw, Finding, Probe, judged_values, same
from cuassay.judging.results import Outputs, Results
from cuassay.judging.verdict import Evidence
from cuassay.testing.generated.integers import in_64_bits
from cuassay.testing.samples import HostArray, Sample, each, is_sorted, over_arguments
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import finite_size

__all__ = ["exchanged", "influences", "moved_everywhere", "scaled", "special_values", "spikes", "unwrapped"]

#: The size of a spike in ranges of an input; less in 16 bits, where squares must stay in range.
_SPIKE, _SMALL_SPIKE = 2.0**10, 2.0**4

#: The parts of a flattened array; in each part one number is moved.
_PLACES = 8

#: Spikes in an array and in a large one: of candidates that omit a fourteenth of it, one in a hundred escapes.
_SPIKES, _MANY_SPIKES = 3, 64

#: The fraction of the range by which each spike is nearer to the middle than the one before, because a sort must not
#: meet ties. It is a rounding step of bfloat16, so that all spikes differ there too.
_STEP = 2.0**-8

#: The number of calls in which together each number is moved once.
_TURNS = 4

#: Ranges of binary exponents by which all numbers of a call are scaled, and their fraction in 16 bits. The exponents
#: are not integers, because a function may give the same bits for inputs that differ by a power of two.
_SCALES = ((-24.0, -15.0), (-15.0, -6.0), (0.3, 3.0), (3.0, 10.0))
_PART_IN_16_BITS = 0.4

#: The relative change of a reference result from which a moved number counts as visible.
_SEEN = 2.0**-6


def spikes(sample: Sample, chance: np.random.Generator) -> Sample:
    """Return the sample with some random numbers much larger than all others, or at the ends of their range if any."""

    def put(value: Any) -> Any:
        given = HostArray(value) if isinstance(value, np.ndarray) else value
        if not isinstance(given, HostArray) or not _is_movable(given.values):
            return value
        flat = given.values.copy().reshape(-1)
        most = _SPIKES if flat.size <= LARGE else _MANY_SPIKES
        places = chance.integers(0, flat.size, min(most, flat.size))
        low, high = given.span or (-_far(flat), _far(flat))
        inward = (high - low) * _STEP * np.arange(places.size)
        flat[places] = np.where(chance.random(places.size) < 0.5, low + inward, high - inward).astype(flat.dtype)
        return HostArray(flat.reshape(given.shape))

    args, kwargs = over_arguments(sample.args, sample.kwargs, put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, spikes")


def special_values(sample: Sample, chance: np.random.Generator) -> Sample:
    """Return the sample with NaN and both infinities in random places."""

    def put(value: Any) -> Any:
        if not _is_movable(value) or value.size < 3:
            return value
        flat = value.copy().reshape(-1)
        with np.errstate(all="ignore"):  # formats without infinities get NaN instead
            flat[chance.permutation(flat.size)[:3]] = np.array([np.nan, np.inf, -np.inf]).astype(value.dtype)
        return HostArray(flat.reshape(value.shape))

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, special values")


# ------------------------------------------------------------------------------------------------ all numbers


def moved_everywhere(sample: Sample, chance: np.random.Generator) -> Iterator[Draw]:
    """Yield draws that together move each number of every array once, by sizes from the drawn range to a spike.

    Only a quarter of the numbers is moved at a time, so that a sum depends visibly on each of them; of a large array
    only the first quarter is moved. Integers are moved only if they are drawn without a range.
    """
    seed = int(chance.integers(2**62))
    for turn in range(_TURNS if _largest(sample) <= LARGE else 1):
        if _may_change(sample, partial(_moved_in_turn, seed=seed, place=0, turn=turn)):
            yield partial(_drawn_in_turn, sample, seed, turn)


def _drawn_in_turn(sample: Sample, seed: int, turn: int) -> Sample:
    """Return the sample with the numbers of this turn moved, in each array independently."""
    places = count()
    label = f"{sample.label}, every {_TURNS}th number moved, {turn}"
    return _drawn_changed(sample, lambda given: _moved_in_turn(given, seed=seed, place=next(places), turn=turn), label)


def _moved_in_turn(given: HostArray, *, seed: int, place: int, turn: int) -> HostArray:
    """Return the array with the numbers of this turn moved; the seed assigns each number to one turn.

    Arrays at different places get independent numbers, because equal ones would cancel in their difference.
    """
    flat = given.values.reshape(-1)
    is_moved = _turns(flat.size, np.random.default_rng([seed, place, _TURNS])) == turn
    moved = flat.copy()
    moved[is_moved] = _numbers_like(given, int(np.count_nonzero(is_moved)), np.random.default_rng([seed, place, turn]))
    return HostArray(moved.reshape(given.shape))


def _turns(size: int, chance: np.random.Generator) -> NDArray[Any]:
    """Return a random turn for each of `size` numbers; of a few, each turn gets as many."""
    if size > LARGE:  # ordering them would take longer than all else
        return np.frombuffer(chance.bytes(size), np.uint8) % _TURNS
    return chance.permutation(size) % _TURNS


def scaled(sample: Sample, chance: np.random.Generator) -> Iterator[Draw]:
    """Yield draws in which all numbers without a range are smaller or larger; for a large sample one draw of each."""
    ranges = _SCALES if _largest(sample) <= LARGE else (_SCALES[chance.integers(2)], _SCALES[2 + chance.integers(2)])
    for least, most in ranges:
        change = partial(_scaled, exponent=float(chance.uniform(least, most)))
        if _may_change(sample, change):
            yield partial(_drawn_changed, sample, change, f"{sample.label}, other range")


def _scaled(given: HostArray, *, exponent: float) -> HostArray:
    if not given.is_free:
        return given
    values = given.values
    if _is_integer(values):
        largest = max(int(np.abs(values.astype(np.int64)).max()), 1)
        factor = min(2 ** round(abs(exponent) / 2), int(np.iinfo(values.dtype).max) // largest)
        return HostArray(values * values.dtype.type(max(factor, 1)))
    part = 1.0 if epsilon(values.dtype) < 2.0**-12 else _PART_IN_16_BITS
    return HostArray((values * 2.0 ** (part * exponent)).astype(values.dtype))


def exchanged(sample: Sample, chance: np.random.Generator) -> Iterator[Sample]:
    """Yield the sample with its integers, such as indices, in another order, unless they are sorted.

    Whole rows are exchanged, because a function may need the integers of a row to be distinct.
    """
    is_changed = False

    def put(value: Any) -> Any:
        nonlocal is_changed
        is_given = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size > 1 and value.ndim > 0
        if not is_given or is_sorted(value):
            return value
        is_changed = True
        axis = next(axis for axis, extent in enumerate(value.shape) if extent > 1)
        order = chance.permutation(value.shape[axis])
        order = order if (order[1:] < order[:-1]).any() else np.roll(order, 1)
        return HostArray(np.ascontiguousarray(value.take(order, axis)))

    args, kwargs = sample.changed(put)
    if is_changed:
        yield replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, integers exchanged")


def unwrapped(results: Results, sample: Sample, draw: Draw) -> Sample:
    """Return the sample that `draw` makes, its changed integers reduced until no step of the reference wraps around.

    A right function may compute in another order, which wraps elsewhere. If a step wraps for `sample` itself, as in a
    hash, the drawn integers are kept.
    """
    drawn = draw()
    pairs = list(zip(arrays_of(*drawn.host()), arrays_of(*sample.host()), strict=True))
    if not any(new is not old and _is_integer(new) and new.itemsize < 8 for new, old in pairs):
        return drawn
    if _wraps(results, sample):
        return drawn
    while _wraps(results, drawn):
        drawn = _made_smaller(drawn, sample)
        pairs = list(zip(arrays_of(*drawn.host()), arrays_of(*sample.host()), strict=True))
        if all(_size(new) <= max(_size(old), 1) for new, old in pairs if new is not old and _is_integer(new)):
            return sample
    return drawn


def _made_smaller(drawn: Sample, sample: Sample) -> Sample:
    """Return the drawn sample with each integer divided by four in arrays that are not those of `sample`."""
    declared = iter(arrays_of(*sample.host()))

    def put(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value is next(declared) or not _is_integer(value):
            return value
        return HostArray(value >> 2)

    args, kwargs = drawn.changed(put)
    return replace(drawn, args=args, kwargs=kwargs)


def _size(array: NDArray[Any]) -> int:
    return int(np.abs(array.astype(np.int64)).max(initial=0))


def _wraps(results: Results, sample: Sample) -> bool:
    """Return whether the reference's result differs for the same integers in 64 bits, unless it is saturated."""
    wide = in_64_bits(sample)
    with np.errstate(all="ignore"):
        if not results.takes(wide) or not results.takes(sample):
            return True
        return any(_differ(spec.expected(sample), spec.expected(wide)) for spec in results.of(sample))


def _differ(narrow: NDArray[Any], wide: NDArray[Any]) -> bool:
    if narrow.shape != wide.shape:
        return True
    if _is_integer(narrow):
        limits = np.iinfo(narrow.dtype)
        return not np.array_equal(narrow, np.clip(wide, limits.min, limits.max))
    return not np.allclose(narrow, wide, rtol=_SAME, atol=0, equal_nan=True)


#: The relative difference between floats, for narrow and wide integers, that counts as rounding.
_SAME = 2.0**-40


def _drawn_changed(sample: Sample, change: Callable[[HostArray], HostArray], label: str) -> Sample:
    """Return the sample with `change` applied to all arrays whose numbers may be moved."""

    def put(value: Any) -> Any:
        given = _movable_array(value)
        return value if given is None else change(given)

    args, kwargs = over_arguments(sample.args, sample.kwargs, put)
    return replace(sample, args=args, kwargs=kwargs, label=label)


def _may_change(sample: Sample, change: Callable[[HostArray], HostArray]) -> bool:
    """Return whether `change` changes an array of the sample, tried on a few of its numbers."""
    arrays = filter(None, map(_movable_array, each(sample.args, sample.kwargs)))
    few = (replace(one, values=one.values.reshape(-1)[:_TURNS]) for one in arrays)
    return any(change(one) is not one for one in few)


def _movable_array(value: Any) -> HostArray | None:
    """Return the array if its numbers may be moved, else None."""
    given = HostArray(value) if isinstance(value, np.ndarray) else value
    if not isinstance(given, HostArray) or not given.values.size or given.values.dtype == np.bool_:
        return None
    return given if given.is_free or _is_movable(given.values) else None


def _largest(sample: Sample) -> int:
    return max((array.size for array in arrays_of(*sample.host())), default=0)


def _numbers_like(given: HostArray, count: int, chance: np.random.Generator) -> NDArray[Any]:
    """Return `count` numbers for an array: in its range if it has one, else of any size up to a spike."""
    values = given.values
    if given.span is not None and not _is_integer(values):
        low, high = given.span
        return np.asarray((low + (high - low) * chance.uniform(0, 1, count)).astype(values.dtype))
    if _is_integer(values):
        limits = np.iinfo(values.dtype)
        most = int(min(limits.max, _SPIKE))
        return np.asarray(chance.integers(max(limits.min, -most), most + 1, count).astype(values.dtype))
    exponents = chance.uniform(0, 1, count) * np.log2(_spike(values.dtype))
    sizes = _far(values) / _spike(values.dtype) * 2.0**exponents * chance.choice((-1.0, 1.0), count)
    return np.asarray(sizes.astype(values.dtype))


def _is_integer(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu"


# ------------------------------------------------------------------------------------------------ one number at a time


def influences(
    results: Results,
    dtype: str,
    sample: Sample,
    chance: np.random.Generator,
    *,
    bases: Sequence[bool] = (True, False),
    places: int = _PLACES,
) -> Iterator[Probe]:
    """Yield, for each array of floats, probes that move single numbers far; the output must change with them.

    Integer results are not judged among zeros, because places of equal numbers may come in any order.
    """
    if any(bases) and all(_is_integer(spec.expected(sample)) for spec in results.of(sample)):
        bases = [among_zeros for among_zeros in bases if not among_zeros]
    spans = [getattr(one, "span", None) for one in each(sample.args, sample.kwargs) if _is_array(one)]
    for place, array in enumerate(arrays_of(*sample.host())):
        span = spans[place]
        if _is_movable(array):
            bounds = np.unique(np.linspace(0, array.size, places + 1).astype(np.int64))
            spots = [int(chance.integers(low, high)) for low, high in pairwise(bounds)]
            for among_zeros in bases:
                if among_zeros and span is not None and not span[0] <= 0 <= span[1]:
                    continue
                base = _with(sample, place, array * 0) if among_zeros else sample
                moved = [_moved(base, place, spot, span) for spot in spots]
                draws = tuple(partial(same, one) for one in (base, *moved))
                yield Probe("influence", dtype, draws, partial(_judged_influence, results, dtype, among_zeros))


def _with(sample: Sample, place: int, values: NDArray[Any]) -> Sample:
    """Return the sample with `values` as the array at `place` among its arrays."""
    places = count()

    def put(value: Any) -> Any:
        return HostArray(values) if isinstance(value, np.ndarray) and next(places) == place else value

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs)


def _moved(sample: Sample, place: int, spot: int, span: tuple[float, float] | None) -> Sample:
    """Return the sample with one number moved far away, or to the more distant end of its range."""
    array = arrays_of(*sample.host())[place]
    flat = array.copy().reshape(-1)
    far = _far(array) if span is None else max(span, key=lambda end: abs(end - complex(flat[spot])))
    flat[spot] = np.asarray(far).astype(array.dtype)
    return replace(_with(sample, place, flat.reshape(array.shape)), label=f"{sample.label}, number {spot} moved")


def _is_array(value: Any) -> bool:
    return isinstance(value, HostArray | np.ndarray)


def _is_movable(value: Any) -> bool:
    """Return whether it is an array of unsorted or equal floats; sorted ones, such as edges, must stay sorted."""
    if not isinstance(value, np.ndarray) or not value.size or not (is_float(value.dtype) or is_complex(value.dtype)):
        return False
    return not is_sorted(value) or bool((value == value.reshape(-1)[0]).all())


def _spike(dtype: np.dtype[Any]) -> float:
    return _SPIKE if epsilon(dtype) < 2.0**-12 else _SMALL_SPIKE


def _far(array: NDArray[Any]) -> float:
    return _spike(array.dtype) * (float(np.max(finite_size(array), initial=0.0)) or 1.0)


def _judged_influence(
    results: Results,
    dtype: str,
    among_zeros: bool,
    samples: Sequence[Sample],
    outputs: Sequence[Outputs],
    figures: dict[str, float],
) -> Finding | None:
    """Check that a moved number that changes the reference visibly changes the output by at least a quarter of that."""
    rights = [tuple(spec.expected(sample) for spec in results.of(sample)) for sample in samples]
    for sample, given, right in zip(samples, outputs, rights, strict=True):
        if [one.shape for one in given] != [one.shape for one in right]:
            return judged_values(results, dtype, "influence", (sample,), (given,), figures)
    for place, pair in enumerate(zip(outputs[0], rights[0], strict=True)):
        if among_zeros and _is_integer(pair[1]):
            continue
        base, right_base = map(_wide, pair)
        for sample, given, right in zip(samples[1:], outputs[1:], rights[1:], strict=True):
            want, got = _wide(right[place]), _wide(given[place])
            if want.shape != base.shape:
                return judged_values(results, dtype, "influence", (sample,), (given,), figures)
            with np.errstate(all="ignore"):
                change = np.abs(want - right_base)
                far = np.isfinite(change) & (change > _SEEN * np.maximum(np.abs(want), np.abs(right_base)))
                ignored = far & ((np.abs(got - base) < change / 4) if among_zeros else (got == base))
            if ignored.any():
                return replace(_ignored(sample, ignored, want, right_base, got), result=place)
    return None


def _ignored(sample: Sample, ignored: NDArray[Any], want: Any, right: Any, got: Any) -> Finding:
    place = tuple(int(at) for at in np.argwhere(ignored)[0])
    text = (
        f"a number has no part in the result: once it is moved, the reference goes from {right[place]:.6g} to "
        f"{want[place]:.6g} at {place}, and the output to {got[place]:.6g}"
    )
    seen = Evidence(id="C5", certainty="indicated", evidence="an input number that counts was not used")
    return Finding("influence", sample.label, text, (seen,))


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array).astype(np.complex128 if np.iscomplexobj(array) else np.float64)
