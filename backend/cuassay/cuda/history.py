"""The history of the allocators, with stacks, under torch's names: record it, inspect it, write it for viewers.

In ``torch.cuda.memory`` these names begin with an underscore; `cuassay.cuda.memory` has those names too.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cuassay.cuda.naming import DeviceLike, index_of

__all__ = ["dump_snapshot", "record_memory_history", "snapshot"]


def record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    *,
    clear_history: bool = False,
    skip_actions: Collection[str] = (),
    record_pinned_host_memory: bool = False,
) -> None:
    """Record the actions of the allocators of `device`, and of every device used so far, with stacks.

    Parameters
    ----------
    enabled : str or None
        ``"all"`` records events and the stacks of live blocks, ``"state"`` only the stacks; None stops and keeps both.
    context : str or None
        The events whose stacks are kept: none (None), live blocks (``"state"``), also requests (``"alloc"``), or all.
    stacks : str
        ``"python"`` or ``"all"``; both mean the same, because no C++ code of the package allocates.
    max_entries : int
        The number of events kept per device; the oldest are dropped.
    device : int, str or Device, optional
        A device to record even if it has not been used yet; None is the current device.
    clear_history : bool
        Whether to drop earlier records.
    skip_actions : collection of str
        Actions not to record, such as ``"free_requested"``.
    record_pinned_host_memory : bool
        Whether to record pinned host memory too, as ``host_segments`` and ``host_traces`` of `snapshot`.

    Raises
    ------
    ArgumentError
        If a value is not one of these.
    """
    options = {"context": context, "stacks": stacks, "max_entries": max_entries, "skip_actions": skip_actions}
    for allocator in _watched(device, with_host=record_pinned_host_memory):
        allocator.record_history(enabled, clear_history=clear_history, **options)


def _watched(device: DeviceLike, *, with_host: bool) -> list[Any]:
    from cuassay.devices.cuda.memory import allocator as allocators
    from cuassay.devices.cuda.memory import pinned

    allocators.allocator(index_of(device))
    found: list[Any] = [one for index in allocators.indices() for one in allocators.every_allocator(index)]
    host = pinned.allocator() if with_host else pinned.opened()
    return found if host is None or not (with_host or host.history) else [*found, host]


def snapshot(device: DeviceLike = None) -> dict[str, Any]:
    """Return all segments, blocks and recorded events of all devices as plain data, in torch's ``_snapshot`` schema.

    Parameters
    ----------
    device : int, str or Device, optional
        Accepted for compatibility with torch; the snapshot covers all devices.
    """
    del device
    from cuassay.devices.cuda.memory import allocator as allocators
    from cuassay.devices.cuda.memory import pinned
    from cuassay.memory.snapshot import combined

    found = combined(
        {index: _whole([one.snapshot() for one in allocators.every_allocator(index)]) for index in allocators.indices()}
    )
    host = pinned.opened()
    held = None if host is None else host.snapshot()
    found["host_segments"] = [] if held is None else held["segments"]
    found["host_traces"] = [] if held is None else held["device_traces"]
    return found


def _whole(snapshots: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one device's snapshot: the current allocator's, with the segments of earlier allocators."""
    now = snapshots[-1]
    return {**now, "segments": [segment for found in snapshots for segment in found["segments"]]}


def dump_snapshot(filename: str | Path = "dump_snapshot.json", format: str = "json") -> None:  # noqa: A002  a word
    """Write `snapshot` to a file, for ``cuassay memory viz`` or torch's viewers.

    Parameters
    ----------
    filename : str or Path
        The file.
    format : str
        ``"json"``, or ``"torch"`` for the pickle that torch's viewers open.

    Raises
    ------
    ArgumentError
        If there is no such format.
    """
    from cuassay.memory.snapshot import dump

    dump(snapshot(), filename, format)
