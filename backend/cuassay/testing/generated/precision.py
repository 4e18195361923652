"""Checks of intermediate precision: results wider than the inputs, float64 through float32, sums in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, dtype_name, epsilon, is_complex, is_float, largest
from cuassay.arrays.rounding import narrowed
from cuassay.core.device import Device
from cuassay.testing.generated.cases import name_dtype
from cuassay.testing.generated.comparison import compare, compare_values, host_rounding, of_reference, on_host
from cuassay.testing.generated.execution import check, explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import is_changed, is_general, refilled
from cuassay.testing.generated.selection import by_options, few, generator, one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import rounding_error
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import FUNCTION, allowed

_WIDE = ("float64", "complex128")


def _result(spec: OpSpec, device: Device, sample: Sample) -> Any:
    result = run_sample(spec, device, sample)
    return devices.to_host(result) if hasattr(result, "shape") and hasattr(result, "dtype") else None


@check(lambda spec: spec.op is None and spec.result_dtype is None)
def check_wider_result(spec: OpSpec, device: Device, dtype: Any) -> None:
    """For inputs of 32 bits or fewer the result has at most 32 bits, unless `result_dtype=` says otherwise.

    Integers next to floats, such as labels, are given in 16 bits, so that they do not widen the result. If all inputs
    are integers and the reference gives integers, the result must not be floating-point.
    """
    plain = one(spec, device, dtype, most=2048)
    sample = _with_narrow_integers(plain)
    given = arrays_of(*sample.host())
    inexact = [array for array in given if is_float(array.dtype) or is_complex(array.dtype)]
    if not inexact:
        _check_integers_stay(spec, device, plain)
        return
    if any(dtype_name(array.dtype) in _WIDE for array in inexact):
        return
    if any(array.dtype.kind in "iu" and array.itemsize > 2 for array in given):
        return  # such an integer and a float32 give a float64 in NumPy
    if len(inexact) < len(given) and not is_safely_taken(spec, sample):
        return
    result = _result(spec, device, sample)
    if result is not None and dtype_name(result.dtype) in _WIDE:
        name, names = dtype_name(result.dtype), ", ".join(dict.fromkeys(dtype_name(array.dtype) for array in inexact))
        with on_sample(sample):
            raise AssertionError(
                f"the result is {name}, wider than its inputs ({names}): a constant or a step in double precision "
                f"widens it; cast that, or say result_dtype={name!r} if it is meant"
            )


def _check_integers_stay(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Fail if the result of integers is floating-point where the reference gives integers."""
    if spec.is_its_own_reference or not is_safely_taken(spec, sample):
        return
    result = _result(spec, device, sample)
    if result is not None and result.dtype.kind == "f" and spec.expected(sample).dtype.kind in "iu":
        name = dtype_name(result.dtype)
        with on_sample(sample):
            raise AssertionError(
                f"the result is {name}, although inputs and the reference's result are integers: is an array on the "
                f"way made without a dtype? Cast it, or say result_dtype={name!r} if it is meant"
            )


