"""A check that varies sizes, options and patterns of numbers together: a fault may need three of them at once."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import ALL, INTEGERS, dtype_name, is_float
from cuassay.core.device import Device
from cuassay.testing.generated.aliasing import assert_own, gives_own_arrays
from cuassay.testing.generated.broken import assert_whole
from cuassay.testing.generated.comparison import compare_values, host_rounding, on_host
from cuassay.testing.generated.execution import check, explained, is_function, is_safely_taken, on_sample, verify
from cuassay.testing.generated.extents import elements_of, has_expected_shape, resized, swapped
from cuassay.testing.generated.filling import is_changed, last_digit_moves
from cuassay.testing.generated.integers import wraps_in_reference
from cuassay.testing.generated.mentions import names_of
from cuassay.testing.generated.named import named_numbers
from cuassay.testing.generated.options import is_number, is_plain, with_one_other_option, with_options_of
from cuassay.testing.generated.partial_errors import assert_taken, declared_refusals
from cuassay.testing.generated.patterns import may_be_filled, next_to_multiples, path, patterned
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import generator, samples_of
from cuassay.testing.generated.sizes import limit_of_larger
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import HostArray, Sample, each
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import FEWER_DIGITS, largest_size

Array = NDArray[Any]
Chance = np.random.Generator

#: Calls that are compared at most; calls that are drawn at most; CPU seconds for all of them; elements of one call.
_CALLS, _MOST_CALLS, _PATIENCE_S, _MOST_ELEMENTS = 128, 256, 2.0, 2**13

#: The most elements of a result. An option may be an exponent, such as the length of words that are counted.
_MOST_RESULTS = 1 << 20

#: For calls in which two extents are made equal: the number of samples, and of pairs of extents for each sample.
_BASES, _PAIRS = 6, 6

#: Candidates for other extents: small ones, and those around powers of two.
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 300, 520)


@check(is_function, dtypes=[name for name in ALL if not is_coarse(name)])  # rounding to 16 bits would hide the faults
def check_combined(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for sizes, options and patterns of numbers that are drawn together, within the samples' ranges.

    Patterns are numbers that are equal, in order or in runs, and truth values in blocks. A call is compared only if the
    reference accepts it, and if the function on the host gives a result of the reference's shape.

    Two more properties are checked. If no result of a declared sample is an input or a view of one, no result here may
    be. A call that the reference accepts must not raise a declared error message: see `assert_taken`.
    """
    if spec.is_its_own_reference:
        return
    bases = [
        one for one in samples_of(spec, device, dtype, "values", "broadcast") if elements_of(one) <= _MOST_ELEMENTS
    ]
    for base in bases[:_BASES]:
        sample = _with_named_numbers(spec, base)
        if sample is None:
            continue
        assert_whole(spec, sample, base)
        if has_expected_shape(spec, sample):
            with explained(_WRONG_FOR_NAMED, functools.partial(verify, spec, device, dtype, [base])):
                _compare(spec, device, dtype, base, sample, is_exact=True)
    taken = [one for one in bases[:_BASES] if is_safely_taken(spec, one)]
    refusals, is_own = declared_refusals(spec, dtype), gives_own_arrays(spec, device, taken)
    began, compared = time.thread_time(), 0
    for base, sample in chain(_systematic_calls(spec, bases), _random_calls(spec, bases)):
        with explained(_WRONG_FOR_MIXTURE, functools.partial(verify, spec, device, dtype, [base])):
            if has_expected_shape(spec, sample) and spec.expected(sample).size <= _MOST_RESULTS:
                _compare(spec, device, dtype, base, sample, floor=_least_error(bases, sample), is_own=is_own)
                compared += 1
            elif _has_declared_options(bases, sample):
                if _is_alike(base, sample):
                    assert_whole(spec, sample, base)
                with on_sample(sample):
                    assert_taken(spec, sample, refusals, is_ordinary=sample.args is base.args)
        if compared == _CALLS or time.thread_time() - began > _PATIENCE_S:
            return


_WRONG_FOR_MIXTURE = "right for the declared samples, wrong for a mixture of them"

_WRONG_FOR_NAMED = (
    "wrong for a number of the function's code, a multiple of one, a power of two, or a number next to these: is < "
    "written for <=, or a quotient rounded?"
)


def _random_calls(spec: OpSpec, bases: Sequence[Sample]) -> Iterator[tuple[Sample, Sample]]:
    """Draw pairs of a declared sample and a call with other extents, other options and patterns of numbers."""
    chance = generator()
    for _ in range(_MOST_CALLS if bases else 0):
        base = bases[int(chance.integers(len(bases)))]
        options = with_options_of(spec, bases, base, chance)
        yield base, _combination(spec, base, _extents(base, chance), options, chance)


