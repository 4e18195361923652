"""A check of functions that take or return lists of arrays: the number of arrays, and the shape and dtype of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.answers import members
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import check, explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.options import runs
from cuassay.testing.generated.selection import by_options, few, plainest
from cuassay.testing.generated.sizes import check_larger
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample

#: Lengths of lists: a single array, and more arrays than multi-tensor kernels take in one chunk.
_COUNTS = (1, 2, 9, 33, 130)

#: The most elements of a call.
_MOST = 4096


@check(lambda spec: spec.op is None and spec.has_lists)
def check_lists(spec: OpSpec, device: Device) -> None:
    """Lists of 1 to 130 arrays are computed right; a returned list has the right length, shapes and dtypes."""
    dtype = plainest(spec, device)
    for sample in few(spec, device, dtype):
        with on_sample(sample):
            _check_members(spec, device, sample)
    for sample in by_options(spec, device, dtype, most=_MOST):
        for other in _of_other_counts(sample):
            if is_safely_taken(spec, other):
                with on_sample(other):
                    _check_members(spec, device, other)
                    check_larger(spec, device, dtype, other, sample)
        for other in _with_empty_member(sample):
            if is_safely_taken(spec, other) and runs(spec, device, other):
                with on_sample(other), explained("wrong where one array of a list has no elements: is it left out?"):
                    _check_members(spec, device, other)
                    compare(spec, device, dtype, other, run_sample(spec, device, other))


def _check_members(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Compare number, shapes and dtypes of returned arrays: values are compared after joining, which hides these."""
    if spec.refusal(sample) is not None:
        return
    wanted, got = members(spec.answers(sample)), _returned(spec, device, sample)
    if len(got) != len(wanted):
        raise AssertionError(f"the result is a list of {len(got)} arrays; expected {len(wanted)}")
    on_host = _dtypes(spec, sample)
    for place, (one, right) in enumerate(zip(got, wanted, strict=True)):
        if np.shape(one) != np.shape(right):
            raise AssertionError(
                f"result {place} of the list has the shape {np.shape(one)}; expected {np.shape(right)}"
            )
        if on_host and hasattr(one, "dtype") and dtype_name(one.dtype) != on_host[place]:
            raise AssertionError(f"result {place} of the list is {dtype_name(one.dtype)}; expected {on_host[place]}")


def _returned(spec: OpSpec, device: Device, sample: Sample) -> list[Any]:
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"), devices.backend(device.kind).activate(device.index):
        return members(spec.apply(device, args, kwargs))


def _dtypes(spec: OpSpec, sample: Sample) -> list[str]:
    """The dtypes that the function gives on the host; empty if it does not run there."""
    try:
        return [dtype_name(np.asarray(one).dtype) for one in _returned(spec, Device("cpu"), sample)]
    except Exception:  # noqa: BLE001  a function for one library may reject the host's arrays in any way
        return []


def _of_other_counts(sample: Sample) -> Iterator[Sample]:
    """The call with lists of each length in `_COUNTS`, made by repeating arrays; all lists must have one length."""
    lengths = {len(one) for one in (*sample.args, *sample.kwargs.values()) if isinstance(one, list)}
    if len(lengths) != 1 or not (length := lengths.pop()):
        return
    for count in _COUNTS:
        if count != length:
            args = tuple(_of_length(one, count) for one in sample.args)
            kwargs = {name: _of_length(one, count) for name, one in sample.kwargs.items()}
            yield replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, lists of {count}")


def _with_empty_member(sample: Sample) -> Iterator[Sample]:
    """The call with a list of which the middle array has no elements along one of its axes, for each axis."""
    named = (*enumerate(sample.args), *sample.kwargs.items())
    lists = [(name, value) for name, value in named if isinstance(value, list)]
    if len(lists) != 1:
        return
    ((name, arrays),) = lists
    middle = len(arrays) // 2
    if not arrays or not isinstance(arrays[middle], HostArray):
        return
    shape = arrays[middle].shape
    for axis in range(len(shape)):
        empty = np.empty((*shape[:axis], 0, *shape[axis + 1 :]), arrays[middle].dtype)
        changed = [*arrays[:middle], HostArray(empty), *arrays[middle + 1 :]]
        args = tuple(changed if place == name else value for place, value in enumerate(sample.args))
        kwargs = {key: changed if key == name else value for key, value in sample.kwargs.items()}
        label = f"{sample.label}, array {middle} of the list has shape {empty.shape}"
        yield replace(sample, args=args, kwargs=kwargs, label=label)


def _of_length(value: Any, count: int) -> Any:
    return [value[place % len(value)] for place in range(count)] if isinstance(value, list) else value
