"""Host time of device memory compared with CuPy's pool, torch's allocator and the driver's own pool.

Nothing runs on the device here: rows have the host's clock, and peers take turns in one process.
`suites/speed/test_allocator.py` has the policy alone, without a device.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, devices
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Event, load_trace
from cuassay.testing import devices as on

#: Calls a sample.
CALLS = 200
NBYTES = 4096
MIB = 2**20
SHAPE = (1024,)
TRACES = Path(__file__).parents[1] / "data" / "traces"
REPLAYED = ("wedsonlin_medium_512_training", "hta_v100_training", "gpt_varlen")

Call = Callable[[], Any]
#: Allocates a block of a number of bytes; frees it. If the second is None, dropping the block frees it.
Pair = tuple[Callable[..., Any], Callable[[Any], object] | None, tuple[int, ...]]

pytestmark = on("cuda")


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch, its allocator ready; None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's warnings at start-up are not our failures
        import torch as module

        module.ones(1, device="cuda")
    return module


@pytest.fixture
def pairs(device: Device, torch: Any) -> dict[str, Pair]:
    """How each takes and gives back memory, by name, with what `take` is given in addition to the size."""
    import cupy
    from cuda.bindings import runtime

    allocator = devices.backend(device.kind).allocator(device.index)  # type: ignore[attr-defined]
    found: dict[str, Pair] = {
        "cuassay stream_pool": (allocator.stream_pool(0).malloc, allocator.free, ()),
        "cuassay": (allocator.malloc, allocator.free, (0,)),
        "cupy": (cupy.cuda.MemoryPool().malloc, None, ()),
        "cudaMallocAsync": (runtime.cudaMallocAsync, lambda made: runtime.cudaFreeAsync(made[1], 0), (0,)),
    }
    if torch is not None:
        raw = torch._C  # what torch.cuda.caching_allocator_alloc calls, without the way there
        take, give = raw._cuda_cudaCachingAllocator_raw_alloc, raw._cuda_cudaCachingAllocator_raw_delete
        found["torch"] = (take, give, (0,))
    return found


def run(pair: Pair, sizes: Iterator[int]) -> None:
    take, give, more = pair
    if give is None:
        for nbytes in sizes:
            take(nbytes, *more)
    else:
        for nbytes in sizes:
            give(take(nbytes, *more))


@pytest.fixture
def measured(host_times: Callable[..., None]) -> Callable[..., None]:
    """Keeps the host's time of one of `CALLS` calls."""
    return partial(host_times, "memory", per_sample=CALLS, max_seconds=0.3)


def test_hit(pairs: dict[str, Pair], measured: Callable[..., None]) -> None:
    def hits(pair: Pair) -> Call:
        return lambda: run(pair, repeat(NBYTES, CALLS))

    measured("malloc and free, a hit", {name: hits(pair) for name, pair in pairs.items()})


def test_miss_without_the_driver(pairs: dict[str, Pair], measured: Callable[..., None]) -> None:
    """Each request is of a size never seen, and free memory is there."""

    def misses(pair: Pair) -> Call:
        run(pair, iter([64 * MIB]))
        sizes = iter(range(MIB + 512, 2**40, 512))
        return lambda: run(pair, islice(sizes, CALLS))

    measured("malloc and free, a new size", {name: misses(pair) for name, pair in pairs.items()})


def test_empty_array(device: Device, torch: Any, measured: Callable[..., None]) -> None:
    import cupy

    from cuassay.devices.cuda.memory import hook

    float32, name = np.dtype("float32"), str(device)
    ndarray, allocate, backend = cupy.ndarray, hook.allocate, devices.backend(device.kind)
    makers: dict[str, Call] = {
        "cuassay pointer": lambda: ndarray(SHAPE, float32, allocate(NBYTES)),
        "cuassay backend": lambda: backend.empty(SHAPE, float32, 0),
        "cuassay": lambda: cuassay.empty(SHAPE, "float32", name),
        "cupy": lambda: cupy.empty(SHAPE, float32),
    }
    if torch is not None:
        there, single = torch.device(name), torch.float32
        makers["torch"] = lambda: torch.empty(SHAPE, dtype=single, device=there)

    def many(make: Call) -> Call:
        def batch() -> None:
            for _ in repeat(None, CALLS):
                make()

        return batch

    def on_ours() -> None:
        with hook.using():
            many(makers["cupy"])()

    measured("empty array", {**{who: many(make) for who, make in makers.items()}, "cupy on cuassay": on_ours})


@pytest.mark.parametrize("name", REPLAYED)
def test_replay(device: Device, pairs: dict[str, Pair], measured: Callable[..., None], name: str) -> None:
    """A whole trace, again and again: after a few passes no one needs the driver."""
    events, backend = load_trace(TRACES / f"{name}.csv.gz"), devices.backend(device.kind)
    make, _ = backend.replay_target(device.index)  # type: ignore[attr-defined]
    allocator = CachingAllocator(make(), config="", name=str(device))
    chosen = {who: pairs[who] for who in ("cupy", "torch") if who in pairs}

    def passes(pair: Pair) -> Call:
        for _ in range(4):
            replay(events, pair)
        return lambda: replay(events, pair)

    ours = passes((allocator.malloc, allocator.free, (0,)))
    measured(
        f"trace {name}", {"cuassay": ours} | {who: passes(pair) for who, pair in chosen.items()}, per_sample=len(events)
    )

    backend.synchronize(device.index)
    allocator.empty_cache()


def replay(events: tuple[Event, ...], pair: Pair) -> None:
    take, give, more = pair
    live: dict[int, Any] = {}
    for is_malloc, name, nbytes, _ in events:
        if is_malloc:
            live[name] = take(nbytes, *more)
        elif give is None:
            del live[name]
        else:
            give(live.pop(name))
    for block in live.values() if give is not None else ():
        give(block)
