"""A check of sizes: the ordinary samples made larger and smaller, and reductions that miss their last number."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, is_float
from cuassay.core.device import Device
from cuassay.testing.generated.affordable import affordable
from cuassay.testing.generated.broken import assert_dtype_of
from cuassay.testing.generated.cases import name_dtype
from cuassay.testing.generated.comparison import compare, compare_values, host_rounding, on_host, reference_rounding
from cuassay.testing.generated.execution import (
    check,
    explained,
    is_safely_taken,
    on_sample,
    refusal_of,
    run_sample,
    run_unchanging,
    verify,
)
from cuassay.testing.generated.extents import (
    MOST_OF_SMALL,
    apart,
    around_powers,
    elements_of,
    extents_of,
    has_expected_shape,
    is_quick,
    longest_axis,
    multiples,
    one_each,
    resized,
    seconds_of_reference,
    shape_on_host,
)
from cuassay.testing.generated.last_number import check_last_number
from cuassay.testing.generated.ratios import check_ratios, check_shares
from cuassay.testing.generated.result_dtypes import result_dtype
from cuassay.testing.generated.selection import axes_of, by_options, one, plainest, samples_of
from cuassay.testing.generated.short_axes import check_empty_batch, check_short
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import allowed, largest_size

#: Lengths in one dimension: around powers of two, and not divisible by vector widths.
_LENGTHS = (4095, 16_385, 65_537, 131_071, 2**20 + 3)
#: The first extent of a series. It shows what a longer one costs, and is not compared.
_FIRST = 67
#: Extents up to more rows than the second and third axis of a grid allow; the largest affordable one is compared.
_EXTENTS = (_FIRST, 263, 1_031, 4_099, 16_385, 65_537, 262_147, 2**20 + 3)
#: Extents up to one more than a grid's second axis or a 16-bit index allows; the earlier ones show what it costs.
_ONE_MORE = (_FIRST, 263, 1_031, 16_385, 65_537)
#: The other extents if one is that long.
_NARROW = 5
#: The most elements if one dimension has been long already.
_MOST_OF_GRIDS = 2**18


@check(lambda spec: spec.op is None or (spec.op.schema.elementwise and len(spec.op.schema.arrays) < 3))
def check_sizes(spec: OpSpec, device: Device) -> None:
    """Results are right at other sizes: around powers of two up to 2^20 + 3, more than 65,535 rows, every axis long.

    One dtype is tested.
    """
    dtype = plainest(spec, device)
    base = one(spec, device, dtype)
    for sample in _larger(spec, device, dtype):
        check_larger(spec, device, dtype, sample, base, is_grown=True)
    if spec.op is None and not spec.has_default_samples:
        several = by_options(spec, device, dtype, most=MOST_OF_SMALL)
        check_shares(spec, device, dtype, several)
        for options in several:
            for sample in _quick(spec, around_powers(options)):
                if has_expected_shape(spec, sample):
                    check_larger(spec, device, dtype, sample, options)
                else:
                    check_short(spec, device, dtype, sample, options)
            for sample in (*one_each(spec, options), *multiples(spec, options), *apart(spec, options)):
                check_larger(spec, device, dtype, sample, options)
            _check_last_number(spec, device, options)
            check_ratios(spec, device, dtype, options)
            with explained("wrong after calls with larger inputs: is something kept that depends on their size?"):
                verify(spec, device, dtype, [options])
            _check_empty_axes(spec, device, dtype, options)
            check_empty_batch(spec, device, dtype, options)
        _check_places(spec, device)


def _quick(spec: OpSpec, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield samples of growing sizes, except those for which the reference would take long."""
    before: Sample | None = None
    for sample in samples:
        if before is None or is_quick(seconds_of_reference(spec, before), before, sample):
            yield sample
            before = sample


def check_larger(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    sample: Sample,
    base: Sample,
    *,
    is_precise: bool = False,
    is_grown: bool = False,
    result: Any = None,
) -> None:
    """Compare with the reference, within the tolerance of `base` for proportionally more terms.

    Parameters
    ----------
    is_precise : bool
        Limit rounding errors by those of the reference in the dtype itself, instead of those of the function.
    is_grown : bool
        The extent is undeclared. Angles may be as imprecise as positions in float32 make them.
    result : array, optional
        The result to compare. By default the function is called.
    """
    if is_safely_taken(spec, sample):
        expected = spec.expected(sample)
        limit = limit_of_larger(spec, dtype, sample, base, expected, few=_FEW if is_precise else 1)
        if limit is None:
            return
        with on_sample(sample):
            result = _run_unchanging(spec, device, sample) if result is None else result
            with suppress(AssertionError):
                compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)
                return
            # The function may be as wrong as its rounding errors on the host, which are large for sums in order.
            rounding = _OWN_ERRORS * (reference_rounding(spec, sample) if is_precise else host_rounding(spec, sample))
            if is_grown and dtype == np.float32 and spec.scale(base, spec.expected(base))[1] == 1:
                rounding = rounding + _OF_POSITIONS * largest_size(expected)
            compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit + rounding)


