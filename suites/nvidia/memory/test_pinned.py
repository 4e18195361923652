"""Pinned memory of CUDA: by torch's names, pinned in place, of others, in a fork, at exit; overlap with kernels."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import cuassay.cuda.host as pinned
from cuassay import cuda, devices, from_host, to_host
from cuassay.errors import ArgumentError, OutOfMemoryError, SettingError
from cuassay.testing import exclusive

MIB = 2**20


@pytest.fixture
def gpu(on_cuda: None) -> Any:
    """The device; nothing is pinned ahead meanwhile, so that figures are those of the test."""
    import cuassay.devices.cuda.memory.pinned as module

    allocator = module.allocator()
    allocator.configure("pinned_ahead_mb:0")
    allocator.maintain()
    yield "cuda:0"
    allocator.configure("pinned_ahead_mb:64")


# ------------------------------------------------------------------------------------------------ without a device


def test_without_pinned_memory_no_driver_is_initialised_to_find_out() -> None:
    code = (
        "import numpy\n"
        "from cuassay import cuda\n"
        "cuda.empty_host_cache(), cuda.reset_peak_host_memory_stats()\n"
        "print(cuda.host_memory_stats(), cuda.is_pinned(numpy.zeros(3)), cuda.is_initialized())"
    )
    told = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert told.strip() == "{} False False"


# ------------------------------------------------------------------------------------------------ by torch's names


def test_pin_memory_copies_what_is_not_pinned_and_gives_back_what_is(gpu: str) -> None:
    values = np.arange(10.0)

    copied = pinned.pin_memory(values)

    assert type(copied) is np.ndarray
    assert pinned.is_pinned(copied)
    assert not pinned.is_pinned(values)
    assert pinned.pin_memory(copied[2:]).base is copied
    np.testing.assert_array_equal(copied, values)


def test_figures_follow_what_is_pinned(gpu: str) -> None:
    gc.collect()
    before = cuda.host_memory_stats()["active_bytes.current"]

    array = pinned.empty_pinned(10_000, np.float32)
    during = cuda.host_memory_stats()
    del array
    gc.collect()

    assert during["active_bytes.current"] - before in (40_448, 40_960)  # not a power of two
    assert cuda.host_memory_stats()["active_bytes.current"] == before
    assert cuda.host_memory_stats_as_nested_dict()["host_alloc_time"]["count"] >= 1


def test_the_cache_is_emptied_but_for_what_is_in_use(gpu: str) -> None:
    kept = pinned.empty_pinned(30 * MIB, np.uint8)
    kept[:] = 3
    dropped = pinned.empty_pinned(50 * MIB, np.uint8)
    held = cuda.host_memory_stats()["allocated_bytes.current"]
    del dropped
    gc.collect()

    pinned.empty_host_cache()

    assert cuda.host_memory_stats()["allocated_bytes.current"] <= held - 50 * MIB
    assert int(kept.min()) == 3


def test_memory_reserved_serves_without_another_pinning(gpu: str) -> None:
    pinned.reserve_pinned(600 * MIB)
    calls = cuda.host_memory_stats()["num_host_alloc"]

    arrays = [pinned.empty_pinned(100 * MIB, np.uint8) for _ in range(4)]

    assert cuda.host_memory_stats()["num_host_alloc"] == calls
    assert all(map(pinned.is_pinned, arrays))
    del arrays
    pinned.empty_host_cache()


@pytest.mark.parametrize("way", ["True", "False"], ids=["registered", "made by the driver"])
def test_both_ways_of_pinning_are_known_to_the_driver(gpu: str, way: str) -> None:
    import cuassay.devices.cuda.memory.pinned as module

    allocator = module.allocator()
    allocator.configure(f"pinned_use_cuda_host_register:{way}")
    try:
        array = pinned.empty_pinned(77 * MIB, np.uint8)
        assert module.is_registered(array.ctypes.data)
        assert module.is_registered(array.ctypes.data + 77 * MIB - 1)
        there = devices.empty((77 * MIB,), np.uint8, gpu)
        array[:] = 5
        devices.copy(array, there, non_blocking=True)
        assert int(to_host(there).min()) == 5
    finally:
        allocator.configure("pinned_use_cuda_host_register:True")
        del array
        pinned.empty_host_cache()


def test_an_unknown_key_is_refused_at_run_time(gpu: str) -> None:
    import cuassay.devices.cuda.memory.pinned as module

    with pytest.raises(SettingError, match="pinned_num_register_threads must be"):
        module.allocator().configure("pinned_num_register_threads:5")


def test_more_than_the_host_has_is_refused_before_it_is_touched(gpu: str) -> None:
    with pytest.raises(OutOfMemoryError, match=r"pinned host memory has no room for 1,125,899,906,842,624 bytes"):
        pinned.empty_pinned(2**50, np.uint8)

    assert pinned.empty_pinned(10, np.uint8).nbytes == 10


# ------------------------------------------------------------------------------------------------ pinned where it is


def test_an_array_is_pinned_where_it_is_and_unpinned(gpu: str) -> None:
    array = np.zeros(5 * MIB, np.uint8)

    with pinned.pin(array) as same:
        assert same is array
        assert pinned.is_pinned(array[100:])
        there = from_host(np.full(5 * MIB, 7, np.uint8), gpu)
        devices.copy(there, array, non_blocking=True)
        cuda.synchronize()
        assert int(array.min()) == 7

    assert not pinned.is_pinned(array)


def test_unpinning_waits_for_copies_under_way(gpu: str) -> None:
    array, there = np.zeros(256 * MIB, np.uint8), from_host(np.full(256 * MIB, 9, np.uint8), gpu)
    handle = pinned.pin(array)

    devices.copy(there, array, non_blocking=True)
    pinned.unpin(array)

    assert int(array.min()) == 9
    assert "unpinned" in repr(handle)
    handle.unpin()


def test_what_cannot_be_pinned_is_refused_in_words(gpu: str) -> None:
    array = np.zeros(4096, np.uint8)
    frozen = np.zeros(4096, np.uint8)
    frozen.setflags(write=False)
    for bad in (array[::2], np.zeros(0), frozen):
        with pytest.raises(ArgumentError, match=r"pin takes a writable numpy\.ndarray"):
            pinned.pin(bad)
    with pinned.pin(array), pytest.raises(ArgumentError, match="is pinned already"):
        pinned.pin(array)
    with pytest.raises(ArgumentError, match="was not pinned by pin"):
        pinned.unpin(array)
    with pytest.raises(ArgumentError, match="is pinned already"):
        pinned.pin(pinned.empty_pinned(3))


def test_pinned_memory_of_cupy_counts(gpu: str) -> None:
    cupyx = pytest.importorskip("cupyx")
    theirs = cupyx.empty_pinned(1000, np.float32)
    theirs[:] = 4
    there = devices.empty((1000,), np.float32, gpu)

    assert pinned.is_pinned(theirs)
    devices.copy(theirs, there, non_blocking=True)
    np.testing.assert_array_equal(to_host(there), theirs)


# ------------------------------------------------------------------------------------------------ order


@exclusive
def test_an_early_drop_is_safe_while_the_stream_is_busy(gpu: str) -> None:
    """The stream spins, so that every copy is still to come when the memory is dropped and asked for again."""
    side = devices.backend("cuda").new_stream(0)
    outs = [devices.empty((MIB,), np.uint8, gpu) for _ in range(8)]
    cuda.synchronize()

    with cuda.stream(side):
        spin(200_000_000)
        for number, out in enumerate(outs):
            host = pinned.empty_pinned(MIB, np.uint8)
            host[:] = number
            devices.copy(host, out, non_blocking=True)
            del host
        was_busy = not side.query()
    side.synchronize()

    assert was_busy
    assert [int(to_host(out).min()) for out in outs] == list(range(8))
    assert [int(to_host(out).max()) for out in outs] == list(range(8))


@exclusive
@pytest.mark.parametrize("layout", ["transposed", "every second row"])
def test_a_copy_to_a_pinned_view_in_another_order_is_waited_for(gpu: str, layout: str) -> None:
    """The host moves the elements to their places, so they have to be there: non_blocking or not."""
    side = devices.backend("cuda").new_stream(0)
    there, memory = from_host(np.arange(600, dtype=np.float32).reshape(20, 30), gpu), pinned.empty_pinned((40, 30))
    memory[:] = -1
    host = memory[:30].reshape(30, 30)[:, :20].T if layout == "transposed" else memory[::2]
    cuda.synchronize()

    with cuda.stream(side):
        spin(100_000_000)
        devices.copy(there, host, non_blocking=True)

    np.testing.assert_array_equal(np.asarray(host), np.arange(600).reshape(20, 30))


@exclusive
def test_reading_too_early_shows_old_numbers(gpu: str) -> None:
    """What sim raises for, on the device: the mistake is real."""
    side = devices.backend("cuda").new_stream(0)
    there, host = from_host(np.ones(1000, np.float32), gpu), pinned.empty_pinned(1000)
    host[:] = -1
    cuda.synchronize()

    with cuda.stream(side):
        spin(100_000_000)
        devices.copy(there, host, non_blocking=True)
    early = host.copy()
    side.synchronize()

    assert (early == -1).all()
    assert (host == 1).all()


@exclusive
def test_a_copy_made_from_pinned_memory_is_done_when_the_host_writes_next(gpu: str) -> None:
    side, host = devices.backend("cuda").new_stream(0), pinned.empty_pinned(1000)
    host[:] = 1
    cuda.synchronize()

    with cuda.stream(side):
        spin(100_000_000)
        there = from_host(host, gpu)
        host[:] = 2
    side.synchronize()

    assert (to_host(there) == 1).all()


@exclusive
def test_copies_overlap_with_compute(gpu: str) -> None:
    """A kernel that keeps the device busy and a copy, on two streams: both take hardly longer than the longer one."""
    backend = devices.backend("cuda")
    worker, copier = backend.new_stream(0), backend.new_stream(0)
    host, there = pinned.empty_pinned(256 * MIB, np.uint8), devices.empty((256 * MIB,), np.uint8, gpu)

    def compute() -> None:
        with cuda.stream(worker):
            spin(10_000_000)

    def move() -> None:
        with cuda.stream(copier):
            devices.copy(host, there, non_blocking=True)

    alone = [least(lambda work=work: timed([work], worker, copier)) for work in (compute, move)]
    both = least(lambda: timed([compute, move], worker, copier))

    overlap = (sum(alone) - both) / min(alone)
    assert overlap >= 0.9


def least(measure: Any) -> float:
    return min(measure() for _ in range(5))


def timed(works: Any, *streams: Any) -> float:
    """Milliseconds by events that begin before all streams and end after them."""
    backend = devices.backend("cuda")
    cuda.synchronize()
    origin = backend.new_stream(0)
    begin, end = (backend.new_event(0, timing=True) for _ in range(2))
    with cuda.stream(origin):
        spin(1_000_000)
    begin.record(origin)
    for stream in streams:
        stream.wait_event(begin)
    for work in works:
        work()
    for stream in streams:
        origin.wait_stream(stream)
    end.record(origin)
    end.synchronize()
    return float(begin.elapsed_time(end))


SPIN = 'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n) {} }'


def spin(cycles: int) -> None:
    """Keep one multiprocessor busy."""
    _spin()((1,), (1,), (cycles,))


def _spin() -> Any:
    import cupy

    return cupy.RawKernel(SPIN, "spin")


def test_memory_is_pinned_next_to_a_capture_that_another_thread_would_break(gpu: str) -> None:
    import cupy

    import cuassay.devices.cuda.memory.pinned as module

    target = cupy.zeros(16, cupy.uint8)
    cuda.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeGlobal)
        thread = threading.Thread(target=module.allocator().reserve, args=(64 * MIB,))  # as the keeper does
        thread.start()
        thread.join()
        target.data.memset_async(7, target.nbytes)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()

    assert (to_host(target) == 7).all()
    cuda.empty_host_cache()


# ------------------------------------------------------------------------------------------------ life


def test_threads_pin_copy_and_drop_without_a_fault(gpu: str) -> None:
    faults: list[str] = []

    def work(seed: int) -> None:
        chance = np.random.default_rng(seed)
        own = devices.backend("cuda").new_stream(0)
        with cuda.stream(own):
            for step in range(60):
                host = pinned.empty_pinned(int(chance.integers(1, 2 * MIB)), np.uint8)
                host[:] = (seed * 60 + step) % 251
                there = devices.empty(host.shape, np.uint8, gpu)
                devices.copy(host, there, non_blocking=True)
                expected = int(host[0])
                del host
                found = to_host(there)
                if found.min() != expected or found.max() != expected:
                    faults.append(f"thread {seed} step {step}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert faults == []


EXIT = """
import numpy, cuassay
from cuassay import cuda, devices
from cuassay.cuda import host
arrays = [host.empty_pinned(10 * 2**20, numpy.uint8) for _ in range(5)]
there = devices.empty((10 * 2**20,), numpy.uint8, "cuda:0")
devices.copy(arrays[0], there, non_blocking=True)
pins = host.pin(numpy.zeros(4096, numpy.uint8))
print("left")
"""

FORK = """
import os, sys, numpy
from cuassay import cuda, devices
from cuassay.cuda import host
kept = host.empty_pinned(30 * 2**20, numpy.uint8)
kept[:] = 1
there = devices.empty(kept.shape, numpy.uint8, "cuda:0")
devices.copy(kept, there, non_blocking=True)
child = os.fork()
if not child:
    del kept
    try:
        host.empty_pinned(3)
    except Exception as error:
        print(type(error).__name__, cuda.host_memory_stats(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
cuda.synchronize()
more = host.empty_pinned(30 * 2**20, numpy.uint8)
devices.copy(there, more)
print("parent", int(more.min()), int(kept.min()))
"""


@pytest.mark.parametrize(
    ("program", "told"), [(EXIT, "left"), (FORK, "ForkError {}\nparent 1 1")], ids=["exit", "fork"]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_ends_well(gpu: str, program: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, told, "")
