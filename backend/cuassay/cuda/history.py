"""What the allocators did, with stacks, by torch's names: recorded, looked at, written for viewers.

``torch.cuda.memory`` has these with an underscore; they are there too, as in `cuassay.cuda.memory`.
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
    """Keep what the allocators of `device`, and of every device used so far, do from here, with stacks.

    Parameters
    ----------
    enabled : str or None
        ``"all"`` keeps events and the stacks of live blocks, ``"state"`` the stacks alone; None stops, and keeps both.
    context : str or None
        Of which events stacks are kept: none, live blocks (``"state"``), requests too (``"alloc"``), all.
    stacks : str
        ``"python"`` or ``"all"``, which is the same here: no C++ of ours asks for memory.
    max_entries : int
        Events kept of each device; the oldest go.
    device : int, str or Device, optional
        One to begin with, where it was not used yet; None is the current one.
    clear_history : bool
        Forget what was kept before.
    skip_actions : collection of str
        Actions not to keep, such as ``"free_requested"``.
    record_pinned_host_memory : bool
        Pinned host memory too: ``host_segments`` and ``host_traces`` of `snapshot`.

    Raises
    ------
    ArgumentError
        If a value is not one of those there are.
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
    """Every segment, block and recorded event of every device as plain data, in the schema of torch's ``_snapshot``.

    Parameters
    ----------
    device : int, str or Device, optional
        Accepted as torch accepts it: the snapshot is of all devices.
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
    """Of one device: the allocator of now, with the segments of those before it."""
    now = snapshots[-1]
    return {**now, "segments": [segment for found in snapshots for segment in found["segments"]]}


def dump_snapshot(filename: str | Path = "dump_snapshot.json", format: str = "json") -> None:  # noqa: A002  a word
    """Write `snapshot` to a file, for ``cuassay memory viz`` or torch's viewers.

    Parameters
    ----------
    filename : str or Path
        The file.
    format : str
        ``"json"``, or ``"torch"``: the pickle that torch's viewers open.

    Raises
    ------
    ArgumentError
        If there is no such format.
    """
    from cuassay.memory.snapshot import dump

    dump(snapshot(), filename, format)