def limit_of_larger(
    spec: OpSpec, dtype: Any, sample: Sample, base: Sample, expected: NDArray[Any], few: int = 1
) -> Any:
    """The tolerance of `base` for more terms, in proportion to the sample's elements.

    None in 16 bits if there are more than `few` terms, because sums of more terms overflow.
    """
    _, terms = spec.scale(base, spec.expected(base))
    if terms > few and is_coarse(dtype):
        return None
    several = len(arrays_of(*base.host())) < terms
    terms = max(1, round(terms * elements_of(sample) / max(1, elements_of(base)))) if several else terms
    largest_input = max((largest_size(array) for array in arrays_of(*sample.host())), default=0.0)
    inexact = expected.dtype.kind in "fc" and not is_float(dtype)  # the function converts integers to floats itself
    precise = (result_dtype(spec, sample) or dtype) if inexact else dtype
    return allowed(spec.rule, precise, terms=terms, magnitude=np.maximum(np.abs(expected), largest_input))


def _run_unchanging(spec: OpSpec, device: Device, sample: Sample) -> Any:
    """Run the sample; fail if a small call writes to an input, as a function that is in place for some sizes does."""
    if elements_of(sample) > MOST_OF_SMALL:
        return run_sample(spec, device, sample)
    return run_unchanging(spec, device, sample, "the function writes an input of this size")


#: The most terms of a function that counts as working on few numbers at a time.
_FEW = 4

#: Fraction of the largest result that a float32 element may be off by, if an angle grows with the position.
_OF_POSITIONS = 2.0**-10

#: Factor on the error that the function has on the host, because a device may round differently.
_OWN_ERRORS = 3.0


def _larger(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    drawn = list(samples_of(spec, device, dtype, "values"))
    if spec.has_default_samples:
        flat = next(sample for sample in drawn if arrays_of(*sample.host())[0].ndim == 1)
        extent = flat.host()[0][0].shape[0]
        yield from affordable(spec, device, flat, ({extent: length} for length in _LENGTHS))
    seen: set[tuple[int, ...]] = set()
    for sample in sorted(drawn, key=axes_of, reverse=True):
        ranks = tuple(array.ndim for array in arrays_of(*sample.host()))
        if ranks in seen or len(seen) == (1 if spec.has_default_samples else 2):
            continue
        seen.add(ranks)
        for extent in extents_of(sample):
            yield from _stretched(spec, device, sample, extent)


def _stretched(spec: OpSpec, device: Device, sample: Sample, extent: int) -> list[Sample]:
    """The sample with one extent as long as memory and time allow, and with one a little longer than a block.

    The second shows a tail that is left out: only among few blocks is it a large part of the result.
    """
    lengths = [length for length in _EXTENTS if length > extent]
    longer = [{extent: length} for length in lengths]
    if spec.has_default_samples:
        return list(affordable(spec, device, sample, longer, _MOST_OF_GRIDS))[-1:]
    found = list(affordable(spec, device, sample, longer))[lengths[:1] == [_FIRST] :]
    is_long = any(longest_axis(one) >= _ONE_MORE[-1] for one in found[-1:])
    narrow = [] if is_long else _with_narrow_rows(spec, device, sample, extent)
    return [one for one in found[:-1] if elements_of(one) <= MOST_OF_SMALL] + found[-1:] + narrow


def _with_narrow_rows(spec: OpSpec, device: Device, sample: Sample, extent: int) -> list[Sample]:
    """The sample with the extent longer than an axis of a grid, and with other extents reduced to make room for it."""
    others = {other: min(other, _NARROW) for other in extents_of(sample) if other != extent}
    if not has_expected_shape(spec, resized(sample, others)):
        return []
    longer = (others | {extent: length} for length in _ONE_MORE if length > extent)
    return [one for one in affordable(spec, device, sample, longer) if _ONE_MORE[-1] in extents_of(one)]


def _check_empty_axes(spec: OpSpec, device: Device, dtype: Any, options: Sample) -> None:
    """Sums over an empty axis are 0, not uninitialized memory that a loop of no iterations has not written.

    A function that fails whichever axis is empty takes the maximum of all elements: that is an accident, not a refusal.
    """
    failures = []
    for extent in extents_of(options):
        sample = resized(options, {extent: 0})
        sample = replace(sample, label=sample.label.replace("resized to", "an axis without elements:"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns about the mean of an empty array
            assert_dtype_of(spec, device, sample, options)
            _check_empty_axis(spec, device, dtype, sample, options)
            failures.append(_failure_of_nothing(spec, sample))
    if failures and all(failures):
        with on_sample(sample):
            raise AssertionError(
                "for inputs without elements the reference gives an empty result, and the function fails: "
                f"{failures[-1]}; return an empty result, or let the reference refuse such inputs"
            )


def _check_shape_of_nothing(spec: OpSpec, device: Device, dtype: Any, sample: Sample, options: Sample) -> None:
    """If the result's shape does not depend on the extent, as for a histogram, an empty axis gives the same shape."""
    shape = shape_on_host(spec, sample)
    if shape is None:
        return
    expected = spec.expected(sample)
    nothing = not any(array.size for array in arrays_of(*sample.host()))
    if nothing and not expected.size and 0 not in shape and len(shape) == expected.ndim:
        with on_sample(sample), explained(_NOT_EMPTY):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample))
    elif expected.shape == spec.expected(options).shape:
        with on_sample(sample), explained("one axis has no elements, and the result's shape does not depend on it"):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample))


