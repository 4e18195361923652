"""A check with chains: graphs in which each node is linked only to the next, so that information takes many steps.

In a random dense graph a few steps reach every node. A loop with a fixed number of steps is right for such graphs and
wrong for a chain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import filled_from, is_safely_taken, run_sample
from cuassay.testing.generated.selection import one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray

__all__ = ["check_chains"]

#: The most elements of a sample.
_MOST_ELEMENTS = 9000


def check_chains(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Check adjacency matrices and predecessor indices that describe a chain.

    A square array of truth values has one True in each row, next to the diagonal. Each index names the node before.
    """
    if spec.op is not None or spec.is_its_own_reference:
        return
    like = one(spec, device, dtype, most=_MOST_ELEMENTS)
    args = tuple(_chained(given) for given in like.args)
    sample = replace(like, args=args, label=f"{like.label}, a chain: each node is linked only to the next")
    is_changed = any(new is not old for new, old in zip(args, like.args, strict=True))
    if is_changed and is_safely_taken(spec, sample):
        with filled_from(spec, device, dtype, like, sample):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample))


def _chained(given: Any) -> Any:
    """The array as a chain, if it may be an adjacency matrix or the predecessors of nodes; otherwise unchanged."""
    if not isinstance(given, HostArray) or given.values.size < _LEAST:
        return given
    shape, count = given.shape, given.values.size
    if given.dtype == np.bool_ and given.is_free and len(shape) >= 2 and shape[-1] == shape[-2]:
        return HostArray(np.broadcast_to(np.eye(shape[-1], k=1, dtype=np.bool_), shape).copy())
    is_index = given.dtype.kind in "iu" and given.span is not None and not given.is_free
    if is_index and len(shape) == 1 and given.span is not None and tuple(map(int, given.span)) == (0, count - 1):
        return HostArray(np.maximum(np.arange(count) - 1, 0).astype(given.dtype))
    return given


#: The smallest array that is treated as a graph has this many elements.
_LEAST = 4
