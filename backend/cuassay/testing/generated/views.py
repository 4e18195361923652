"""A check of broadcast views: inputs whose first axis has a stride of 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import check, explained, is_function, on_sample, run_sample, runs_on_host
from cuassay.testing.generated.selection import one, plainest
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, is_permutation
from cuassay.testing.terms import arrays_of


@check(lambda spec: is_function(spec) and "inputs_unchanged" not in spec.without)
def check_broadcast_views(spec: OpSpec, device: Device) -> None:
    """Inputs whose first axis has a stride of zero, as `broadcast_to` makes them, give what dense ones do.

    Not for a function that writes its inputs: such a view is read-only.
    """
    dtype = plainest(spec, device)
    sample = one(spec, device, dtype, most=4096, axes=2)
    if any(is_permutation(array) for array in arrays_of(*sample.host())):
        return
    repeated = replace(sample, label=f"{sample.label}, first axis of stride 0")
    args, kwargs = repeated.changed(_first_row_repeated)
    dense = replace(repeated, args=args, kwargs=kwargs)
    if spec.refusal(dense) is not None or not runs_on_host(spec, dense):
        return
    with on_sample(dense), np.errstate(all="ignore"):
        xp = devices.namespace(device)
        try:
            compare(spec, device, dtype, dense, run_sample(spec, device, dense))
        except AssertionError:
            return  # equal rows alone are too much for it, as for one that divides by their deviation
        given, named = dense.on(device)
        broadcast = [_broadcast(xp, one_given) for one_given in given]
        with explained("right for dense inputs, wrong where the first axis has a stride of 0, as of broadcast_to"):
            compare(spec, device, dtype, dense, spec.run(device, broadcast, named))


def _first_row_repeated(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim or not value.size:
        return value
    return HostArray(np.ascontiguousarray(np.broadcast_to(value[:1], value.shape)))


def _broadcast(xp: Any, array: Any) -> Any:
    return xp.broadcast_to(array[:1], array.shape) if getattr(array, "ndim", 0) and array.size else array
