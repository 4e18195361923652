"""The ``cuassay memory`` commands: functions from their options to an exit status, as in `cuassay.cli`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from cuassay import devices
from cuassay.commands.parsing import Parser
from cuassay.core.device import Device
from cuassay.core.units import format_bytes
from cuassay.errors import ArgumentError, CapabilityError
from cuassay.memory.caching import CachingAllocator
from cuassay.memory.integer_source import IntegerSource
from cuassay.memory.peers import PEERS, PeerModel
from cuassay.memory.snapshot import load
from cuassay.memory.trace import Event, Replay, Tagger, load_trace, replay
from cuassay.memory.workloads import WORKLOADS
from cuassay.observe import timeline
from cuassay.observe.usage import usages
from cuassay_reports.outputs import MEMORY_PAGE, why_not_written

if TYPE_CHECKING:
    from cuassay.core.protocols import MemorySource

__all__ = ["add_memory_commands"]

#: The suffix of trace files.
_SUFFIX = ".csv.gz"

#: How often a trace is replayed: the first pass fills the caches, and the last is timed.
_PASSES = 3


def add_memory_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``memory`` and its subcommands."""
    memory = commands.add_parser(
        "memory",
        help="allocator: replay traces, draw snapshots",
        example="cuassay memory replay serving:7\ncuassay memory viz snapshot.json -o page.html",
    )
    offers = memory.add_subparsers(required=True, metavar="COMMAND")
    replaying = offers.add_parser(
        "replay",
        help="show how much a policy reserves for recorded traces, and how fast it is",
        example="cuassay memory replay serving:7\ncuassay memory replay suites/data/traces --policy cupy",
    )
    replaying.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help=f"files such as x.csv.gz, folders of them, or generated traces: {', '.join(WORKLOADS)}, serving:7",
    )
    replaying.add_argument(
        "--policy",
        default="cuassay",
        choices=("cuassay", *PEERS),
        help="whose allocator: cuassay's, or a model of a peer's (default: %(default)s)",
    )
    replaying.add_argument(
        "--device", metavar="D", help="replay in the memory of a device, such as cuda:0, with tags that are checked"
    )
    replaying.add_argument("--json", action="store_true", help="the same as JSON")
    replaying.set_defaults(command=_replay)
    picture = offers.add_parser(
        "viz",
        help="draw a snapshot as one page: live bytes by call site, and the map of blocks",
        example="cuassay memory viz snapshot.json\ncuassay memory viz snapshot.json -o page.html",
    )
    picture.add_argument(
        "snapshot", metavar="SNAPSHOT", type=Path, help="a file that cuassay's or torch's dump_snapshot wrote"
    )
    picture.add_argument(
        "-o",
        "--output",
        metavar="PAGE",
        type=Path,
        help="the page; - is standard output (default: the snapshot's name with .html, in this folder)",
    )
    picture.set_defaults(command=_viz)


def _viz(options: argparse.Namespace) -> int:
    snapshot = load(options.snapshot)
    page = timeline.render(snapshot, f"memory of {options.snapshot.name}")
    output: Path = options.output or Path(options.snapshot.name.partition(".")[0] + ".html")
    if str(output) == "-":
        print(page)
        return 0
    if (reason := why_not_written(output, MEMORY_PAGE)) is not None:
        raise ArgumentError(reason)
    try:
        output.write_text(page, encoding="utf-8", errors="backslashreplace")  # paths may hold lone surrogates
    except OSError as error:
        raise ArgumentError(
            f"{output} cannot be written: {error.strerror}; name a file in a folder that exists"
        ) from error
    for usage in usages(snapshot):
        print(f"{usage.name}: peak {format_bytes(usage.peak)} in {usage.events:,} events")
    print(f"wrote {output}")
    return 0


def _replay(options: argparse.Namespace) -> int:
    run = _runner(options.policy, options.device)
    found = {name: run(events()) for name, events in _traces(options.traces)}
    rows: list[dict[str, Any]] = [
        {"trace": name, "policy": options.policy} | asdict(figures) for name, figures in found.items()
    ]
    geomean = geometric_mean([figures.ratio for figures in found.values()])
    if options.json:
        print(json.dumps([*rows, {"policy": options.policy, "geomean": geomean}], indent=2))
        return 0
    for row in rows:
        print(
            f"{row['trace']:<34} {row['ratio']:.4f}  live {format_bytes(row['live_peak'])}, "
            f"reserved {format_bytes(row['reserved_peak'])}, {row['driver_calls']} driver calls after the first pass, "
            f"{row['ns_per_op']:.0f} ns an operation"
        )
    print(f"{'geomean':<34} {geomean:.4f}")
    return 0


def _traces(names: list[str]) -> Iterator[tuple[str, Callable[[], tuple[Event, ...]]]]:
    """Yield each trace with its name, and all traces of a folder; skip other files, such as those of ``folder/*``."""
    others = [name for name in names if Path(name).is_file() and not name.endswith(_SUFFIX)]
    if len(others) == len(names):
        raise _no_trace(others[0], f"is not a *{_SUFFIX} file")
    for name in names:
        made, path = WORKLOADS.get(name.partition(":")[0]), Path(name)
        if name in others:
            print(f"cuassay memory replay: {name} is skipped: it is not a *{_SUFFIX} file", file=sys.stderr)
            continue
        if made is not None and not path.exists():
            yield name, partial(made, _seed(name))
            continue
        files = sorted(path.glob(f"*{_SUFFIX}")) if path.is_dir() else [path] if path.exists() else []
        if not files:
            raise _no_trace(name, f"holds no *{_SUFFIX} file" if path.is_dir() else "does not exist")
        for file in files:
            yield file.name.removesuffix(_SUFFIX), partial(load_trace, file)


def _no_trace(name: str, why: str) -> ArgumentError:
    return ArgumentError(f"{name} {why}; name a trace, a folder with some, or one of {', '.join(WORKLOADS)}")


def _seed(name: str) -> int:
    seed = name.partition(":")[2] or "0"
    if not seed.isdecimal():
        raise ArgumentError(f"a seed is a whole number; got {name!r}; write for example {name.partition(':')[0]}:7")
    return int(seed)


def _runner(policy: str, device: str | None) -> Callable[[tuple[Event, ...]], Replay]:
    if policy != "cuassay":
        if device is not None:
            raise CapabilityError(f"policy {policy!r} is a model that holds no memory; omit --device")
        return lambda events: replay(events, PeerModel(PEERS[policy]), passes=_PASSES)
    if device is None:
        return lambda events: replay(events, CachingAllocator(IntegerSource()), passes=_PASSES)
    source, tagger = _on_device(Device(device))
    return lambda events: _tagged(events, source(), tagger)


def _on_device(device: Device) -> tuple[Callable[[], MemorySource], Tagger]:
    """Return what a device kind offers for replays: a factory of memory sources, and a tagger for its memory."""
    offer = getattr(devices.backend(device.kind), "replay_target", None)
    if offer is None:
        raise CapabilityError(f"{device} has no source of memory to replay on; omit --device to replay over integers")
    source, tagger = offer(device.index)
    return source, tagger


def _tagged(events: tuple[Event, ...], source: MemorySource, tagger: Tagger) -> Replay:
    """Return the figures of plain passes, after one more pass in which every block is tagged and checked.

    The passes are separate, because a tag costs a kernel or a copy that would be timed.
    """
    allocator = CachingAllocator(source)
    figures = replay(events, allocator, passes=_PASSES)
    replay(events, allocator, passes=1, tagger=tagger)
    allocator.empty_cache()
    return figures
