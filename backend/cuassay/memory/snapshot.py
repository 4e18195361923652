"""Every segment, block and event as plain data, in the schema of ``torch.cuda.memory._snapshot``; as files, and back.

JSON is ours by default: it is read anywhere, and by nobody who runs what is in it. The other format is torch's own, a
pickle of the same data, which its viewers open. In JSON each different stack is written once, and named by its number.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.errors import ArgumentError
from cuassay.memory.blocks import HOLE, LENT, Block, Segment

if TYPE_CHECKING:
    from cuassay.memory.history import Entry, Frames, History

__all__ = ["FORMATS", "combined", "describe_block", "describe_segment", "describe_traces", "dump", "load"]

#: JSON (gzipped where the name ends in .gz), and the pickle that torch's viewers open.
FORMATS = ("json", "torch")


def describe_segment(segment: Segment, history: History | None = None) -> list[dict[str, Any]]:
    """The entries of ``segments`` for `segment`: its figures, and its blocks by address.

    A range that grows is told as torch tells it: one entry for each run of memory. Addresses without memory are left
    out, and so is what is lent to another segment, which has an entry of its own.
    """
    runs: list[list[Block]] = [[]]
    is_whole = True
    for block in segment:
        if block.home is HOLE or block.home is LENT:
            is_whole = False
            runs.append([])
        else:
            runs[-1].append(block)
    return [_described(segment, run, history, is_whole=is_whole) for run in runs if run]


def _described(segment: Segment, blocks: list[Block], history: History | None, *, is_whole: bool) -> dict[str, Any]:
    live = [block for block in blocks if block.is_live]
    return {
        "device": 0,
        "address": blocks[0].address,
        "total_size": sum(block.nbytes for block in blocks),
        "allocated_size": sum(block.nbytes for block in live),
        "active_size": sum(block.nbytes for block in blocks if block.state != "inactive"),
        "requested_size": sum(block.requested for block in live),
        "stream": segment.lane.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": segment.lane.pool.id,
        "is_expandable": not is_whole,
        "frames": [],
        "blocks": [describe_block(block, history) for block in blocks],
    }


def describe_block(block: Block, history: History | None = None) -> dict[str, Any]:
    """One entry of a segment's ``blocks``."""
    frames: Frames = history.frames_of(block.address) if history is not None and block.is_live else ()
    return {
        "address": block.address,
        "size": block.nbytes,
        "requested_size": 0 if block.state == "inactive" else block.requested,
        "state": block.state,
        "frames": _frames(frames),
    }


def describe_traces(history: History) -> list[dict[str, Any]]:
    """One device's part of ``device_traces``: its events, the oldest first; equal stacks are one list."""
    stacks: dict[Frames, list[dict[str, Any]]] = {(): []}
    return [_event(entry, stacks) for entry in history.entries]


def _event(entry: Entry, stacks: dict[Frames, list[dict[str, Any]]]) -> dict[str, Any]:
    place = "device_free" if entry.action == "oom" else "addr"
    return {
        "action": entry.action,
        place: entry.address,
        "size": entry.nbytes,
        "stream": entry.stream,
        "time_us": entry.time_ns // 1000,
        "pool_id": entry.pool,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": stacks.get(entry.frames) or stacks.setdefault(entry.frames, _frames(entry.frames)),
    }


def _frames(frames: Frames) -> list[dict[str, Any]]:
    return [{"filename": code.co_filename, "line": line, "name": code.co_name} for code, line in frames]


