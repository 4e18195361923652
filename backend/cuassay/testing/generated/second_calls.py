"""A check of second calls: what a function keeps from one call, such as a cache, must not spoil another one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, dtype_name, epsilon, is_float
from cuassay.core.device import Device
from cuassay.errors import RaceError
from cuassay.testing.generated.cases import name_dtype
from cuassay.testing.generated.comparison import compare, compare_values, on_host
from cuassay.testing.generated.execution import (
    check,
    explained,
    is_function,
    is_safely_taken,
    on_sample,
    refusal_of,
    run_sample,
    verify,
)
from cuassay.testing.generated.extents import is_quick, longest_axis, resized
from cuassay.testing.generated.filling import is_changed
from cuassay.testing.generated.optional_arrays import with_several_optional_arrays
from cuassay.testing.generated.options import (
    MOST_OF_OPTIONS,
    check_axis_beyond,
    runs,
    with_each_axis,
    with_mixed_options,
    with_near_options,
    with_other_options,
)
from cuassay.testing.generated.selection import one, plainest, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, is_sorted
from cuassay.testing.tolerance import largest_size

#: Layouts of one shape, in the order of the calls: the contiguous one comes first and again at the end.
_IN_TURN = ("contiguous", "transposed", "strided", "offset", "contiguous")


@check(is_function)
def check_second_call(spec: OpSpec, device: Device) -> None:
    """Calls that alternate between dtypes, layouts and options are right: no cache key lacks one, none is mixed up."""
    dtypes = [dtype for dtype in spec.dtypes if spec.why_unsupported(device, dtype) is None]
    plain = plainest(spec, device)  # skips the test if no dtype runs here
    _check_first_of_shape(spec, device, plain)
    for turn, (layout, dtype) in enumerate(product(_IN_TURN, map(as_dtype, dtypes))):
        sample = one(spec, device, dtype, most=MOST_OF_OPTIONS, axes=2).laid_out(layout)
        name_dtype(dtype)
        words = f"{layout} inputs of {dtype_name(dtype)}"
        fresh = functools.partial(verify, spec, device, dtype, [_of_new_shape(sample).laid_out(layout)])
        always = f"wrong for {words}, also in the first call with a shape: no earlier call is the cause"
        try:
            with explained(f"{words}, after other calls with inputs of the same shape", fresh, always):
                verify(spec, device, dtype, [sample])
        except AssertionError:
            if turn:
                raise
            return  # the first call is wrong already, which `values` reports
    name_dtype(plain)
    _check_widest_first(spec, device, dtypes)
    _check_coarse_first(spec, device, dtypes)
    name_dtype(plain)
    _check_sorted_first(spec, device, plain)
    _check_shorter(spec, device, plain)
    for sample in with_other_options(spec, device, plain):
        fresh = functools.partial(verify, spec, device, plain, [_of_new_shape(sample)])
        always = "wrong with these options, also in the first call with a shape: no earlier call is the cause"
        with explained("with other options, after a call with inputs of the same shape", fresh, always):
            verify(spec, device, plain, [sample])
    for sample in with_mixed_options(spec, device, plain):
        with explained("with options of two samples: is one taken for another, or counted from the wrong end?"):
            verify(spec, device, plain, [sample])
    for sample in with_several_optional_arrays(spec, device, plain):
        with explained("with two optional arrays of which each sample gives one: do they work together?"):
            verify(spec, device, plain, [sample])
    for sample in with_each_axis(spec, device, plain):
        with explained("wrong along another axis than those of the samples"):
            verify(spec, device, plain, [sample])
    for sample in with_near_options(spec, device, plain):
        declared = functools.partial(verify, spec, device, plain, samples_of(spec, device, plain, "values"))
        with explained(_NO_SAMPLE, declared, "wrong with an option of a sample too: no option is the cause"):
            verify(spec, device, plain, [sample])
    check_axis_beyond(spec, device, plain)


_NO_SAMPLE = (
    "with an option's value that no sample has: is it ignored, rounded in the key of a cache, or is 0 taken for an "
    "option that is not given?"
)

#: An extent is made longer by this; no other check uses such a shape.
_MORE = 11


def _of_new_shape(sample: Sample, more: int = _MORE) -> Sample:
    """A call of a new shape, for which no cache has an entry: if it is wrong too, earlier calls are not the reason."""
    extent = longest_axis(sample)
    return resized(sample, {extent: extent + more}) if extent > 1 else sample


def _unmet(spec: OpSpec, device: Device, dtype: Any, times: int) -> Sample | None:
    """An ordinary call of a new shape; None if the reference would take long for it."""
    sample = one(spec, device, dtype, most=MOST_OF_OPTIONS)
    larger = _of_new_shape(sample, times * _MORE)
    return larger if _is_quick(spec, sample, larger) else None


def _is_quick(spec: OpSpec, sample: Sample, larger: Sample) -> bool:
    """Whether the reference will not take long; the function does not run, which might cache something."""
    return spec.reference is None or is_quick(spec.timed(sample)[1], sample, larger)


#: New shapes that are tried; one of them may show that the function is wrong without earlier calls too.
_FIRST_TIMES = 5


def is_wrong_at_first(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> bool:
    """Whether the function is wrong as well for calls like `sample` with shapes that it has not met before."""
    try:
        _verify_first(spec, device, dtype, sample)
    except AssertionError:
        return True
    return False


def _verify_first(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    shapes = [_of_new_shape(sample, times * _MORE) for times in range(1, _FIRST_TIMES + 1)]
    verify(spec, device, dtype, [one for one in shapes if is_safely_taken(spec, one)])


def _check_first_of_shape(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The first call with a shape must be right if the second is: tuning in the first call must not change its result.

    Other checks cannot see that call: they first run the function on the host to find out whether it accepts the
    inputs.
    """
    sample = _unmet(spec, device, dtype, _FIRST_TIMES + 1)
    try:
        if sample is None or spec.refusal(sample) is not None:
            return
        first, second = (run_sample(spec, device, sample) for _ in range(2))
        compare(spec, device, dtype, sample, second)
    except RaceError:
        raise
    except Exception:  # noqa: BLE001  the shape is undeclared: it may raise any error, or be wrong both times
        return
    with on_sample(sample), explained("wrong in the first call with a shape, right in the second"):
        compare(spec, device, dtype, sample, first)


