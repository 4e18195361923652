"""Every segment, block and event as plain data, in the schema of ``torch.cuda.memory._snapshot``, and its files.

JSON is the default: it can be read anywhere, and reading it runs no code. The other format is torch's own, a pickle of
the same data, which its viewers open. In JSON each different stack is written once and referred to by its number.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.errors import ArgumentError
from cuassay.memory.blocks import HOLE, LENT, Block, Segment

if TYPE_CHECKING:
    from cuassay.memory.heap import Heap
    from cuassay.memory.history import Entry, Frames, History

__all__ = [
    "FORMATS",
    "combined",
    "describe_block",
    "describe_segment",
    "describe_traces",
    "dump",
    "load",
    "take_snapshot",
]

#: JSON (gzipped if the name ends in .gz), and the pickle that torch's viewers open.
FORMATS = ("json", "torch")


def take_snapshot(heap: Heap) -> dict[str, Any]:
    """Return every segment, block and recorded event of one allocator."""
    with heap.lock:
        history = heap.history
        segments = [entry for segment in heap.every_segment() for entry in describe_segment(segment, history)]
        config = str(heap.config)
        traces = [] if history is None else [describe_traces(history)]
        if history is not None:  # the next snapshot shows that this one was taken
            history.note_snapshot(sum(entry["active_size"] for entry in segments))
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {"CUASSAY_ALLOC_CONF": config},
        "external_annotations": [],
    }


def describe_segment(segment: Segment, history: History | None = None) -> list[dict[str, Any]]:
    """Return the entries of ``segments`` for `segment`: its figures, and its blocks by address.

    As in torch, a range that grows has one entry for each run of memory. Addresses without memory are omitted, and so
    is memory lent to another segment, which has a separate entry.
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
        "stream": segment.stream_pool.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": segment.stream_pool.pool.id,
        "is_expandable": not is_whole,
        "frames": [],
        "blocks": [describe_block(block, history) for block in blocks],
    }


def describe_block(block: Block, history: History | None = None) -> dict[str, Any]:
    """Return one entry of a segment's ``blocks``."""
    frames: Frames = history.frames_of(block.address) if history is not None and block.is_live else ()
    return {
        "address": block.address,
        "size": block.nbytes,
        "requested_size": 0 if block.state == "inactive" else block.requested,
        "state": block.state,
        "frames": _frames(frames),
    }


def describe_traces(history: History) -> list[dict[str, Any]]:
    """Return one device's part of ``device_traces``: its events, the oldest first; equal stacks share one list."""
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
    """Combine the snapshots of several devices, by index."""
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
        The result of ``snapshot()`` of an allocator, or of `combined`.
    path : str or Path
        The file; JSON is compressed if the name ends in ``.gz``.
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
    """Load a snapshot that `dump`, or torch, wrote.

    The unpickler accepts only plain data, so nothing in a foreign file is executed.

    Raises
    ------
    ArgumentError
        If the file is not a snapshot.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}; give a file that dump_snapshot wrote") from error
    try:
        found = _read(data)
    except Exception as error:  # a damaged file can raise any error of its reader
        raise ArgumentError(f"{path} holds no snapshot: {_reason(error)}; write one with dump_snapshot") from error
    return found


#: The fields that every segment, block, event and frame has, with their types.
_SEGMENT = {"address": int, "total_size": int, "stream": int, "blocks": list}
_BLOCK = {"address": int, "size": int, "state": str}
_EVENT = {"action": str, "size": int, "stream": int}
_MOVE = {**_EVENT, "addr": int}
_FRAME = {"filename": str, "line": int, "name": str}

#: Fields that some writers omit, with defaults: torch omits missing stacks, and its earlier releases omit the times.
_SEGMENT_DEFAULTS = {"device": 0, "allocated_size": 0}
_BLOCK_DEFAULTS = {"requested_size": 0}
_EVENT_DEFAULTS = {"time_us": 0}
_NOTHING: Mapping[str, int] = {}

#: Addresses and sizes have 64 bits; a larger number means a damaged file.
_LARGEST = 2**64

#: The index of a device is an index into the list of traces.
_MOST_DEVICES = 2**16

#: Events that concern memory at an address; other events are only counted.
_MOVES = ("alloc", "free_completed")


def _read(data: bytes) -> dict[str, Any]:
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if data[:1] not in (b"{", b" ", b"\n", b"\x80"):
        raise ValueError("it is neither an object of JSON nor a pickle" if data else "it is empty")
    found = _Plain(data).load() if data[:1] == b"\x80" else _unpacked(json.loads(data))
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise ValueError("it has no segments")  # noqa: TRY004  the file is wrong, not an argument
    checked: set[int] = set()
    found.setdefault("device_traces", [])
    for name in ("segments", "host_segments"):
        for segment in _listed(found, name):
            _check_segment(segment, checked)
    for name in ("device_traces", "host_traces"):
        for trace in _listed(found, name):
            _check_trace(trace, checked)
    return found


def _listed(found: dict[str, Any], name: str) -> list[Any]:
    listed = found.get(name) or []
    if not isinstance(listed, list):
        raise ValueError(f"its {name} are of type {type(listed).__name__}")  # noqa: TRY004
    return listed


def _check_segment(segment: Any, checked: set[int]) -> None:
    _demand("segment", segment, _SEGMENT, _SEGMENT_DEFAULTS)
    if not 0 <= segment["device"] < _MOST_DEVICES:
        raise ValueError(f"the device of one segment of it is {segment['device']}")
    for block in segment["blocks"]:
        _demand("block", block, _BLOCK, _BLOCK_DEFAULTS)
        _check_frames(block, checked)


def _check_trace(trace: Any, checked: set[int]) -> None:
    if not isinstance(trace, list):
        raise ValueError(f"one trace of it is of type {type(trace).__name__}")  # noqa: TRY004
    for event in trace:
        _demand("event", event, _EVENT, _EVENT_DEFAULTS)
        if event["action"] in _MOVES:
            _demand("event", event, _MOVE)
        _check_frames(event, checked)


def _check_frames(entry: dict[str, Any], checked: set[int]) -> None:
    """Check the frames; most stacks are one list that many entries share, and each list is checked once."""
    frames = entry.setdefault("frames", [])
    if id(frames) in checked:
        return
    if not isinstance(frames, list):
        raise ValueError(f"a stack of it is of type {type(frames).__name__}")  # noqa: TRY004
    for frame in frames:
        _demand("frame", frame, _FRAME)
    checked.add(id(frames))


def _demand(what: str, entry: Any, types: Mapping[str, type], defaults: Mapping[str, int] = _NOTHING) -> None:
    missing = types if not isinstance(entry, dict) else [name for name in types if name not in entry]
    if missing:
        raise ValueError(f"one {what} of it has no {', '.join(missing)}")
    for name, value in defaults.items():
        entry.setdefault(name, value)
    for name in (*types, *defaults):
        value, kind = entry[name], types.get(name, int)
        if type(value) is not kind or (kind is int and abs(value) >= _LARGEST):
            raise ValueError(f"the {name} of one {what} of it is {reprlib.repr(value)}")


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def _packed(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Replace stacks by numbers; the stacks are in a separate list."""
    numbers: dict[str, int] = {}
    known: dict[int, int] = {}  # by the list's identity, because most lists are shared

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
    """An unpickler that accepts only numbers, text, lists, tuples and dictionaries."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a snapshot is plain data")