def _systematic_calls(spec: OpSpec, bases: Sequence[Sample]) -> Iterator[tuple[Sample, Sample]]:
    """Pairs of a declared sample and a call made from it, in a fixed order.

    Square matrices describe a graph that is one path; two extents, or all of them, are made equal; an axis is cut to
    one element; one option is that of another sample.
    """
    chance = generator()
    for base in bases[:_BASES]:
        yield from ((base, along) for along in _along_paths(base, chance))
        extents = _extents_of(base)
        pairs = list(permutations(extents, 2))
        yield from ((base, _combination(spec, base, {one: other}, base, None)) for one, other in pairs[:_PAIRS])
        if len(extents) > 2:
            yield base, _combination(spec, base, dict.fromkeys(extents, extents[-1]), base, None)
    for base in bases:
        if base.kind == "broadcast":
            yield from ((base, narrower) for narrower in _with_ones(base))
    for base in bases[:_BASES]:
        yield from ((base, mixed) for mixed in islice(with_one_other_option(spec, base, list(bases)), _PAIRS))


def _has_declared_options(bases: Sequence[Sample], sample: Sample) -> bool:
    """Whether each option has a value that some sample has; for an array it must be the same object."""

    def is_in(one: Sample, name: str, value: Any) -> bool:
        found = one.kwargs.get(name)
        return found is value or (is_plain(found) and is_plain(value) and found == value)

    return all(any(is_in(one, name, value) for one in bases) for name, value in sample.kwargs.items())


def _is_alike(base: Sample, sample: Sample) -> bool:
    """Whether two calls have the same options, and arrays of the same shapes."""
    shapes = [[array.shape for array in arrays_of(*one.host())] for one in (base, sample)]
    return shapes[0] == shapes[1] and len(base.kwargs) == len(sample.kwargs) and _has_declared_options([base], sample)


def _combination(spec: OpSpec, base: Sample, extents: dict[int, int], options: Sample, chance: Chance | None) -> Sample:
    """The call with other extents and the options of `options`; with `chance`, its numbers follow drawn patterns."""
    size = sum(math.prod(swapped(array.shape, extents)) for array in arrays_of(*base.host()))
    other = resized(options, extents if size <= _MOST_ELEMENTS else {})
    args, labels, named = list(other.args), [], named_numbers(spec, options)
    at_ends = chance is not None and chance.integers(8) == 0
    for place, given in enumerate(base.args):
        if chance is not None and may_be_filled(given):
            shape = args[place].shape
            shape = _broadcast(shape, chance) if "broadcast" in spec.kinds else shape
            args[place], label = patterned(given, shape, chance, named, at_ends=at_ends)
            labels.append(f"input {place}: {label}")
        elif isinstance(given, HostArray) and args[place].shape == given.shape:
            args[place] = given
    shapes = ", ".join("x".join(map(str, one.shape)) for one in args if isinstance(one, HostArray))
    said = f", options {dict(options.kwargs)}" if options.kwargs else ""
    return replace(other, args=tuple(args), label="; ".join((f"arrays of {shapes}{said}", *labels)))


def _along_paths(base: Sample, chance: Chance) -> Iterator[Sample]:
    """Yield the call with one of its square matrices describing a graph that is one path."""
    for place, given in enumerate(base.args):
        found = path(given, chance) if may_be_filled(given) else None
        if found is not None:
            args = (*base.args[:place], found, *base.args[place + 1 :])
            yield replace(base, args=args, label=f"{base.label}, input {place} is a graph of one path")


def _with_ones(base: Sample) -> Iterator[Sample]:
    """Calls in which one axis of one array is cut to one element; for arrays that are broadcast."""
    for place, given in enumerate(base.args):
        for axis in range(len(given.shape) if isinstance(given, HostArray) else 0):
            if given.shape[axis] < 2:
                continue
            args = list(base.args)
            args[place] = HostArray(given.values.take([0], axis=axis))
            yield replace(base, args=tuple(args), label=f"{base.label}, axis {axis} of input {place} has one element")


def _broadcast(shape: tuple[int, ...], chance: Chance) -> tuple[int, ...]:
    """The shape; in one of four cases one axis has one element, which is broadcast against the other arrays."""
    if not shape or chance.integers(4):
        return shape
    axis = int(chance.integers(len(shape)))
    return (*shape[:axis], min(shape[axis], 1), *shape[axis + 1 :])


def _extents(base: Sample, chance: Chance) -> dict[int, int]:
    """A drawn mapping from some extents to new ones: a number of `_EXTENTS`, or another extent of the call."""
    found, changes = _extents_of(base), {}
    for extent in found:
        way = chance.integers(4)
        if way == 0:
            changes[extent] = int(chance.choice(found))
        elif way == 1:
            changes[extent] = int(chance.choice(_EXTENTS))
    return changes


