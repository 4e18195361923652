"""Threads on streams of their own share one allocator: no corruption, no deadlock, under pressure and with finalisers.

``python suites/nvidia/memory_stress/test_threads.py 60`` runs for a minute; as a test, two seconds.
"""

from __future__ import annotations

import faulthandler
import gc
import queue
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

import cuassay.cuda
from cuassay import devices
from cuassay.errors import OutOfMemoryError
from cuassay.memory import Block, CachingAllocator

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

MIB = 2**20
TOTAL = 4096 * MIB
THREADS = 4
SECONDS = 2.0
BLOCKS = 200  # a step


class Owner:
    """Frees its block when the collector finds it: in any thread, at any moment, within malloc too."""

    def __init__(self, allocator: CachingAllocator, block: Block) -> None:
        self.allocator, self.block, self.me = allocator, block, self

    def __del__(self) -> None:
        self.allocator.free(self.block)


@dataclass
class Soak:
    """What the threads share.

    Blocks given away are freed by another thread, after its stream was recorded for them.
    """

    allocator: CachingAllocator
    until: float
    given: queue.SimpleQueue[tuple[Block, int, Any]] = field(default_factory=queue.SimpleQueue)
    failures: list[BaseException] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"blocks": 0, "refused": 0, "given": 0, "collected": 0})
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, number: int = 1) -> None:
        with self.lock:
            self.counts[what] += number


class Worker(threading.Thread):
    """One thread, its stream, its blocks."""

    def __init__(self, soak: Soak, number: int) -> None:
        super().__init__(name=f"soak {number}", daemon=True)
        from cuassay.devices.cuda.memory.tags import CudaTagger

        self.soak, self.chance = soak, random.Random(number)  # noqa: S311  no secret
        self.stream = cuassay.cuda.Stream()
        self.tagger = CudaTagger(0, by_stream=True)
        self.live: list[tuple[Block, int]] = []
        self.tag = number << 40

    def run(self) -> None:
        try:
            self.step()  # one at least, however busy the host
            while time.monotonic() < self.soak.until and not self.soak.failures:
                self.step()
            for block, tag in self.live:
                self.let_go(block, tag)
            self.tagger.finish()
        except BaseException as error:  # noqa: BLE001  told by the main thread
            self.soak.failures.append(error)

    def step(self) -> None:
        for _ in range(BLOCKS):
            self.take(int(2 ** self.chance.uniform(4, 28)))
            while len(self.live) > 40 or (self.live and self.chance.random() < 0.45):
                self.let_go(*self.live.pop(self.chance.randrange(len(self.live))))
        self.take_over()
        self.tagger.finish()

    def take(self, nbytes: int) -> None:
        try:
            block = self.soak.allocator.malloc(nbytes, self.stream.ptr)
        except OutOfMemoryError:
            self.soak.count("refused")
            while len(self.live) > 5:
                self.let_go(*self.live.pop(0))
            return
        self.tag += 1
        self.tagger.write(block, self.tag)
        self.live.append((block, self.tag))
        self.soak.count("blocks")

    def let_go(self, block: Block, tag: int) -> None:
        self.tagger.check(block, tag)
        way = self.chance.random()
        if way < 0.05:
            Owner(self.soak.allocator, block)
            self.soak.count("collected")
        elif way < 0.1:
            self.soak.given.put((block, tag, self.stream.record_event()))
            self.soak.count("given")
        else:
            self.soak.allocator.free(block)

    def take_over(self) -> None:
        """Check on this stream what other threads gave away, and free it."""
        while True:
            try:
                block, tag, event = self.soak.given.get_nowait()
            except queue.Empty:
                return
            self.stream.wait_event(event)
            self.soak.allocator.record_stream(block, self.stream.ptr)
            self.tagger.check_on(block, tag, self.stream.ptr)
            self.soak.allocator.free(block)


def soak(seconds: float) -> Soak:
    """Run the threads for so long. Raises what one of them raised, or TimeoutError."""
    make, _ = devices.backend("cuda").replay_target(0)
    allocator = CachingAllocator(make(), total=TOTAL, config="", name="cuda:0")
    shared = Soak(allocator, time.monotonic() + seconds)
    workers = [Worker(shared, number) for number in range(1, THREADS + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        while worker.is_alive():
            before = dict(shared.counts)
            worker.join(seconds + 30)
            if worker.is_alive() and shared.counts == before:  # a busy card is slow, and not stuck
                faulthandler.dump_traceback(all_threads=True)
                raise TimeoutError(f"{worker.name} is stuck: no thread got or freed a block for {seconds + 30:.0f} s")
    if shared.failures:
        raise shared.failures[0]
    workers[0].take_over()
    cuassay.cuda.synchronize()
    workers.clear()
    gc.collect()
    return shared


def test_no_corruption_and_no_deadlock() -> None:
    shared = soak(SECONDS)

    assert shared.counts["blocks"] + shared.counts["refused"] >= THREADS * BLOCKS
    assert shared.allocator.statistics().allocated_bytes.all.current == 0
    shared.allocator.empty_cache()
    assert shared.allocator.statistics().reserved_bytes.all.current == 0


def main(seconds: float) -> None:
    """The same for longer, with the figures."""
    begun = time.monotonic()
    shared = soak(seconds)
    figures = shared.allocator.statistics()
    sys.stdout.write(
        f"{THREADS} threads, {time.monotonic() - begun:.0f} s: {shared.counts}, "
        f"{figures.num_alloc_retries:,} retries, {figures.num_ooms:,} refused, "
        f"peak {figures.reserved_bytes.all.peak / MIB:,.0f} MiB reserved, "
        f"{figures.allocated_bytes.all.peak / MIB:,.0f} MiB live, {figures.allocated_bytes.all.current} bytes left\n"
    )


if __name__ == "__main__":
    main(float(sys.argv[1]))
