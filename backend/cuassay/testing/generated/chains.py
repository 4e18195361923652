"""A check with chains: graphs in which each node is linked only to the next, so that information takes many steps.

In a random dense graph a few steps reach every node. A loop with a fixed number of steps is right for such graphs and
wrong for a chain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.execution import compare_filled
from cuassay.testing.generated.filling import is_changed
from cuassay.testing.generated.selection import by_options
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray

__all__ = ["check_chains"]

#: The most elements of a sample.
_MOST_ELEMENTS = 9000


def check_chains(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Check adjacency matrices, predecessor indices and lists of edges that describe a chain, with each set of options.

    A square array of truth values has one True in each row, next to the diagonal. Each index names the node before. Of
    two index arrays of one range, the first names a node and the second one the next node.
    """
    if spec.op is not None or spec.is_its_own_reference:
        return
    for like in by_options(spec, device, dtype, most=_MOST_ELEMENTS):
        args = _edges(like.args) or tuple(_chained(given) for given in like.args)
        sample = replace(like, args=args, label=f"{like.label}, a chain: each node is linked only to the next")
        if is_changed(args, like.args):
            compare_filled(spec, device, dtype, like, sample)


def _edges(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with their first two index arrays as the edges of a chain; None if they hold no list of edges."""
    places = [place for place, given in enumerate(args) if _is_index(given)]
    if len(places) != 2:
        return None
    sources, targets = (args[place] for place in places)
    last = int(sources.span[1])
    if (sources.shape, sources.span) != (targets.shape, targets.span) or not _LEAST <= last <= sources.values.size:
        return None
    steps = np.minimum(np.arange(sources.values.size), last - 1)
    linked = {places[0]: steps.astype(sources.dtype), places[1]: (steps + 1).astype(targets.dtype)}
    return tuple(HostArray(linked[place]) if place in linked else given for place, given in enumerate(args))


def _is_index(given: Any) -> bool:
    """Whether it is a vector of integers drawn from a range that begins with 0."""
    if not isinstance(given, HostArray) or given.dtype.kind not in "iu" or given.span is None:
        return False
    return len(given.shape) == 1 and int(given.span[0]) == 0


def _chained(given: Any) -> Any:
    """The array as a chain, if it may be an adjacency matrix or the predecessors of nodes; otherwise unchanged."""
    if not isinstance(given, HostArray) or given.values.size < _LEAST:
        return given
    shape, count = given.shape, given.values.size
    if given.dtype == np.bool_ and given.is_free and len(shape) >= 2 and shape[-1] == shape[-2]:
        return HostArray(np.broadcast_to(np.eye(shape[-1], k=1, dtype=np.bool_), shape).copy())
    if _is_index(given) and given.span is not None and int(given.span[1]) == count - 1:
        return HostArray(np.maximum(np.arange(count) - 1, 0).astype(given.dtype))
    return given


#: The smallest array that is treated as a graph has this many elements.
_LEAST = 4
