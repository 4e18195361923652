"""A check of inputs that are broadcast: by a stride of 0 along the first axis, or by an extent of 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import (
    check,
    explained,
    is_function,
    is_safely_taken,
    on_sample,
    run_sample,
)
from cuassay.testing.generated.selection import axes_of, by_options, one, plainest, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, is_permutation
from cuassay.testing.terms import arrays_of


@check(lambda spec: is_function(spec) and "inputs_unchanged" not in spec.without)
def check_broadcast_views(spec: OpSpec, device: Device) -> None:
    """Inputs whose first axis has a stride of zero, as `broadcast_to` makes them, give what dense ones do.

    If the samples show that inputs may be broadcast, extents of 1 are checked too, where the reference accepts them.
    Functions that write to their inputs are left out, because such a view is read-only.
    """
    dtype = plainest(spec, device)
    _check_extents_of_one(spec, device, dtype)
    sample = one(spec, device, dtype, most=4096, axes=2)
    if any(is_permutation(array) for array in arrays_of(*sample.host())):
        return
    repeated = replace(sample, label=f"{sample.label}, first axis of stride 0")
    args, kwargs = repeated.changed(_first_row_repeated)
    dense = replace(repeated, args=args, kwargs=kwargs)
    if not is_safely_taken(spec, dense):
        return
    with on_sample(dense), np.errstate(all="ignore"):
        xp = devices.namespace(device)
        try:
            compare(spec, device, dtype, dense, run_sample(spec, device, dense))
        except AssertionError:
            return  # wrong for equal rows even if they are dense, as a division by their deviation is
        given, named = dense.on(device)
        broadcast = [_broadcast(xp, one_given) for one_given in given]
        with explained("right for dense inputs, wrong where the first axis has a stride of 0, as of broadcast_to"):
            compare(spec, device, dtype, dense, spec.run(device, broadcast, named))


def _check_extents_of_one(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Reduce one axis of one input to an extent of 1, or all, if the reference gives the same for repeated inputs."""
    if spec.is_its_own_reference or spec.has_default_samples:
        return
    if not any(_broadcasts(sample) for sample in samples_of(spec, device, dtype, "values", "broadcast")):
        return
    several = by_options(spec, device, dtype, most=4096)
    if all(axes_of(sample) < 2 for sample in several):
        several.append(one(spec, device, dtype, most=4096, axes=2))
    for sample in several:
        shape = spec.expected(sample).shape
        for single, wanted in (*((single, shape) for single in _with_extents_of_one(sample)), *_of_one_element(sample)):
            if _is_broadcast(spec, single, wanted):
                with on_sample(single), explained("wrong where an input that is broadcast has an extent of 1"):
                    compare(spec, device, dtype, single, run_sample(spec, device, single))


def _broadcasts(sample: Sample) -> bool:
    """Whether two inputs with more than one element have different shapes that broadcast to one of them."""
    shapes = {array.shape for array in arrays_of(*sample.host()) if array.size > 1}
    try:
        return len(shapes) > 1 and np.broadcast_shapes(*shapes) in shapes
    except ValueError:
        return False


def _is_broadcast(spec: OpSpec, sample: Sample, shape: tuple[int, ...]) -> bool:
    """Whether the reference gives a result of that shape, and the same if the inputs are broadcast explicitly."""
    try:
        whole = np.broadcast_shapes(*(array.shape for array in arrays_of(*sample.host())))
    except ValueError:
        return False
    args, kwargs = sample.changed(
        lambda value: HostArray(np.broadcast_to(value, whole).copy()) if isinstance(value, np.ndarray) else value
    )
    dense = replace(sample, args=args, kwargs=kwargs)
    if not is_safely_taken(spec, sample) or not is_safely_taken(spec, dense):
        return False
    expected, other = spec.expected(sample), spec.expected(dense)
    return expected.shape == other.shape == shape and bool(np.allclose(expected, other, equal_nan=True))


def _with_extents_of_one(sample: Sample) -> Iterator[Sample]:
    arrays = arrays_of(*sample.host())
    for place, array in enumerate(arrays):
        for axis in range(array.ndim if len(arrays) > 1 else 0):
            if array.shape[axis] > 1:
                single = HostArray(np.ascontiguousarray(array.take([0], axis)))
                args, kwargs = sample.changed(partial(_replaced, array, single))
                label = f"{sample.label}, axis {axis} of input {place} of extent 1"
                yield replace(sample, args=args, kwargs=kwargs, label=label)


def _of_one_element(sample: Sample) -> Iterator[tuple[Sample, tuple[int, ...]]]:
    """Give one input one element with an axis more than the others have, as a scalar with ``keepdims`` is."""
    arrays = arrays_of(*sample.host())
    for place, array in enumerate(arrays if len(arrays) == 2 else ()):
        other = arrays[1 - place]
        if array.size > 1 and other.size > 1:
            single = HostArray(array.reshape(-1)[:1].reshape((1,) * (other.ndim + 1)).copy())
            args, kwargs = sample.changed(partial(_replaced, array, single))
            label = f"{sample.label}, input {place} of shape {single.shape}"
            yield replace(sample, args=args, kwargs=kwargs, label=label), (1, *other.shape)


def _replaced(old: Any, new: Any, value: Any) -> Any:
    return new if value is old else value


def _first_row_repeated(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim or not value.size:
        return value
    return HostArray(np.ascontiguousarray(np.broadcast_to(value[:1], value.shape)))


def _broadcast(xp: Any, array: Any) -> Any:
    return xp.broadcast_to(array[:1], array.shape) if getattr(array, "ndim", 0) and array.size else array
