"""A check of shared memory: between results and kept buffers, between results and inputs, and between two inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, is_float
from cuassay.core.device import Device
from cuassay.testing.answers import members
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import (
    IN_PLACE,
    check,
    explained,
    is_safely_taken,
    on_sample,
    overwrite,
    run_sample,
    turned,
    verify,
)
from cuassay.testing.generated.filling import free_floats, is_general, refilled
from cuassay.testing.generated.natively import with_number
from cuassay.testing.generated.selection import few, one, plainest
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample, each
from cuassay.testing.terms import arrays_of

#: Calls with other numbers after the first call. Three calls also find a function that alternates between two buffers.
_CALLS = 3


@check(lambda spec: spec.op is None or spec.op.schema.is_single)
def check_aliasing(spec: OpSpec, device: Device) -> None:
    """Results do not share memory with anything that a later call may change, and two inputs may be the same array.

    No call may return a buffer that it keeps. A result may be a view of an input only if it is one in every call.
    For an op that is declared as a view, the result must share memory with its input exactly where NumPy's does.
    """
    if spec.op is not None and spec.op.schema.view_of:
        _check_views(spec, device)
        return
    places: dict[int, _Sharing] = {}
    several = False
    for sample in few(spec, device, plainest(spec, device)):
        with on_sample(sample), np.errstate(all="ignore"):
            args, kwargs = sample.on(device)
            answer = _raw_result(spec, device, args, kwargs)
            several = several or isinstance(answer, list | tuple)
            arrays = {place: one for place, one in enumerate(members(answer)) if hasattr(one, "shape") and one.size}
            first = {place: devices.to_host(one) for place, one in arrays.items()}
            _call_with_other_numbers(spec, device, sample)
            for place, one in arrays.items():
                _check_result_unchanged(devices.to_host(one), first[place])
                found = places.setdefault(place, _Sharing())
                (found.shared if _shares(device, one, each(args, kwargs)) else found.others).append(sample)
                found.computes = found.computes or not _is_rearrangement(first[place], sample)
    if spec.deterministic:  # a function that draws random numbers has no reference to compare with
        _check_repeated_input(spec, device)
    for place, found in places.items():
        found.check_computed(f"result {place} of the list" if several else "the result")
    _check_dtypes(spec, device)
    for found in () if several else places.values():
        found.check_moved(spec)
    moved = () if several else (found for found in places.values() if not found.computes)
    for sample in (sample for found in moved for sample in (*found.shared, *found.others)):
        if _always_copies(spec, sample):
            _check_transposed(spec, device, sample)
            _check_larger_numbers(spec, device, sample)


@dataclass
class _Sharing:
    """How one result behaved in the calls so far: the samples where it shared memory, and those where it did not."""

    shared: list[Sample] = field(default_factory=list)
    others: list[Sample] = field(default_factory=list)
    computes: bool = False

    def check_computed(self, what: str) -> None:
        """Reject a result that is computed, but shares memory with an input for some samples."""
        if self.shared and self.computes and not self.others:
            raise AssertionError(
                f"{what} is an input, or a view of one, whose numbers the call has changed: writing to the result then "
                f"changes the input; return a copy, or, if the function is meant to work in place, declare {IN_PLACE}"
            )
        if self.shared and self.computes:
            raise AssertionError(
                f"{what} is a view of an input, or the input itself, for sample {self.shared[0].label}, but computed "
                "for other samples: writing to the result then changes the input; return a copy"
            )

    def check_moved(self, spec: OpSpec) -> None:
        """Reject a result that is a view for some samples and a copy for others, if the reference always copies."""
        if self.shared and self.others and all(_always_copies(spec, sample) for sample in (*self.shared, *self.others)):
            raise AssertionError(
                f"the result is an input, or a view of one, for sample {self.shared[0].label}, but a new array for "
                f"{self.others[0].label}; the reference always returns a copy: writing to the result then changes the "
                'input; copy in every case, or declare that views are meant: without={"aliasing": "..."}'
            )


def gives_own_arrays(spec: OpSpec, device: Device, samples: Iterable[Sample]) -> bool:
    """Whether the results for these samples are computed and share no memory with an input.

    If so, no other call may return an input or a view of one either; `assert_own` checks that.
    """
    if spec.without.keys() & {"aliasing", "inputs_unchanged"}:
        return False
    computes = False
    for sample in samples:
        with on_sample(sample), np.errstate(all="ignore"):
            args, kwargs = sample.on(device)
            for one in members(_raw_result(spec, device, args, kwargs)):
                if hasattr(one, "shape") and one.size:
                    if _shares(device, one, each(args, kwargs)):
                        return False
                    computes = computes or not _is_rearrangement(devices.to_host(one), sample)
    return computes


def assert_own(device: Device, result: Any, given: Iterable[Any]) -> None:
    """Fail if the result shares memory with one of the arrays passed to the call."""
    if hasattr(result, "dtype") and _shares(device, result, given):
        raise AssertionError(
            "the result is an input, or a view of one, for this call, but computed for other calls: writing to the "
            "result then changes the input; return a copy"
        )


def _raw_result(spec: OpSpec, device: Device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function, without joining several results into one array."""
    if spec.op is not None:
        return spec.run(device, args, kwargs)
    with devices.backend(device.kind).activate(device.index):
        return spec.apply(device, args, kwargs)