def _extents_of(base: Sample) -> list[int]:
    """The extents that may change, in ascending order.

    Extents of integer arrays with fixed values are left out, and so are extents that occur among these values. Such an
    array may hold row offsets: it has one element for each row of another array, and its last value is a length.
    """
    arrays = [one for one in each(base.args, base.kwargs) if isinstance(one, HostArray | np.ndarray)]
    fixed: set[int] = set()
    for one in arrays:
        if one.dtype.kind in "iu" and not may_be_filled(one):
            fixed.update(one.shape, one.values.flat if isinstance(one, HostArray) else one.flat)
    return sorted({extent for one in arrays for extent in one.shape if extent > 1} - fixed)


def _with_named_numbers(spec: OpSpec, base: Sample) -> Sample | None:
    """The call in which half of the floats are numbers from the function's code.

    Only numbers that the dtype represents exactly and that are in the sample's range are used. If the function takes a
    logarithm, numbers next to powers of two are among them. Integers are next to multiples of the named numbers.
    None if no input can be changed in this way.
    """
    chance, named = generator(), named_numbers(spec, base)
    has_logarithm = any("log" in name for name in names_of(spec.fn) | names_of(spec.reference))
    args = list(base.args)
    for place, given in enumerate(base.args):
        if may_be_filled(given) and is_float(given.dtype):
            low, high = given.span or (-_LARGEST_NAMED, _LARGEST_NAMED)
            known = np.concatenate(
                [np.array(named, np.float64), *(_next_to_powers(given.dtype) if has_logarithm else [])]
            )
            held = known[(known >= low) & (known <= high) & (known.astype(given.dtype) == known)]
            if held.size:
                chosen = chance.choice(held, given.shape).astype(given.dtype)
                args[place] = HostArray(np.where(chance.integers(0, 2, given.shape), chosen, given.values))
        elif may_be_filled(given) and dtype_name(given.dtype) in INTEGERS:
            args[place] = next_to_multiples(given, given.values, named, chance)
    changed = replace(base, args=tuple(args), label=f"{base.label}, numbers from the function's code")
    return changed if is_changed(args, base.args) else None


def _next_to_powers(dtype: Any) -> list[Array]:
    """Powers of two and the next smaller numbers of `dtype`, of both signs: their logarithms may round alike."""
    powers = (2.0 ** np.arange(-4, 11)).astype(dtype)
    below = np.nextafter(powers, powers.dtype.type(0))
    return [(sign * some).astype(np.float64) for sign in (1, -1) for some in (powers, below)]


#: Only named numbers up to this size are put into an array without a requested range.
_LARGEST_NAMED = 1e4


def _compare(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    base: Sample,
    sample: Sample,
    *,
    is_exact: bool = False,
    floor: float = 0.0,
    is_own: bool = False,
) -> None:
    """Compare within a tolerance that is at least `floor` times the largest expected number.

    Unless `is_exact`, an element may be off by what a change of each input's last digit does to it. With `is_own`, the
    result must not share memory with an input. A reference whose own integers wrap around is not believed.
    """
    expected, (args, kwargs) = spec.expected(sample), sample.on(device)
    with np.errstate(all="ignore"):
        result = spec.run(device, args, kwargs)
    if is_own:
        with on_sample(sample):
            assert_own(device, result, each(args, kwargs))
    limit = limit_of_larger(spec, dtype, sample, base, expected)
    if limit is None:
        return
    if expected.dtype.kind in "fc":
        expected = _where_finite(expected, result)
    with suppress(AssertionError):
        compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)
        return
    if wraps_in_reference(spec, sample):
        return
    if floats_of(sample) and expected.dtype.kind in "fc":
        limit = _ERROR_FACTOR * (largest_size(limit) + host_rounding(spec, sample))
        limit += floor * largest_size(expected)
    if floats_of(sample) and not is_exact:
        moves, got = last_digit_moves(spec, sample), on_host(result)
        is_anything = np.isinf(moves) if expected.dtype.kind in "fc" else moves != 0
        if expected.dtype.kind in "fc":
            limit = limit + _ERROR_FACTOR * largest_size(moves)
        if got.shape == expected.shape:
            expected = np.where(is_anything, got, expected)
    with on_sample(sample):
        compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)


def _least_error(bases: Sequence[Sample], sample: Sample) -> float:
    """The relative error that is always allowed: 0, unless an option is larger than in any declared sample.

    Even a reference fits a polynomial of degree eleven to fewer digits than one of degree four.
    """
    for name, value in sample.kwargs.items():
        declared = [abs(one.kwargs[name]) for one in bases if is_number(one.kwargs.get(name))]
        if is_number(value) and declared and abs(value) > max(declared):
            return FEWER_DIGITS
    return 0.0


#: Factor on the error that the function has on the host, and on the effect of changing each input's last digit.
_ERROR_FACTOR = 4.0


def _where_finite(expected: Array, result: Any) -> Array:
    """The expected numbers; where the reference gives NaN or infinity, as for 0 / 0, any result is accepted."""
    got = on_host(result)
    return np.where(np.isfinite(expected), expected, got) if got.shape == expected.shape else expected
