"""Random programs are judged in the same way whether or not the launches of the queue that is ahead are only noted."""

from __future__ import annotations

import random
from collections import Counter
from math import prod
from typing import Any

import numpy as np
import pytest

from cuassay.core.device import Device
from cuassay.errors import RaceError
from cuassay.order.accesses import Access, AccessLog
from cuassay.order.engine import Engine
from cuassay.order.extents import Extent, span_of
from cuassay.order.journal import MOST_ENTRIES, Journal

DEVICES = [Device("cuda", 0), Device("cuda", 1)]
FLOAT = np.dtype("float32")

#: Address, device, whether frees are reported, shape, strides, dtype.
Traits = tuple[int, int, bool, tuple[int, ...], tuple[int, ...], Any]


def traits(address: int, shape: tuple[int, ...] = (4,), *, is_told: bool = True, step: int = 1) -> Traits:
    strides = tuple(4 * step * prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return address, 0, is_told, shape, strides, FLOAT


def locate(found: Traits) -> Extent:
    address, index, is_told, shape, strides, dtype = found
    span = span_of(address, shape, strides, dtype.itemsize)
    return Extent(f"cuda:{index}", address, shape, strides, dtype, span, is_told=is_told)


class Plain(Journal):
    """A journal in which no queue is ever ahead."""

    def look(self, *_: Any) -> None:
        """Find nothing."""


def engines(monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Engine]:
    """An engine as it is, and one that enters everything at once."""
    usual = Engine()
    with monkeypatch.context() as patched:
        patched.setattr("cuassay.order.engine.Journal", Plain)
        return usual, Engine()


Step = tuple[str, tuple[Any, ...]]


def program(draw: random.Random, length: int, streams: int) -> list[Step]:
    """A program that mostly stays on one stream. Blocks are of 64 bytes; some arrays are in no block."""
    live: list[int] = []
    steps: list[Step] = []
    stream = 1
    for _ in range(length):
        if draw.random() < 0.1:
            stream = draw.randint(1, streams)
        kind = draw.choices(
            ["launch", "take", "give", "record", "wait", "host", "event", "device", "use", "graph", "forget"],
            [60, 14, 10, 5, 6, 1, 1, 1, 2, 1, 1],
        )[0]
        if kind == "take":
            address = draw.choice([one for one in range(0, 1024, 64) if one not in live] or [2048])
            live.append(address)
            steps.append((kind, (address, draw.choice([64, 64, 32]), stream)))
        elif kind == "give":
            address = live.pop(draw.randrange(len(live))) if live and draw.random() < 0.9 else 4096
            steps.append((kind, (address, 64, draw.choice([stream, stream, stream, 1]))))
        elif kind == "launch":
            steps.append((kind, (stream, draws_of_arrays(draw, live))))
        elif kind == "use":
            steps.append((kind, (draw.choice(live) if live else 0, draw.randint(1, streams))))
        else:
            steps.append((kind, (stream, draw.randint(0, 3))))
    return steps


def draws_of_arrays(draw: random.Random, live: list[int]) -> list[tuple[Traits, bool]]:
    found = []
    for _ in range(draw.randint(0, 3)):
        base = draw.choice([*live, *live, 0, 64, 2048, 4096, 4096 + 64, 8192])
        array = traits(
            base + draw.choice([0, 0, 0, 16, 32]),
            draw.choice([(4,), (4,), (2, 2), (0,), (8,)]),
            is_told=base != 8192,
            step=draw.choice([1, 1, 1, 2]),
        )
        found.append((array, draw.random() < 0.4))
    return found


class Run:
    """What an engine says to each step of a program."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capturing: dict[int, int] = {}

    def do(self, number: int, step: Step) -> str:
        kind, arguments = step
        try:
            getattr(self, kind)(number, *arguments)
        except RaceError as error:
            return str(error)
        return ""

    def queue(self, stream: int) -> Any:
        return self.engine.queue(DEVICES[0], stream, blocking=stream == 4)

    def launch(self, number: int, stream: int, accesses: list[tuple[Traits, bool]]) -> None:
        arrays, writes = [one for one, _ in accesses], [write for _, write in accesses]
        site = ("program.py", number)
        self.engine.launch_on(self.queue(stream), f"kernel {number}", "cuda:0", arrays, writes, locate, site)

    def take(self, number: int, address: int, nbytes: int, stream: int) -> None:
        self.engine.take("cuda:0", address, nbytes, self.queue(stream))

    def give(self, number: int, address: int, nbytes: int, stream: int) -> None:
        self.engine.give_back("cuda:0", address, nbytes, self.queue(stream))

    def use(self, number: int, address: int, stream: int) -> None:
        self.engine.use("cuda:0", address, self.queue(stream))

    def record(self, number: int, stream: int, event: int) -> None:
        self.engine.record(self.queue(stream), "cuda", event)

    def wait(self, number: int, stream: int, event: int) -> None:
        self.engine.wait(self.queue(stream), "cuda", event)

    def host(self, number: int, stream: int, _: int) -> None:
        self.engine.host_waits_for(self.queue(stream))

    def event(self, number: int, stream: int, event: int) -> None:
        self.engine.host_waits_for_event("cuda", event)

    def device(self, number: int, stream: int, _: int) -> None:
        self.engine.host_waits_for_device(DEVICES[0])

    def forget(self, number: int, stream: int, _: int) -> None:
        self.engine.forget("cuda:0", 4096, 64)

    def graph(self, number: int, stream: int, graph: int) -> None:
        """Capture a graph on the stream, end the capture, or replay the graph."""
        if self.capturing.get(graph) == stream:
            self.engine.end_capture(graph)
            self.capturing[graph] = 0
        elif graph in self.capturing and not self.capturing[graph]:
            self.engine.replay(graph, self.queue(stream))
        elif graph not in self.capturing and stream not in self.capturing.values():
            self.engine.begin_capture(graph, self.queue(stream))
            self.capturing[graph] = stream


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_is_judged_as_without_the_journal(
    streams: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)  # noqa: S311  a program, no secret
    steps = program(draw, 400, streams)
    usual, plain = map(Run, engines(monkeypatch))

    said = [[run.do(number, step) for number, step in enumerate(steps)] for run in (usual, plain)]

    assert said[0] == said[1]
    assert usual.engine.unseen == plain.engine.unseen
    assert usual.engine.found == plain.engine.found
    assert kept(usual.engine) == kept(plain.engine)


def kept(engine: Engine) -> list[list[str]]:
    """The accesses that a later launch could still race with, by block and log."""
    len(engine)  # enters what is noted
    finished = engine._host.clock
    blocks = [block for _, one in sorted(engine._blocks.items()) for _, block in sorted(one.by_start.items())]
    held = [block._few if block._many is None else entries(block._many) for block in blocks]
    held += [entries(log) for _, log in sorted(engine._logs.items())]
    return [[str(one) for one in some if finished.get(one.queue.number, 0) < one.epoch] for some in held]


def entries(log: AccessLog) -> list[Access]:
    return sorted((entry[2] for some in log._classes.values() for entry in some), key=lambda one: (one.epoch, str(one)))


def test_a_block_allocated_before_a_capture_is_known_to_the_capture() -> None:
    run = Run(Engine())
    steps: list[Step] = [
        *[("launch", (1, [(traits(0), True)]))] * 3,
        ("take", (64, 64, 1)),
        ("graph", (1, 0)),
        ("launch", (1, [(traits(64), True)])),
        ("graph", (1, 0)),
        ("give", (64, 64, 1)),
    ]
    assert not any(run.do(number, step) for number, step in enumerate(steps))

    assert "whose memory was freed since" in run.do(9, ("graph", (1, 0)))


@pytest.mark.parametrize(("streams", "is_ahead"), [((1, 1), True), ((1, 2, 1, 2, 1), False), ((1, 2, 2, 2), False)])
def test_a_stream_is_ahead_after_two_launches_if_no_other_stream_has_unordered_work(
    streams: tuple[int, ...], is_ahead: bool
) -> None:
    run = Run(Engine())
    for number, stream in enumerate(streams):
        run.launch(number, stream, [(traits(64 * stream), True)])

    assert (run.engine.journal.queue is run.queue(streams[-1])) is is_ahead


def test_a_stream_that_waits_for_all_others_is_ahead() -> None:
    run = Run(Engine())
    for number in range(4):
        run.launch(number, 1, [(traits(0), True)])
    run.record(4, 1, 0)
    run.wait(5, 2, 0)
    for number in range(6, 10):
        run.launch(number, 2, [(traits(0), True)])

    assert run.engine.journal.queue is run.queue(2)


def test_of_blocks_that_come_and_go_and_equal_accesses_little_is_kept() -> None:
    run = Run(Engine())
    for number in range(2000):
        run.take(number, 64, 64, 1)
        run.launch(number, 1, [(traits(0), False), (traits(64), True)])
        run.give(number, 64, 64, 1)

    assert len(run.engine.journal.entries) <= MOST_ENTRIES
    assert len(run.engine) == 1


def test_random_programs_hold_races_and_early_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    said: Counter[str] = Counter()
    for seed in range(20):
        steps = program(random.Random(seed), 400, 4)  # noqa: S311
        run = Run(Engine())
        for number, step in enumerate(steps):
            message = run.do(number, step)
            said["early free" if "early free" in message else "race" if message else "nothing"] += 1

    assert said["race"] > 20
    assert said["early free"] > 5