#: The sample that is called with one array in two places has at most this many elements.
_MOST_ELEMENTS = 9000


def _check_repeated_input(spec: OpSpec, device: Device) -> None:
    """Check a call that passes one array for two parameters of equal shape and dtype, if copies give a right result."""
    dtype = plainest(spec, device)
    sample = one(spec, device, dtype, most=_MOST_ELEMENTS)
    given = sample.host()[0]
    kinds = [(x.shape, x.dtype) if isinstance(x, np.ndarray) and x.size else None for x in given]
    pairs = ((a, b) for a, b in combinations(range(len(given)), 2) if kinds[a] is not None and kinds[a] == kinds[b])
    first, second = next(pairs, (0, 0))
    if first == second:
        return
    copies = replace(sample, args=(*sample.args[:second], sample.args[first], *sample.args[second + 1 :]))
    copies = replace(copies, label=f"{sample.label}, input {second} is input {first}")
    if not is_safely_taken(spec, copies):
        return
    _compare_repeated_input(spec, device, dtype, copies, first, second)
    of_first = [array for array in free_floats(copies) if array is getattr(copies.args[first], "values", None)]
    special = refilled(copies, with_number(np.nan, 0.5), "a NaN in it", chosen=of_first)
    if of_first and spec.reference is not None and is_safely_taken(spec, special):
        _compare_repeated_input(spec, device, dtype, special, first, second)


def _compare_repeated_input(spec: OpSpec, device: Device, dtype: Any, copies: Sample, first: int, second: int) -> None:
    """Pass the first array in both places, and compare with the reference's result for two equal arrays."""
    args, kwargs = copies.on(device)
    with np.errstate(all="ignore"):
        result = spec.run(device, (*args[:second], args[first], *args[second + 1 :]), kwargs)
    plain = functools.partial(verify, spec, device, dtype, [copies])
    with (
        on_sample(copies),
        _suppressed_unless(plain),
        explained("wrong if one array is passed twice, right for two equal ones"),
    ):
        compare(spec, device, dtype, copies, result)


@contextmanager
def _suppressed_unless(otherwise: Callable[[], None]) -> Iterator[None]:
    """Suppress a failed comparison inside, unless `otherwise`, the plain call, passes."""
    try:
        yield
    except AssertionError:
        try:
            otherwise()
        except AssertionError:
            return  # the function is wrong for equal inputs too: `values` reports that, or the reference is wrong
        raise


def _check_views(spec: OpSpec, device: Device) -> None:
    """Numbers written to the input appear in the result where NumPy returns a view of an input with that layout."""
    if not devices.capabilities(device).answer("views"):
        return
    dtype = plainest(spec, device)
    for sample, layout in product(few(spec, device, dtype), ("contiguous", "transposed", "strided")):
        laid_out = sample.laid_out(layout)
        with on_sample(laid_out):
            args, kwargs = laid_out.on(device)
            result = spec.run(device, args, kwargs)
            if not result.size:
                continue
            if _shares(device, result, each(args, kwargs)) != _is_view_in_numpy(spec, laid_out):
                raise AssertionError("the result is a view where NumPy's is a copy, or a copy where it is a view")
            if _is_view_in_numpy(spec, laid_out):
                other = turned(laid_out)
                overwrite(device, args, other)
                compare(spec, device, dtype, other, result)


def _is_view_in_numpy(spec: OpSpec, sample: Sample) -> bool:
    args, kwargs = sample.on("cpu")
    found = spec.reference(*args, **kwargs) if spec.reference is not None else None
    return bool(np.may_share_memory(found, args[0]))


