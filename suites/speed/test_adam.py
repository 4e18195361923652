"""Adam steps on lists as models have them, torch's fused ones and a kernel of the same accesses that only adds.

Times are of the device's clock but for those of many small tensors, where the host is what counts. The ceiling reads
four arrays and writes three, one float4 a thread on a full grid: 4.2 TB/s on an H200.
"""

from __future__ import annotations

import gc
import importlib.util
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, empty, from_host, ops, random, to_host
from cuassay.arrays.dtypes import dtype_name
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark, is_measuring
from cuassay.benchmarking.timing import Timing
from cuassay.devices import backend
from cuassay.optim import AdamW
from cuassay.random import Generator
from cuassay.results.record import Recorder
from cuassay.testing import Work, devices, dtypes

Shapes = Sequence[tuple[int, ...]]
Calls = dict[str, Callable[[], Any]]

CEILING = """
extern "C" __global__ void ceiling(float4* p, const float4* g, float4* m, float4* v, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 a = p[i], c = m[i], d = v[i];
    const float4 b = g[i];
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
    c.x += b.x, c.y += b.y, c.z += b.z, c.w += b.w;
    d.x += b.x, d.y += b.y, d.z += b.z, d.w += b.w;
    p[i] = a, m[i] = c, v[i] = d;
}
"""


def gpt2(layers: int, width: int) -> Shapes:
    """The parameters of GPT-2 (Radford et al. 2019): XL has 48 layers of 1,600, small 12 of 768."""
    layer = [(width,)] * 4 + [(width, 3 * width), (3 * width,), (width, width), (width,)]
    layer += [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50_257, width), (1024, width), *(layers * layer), (width,), (width,)]


MODELS: dict[str, Shapes] = {"GPT-2 XL": gpt2(48, 1600), "GPT-2 small": gpt2(12, 768)}
MANY: dict[str, Shapes] = {"10,000 x 64": [(64,)] * 10_000, "1,000 x 1,024": [(1024,)] * 1000}

#: Instead of a model where nothing is measured.
AS_TEST: Shapes = ((33, 64), (64,), (4097,))


