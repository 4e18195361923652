"""The errors for memory that is freed before the work that uses it."""

from __future__ import annotations

from cuassay.core.callers import is_shipped
from cuassay.errors import RaceError
from cuassay.order.accesses import Access
from cuassay.order.clock import Queue
from cuassay.order.extents import Extent
from cuassay.order.recording import Launch
from cuassay.order.sites import call_site

__all__ = ["early_free", "replayed_free"]


def early_free(memory: str, owner: Queue, old: Access) -> RaceError:
    """Return the error for a block of `owner` that is freed although `old` is not ordered before the free."""
    site, user = call_site(), old.queue
    # A user's function that drops an array as it returns appears to drop it at the harness line that called it.
    where = "" if is_shipped(site[0]) else f" at {site[0]}:{site[1]}"
    return RaceError(
        f"{memory}: early free{where} of {owner.label}'s memory, not ordered after the {old}; "
        f"the memory may be used again too soon: insert {owner.variable}.wait_stream({user.variable}) before the "
        f"array is dropped, or array.record_stream({user.variable})"
    )


def replayed_free(node: Launch, extent: Extent, *, write: bool) -> RaceError:
    """Return the error for a replay of `node`, which accesses `extent`, whose memory was freed since the capture."""
    verb = "writes" if write else "reads"
    return RaceError(
        f"{extent.memory}: early free: a replay of {node.name}, captured at {node.site[0]}:{node.site[1]}, {verb} a "
        f"{extent.dtype} array of shape {extent.shape} at {extent.place}, whose memory was freed since; keep the "
        "arrays that a graph uses for as long as it is replayed"
    )
