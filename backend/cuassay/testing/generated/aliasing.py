"""A check of memory that results share: with a buffer that is kept, or with an input in some calls only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, is_float
from cuassay.core.device import Device
from cuassay.testing.generated.execution import check, is_safely_taken, on_sample, run_sample, turned
from cuassay.testing.generated.numbers import is_general, refilled
from cuassay.testing.generated.selection import few, one, plainest
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample, each
from cuassay.testing.terms import arrays_of

#: Calls on other numbers after the first: what is kept in two or three buffers in turn is found.
_CALLS = 3


@check(lambda spec: spec.op is None or bool(spec.op.schema.outputs))
def check_aliasing(spec: OpSpec, device: Device) -> None:
    """A result is an array of its own: later calls leave it as it was, and it is not at times a view of an input."""
    shared: list[Sample] = []
    others: list[Sample] = []
    computes = False
    for sample in few(spec, device, plainest(spec, device)):
        with on_sample(sample), np.errstate(all="ignore"):
            args, kwargs = sample.on(device)
            result = spec.run(device, args, kwargs)
            if not hasattr(result, "shape") or not result.size:
                continue
            first = devices.to_host(result)
            _call_on_others(spec, device, sample)
            _check_kept(devices.to_host(result), first)
            (shared if _shares(device, result, each(args, kwargs)) else others).append(sample)
            computes = computes or not _is_moved(first, sample)
    if shared and computes:
        raise AssertionError(
            f"the result is a view of an input, or the input itself, for sample {shared[0].label}, and computed for "
            "others: who writes into the result then writes into the input; return a copy"
        )
    _check_dtypes(spec, device)
    if not computes:
        for sample in (*shared, *others):
            if _always_copies(spec, sample):
                _check_transposed(spec, device, sample)
                _check_beyond(spec, device, sample)


def _check_dtypes(spec: OpSpec, device: Device) -> None:
    """Whether the result is a view must not depend on the dtype of the input, as that of a cast without a copy does."""
    names = [name for name in spec.dtypes if is_float(as_dtype(name)) and spec.why_unsupported(device, name) is None]
    met: dict[bool, str] = {}
    for name in names if spec.op is None and len(names) > 1 else ():
        sample = one(spec, device, as_dtype(name), most=_FEW)
        with on_sample(sample):
            met.setdefault(_is_shared(spec, device, sample), name)
    if len(met) > 1:
        raise AssertionError(
            f"the result is the input, or a view of it, for {met[True]}, and an array of its own for {met[False]}: who "
            "writes into the result then writes into the input; copy in every case, as by astype without copy=False"
        )


#: Elements of a call at most.
_FEW = 4096


def _always_copies(spec: OpSpec, sample: Sample) -> bool:
    """Whether the reference, which is another function, gives an array of its own."""
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
            "gives a copy: who writes into the result then writes into the input; copy in every case\n"
            f"  sample: {sample.label}, contiguous and transposed"
        )


def _is_shared(spec: OpSpec, device: Device, sample: Sample) -> bool:
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        return _shares(device, spec.run(device, args, kwargs), each(args, kwargs))


#: By how much numbers are larger, for a function that changes only those beyond a limit.
_LARGER = 16.0


def _check_beyond(spec: OpSpec, device: Device, sample: Sample) -> None:
    """What gives back its input where there is nothing to do, as of a limit, must copy there too."""
    beyond = refilled(sample, lambda array: (array * _LARGER).astype(array.dtype), f"times {_LARGER:g}")
    if not is_general(spec, sample) or not is_safely_taken(spec, beyond):
        return
    if _is_shared(spec, device, sample) and not _is_shared(spec, device, beyond):
        raise AssertionError(
            "the result is the input, or a view of it, for ordinary numbers, and an array of its own for larger ones: "
            f"who writes into the result then writes into the input; copy in every case\n  sample: {sample.label}"
        )


def _call_on_others(spec: OpSpec, device: Device, sample: Sample) -> None:
    other = sample
    for _ in range(_CALLS):
        other = turned(other)
        run_sample(spec, device, other)


def _check_kept(now: Any, first: Any) -> None:
    if now.tobytes() != first.tobytes():
        raise AssertionError(
            "the result of one call changed when the function was called again on other numbers: it returns a buffer "
            "that it keeps; return a new array, or a copy"
        )


def _shares(device: Device, result: Any, given: Any) -> bool:
    backend = devices.backend(device.kind)
    arrays = [one for one in given if hasattr(one, "dtype") and backend.owns(type(one))]
    if not backend.owns(type(result)):
        return False
    return any(one.size and backend.overlap(result, one) != "none" for one in arrays)


def _is_moved(result: Any, sample: Sample) -> bool:
    """Whether the result holds nothing but elements of the inputs, as a transposition's does."""
    given = [one for one in each(*sample.host()) if isinstance(one, np.ndarray) and one.dtype == result.dtype]
    found = {bits for one in given for bits in _bits(one)}
    return set(_bits(result)) <= found


def _bits(array: Any) -> Sequence[bytes]:
    dense = np.ascontiguousarray(array).reshape(-1)
    return [item.tobytes() for item in dense.view(f"V{dense.itemsize}")]
