"""Host time of device memory beside its peers: CuPy's pool, torch's allocator, the driver's own pool.

Nothing runs on the device here: a row is a thousand calls, or a whole trace, by the host's clock. The rows of a group
do the same; `suites/speed/test_allocator.py` has the policy alone, without a device.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuassay
import cuassay.cuda
from cuassay import devices
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Event, load_trace

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import cupy

from cuassay.cuda import memory
from cuassay.devices.cuda.memory import allocator as allocators

CALLS = 1000
NBYTES = 4096
TRACES = Path(__file__).parents[1] / "data" / "traces"
REPLAYED = ("wedsonlin_medium_512_training", "hta_v100_training", "gpt_varlen")

#: How to take a block, how to give it back (None: by dropping it), and what is given to the first beside the size.
Way = tuple[Callable[..., Any], Callable[[Any], object] | None, tuple[int, ...]]


def torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    import torch as module

    return module


# ------------------------------------------------------------------------------------------------ a block, by the pair


def our_lane() -> Way:
    found = allocators.allocator(0)
    return found.lane(0).malloc, found.free, ()


def our_allocator() -> Way:
    found = allocators.allocator(0)
    return found.malloc, found.free, (0,)


def our_addresses() -> Way:
    return memory.caching_allocator_alloc, memory.caching_allocator_delete, ()


def cupys_pool() -> Way:
    return cupy.cuda.MemoryPool().malloc, None, ()


def torchs_raw() -> Way:
    c = torch()._C  # what torch.cuda.caching_allocator_alloc calls, without the way there
    torch().cuda.init()
    return c._cuda_cudaCachingAllocator_raw_alloc, c._cuda_cudaCachingAllocator_raw_delete, (0,)


def drivers_pool() -> Way:
    from cuda.bindings import runtime

    def give(answer: tuple[Any, Any]) -> None:
        runtime.cudaFreeAsync(answer[1], 0)

    return runtime.cudaMallocAsync, give, (0,)


BLOCKS = (our_lane, our_allocator, our_addresses, cupys_pool, torchs_raw, drivers_pool)


def pairs(way: Way, sizes: Iterator[int]) -> None:
    """Take and give back a block of each size."""
    take, give, more = way
    if give is None:
        for nbytes in sizes:
            take(nbytes, *more)
    else:
        for nbytes in sizes:
            give(take(nbytes, *more))


@pytest.mark.benchmark(group=f"{CALLS} pairs of malloc and free, a hit")
@pytest.mark.parametrize("who", BLOCKS, ids=[who.__name__ for who in BLOCKS])
def test_hit(benchmark: Any, who: Callable[[], Way]) -> None:
    way = who()

    benchmark(lambda: pairs(way, repeat(NBYTES, CALLS)))


@pytest.mark.benchmark(group=f"{CALLS} pairs of malloc and free, each of a size never seen, from free memory")
@pytest.mark.parametrize("who", BLOCKS, ids=[who.__name__ for who in BLOCKS])
def test_miss_without_the_driver(benchmark: Any, who: Callable[[], Way]) -> None:
    way, sizes = who(), iter(range(2**20 + 512, 2**40, 512))
    pairs(way, iter([64 * 2**20]))

    benchmark.pedantic(lambda: pairs(way, islice(sizes, CALLS)), rounds=10, warmup_rounds=1)


# ------------------------------------------------------------------------------------------------ an empty array

SHAPE = (1024,)


def our_empty() -> Callable[[], Any]:
    return lambda: cuassay.empty(SHAPE, "float32", "cuda:0")


def our_backend() -> Callable[[], Any]:
    empty = devices.backend("cuda").empty
    return lambda: empty(SHAPE, "float32", 0)


def our_pointer() -> Callable[[], Any]:
    from cuassay.devices.cuda.memory import hook

    ndarray, allocate, float32 = cupy.ndarray, hook.allocate, np.dtype("float32")
    return lambda: ndarray(SHAPE, float32, allocate(NBYTES))


def cupys_empty() -> Callable[[], Any]:
    float32 = np.dtype("float32")
    return lambda: cupy.empty(SHAPE, float32)


def torchs_empty() -> Callable[[], Any]:
    empty, float32, device = torch().empty, torch().float32, torch().device("cuda")
    return lambda: empty(SHAPE, dtype=float32, device=device)


ARRAYS = (our_empty, our_backend, our_pointer, cupys_empty, torchs_empty)


def repeated(make: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        make()


@pytest.mark.benchmark(group=f"{CALLS} empty arrays")
@pytest.mark.parametrize("who", ARRAYS, ids=[who.__name__ for who in ARRAYS])
def test_empty_array(benchmark: Any, who: Callable[[], Callable[[], Any]]) -> None:
    benchmark(repeated, who())


@pytest.fixture
def _hooked() -> Iterator[None]:
    memory.use_with_cupy()
    yield
    memory.use_with_cupy(False)


@pytest.mark.benchmark(group=f"{CALLS} empty arrays")
@pytest.mark.usefixtures("_hooked")
def test_empty_array_of_cupy_on_our_memory(benchmark: Any) -> None:
    benchmark(repeated, cupys_empty())


# ------------------------------------------------------------------------------------------------ a whole trace


#: How to take a block for a stream, how to give it back, and how to give everything back to the driver.
Anew = tuple[Callable[[int, int], Any], Callable[[Any], object], Callable[[], object]]


def ours_anew() -> Anew:
    make, _ = devices.backend("cuda").replay_target(0)
    found = CachingAllocator(make(), config="", name="cuda:0")
    return found.malloc, found.free, found.empty_cache


def torchs_anew() -> Anew:
    c = torch()._C
    torch().cuda.init()
    take, give = c._cuda_cudaCachingAllocator_raw_alloc, c._cuda_cudaCachingAllocator_raw_delete
    return lambda nbytes, stream: take(nbytes, 0), give, torch().cuda.empty_cache


def cupys_anew() -> Anew:
    pool = cupy.cuda.MemoryPool()
    return lambda nbytes, stream: pool.malloc(nbytes), lambda pointer: None, pool.free_all_blocks


def run(events: tuple[Event, ...], take: Callable[[int, int], Any], give: Callable[[Any], object]) -> None:
    live: dict[int, Any] = {}
    for is_malloc, name, nbytes, stream in events:
        if is_malloc:
            live[name] = take(nbytes, stream)
        else:
            give(live.pop(name))
    for left in list(live):
        give(live.pop(left))


@pytest.mark.parametrize("when", ["first pass", "steady"])
@pytest.mark.parametrize("name", REPLAYED)
@pytest.mark.parametrize("who", [ours_anew, torchs_anew, cupys_anew], ids=["ours", "torch", "cupy"])
def test_replay(benchmark: Any, who: Callable[[], Any], name: str, when: str) -> None:
    benchmark.group = f"{name}, {when}"
    events = load_trace(TRACES / f"{name}.csv.gz")
    take, give, empty = who()
    run(events, take, give)
    if when == "steady":
        run(events, take, give)
        benchmark.pedantic(run, args=(events, take, give), rounds=5)
    else:
        benchmark.pedantic(run, args=(events, take, give), setup=lambda: empty() and None, rounds=3)
    benchmark.extra_info["events"] = len(events)
    empty()