def _check_dtypes(spec: OpSpec, device: Device) -> None:
    """Whether the result is a view must not depend on the input's dtype, as it does with ``astype(copy=False)``."""
    names = [name for name in spec.dtypes if is_float(as_dtype(name)) and spec.why_unsupported(device, name) is None]
    met: dict[bool, str] = {}
    for name in names if spec.op is None and len(names) > 1 else ():
        sample = one(spec, device, as_dtype(name), most=_FEW)
        with on_sample(sample):
            met.setdefault(_is_shared(spec, device, sample), name)
    if len(met) > 1:
        raise AssertionError(
            f"the result is the input, or a view of it, for {met[True]}, but a new array for {met[False]}: writing to "
            "the result then changes the input; copy in every case, for example by astype without copy=False"
        )


#: The most elements of a call that compares dtypes.
_FEW = 4096


def _always_copies(spec: OpSpec, sample: Sample) -> bool:
    """Whether there is a reference, and its result shares no memory with its arguments."""
    args, kwargs = sample.copied()
    with np.errstate(all="ignore"):
        given = spec.reference(*args, **kwargs) if spec.reference is not None else None
    return isinstance(given, np.ndarray) and not any(np.shares_memory(given, one) for one in arrays_of(args, kwargs))


def _check_transposed(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Whether the result is a view must not depend on the layout of the input."""
    transposed = sample.laid_out("transposed")
    if _is_shared(spec, device, sample) != _is_shared(spec, device, transposed):
        raise AssertionError(
            "the result is the input, or a view of it, in one layout, and a copy in another; the reference always "
            "returns a copy: writing to the result then changes the input; copy in every case\n"
            f"  sample: {sample.label}, contiguous and transposed"
        )


def _is_shared(spec: OpSpec, device: Device, sample: Sample) -> bool:
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        return _shares(device, spec.run(device, args, kwargs), each(args, kwargs))


#: Factor for the numbers of a sample: a function that changes only numbers beyond a limit must copy below it too.
_LARGER = 16.0


def _check_larger_numbers(spec: OpSpec, device: Device, sample: Sample) -> None:
    """A function that returns its input if there is nothing to change, such as a clamp, must copy in that case too."""
    beyond = refilled(sample, lambda array: (array * _LARGER).astype(array.dtype), f"times {_LARGER:g}")
    if not is_general(spec, sample) or not is_safely_taken(spec, beyond):
        return
    if _is_shared(spec, device, sample) and not _is_shared(spec, device, beyond):
        raise AssertionError(
            "the result is the input, or a view of it, for ordinary numbers, but a new array for larger ones: writing "
            f"to the result then changes the input; copy in every case\n  sample: {sample.label}"
        )


def _call_with_other_numbers(spec: OpSpec, device: Device, sample: Sample) -> None:
    other = sample
    for _ in range(_CALLS):
        other = turned(other)
        if is_safely_taken(spec, other):  # a positive definite matrix may not stay one when its elements are reordered
            run_sample(spec, device, other)


def _check_result_unchanged(now: Any, first: Any) -> None:
    if now.tobytes() != first.tobytes():
        raise AssertionError(
            "the result of one call changed when the function was called again with other numbers: it returns a buffer "
            "that it keeps; return a new array, or a copy"
        )


def _shares(device: Device, result: Any, given: Any) -> bool:
    backend = devices.backend(device.kind)
    arrays = [one for one in given if hasattr(one, "dtype") and backend.owns(type(one))]
    if not backend.owns(type(result)):
        return False
    return any(backend.overlap(result, one) != "none" for one in arrays)


def _is_rearrangement(result: Any, sample: Sample) -> bool:
    """Whether the result holds only elements of the inputs, as that of a transposition does."""
    given = [one for one in each(*sample.host()) if isinstance(one, np.ndarray) and one.dtype == result.dtype]
    if not given:
        return not result.size
    return bool(np.isin(_bits(result), np.concatenate([_bits(one) for one in given])).all())


def _bits(array: Any) -> NDArray[np.unsignedinteger[Any]]:
    """The elements as unsigned integers; the real and imaginary parts of complex128 numbers are separate elements."""
    dense = np.ascontiguousarray(array).reshape(-1)
    return dense.view(f"u{min(dense.itemsize, 8)}")
