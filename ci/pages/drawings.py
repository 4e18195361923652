"""Pictures for the explanations, drawn from real runs: a replayed trace, and the order of a race."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from cuassay import devices, from_host, ops
from cuassay.errors import RaceError
from cuassay.memory import CachingAllocator, IntegerSource
from cuassay.memory.workloads import WORKLOADS

__all__ = ["fill_allocator", "fill_clock"]

_WIDTH = 960


def fill_allocator(text: str) -> str:
    """Return the page about the allocator, with the replay drawn."""
    return text.replace("<!-- picture: replay -->", _replay("experts", 3))


def fill_clock(text: str) -> str:
    """Return the page about the clock of `sim`, with both programs drawn."""
    return text.replace("<!-- picture: race -->", _order(waits=False)).replace(
        "<!-- picture: order -->", _order(waits=True)
    )


# ---------------------------------------------------------------------------------------------- a replayed trace


def _replay(workload: str, seed: int, points: int = 480) -> str:
    """Draw the live and reserved bytes of a generated workload over its operations."""
    events = WORKLOADS[workload](seed)
    allocator, blocks = CachingAllocator(IntegerSource()), {}
    live, found = 0, []
    every = max(1, len(events) // points)
    for number, event in enumerate(events):
        if event.is_malloc:
            blocks[event.id] = allocator.malloc(event.nbytes, event.stream), event.nbytes
            live += event.nbytes
        else:
            block, nbytes = blocks.pop(event.id)
            allocator.free(block)
            live -= nbytes
        if number % every == 0:
            found.append((live, allocator.statistics().reserved_bytes.all.current))
    return _areas(found, f"{workload}:{seed}", len(events))


def _areas(found: Sequence[tuple[int, int]], name: str, events: int) -> str:
    height, left, top = 300, 70, 14
    most = max(reserved for _, reserved in found)
    across, up = (_WIDTH - left - 10) / (len(found) - 1), (height - top - 40) / most
    base = height - 40

    def line(values: Iterable[int]) -> str:
        return " ".join(f"{left + place * across:.1f},{base - value * up:.1f}" for place, value in enumerate(values))

    live, reserved = line(one for one, _ in found), line(one for _, one in found)
    label = f"Live and reserved bytes over the {events:,} operations of {name}"
    return (
        f'<svg class="diagram" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">'
        f'<polygon points="{left},{base} {live} {_WIDTH - 10},{base}" fill="currentColor" fill-opacity=".25"/>'
        f'<polyline points="{reserved}" fill="none" stroke="currentColor" stroke-width="2"/>'
        f"{_text(left - 8, base - most * up + 6, f'{most / 2**30:.1f} GiB', 'end')}"
        f"{_text(left - 8, base + 6, '0', 'end')}"
        f"{_text(left, height - 10, f'{name}: {events:,} operations')}"
        f"{_text(_WIDTH - 12, height - 10, 'line: reserved; area: live', 'end')}</svg>"
    )


# ---------------------------------------------------------------------------------------------- the order of launches


@dataclass(frozen=True)
class _Launch:
    """One launch of the program: its label, its stream's place, and the clock with which it began."""

    label: str
    lane: int
    queue: int
    epoch: int
    before: dict[int, int]

    def follows(self, other: _Launch) -> bool:
        """Return whether the other launch is ordered before this one."""
        return self.before.get(other.queue, 0) >= other.epoch


def _program(*, waits: bool) -> tuple[list[_Launch], str]:
    """Run the tutorial's two streams on `sim`; return the launches, and the name of the error if there was one."""
    sim = devices.backend("sim")
    producer, consumer = sim.new_stream(0), sim.new_stream(0)
    a, out = from_host(np.ones(1024, np.float32), "sim"), devices.empty((1024,), "float32", "sim")
    producer.wait_stream(sim.current_stream(0))
    launches: list[_Launch] = []

    def launch(label: str, lane: int, stream: object, run: Callable[[], object]) -> None:
        queue = stream.queue  # type: ignore[attr-defined]
        before = dict(queue.clock)
        launches.append(_Launch(label, lane, queue.number, queue.epoch + 1, before))
        with sim.use_stream(stream):
            run()

    try:
        launch("ops.exp(a, out=out)", 0, producer, lambda: ops.exp(a, out=out))
        if waits:
            consumer.wait_stream(producer)
        launch("ops.add(out, 1.0)", 1, consumer, lambda: ops.add(out, 1.0))
    except RaceError as error:
        return launches, type(error).__name__
    return launches, ""


def _order(*, waits: bool) -> str:
    launches, error = _program(waits=waits)
    height, lane, box = 190, 70, (240, 44)
    lefts = [150 + number * 400 for number in range(len(launches))]
    tops = [20 + one.lane * lane for one in launches]
    shapes = [
        f"{_text(8, 47 + number * lane, name)}"
        f'<line x1="130" x2="{_WIDTH - 10}" y1="{42 + number * lane}" y2="{42 + number * lane}" stroke="currentColor" '
        'stroke-opacity=".35"/>'
        for number, name in enumerate(("producer", "consumer"))
    ]
    for one, left, top in zip(launches, lefts, tops, strict=True):
        shapes.append(
            f'<rect x="{left}" y="{top}" width="{box[0]}" height="{box[1]}" rx="6" class="diagram-box" '
            f'stroke="currentColor"/>{_text(left + box[0] / 2, top + 28, one.label, "middle")}'
        )
    first, second = launches
    is_ordered = second.follows(first)
    style = "" if is_ordered else ' stroke-dasharray="6 5"'
    shapes.append(
        f'<path d="M{lefts[0] + box[0]} {tops[0] + 22} L{lefts[1]} {tops[1] + 22}" fill="none" stroke="currentColor" '
        f'stroke-width="2"{style}/>'
    )
    said = (
        "consumer.wait_stream(producer): the read is ordered after the write" if is_ordered else "nothing orders them"
    )
    clock = second.before.get(first.queue, 0)
    said += f"; consumer waits for launch {clock} of producer, the write is launch {first.epoch}"
    said += f": {error}" if error else ""
    shapes.append(_text(8, height - 12, said))
    head = f'<svg class="diagram" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(said)}">'
    return f"{head}{''.join(shapes)}</svg>"


def _text(x: float, y: float, said: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="16" fill="currentColor">{escape(said)}</text>'
    )
