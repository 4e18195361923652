"""The default stream of each thread, CuPy's ``Stream.ptds``: its memory, what others free, threads that end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

import cuassay
from cuassay import cuda, devices, ops, random
from cuassay.cuda import memory
from cuassay.devices.cuda.memory import hook, perthread
from cuassay.random import GeneratorState

pytestmark = pytest.mark.usefixtures("on_cuda")


MIB = 2**20
SPIN = 20_000_000  # cycles: some 10 ms

Elsewhere = Callable[[Callable[[], Any]], Any]


@pytest.mark.parametrize("stream", [2, cupy.cuda.Stream.ptds], ids=["address", "CuPy's"])
def test_it_is_another_stream_in_each_thread(stream: Any, elsewhere: Elsewhere) -> None:
    def made() -> int:
        return int(hook.block_of(cuassay.empty(10, "uint8", "cuda:0", stream=stream)).stream)

    assert perthread.is_number(made())
    assert made() == made()
    assert elsewhere(made) == elsewhere(made) != made()


def test_arrays_of_the_current_one_are_in_its_order(elsewhere: Elsewhere) -> None:
    def made() -> tuple[int, Any]:
        with cupy.cuda.Stream.ptds:
            array = cuassay.full(1000, 5, "int32", "cuda:0")
            return hook.block_of(array).stream, array.get()

    (here, first), (there, second) = made(), elsewhere(made)

    assert here != there
    assert (first == 5).all()
    assert (second == 5).all()


def test_what_one_thread_frees_while_it_is_busy_is_not_given_to_another(elsewhere: Elsewhere) -> None:
    def busy() -> int:
        with cupy.cuda.Stream.ptds:
            array = cuassay.full(3 * MIB, 1, "uint8", "cuda:0")
            cuda.spin(SPIN)
            array.fill(2)
            return int(array.data.ptr)

    address = elsewhere(busy)
    with cupy.cuda.Stream.ptds:
        mine = cuassay.full(3 * MIB, 7, "uint8", "cuda:0")

    assert mine.data.ptr != address
    cuda.synchronize()
    assert (mine.get() == 7).all()


@pytest.mark.parametrize("by_its_user", [True, False], ids=["by its user", "by another thread"])
def test_a_block_that_it_writes_late_is_used_again_after_that(elsewhere: Elsewhere, by_its_user: bool) -> None:
    own = cuda.Stream()
    held = [cuassay.empty(3 * MIB, "uint8", "cuda:0", stream=own)]
    block = hook.block_of(held[0])

    def write() -> None:
        with cupy.cuda.Stream.ptds as stream:
            cuda.spin(SPIN)
            held[0].fill(1)
            memory.record_stream(held[0], stream)

    elsewhere(write)
    elsewhere(held.clear) if by_its_user else held.clear()
    assert block.is_pending
    with own:
        again = cuassay.full(3 * MIB, 7, "uint8", "cuda:0")
    cuda.synchronize()

    assert (again.get() == 7).all()
    memory.empty_cache()
    assert not block.is_pending


def test_a_thread_that_ended_leaves_its_memory_to_the_next_in_order() -> None:
    found: list[tuple[int, bool]] = []

    def work(value: int) -> None:
        with cupy.cuda.Stream.ptds:
            array = cuassay.full(3 * MIB, value, "uint8", "cuda:0")
            found.append((array.data.ptr, bool((array == value).all())))
            cuda.spin(200_000)
            array.fill(0)  # under way when the thread ends

    for value in range(1, 40):
        thread = threading.Thread(target=work, args=(value,))
        thread.start()
        thread.join()

    assert [is_right for _, is_right in found] == [True] * 39
    assert len({address for address, _ in found}) == 1


def test_threads_compute_and_give_arrays_to_one_another_without_a_fault() -> None:
    given: list[tuple[Any, Any, int]] = []
    faults: list[str] = []
    lock, together = threading.Lock(), threading.Barrier(4)

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        with cupy.cuda.Stream.ptds as stream:
            together.wait()
            for step in range(200):
                size, value = int(draw.integers(1, 200_000)), seed * 1000 + step
                array = ops.add(cuassay.full(size, value, "int64", "cuda:0"), 1)
                with lock:
                    given.append((array, stream.record(cupy.cuda.Event(disable_timing=True)), value + 1))
                    taken, event, expected = given.pop(int(draw.integers(len(given))))
                del array
                stream.wait_event(event)
                if int(taken.min()) != expected or int(taken.max()) != expected:
                    faults.append(f"thread {seed}, step {step}")
                memory.record_stream(taken, stream)
                del taken

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given.clear()

    assert faults == []


def test_pinned_memory_waits_for_it_whoever_drops_it(elsewhere: Elsewhere) -> None:
    there = cuassay.empty(MIB, "uint8", "cuda:0")
    cuda.synchronize()
    held = [cuda.empty_pinned(MIB, np.uint8)]
    held[0][:] = 3

    def copy() -> None:
        with cupy.cuda.Stream.ptds:
            cuda.spin(SPIN)
            devices.copy(held[0], there, non_blocking=True)

    elsewhere(copy)
    held.clear()
    other = cuda.empty_pinned(MIB, np.uint8)
    other[:] = 9
    cuda.synchronize()

    assert (there.get() == 3).all()


def test_a_plan_is_run_by_two_threads(elsewhere: Elsewhere) -> None:
    a, b = (cupy.asarray(np.random.default_rng(seed).uniform(-1, 1, (128, 128)).astype(np.float32)) for seed in (1, 2))
    expected = (a @ b).get()
    plan = ops.mm.prepare(a, b)
    cuda.synchronize()

    def run() -> Any:
        with cupy.cuda.Stream.ptds:
            for _ in range(5):
                plan.run()
            return plan.out.get()

    for result in (run(), elsewhere(run), run()):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_graph_that_draws_is_replayed_by_two_threads(elsewhere: Elsewhere) -> None:
    generator, out = random.Generator("cuda", seed=6), cupy.zeros(2**22, cupy.float32)
    random.uniform(out=out, generator=generator)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        random.uniform(out=out, generator=generator)

    def replay() -> None:
        with cupy.cuda.Stream.ptds:
            graph.replay()

    for _ in range(10):
        replay()
        elsewhere(replay)
    cuda.synchronize()

    wanted = ops.uniform(out, state=GeneratorState(6, 4 + 4 * 19))
    assert bool((out == wanted).all())
    graph.reset()


CUPYS_SETTING = """
import threading
import cupy
import numpy as np
import cuassay
from cuassay import cuda, from_host, ops, to_host
from cuassay.cuda import memory
from cuassay.devices.cuda.memory import hook