class Lists:
    """Parameters and gradients as views of two arrays of our own, and torch's of the same numbers of elements.

    Views begin `skipped` elements past a boundary of 256 bytes.
    """

    def __init__(self, shapes: Shapes, dtype: str, device: Device, skipped: int = 0) -> None:
        self.shapes, self.dtype, self.device = shapes, dtype, device
        self.size = sum(map(math.prod, shapes))
        self.places, length = [], 0
        for shape in shapes:
            self.places.append(length + skipped)
            length = -(-(length + skipped + math.prod(shape)) // 128) * 128
        self.length = length
        self.params, self.grads = (self.filled(seed) for seed in (1, 2))

    def filled(self, seed: int) -> Any:
        """A flat array of normal numbers; a product of zeros would be quicker."""
        flat = empty((self.length,), self.dtype, self.device)
        random.normal(out=flat, generator=Generator(self.device, seed=seed))
        return flat

    def squares(self, seed: int) -> Any:
        """A flat array of what a second moment may be."""
        flat = self.filled(seed)
        return ops.mul(flat, flat, out=flat)

    def views(self, flat: Any) -> tuple[Any, ...]:
        """One array a shape."""
        places = zip(self.places, self.shapes, strict=True)
        return tuple(flat[at : at + math.prod(shape)].reshape(shape) for at, shape in places)

    def work(self, accesses: int) -> Work:
        """The work of `accesses` to each element."""
        return Work(bytes=accesses * self.size * np.dtype(self.params.dtype).itemsize)

    def ceiling(self) -> Callable[[], Any]:
        """The same accesses, on arrays whose bits are taken for float32: the gradients are only read."""
        kernel = cuda.compile_kernel(CEILING, "ceiling", signature=("float32*",) * 4 + ("int64",))
        arrays = [flat.view(np.float32) for flat in (self.filled(3), self.grads, *map(self.filled, (4, 5)))]
        n = arrays[0].size // 4
        return lambda: kernel((-(-n // 256),), (256,), (*arrays, n))

    def torch(self, **options: Any) -> Any:
        """Torch's fused optimizer, its first step taken; None without torch."""
        if importlib.util.find_spec("torch") is None or self.device.kind != "cuda":
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings at start-up are not our failures
            import torch

            where = {"device": str(self.device), "dtype": getattr(torch, self.dtype)}
            flat, grads = (torch.randn(self.length, **where) for _ in range(2))
            params = [torch.nn.Parameter(one) for one in self.views(flat)]
            for param, grad in zip(params, self.views(grads), strict=True):
                param.grad = grad
            peer = torch.optim.AdamW(params, lr=1e-4, fused=True, **options)
            peer.step()
        return peer


@pytest.fixture
def lists(device: Device, pytestconfig: pytest.Config) -> Iterator[Callable[..., Lists]]:
    """Makes the lists of some shapes; what they took is given back afterwards, as the next ones may need all of it."""

    def make(shapes: Shapes, dtype: str, skipped: int = 0) -> Lists:
        return Lists(shapes if is_measuring(pytestconfig) else AS_TEST, dtype, device, skipped)

    yield make
    gc.collect()
    if device.kind == "cuda":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        if importlib.util.find_spec("torch") is not None:
            import torch

            torch.cuda.empty_cache()


@pytest.fixture
def keep(device: Device, recorder: Recorder | None) -> Callable[..., None]:
    """Writes the timings of a case where figures are kept."""

    def write(case: str, timings: dict[str, Timing], dtype: str, work: Work | None = None) -> None:
        for name, timing in timings.items() if recorder is not None else ():
            nbytes = None if work is None else work.bytes
            recorder.write_time(**timing_row("adam", device, name, timing, case=case, dtype=dtype, bytes=nbytes))

    return write


def graph_of(step: Callable[[], Any]) -> Callable[[], Any]:
    """A replay of a captured step."""
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        step()
    return graph.replay


def torch_graph_of(peer: Any) -> Callable[[], Any]:
    import torch

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        peer.step()
    return graph.replay


@devices("cuda:*")
@dtypes("float32", "bfloat16")
@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_a_model(
    device: Device, dtype: np.dtype[Any], model: str, lists: Any, device_benchmark: DeviceBenchmark, keep: Any
) -> None:
    held = lists(MODELS[model], dtype_name(dtype))
    optimizer, grads = AdamW(held.views(held.params), lr=1e-4), held.views(held.grads)
    optimizer.step(grads)
    calls: Calls = {"step": lambda: optimizer.step(grads), "ceiling": held.ceiling()}
    calls["captured"] = graph_of(calls["step"])
    if (peer := held.torch(capturable=True)) is not None:
        calls |= {"torch": peer.step, "torch captured": torch_graph_of(peer)}

    timings = device_benchmark(calls, device, work=held.work(7), op="adam", dtype=held.dtype, case=model)
    keep(model, timings, held.dtype, held.work(7))

    if timings:
        medians = {name: timing.median_s for name, timing in timings.items()}
        device_benchmark.note(**{f"{name} / step": median / medians["step"] for name, median in medians.items()})
    assert np.isfinite(to_host(held.params[:1000]).astype(np.float32)).all()


@devices("cuda:*")
@pytest.mark.parametrize("case", [*MANY, "GPT-2 small"])
def test_the_time_until_a_step_is_done(
    device: Device, case: str, lists: Any, device_benchmark: DeviceBenchmark, keep: Any
) -> None:
    """Call and wait, by the host's clock."""
    held = lists({**MANY, **MODELS}[case], "float32")
    optimizer, grads = AdamW(held.views(held.params), lr=1e-4), held.views(held.grads)
    listed, wait = list(grads), lambda: backend(device.kind).synchronize(device.index)
    calls: Calls = {"step": lambda: optimizer.step(grads), "step of a list": lambda: optimizer.step(listed)}
    if (peer := held.torch()) is not None:
        calls["torch"] = peer.step

    runs = 20 if device_benchmark.enabled else 1
    walls = {name: Timing(samples, samples, "host", "warm") for name, samples in waited(calls, wait, runs).items()}

    device_benchmark(calls, device, cache="warm", op="adam", case=case)
    device_benchmark.note(**{f"{name}_wall_s": timing.median_s for name, timing in walls.items()})
    keep(f"{case}, until done", walls if device_benchmark.enabled else {}, "float32")
    assert all(timing.median_s > 0 for timing in walls.values())


def waited(calls: Calls, wait: Callable[[], None], runs: int) -> dict[str, tuple[float, ...]]:
    """Seconds of the host's clock for each call and the wait for it, in turns; the first two turns are left out."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs + 2):
        for name, call in calls.items():
            wait()
            begun = time.perf_counter()
            call()
            wait()
            found[name].append(time.perf_counter() - begun)
    return {name: tuple(samples[2:]) for name, samples in found.items()}


@devices("cuda:*")
@dtypes("float32", "bfloat16")
def test_tensors_of_odd_sizes_that_begin_anywhere(
    device: Device, dtype: np.dtype[Any], lists: Any, device_benchmark: DeviceBenchmark, keep: Any
) -> None:
    """Odd sizes; then all lists one element past a boundary; then parameters and gradients alone."""
    name, odd = dtype_name(dtype), [(4096 * 4097 - 1,)] * 8
    aligned, sized, moved = lists([(4096 * 4097,)] * 8, name), lists(odd, name), lists(odd, name, 1)
    states = [(one.views(one.filled(3)), one.views(one.squares(4))) for one in (aligned, sized, moved, sized)]
    cases = {"aligned": aligned, "odd sizes": sized, "all off by one": moved, "two lists off by one": moved}
    calls = {}
    for (label, held), moments in zip(cases.items(), states, strict=True):
        steps = from_host(np.zeros(len(held.shapes), np.float32), device)
        given = [list(arrays) for arrays in (held.views(held.params), held.views(held.grads), *moments)]
        calls[label] = ops.fused_adam_.prepare(*given, [], [], steps, 1e-4).run

    timings = device_benchmark(calls, device, work=aligned.work(7), op="adam", dtype=name, case="odd")
    keep("8 tensors of 16.8 M elements", timings, name, aligned.work(7))

    if timings:
        least = timings["aligned"].median_s
        device_benchmark.note(**{f"rate of {label}": least / timing.median_s for label, timing in timings.items()})
    assert np.isfinite(to_host(moved.params[:1000]).astype(np.float32)).all()


@devices("cuda:*")
def test_unscale_check_clip_step_and_zero(
    device: Device, lists: Any, device_benchmark: DeviceBenchmark, keep: Any
) -> None:
    held = lists(MODELS["GPT-2 XL"], "float32")
    optimizer, grads = AdamW(held.views(held.params), lr=1e-4), held.views(held.grads)
    scale, found = (from_host(np.array(value, np.float32), device) for value in (1, 0))
    options = {"grad_scale": scale, "found_inf": found, "check_finite": True, "max_norm": 1.0, "zero_grads": True}
    calls: Calls = {"chain": lambda: optimizer.step(grads, **options)}
    if (peer := held.torch()) is not None:
        calls["torch"] = torch_chain(peer)

    timings = device_benchmark(calls, device, work=held.work(9), op="adam", dtype="float32", case="chain")
    keep("GPT-2 XL, unscale to zero", timings, "float32", held.work(9))

    if "torch" in timings:
        device_benchmark.note(speedup=timings["torch"].median_s / timings["chain"].median_s)
    assert float(to_host(found)) == 0


def torch_chain(peer: Any) -> Callable[[], None]:
    """The same by torch's scaler, its clipping and its fused step."""
    import torch

    scaler = torch.amp.GradScaler("cuda", init_scale=1.0, growth_interval=10**9)
    scaler.scale(torch.zeros((), device="cuda"))
    params = peer.param_groups[0]["params"]

    def run() -> None:
        scaler.unscale_(peer)
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        scaler.step(peer)
        scaler.update()
        peer.zero_grad(set_to_none=False)

    return run