def combined(snapshots: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """The snapshots of several devices, by index, as one."""
    whole: dict[str, Any] = {"segments": [], "device_traces": [], "allocator_settings": {}, "external_annotations": []}
    for index in range(max(snapshots, default=-1) + 1):
        found = snapshots.get(index, {})
        whole["segments"] += [{**segment, "device": index} for segment in found.get("segments", ())]
        whole["device_traces"].append(next(iter(found.get("device_traces", ())), []))
        whole["allocator_settings"].update(found.get("allocator_settings", {}))
    return whole


def dump(snapshot: Mapping[str, Any], path: str | Path, format: str = "json") -> None:  # noqa: A002  as torch's name
    """Write `snapshot` to `path`.

    Parameters
    ----------
    snapshot : mapping
        What ``snapshot()`` of an allocator gave, or `combined`.
    path : str or Path
        The file; JSON is compressed where it ends in ``.gz``.
    format : str
        ``"json"``, or ``"torch"``: the pickle that ``torch.cuda._memory_viz`` and pytorch.org/memory_viz open.

    Raises
    ------
    ArgumentError
        If there is no such format.
    """
    if format not in FORMATS:
        raise ArgumentError(f"a snapshot's format is one of {', '.join(FORMATS)}; got {format!r}; choose one")
    data = pickle.dumps(dict(snapshot), protocol=4) if format == "torch" else json.dumps(_packed(snapshot)).encode()
    path = Path(path)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def load(path: str | Path) -> dict[str, Any]:
    """A snapshot that `dump`, or torch, wrote.

    A pickle is read by an unpickler that knows plain data only: nothing in a file from elsewhere is run.

    Raises
    ------
    ArgumentError
        If the file holds no snapshot.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}; give a file that dump_snapshot wrote") from error
    try:
        found = _read(data)
    except Exception as error:  # a spoilt file can raise whatever its reader does
        raise ArgumentError(f"{path} holds no snapshot: {_told(error)}; write one with dump_snapshot") from error
    return found


#: What every segment, block and event has; torch leaves out the stacks of those that have none.
_SEGMENT = ("address", "total_size", "stream", "blocks")
_BLOCK = ("address", "size", "state")
_EVENT = ("action", "size", "stream")


def _read(data: bytes) -> dict[str, Any]:
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    found = _unpacked(json.loads(data)) if data[:1] in b"{ \n" else _Plain(data).load()
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise ValueError("it has no segments")  # noqa: TRY004  of the file, not of an argument
    for segment in found["segments"]:
        _demand("segment", segment, _SEGMENT)
        for block in segment["blocks"]:
            _demand("block", block, _BLOCK)
            block.setdefault("frames", [])
    for event in (event for trace in found.setdefault("device_traces", []) for event in trace):
        _demand("event", event, _EVENT)
        event.setdefault("frames", [])
    return found


def _demand(what: str, entry: Any, keys: tuple[str, ...]) -> None:
    missing = keys if not isinstance(entry, dict) else [key for key in keys if key not in entry]
    if missing:
        raise ValueError(f"one {what} of it has no {', '.join(missing)}")


def _told(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def _packed(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """With numbers in the place of stacks, which are in a list of their own."""
    numbers: dict[str, int] = {}
    known: dict[int, int] = {}  # by the list itself: most are shared

    def number(frames: list[dict[str, Any]]) -> int:
        if id(frames) not in known:
            known[id(frames)] = numbers.setdefault(json.dumps(frames), len(numbers))
        return known[id(frames)]

    packed = _with_frames(snapshot, number)
    return packed | {"stacks": [json.loads(text) for text in numbers]}


def _unpacked(found: dict[str, Any]) -> dict[str, Any]:
    stacks = found.pop("stacks", None)
    return found if stacks is None else _with_frames(found, stacks.__getitem__)


def _with_frames(snapshot: Mapping[str, Any], put: Callable[[Any], Any]) -> dict[str, Any]:
    segments = [
        {
            **segment,
            "frames": put(segment["frames"]),
            "blocks": [{**block, "frames": put(block["frames"])} for block in segment["blocks"]],
        }
        for segment in snapshot["segments"]
    ]
    traces = [[{**event, "frames": put(event["frames"])} for event in trace] for trace in snapshot["device_traces"]]
    return {**snapshot, "segments": segments, "device_traces": traces}


class _Plain(pickle.Unpickler):
    """Numbers, text, lists, tuples and dictionaries."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a snapshot is plain data")