def _check_coarse_first(spec: OpSpec, device: Device, dtypes: Sequence[str]) -> None:
    """After a call with a new shape in the coarsest dtype, a call in the finest must still be precise to that dtype."""
    floats = sorted((name for name in dtypes if is_float(name)), key=epsilon)
    if len(floats) < 2:
        return
    coarse, fine = (_unmet(spec, device, as_dtype(name), _FIRST_TIMES + 3) for name in (floats[-1], floats[0]))
    if coarse is None or fine is None or any(refusal_of(spec, call) is not None for call in (coarse, fine)):
        return
    if not runs(spec, device, coarse):
        return
    sentence = f"{floats[0]} after a call of the same shape in {floats[-1]}: does the key of a cache lack the dtype?"
    name_dtype(floats[0])
    loosely = functools.partial(_verify_loosely, spec, device, as_dtype(floats[0]))
    with explained(sentence, lambda: loosely(_of_new_shape(fine))):
        loosely(fine)


#: Allowed error of a call of an undeclared shape, in roundings of its largest number.
_LOOSELY = 2.0**9


def _verify_loosely(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    if is_safely_taken(spec, sample):
        expected = spec.expected(sample)
        magnitude, _ = spec.scale(sample, expected)  # the size of terms that may cancel, not of their sum
        limit = _LOOSELY * epsilon(dtype) * largest_size(magnitude)
        with on_sample(sample):
            compare_values(spec, device, dtype, sample, run_sample(spec, device, sample), limit=limit)


def _check_sorted_first(spec: OpSpec, device: Device, dtype: Any) -> None:
    """After a call with a new shape and sorted integers, a call of that shape with integers in any order must be right.

    If the numbers decide between several algorithms, the choice must not be cached by shape.
    """
    sample = _unmet(spec, device, dtype, _FIRST_TIMES + 2)
    if sample is None:
        return

    def put(array: Any) -> Any:
        is_of_integers = isinstance(array, np.ndarray) and array.dtype.kind in "biu" and array.ndim > 0
        return HostArray(np.sort(array, axis=-1)) if is_of_integers and not is_sorted(array) else array

    args, kwargs = sample.changed(put)
    in_order = replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, integers in order")
    if not is_changed(args, sample.args):
        return
    if any(refusal_of(spec, call) is not None for call in (sample, in_order)):  # the function must not run before this
        return
    if not runs(spec, device, in_order):
        return
    at_first = functools.partial(_verify_first, spec, device, dtype, sample)
    with explained(_CACHED_ALGORITHM, at_first, "wrong also in first calls with a shape: no earlier call is the cause"):
        verify(spec, device, dtype, [sample])


_CACHED_ALGORITHM = (
    "wrong after a call of the same shape with integers in order: is the choice of algorithm cached by shape?"
)


#: The longer of two calls has a multiple of this many elements along an axis, and the shorter one a few less.
_BLOCK = 64


def _check_shorter(spec: OpSpec, device: Device, dtype: Any) -> None:
    """A call must give the same result before and after a longer one: a kept buffer must not show its numbers.

    Such a buffer may be kept for all lengths that are padded to the same one.
    """
    base = one(spec, device, dtype, most=MOST_OF_OPTIONS)
    extent = longest_axis(base)
    most = (extent // _BLOCK + 1) * _BLOCK
    longer = resized(base, {extent: most})
    if extent < 2 or not spec.deterministic or not _is_quick(spec, base, longer) or not is_safely_taken(spec, longer):
        return
    for less in (1, 3, 5):
        shorter = resized(base, {extent: most - less})
        if not is_safely_taken(spec, shorter):
            continue
        calls = (shorter, shorter, longer, shorter)
        try:
            before, again, _, after = (on_host(run_sample(spec, device, call)) for call in calls)
        except RaceError:
            raise
        except Exception:  # noqa: BLE001  the shapes are undeclared and may be rejected with any error
            return
        if _is_alike(before, again) and not _is_alike(before, after):
            with on_sample(shorter):
                raise AssertionError(_KEPT.format(most))


def _is_alike(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two results are the same but for the order of additions; only the shape of other objects is compared."""
    if one.shape != other.shape or one.dtype.kind not in "biufc":
        return one.shape == other.shape
    return np.allclose(one, other, rtol=1e-2, atol=1e-6, equal_nan=True)


_KEPT = (
    "another result after a call with {} elements along an axis than before it: does a buffer that is kept between "
    "calls still hold the numbers of the longer call?"
)


def _check_widest_first(spec: OpSpec, device: Device, dtypes: Sequence[str]) -> None:
    """After a call with a new shape in another dtype, results must not have the dtype of an array that it cached."""
    alone: dict[str, Any] = {}
    if len(dtypes) < 2:
        return
    for place, name in enumerate(dtypes):
        alone[name] = _result_dtype(spec, device, name, _MORE + 2 + place)
    for before, name in zip(dtypes[::-1], dtypes[-2::-1], strict=False):
        _result_dtype(spec, device, before, _MORE + 1)
        got = _result_dtype(spec, device, name, _MORE + 1)
        if got and alone[name] and got != alone[name]:  # None means that the function rejects this length
            raise AssertionError(
                f"the dtype of the result depends on earlier calls: {got} for {name} inputs after a call with "
                f"{before} inputs of the same shape, {alone[name]} otherwise; does the key of a cache lack the dtype?"
            )


def _result_dtype(spec: OpSpec, device: Device, name: str, more: int) -> str | None:
    """The dtype of the result for inputs with an extent that is longer by `more`; None if these are rejected."""
    longer = _of_new_shape(one(spec, device, as_dtype(name), most=MOST_OF_OPTIONS), more)
    if not is_safely_taken(spec, longer):
        return None
    result = run_sample(spec, device, longer)
    return dtype_name(result.dtype) if hasattr(result, "dtype") else None
