"""Pinned memory and its peers: an array asked for and dropped, a small copy given to a stream, large ones both ways.

What is pinned for the first time is given back before each round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import cuda, devices
from cuassay.memory import HostAllocator, IntegerSource
from cuassay.memory.host import HOST
from cuassay.memory.stream_pool import free

PAIRS = 1000
MIB = 2**20
LARGE = 256 * MIB
FIRST = 2048 * MIB


def repeated(work: Callable[[], object]) -> None:
    for _ in range(PAIRS):
        work()


# ------------------------------------------------------------------------------------------------ the policy alone


@pytest.mark.benchmark(group=f"{PAIRS} pinned blocks taken and given back")
@pytest.mark.parametrize("nbytes", [4096, 16 * MIB])
def test_hit(benchmark: Callable[..., Any], nbytes: int) -> None:
    host = HostAllocator(IntegerSource(granularity=0), config="")
    malloc = host.stream_pool(HOST).malloc

    benchmark(repeated, lambda: free(malloc(nbytes)))

    assert host.host_statistics().num_host_alloc == 1


# ------------------------------------------------------------------------------------------------ on a device


@pytest.fixture
def gpu() -> str:
    if not cuda.is_available():
        pytest.skip("no CUDA device")
    return "cuda:0"


def ours(nbytes: int) -> Callable[[], Any]:
    dtype = np.dtype(np.uint8)
    return lambda: cuda.empty_pinned(nbytes, dtype)


def torchs(nbytes: int) -> Callable[[], Any]:
    torch = pytest.importorskip("torch")
    return lambda: torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


def cupys(nbytes: int) -> Callable[[], Any]:
    cupyx = pytest.importorskip("cupyx")
    return lambda: cupyx.empty_pinned(nbytes, np.uint8)


@pytest.mark.benchmark(group=f"{PAIRS} pinned arrays made and dropped")
@pytest.mark.parametrize("nbytes", [4096, 16 * MIB])
@pytest.mark.parametrize("peer", [ours, torchs, cupys])
def test_array(benchmark: Callable[..., Any], gpu: str, peer: Callable[[int], Callable[[], Any]], nbytes: int) -> None:
    make = peer(nbytes)
    make()

    benchmark(repeated, make)


def ours_first() -> None:
    cuda.reserve_pinned(FIRST)


def drivers_first() -> Any:
    """One ``cudaHostAlloc``, freed with what this gives."""
    import cupy

    return cupy.cuda.pinned_memory.PinnedMemory(FIRST)


@pytest.mark.benchmark(group="the first 2 GiB pinned")
@pytest.mark.parametrize("peer", [ours_first, drivers_first])
def test_first_pinning(benchmark: Any, gpu: str, peer: Callable[[], Any]) -> None:
    cuda.empty_pinned(1)

    benchmark.pedantic(peer, setup=cuda.empty_host_cache, rounds=3)

    cuda.empty_host_cache()


class Copies:
    """A copy of `nbytes` given to `stream`, upward or downward, by each peer."""

    def __init__(self, nbytes: int, *, upward: bool) -> None:
        self.nbytes, self.upward = nbytes, upward
        self.stream = devices.backend("cuda").new_stream(0)

    def _ordered(self, host: Any, there: Any) -> tuple[Any, Any]:
        return (host, there) if self.upward else (there, host)

    def ours(self) -> Callable[[], object]:
        src, dst = self._ordered(cuda.empty_pinned(self.nbytes, np.uint8), self._device())
        return lambda: devices.copy(src, dst, non_blocking=True)

    def driver(self) -> Callable[[], object]:
        """CuPy's binding of the driver's call, on memory that the driver pinned."""
        import cupy

        self.memory = cupy.cuda.alloc_pinned_memory(self.nbytes)
        there = self._device()
        src, dst = self._ordered(self.memory.ptr, there.data.ptr)
        call, stream, kind, nbytes = (
            cupy.cuda.runtime.memcpyAsync,
            self.stream.ptr,
            1 if self.upward else 2,
            self.nbytes,
        )
        self.kept = there
        return lambda: call(dst, src, nbytes, kind, stream)

    def torch(self) -> Callable[[], object]:
        torch = pytest.importorskip("torch")
        host = torch.empty(self.nbytes, dtype=torch.uint8, pin_memory=True)
        src, dst = self._ordered(host, torch.empty(self.nbytes, dtype=torch.uint8, device="cuda"))
        torch.cuda.set_stream(torch.cuda.ExternalStream(self.stream.ptr))
        return lambda: dst.copy_(src, non_blocking=True)

    def _device(self) -> Any:
        return devices.empty((self.nbytes,), np.uint8, "cuda:0")


@pytest.mark.benchmark(group="100 copies of 64 bytes given to a stream")
@pytest.mark.parametrize("peer", ["ours", "driver", "torch"])
def test_small_copy(benchmark: Any, gpu: str, peer: str) -> None:
    copies = Copies(64, upward=True)
    with cuda.stream(copies.stream):
        copy = getattr(copies, peer)()

        def hundred() -> None:
            for _ in range(100):
                copy()

        benchmark.pedantic(hundred, setup=copies.stream.synchronize, rounds=50, warmup_rounds=3)
        copies.stream.synchronize()


@pytest.mark.benchmark(group="256 MiB between host and device")
@pytest.mark.parametrize("upward", [True, False], ids=["to the device", "to the host"])
@pytest.mark.parametrize("peer", ["ours", "driver", "torch"])
def test_large_copy(benchmark: Any, gpu: str, peer: str, upward: bool) -> None:
    copies = Copies(LARGE, upward=upward)
    with cuda.stream(copies.stream):
        copy = getattr(copies, peer)()

        def once() -> None:
            copy()
            copies.stream.synchronize()

        benchmark.pedantic(once, rounds=15, warmup_rounds=2)
    benchmark.extra_info["GB/s"] = LARGE / benchmark.stats.stats.median / 1e9 if benchmark.stats else None