def _failure_of_nothing(spec: OpSpec, sample: Sample) -> str | None:
    """The error of a maximum over no elements, where neither the inputs nor the reference's result have any."""
    is_nothing = not any(array.size for array in arrays_of(*sample.host()))
    if not is_nothing or refusal_of(spec, sample) is not None or spec.expected(sample).size:
        return None
    try:
        spec.run("cpu", *sample.copied())
    except Exception as error:  # noqa: BLE001  any other error may be meant
        return str(error) if "zero-size array to reduction" in str(error) else None
    return None


_NOT_EMPTY = (
    "for inputs without elements the reference gives an empty result and the function does not: return an empty "
    "result, or let the reference refuse such inputs"
)


def _check_empty_axis(spec: OpSpec, device: Device, dtype: Any, sample: Sample, options: Sample) -> None:
    if not has_expected_shape(spec, sample):
        _check_shape_of_nothing(spec, device, dtype, sample, options)
        return
    expected = spec.expected(sample)
    if spec.result_dtype is not None:
        result = run_sample(spec, device, sample)
        with on_sample(sample), explained("one axis has no elements: is the result made there without a dtype?"):
            compare(spec, device, dtype, sample, result, expected=on_host(result))
    if not expected.size or not np.isfinite(expected).all():
        return
    with on_sample(sample), explained(_NEVER_WRITTEN):
        result = run_sample(spec, device, sample)
        if not _is_defined(spec, sample, result):
            compare(spec, device, dtype, sample, result, expected=expected)


_NEVER_WRITTEN = "one axis has no elements, and the result has some: does the function return memory it never wrote?"


def _is_defined(spec: OpSpec, sample: Sample, result: Any) -> bool:
    """Whether the host gives the same bits: function and reference may differ for empty inputs, if both are defined."""
    again = np.asarray(run_sample(spec, Device("cpu"), sample))
    got = on_host(result)
    return got.dtype == again.dtype and got.shape == again.shape and got.tobytes() == again.tobytes()


def _check_places(spec: OpSpec, device: Device) -> None:
    """In float16, positions along an axis must not be counted in float16, which cannot represent 2,049."""
    dtype = as_dtype("float16")
    if "float16" not in spec.dtypes or spec.why_unsupported(device, "float16") is not None:
        return
    if spec.is_its_own_reference:
        return
    name_dtype(dtype)
    for base in by_options(spec, device, dtype, most=MOST_OF_SMALL):
        for extent in extents_of(base):
            longer = ({extent: length} for length in (*_COSTS, *_PLACES))
            for sample in list(affordable(spec, device, base, longer))[len(_COSTS) :]:
                check_larger(spec, device, dtype, sample, base, is_precise=True)


#: Lengths that show what longer ones cost.
_COSTS = (_FIRST, 263, 1_031)
#: More positions than float16 can count, and more than four times as many, for those that count few of them.
_PLACES = (4_100, 9_001)


def _check_last_number(spec: OpSpec, device: Device, options: Sample) -> None:
    """The last of 65,537 numbers must have its part in a reduction; a loop over chunks may end too early."""
    arrays = arrays_of(*options.host())
    if len(arrays) != 1 or not is_float(arrays[0].dtype) or spec.expected(options).size >= arrays[0].size:
        return
    extent = max(arrays[0].shape)
    longer = ({extent: length} for length in _ONE_MORE if length > extent)
    for sample in affordable(spec, device, options, longer, _MOST_OF_GRIDS):
        if _ONE_MORE[-1] in arrays_of(*sample.host())[0].shape:
            check_last_number(spec, device, sample)