memory.use_with_cupy()
assert cuda.current_stream().ptr == cupy.cuda.get_current_stream().ptr == 2
found = []

def work(number):
    a = cupy.arange(100_000, dtype=cupy.float32) + number
    out = ops.add(a, from_host(np.ones(100_000, np.float32), "cuda:0"))
    wanted = np.arange(100_000, dtype=np.float32) + number + 1
    found.append((hook.block_of(out).stream, bool((to_host(out) == wanted).all())))

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
work(9)
assert all(is_right for _, is_right in found), found

own = cuda.Stream()
cuda.set_stream(own)
assert cuda.current_stream() == own
with cuda.Stream() as inner:
    assert cuda.current_stream() == inner
assert cuda.current_stream() == own

total, graph = cuassay.zeros(8, "float32", "cuda:0"), cuda.CUDAGraph()
ops.add(total, 1.0)
cuda.synchronize()
with cuda.graph(graph):
    ops.add(total, 1.0, out=total)
graph.replay(), graph.replay()
assert to_host(total).tolist() == [2.0] * 8
print("right")
"""


def test_all_works_where_cupys_default_stream_is_each_threads_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CUPYS_SETTING], capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"},
    )  # fmt: skip

    assert (done.returncode, done.stdout.strip()) == (0, "right"), done.stderr