def _with_narrow_integers(sample: Sample) -> Sample:
    """The call with its integers in 16 bits, if they fit: with a float32 these give a float32 in NumPy."""

    def narrow(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.itemsize < 3 or not array.size:
            return array
        limits = np.iinfo(np.int16)
        fits = limits.min <= array.min() and array.max() <= limits.max
        return HostArray(array.astype(np.int16)) if fits else array

    args, kwargs = sample.changed(narrow)
    is_narrowed = is_changed((*args, *kwargs.values()), (*sample.args, *sample.kwargs.values()))
    label = f"{sample.label}, integers in int16" if is_narrowed else sample.label
    return replace(sample, args=args, kwargs=kwargs, label=label)


@check(lambda spec: spec.op is None and "float64" in spec.dtypes)
def check_full_precision(spec: OpSpec, device: Device) -> None:
    """Results in float64 are not all exactly float32 numbers, as they would be after a step in float32."""
    if spec.why_unsupported(device, "float64") is not None:
        return
    for sample in few(spec, device, as_dtype("float64")):
        result = _result(spec, device, sample)
        if result is None or result.dtype != np.float64 or not all(_is_full(x) for x in arrays_of(*sample.host())):
            continue
        finite = result[np.isfinite(result)]
        if finite.size < _ENOUGH or not _fits(finite, "float32") or _fits(finite, "bfloat16"):
            continue
        if spec.is_its_own_reference or not _fits(spec.expected(sample), "float32"):  # others round on purpose
            raise AssertionError(
                "each result in float64 is exactly a float32 number: a step on the way is computed in float32; compute "
                f"in the dtype of the inputs\n  sample: {sample.label}"
            )


#: With this many results it cannot be chance that each is a float32 number.
_ENOUGH = 8


def _is_full(array: Any) -> bool:
    return array.dtype != np.float64 or (array.size >= _ENOUGH and not _fits(array, "float32"))


def _fits(array: Any, dtype: str) -> bool:
    with np.errstate(all="ignore"):
        return bool((narrowed(array, as_dtype(dtype)).astype(np.float64) == array).all())


def _has_lists(spec: OpSpec) -> bool:
    """Whether the spec is of a function of lists of arrays, in both float32 and float64."""
    return len(_wide_floats(spec)) > 1 and spec.has_lists


def _wide_floats(spec: OpSpec) -> list[str]:
    """The declared floating-point dtypes of 32 bits or more; libraries mix 16 bits with these in different ways."""
    return [name for name in spec.dtypes if name in ("float32", "float64")]


@check(_has_lists)
def check_mixed_lists(spec: OpSpec, device: Device) -> None:
    """Lists may mix two dtypes, as parameters and their gradients do, if the function accepts them."""
    dtypes = [as_dtype(name) for name in _wide_floats(spec) if spec.why_unsupported(device, name) is None]
    if len(dtypes) < 2:
        return
    for sample in by_options(spec, device, dtypes[0], most=4096):
        for place, word in ((0, "first"), (-1, "last")):
            mixed = _with_one_in(sample, place, word, dtypes[1])
            if mixed is not None and is_safely_taken(spec, mixed):
                with on_sample(mixed):
                    result = run_sample(spec, device, mixed)
                    compare(spec, device, dtypes[0], mixed, result)
                    _check_promoted(spec, device, sample, mixed, result)


def _check_promoted(spec: OpSpec, device: Device, sample: Sample, mixed: Sample, result: Any) -> None:
    """The result has the reference's dtype for the inputs' own dtypes, if it has it where all dtypes are equal."""
    if spec.result_dtype is not None:  # `compare` has checked it
        return
    alike, wanted = of_reference(spec, sample), of_reference(spec, mixed)
    if alike is None or wanted is None or on_host(run_sample(spec, device, sample)).dtype != alike.dtype:
        return
    got = on_host(result).dtype
    if got != wanted.dtype:
        raise AssertionError(
            f"dtype is {got} for lists of two dtypes; the reference gives {wanted.dtype}: promote them"
        )


def _with_one_in(sample: Sample, place: int, word: str, dtype: Any) -> Sample | None:
    """One array of each list in another dtype; None unless all lists have one length, of two arrays or more."""
    lists = [value for value in sample.host()[0] if isinstance(value, list)]
    if not lists or len({len(one) for one in lists}) > 1 or len(lists[0]) < 2:
        return None
    chosen = [one[place] for one in lists if isinstance(one[place], np.ndarray) and is_float(one[place].dtype)]
    args, kwargs = sample.changed(
        lambda array: HostArray(array.astype(dtype)) if any(array is one for one in chosen) else array
    )
    label = f"{sample.label}, the {word} of each list in {dtype_name(dtype)}"
    return replace(sample, args=args, kwargs=kwargs, label=label)


#: A float16 sum cannot count this many terms. Each term is an eighth of an ordinary number, so that no sum overflows.
_TERMS, _PART = 4097, 0.125


_IN_HALF = "less precise than a sum in float32: it adds up in float16; accumulate in float32, or declare tolerance="

#: 16-bit dtypes, whose sums and products are kept in float32.
_COARSE = {"float16", "bfloat16"}


@check(lambda spec: spec.op is None and bool(_COARSE & set(spec.dtypes)))
def check_accumulation(spec: OpSpec, device: Device) -> None:
    """Reductions of float16 are as precise as sums in float32; `tolerance=` allows less.

    For 16-bit inputs with a `result_dtype` of float32, the result is as precise as float32.
    """
    if spec.tolerance is not None:
        return
    for name in sorted(_COARSE & set(spec.dtypes)) if spec.result_dtype is not None else ():
        if spec.why_unsupported(device, name) is None:
            name_dtype(name)
            _check_wide_of_narrow(spec, device, as_dtype(name))
    if "float16" not in spec.dtypes or spec.why_unsupported(device, "float16") is not None:
        return
    name_dtype("float16")
    for sample in _long_sums(one(spec, device, as_dtype("float16"), most=4096)):
        _check_sums(spec, device, sample)
        _check_running_sums(spec, device, sample)
    if spec.reference is not None:
        for sample in by_options(spec, device, as_dtype("float16"), most=4096):
            if spec.has_lists:
                _check_overflow(spec, device, sample)
            _check_cancelling(spec, device, sample)


def _check_wide_of_narrow(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Find products that are rounded to 16 bits before a float32 result, which the tolerance for 16 bits hides."""
    sample = one(spec, device, dtype, most=4096)
    arrays = arrays_of(*sample.host())
    if not all(array.dtype == dtype for array in arrays if is_float(array.dtype)):
        return
    result = _result(spec, device, sample)
    if result is None or result.dtype not in (np.float32, np.float64):
        return
    args, kwargs = sample.changed(
        lambda value: HostArray(value.astype(np.float32)) if getattr(value, "dtype", None) == dtype else value
    )
    single = replace(sample, args=args, kwargs=kwargs)
    expected = spec.expected(sample)
    if expected.shape != result.shape or not is_safely_taken(spec, single):
        return
    magnitude, terms = spec.scale(sample, expected)
    limit = allowed(FUNCTION, np.float32, terms=terms, magnitude=magnitude) + 3 * host_rounding(spec, single)
    name = dtype_name(dtype)
    said = f"a {dtype_name(result.dtype)} result is not better than {name}: cast the inputs before multiplying them"
    with on_sample(sample), explained(said):
        compare_values(spec, device, dtype, sample, run_sample(spec, device, sample), expected=expected, limit=limit)


def _check_sums(spec: OpSpec, device: Device, sample: Sample) -> None:
    if not is_safely_taken(spec, sample):
        return
    expected = spec.expected(sample)
    if expected.dtype.kind not in "fc" or expected.size * _TERMS != arrays_of(*sample.host())[0].size:
        return
    args, kwargs = sample.on("cpu")
    own = rounding_error(lambda args, kwargs: spec.run("cpu", args, kwargs), args, kwargs)
    if own is None:
        return
    sums = allowed(FUNCTION, np.float32, terms=_TERMS, magnitude=expected)
    limit = _UNITS * epsilon("float16") * np.abs(expected) + 2 * own.inputs + sums
    with on_sample(sample), explained(_IN_HALF):
        compare_values(spec, device, as_dtype("float16"), sample, run_sample(spec, device, sample), limit=limit)


def _check_running_sums(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Where each result includes all inputs before it, roundings to float16 must not accumulate."""
    if not is_safely_taken(spec, sample):
        return
    expected = spec.expected(sample)
    if expected.dtype.kind != "f" or expected.shape != arrays_of(*sample.host())[0].shape:
        return
    if _grows(expected) and _is_proportional(spec, sample, expected):
        sums = allowed(FUNCTION, np.float32, terms=_TERMS, magnitude=expected)
        limit = (_UNITS + 1) * epsilon("float16") * np.abs(expected) + sums
        with on_sample(sample), explained(_IN_HALF):
            compare_values(spec, device, as_dtype("float16"), sample, run_sample(spec, device, sample), limit=limit)


#: The square of an ordinary number times this factor overflows in float16.
_OVERFLOWING = 128.0

#: An error above this fraction of the largest result comes from overflow, not from rounding.
_LOST = 0.25


def _check_overflow(spec: OpSpec, device: Device, sample: Sample) -> None:
    """In lists, such as those of gradients, squares overflow float16 although the root of their sum does not.

    A function of a single array may square its numbers, because activations are small.
    """
    dtype = as_dtype("float16")
    base = spec.expected(sample)
    _, terms = spec.scale(sample, base)
    if terms == 1 or base.dtype.kind != "f" or not is_general(spec, sample):
        return
    large = refilled(sample, lambda array: (array * _OVERFLOWING).astype(array.dtype), f"times {_OVERFLOWING:g}")
    if not is_safely_taken(spec, large):
        return
    expected, result = spec.expected(large), run_sample(spec, device, large)
    got = on_host(result)
    if got.shape != expected.shape or not is_float(got.dtype):
        return  # `values` reports it
    inside = np.abs(expected) < largest(dtype) / 2
    expected = np.where(inside, expected, got.astype(np.float64))
    limit = np.full(expected.shape, _LOST * float(np.max(np.abs(expected), initial=0.0, where=inside)))
    with on_sample(large), explained("overflows in float16 on the way: compute sums of products in float32"):
        compare_values(spec, device, dtype, large, result, expected=expected, limit=limit)


#: The number of products in a sum, half positive and half negative; and their mean absolute value (all are 1 to 2).
_CANCELLING, _MEAN_PRODUCT = 1024, 1.457

#: The error that rounding each product may cause in their sum, in standard deviations.
_DEVIATIONS = 8.0


def _check_cancelling(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Sums of products whose two halves cancel: a product may be rounded to float16, but a partial sum may not."""
    dtype = as_dtype("float16")
    filled = _cancelling(spec, sample)
    if filled is None or not is_safely_taken(spec, filled) or not _is_bilinear(spec, filled):
        return
    positive = replace(filled, args=tuple(HostArray(np.abs(one)) for one in filled.host()[0]))
    if not is_safely_taken(spec, positive):
        return
    expected = spec.expected(filled)
    scale = np.abs(spec.expected(positive)) / (_CANCELLING * _MEAN_PRODUCT)  # the function may scale the products
    rounded = np.sqrt(_CANCELLING / 12) * epsilon(dtype) * scale
    limit = 4 * epsilon(dtype) * np.abs(expected) + _DEVIATIONS * rounded
    said = "less precise than products in float16, summed in float32: a partial sum is rounded to float16 on the way"
    with on_sample(filled), explained(said):
        compare_values(spec, device, dtype, filled, run_sample(spec, device, filled), expected=expected, limit=limit)


def _cancelling(spec: OpSpec, sample: Sample) -> Sample | None:
    """Positive numbers in two arrays, except for negative ones in half of the second along the axis that is summed.

    None unless the sample consists of two floating-point arrays that share exactly one extent that the result lacks.
    """
    arrays = sample.host()[0]
    if len(arrays) != 2 or not all(isinstance(one, np.ndarray) and is_float(one.dtype) for one in arrays):
        return None
    summed = set(arrays[0].shape) & set(arrays[1].shape) - set(spec.expected(sample).shape)
    extent = next(iter(summed), 0)
    if len(summed) != 1 or any(one.shape.count(extent) != 1 for one in arrays):
        return None
    chance = generator()
    given = []
    for place, array in enumerate(arrays):
        shape = tuple(_CANCELLING if length == extent else length for length in array.shape)
        values = chance.uniform(1, np.sqrt(2), shape)
        if place:
            axis = array.shape.index(extent)
            half = np.arange(_CANCELLING) < _CANCELLING // 2
            values *= np.expand_dims(np.where(half, 1.0, -1.0), [other for other in range(array.ndim) if other != axis])
        given.append(HostArray(values.astype(array.dtype)))
    return replace(sample, args=tuple(given), label=f"{sample.label}, {_CANCELLING:,} products of which half cancel")


def _is_bilinear(spec: OpSpec, sample: Sample) -> bool:
    """Whether the result doubles if either array does."""
    expected = spec.expected(sample)
    for place in range(2):
        args = tuple(HostArray(2 * one) if at == place else one for at, one in enumerate(sample.host()[0]))
        double = replace(sample, args=args)
        if not is_safely_taken(spec, double) or not np.allclose(spec.expected(double), 2 * expected, rtol=1e-6, atol=0):
            return False
    return True


def _grows(expected: Any) -> bool:
    """Whether the results increase strictly along the last axis, in either direction, as sums of positive terms do."""
    steps = np.diff(expected)
    return bool((steps > 0).all() or (steps < 0).all())


def _is_proportional(spec: OpSpec, sample: Sample, expected: Any) -> bool:
    args = (HostArray(2 * array) if isinstance(array, np.ndarray) else array for array in sample.host()[0])
    double = replace(sample, args=tuple(args))
    return is_safely_taken(spec, double) and bool(np.allclose(spec.expected(double), 2 * expected, rtol=1e-6, atol=0))


#: Roundings to float16 that the result, and steps after its sum, may have.
_UNITS = 8.0


#: Two alternating numbers: a 16-bit partial sum rounds each term the same way, however many partial sums there are.
_IN_TURN = (0.3, 0.375)


def _long_sums(sample: Sample) -> Iterator[Sample]:
    """Samples with many small positive terms along the last axis; none unless all arguments are arrays of one shape."""
    arrays = arrays_of(*sample.host())
    if not all(isinstance(one, np.ndarray) for one in sample.host()[0]) or len(arrays) != len(sample.args):
        return
    if not arrays or len({array.shape for array in arrays}) > 1:
        return
    if not arrays[0].size or not arrays[0].ndim or not all(is_float(array.dtype) for array in arrays):
        return
    shape = (*arrays[0].shape[:-1][-1:], _TERMS)
    if len(arrays) == 1:
        values = [np.abs(array.astype(np.float64)) * _PART for array in arrays]
        yield _filled(sample, values, shape, f"{_TERMS:,} positive terms")
    yield _filled(sample, [np.asarray(_IN_TURN)] * len(arrays), shape, f"{_TERMS:,} terms, two numbers in turn")


def _filled(sample: Sample, values: Sequence[Any], shape: tuple[int, ...], label: str) -> Sample:
    args = (HostArray(np.resize(one, shape).astype(old.dtype)) for one, old in zip(values, sample.args, strict=True))
    return replace(sample, args=tuple(args), label=label)
