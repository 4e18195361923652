"""What graphs cost the host, compared with C, CuPy and torch: replaying, capturing, re-pointing an input.

Rows have the host's clock. A replay is one of a batch, on a stream of its own; C calls the driver in a compiled loop.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle, repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, from_host, ops
from cuassay.testing import devices as on

pytestmark = pytest.mark.usefixtures("emptied_queue")

ELEMENTS = 1024
NODES = (1, 10, 100, 1000)
STEP = 1000

Call = Callable[[], Any]

LAUNCH_IN_C = """
int launch_many(int (*launch)(void *, void *), void *graph, void *stream, int count) {
    int status = 0;
    while (count-- && !status) status = launch(graph, stream);
    return status;
}
"""


@pytest.fixture
def measured(host_times: Callable[..., None]) -> Callable[..., None]:
    """Keeps the host's time of one call."""
    return partial(host_times, "graphs")


@pytest.fixture
def torch(device: Device) -> Any:
    """torch with its CUDA in use, or None."""
    if importlib.util.find_spec("torch") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        import torch

        torch.ones(1, device=str(device))
    return torch


@pytest.fixture
def operands(device: Device) -> tuple[Any, Any, Any]:
    """Two arrays and an output, on the device, with the kernel that adds them loaded."""
    a, b, out = (from_host(np.full(ELEMENTS, value, np.float32), device) for value in (1, 2, 0))
    ops.add(a, b, out=out)
    cuda.synchronize()
    return a, b, out


def times(call: Call, count: int) -> Call:
    def run() -> None:
        for _ in repeat(None, count):
            call()

    return run


def on_stream(stream: Any, call: Call) -> Call:
    """`call` with `stream` current, and waited for by the stream that is timed: a small part of a batch."""

    def run() -> None:
        with stream:
            call()
        cuda.current_stream().wait_stream(stream)

    return run


# ------------------------------------------------------------------------------------------------ replay


@on("cuda")
@pytest.mark.parametrize("nodes", NODES)
def test_replay(
    nodes: int, operands: tuple[Any, Any, Any], torch: Any, measured: Callable[..., None], tmp_path: Path
) -> None:
    count = 100 if nodes < 100 else 20  # few enough that the queue does not fill
    a, b, out = operands
    work = times(ops.add.prepare(a, b, out=out).run, nodes)
    stream, graph = cuda.Stream(), cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        work()
    calls = {"cuassay": on_stream(stream, times(graph.replay, count)), "cupy": cupy_replay(work, count)}
    if shutil.which("cc") is not None:
        calls["c"] = c_replay(graph, stream, count, tmp_path)
    if torch is not None:
        calls["torch"] = torch_replay(torch, nodes, count)

    measured(f"replay of {nodes} nodes", calls, count)

    graph.reset()


def cupy_replay(work: Call, count: int) -> Call:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        work()
        graph = stream.end_capture()
    return on_stream(stream, times(graph.launch, count))


def c_replay(graph: Any, stream: Any, count: int, folder: Path) -> Call:
    source, library = folder / "launch.c", folder / "launch.so"
    source.write_text(LAUNCH_IN_C)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    driver, compiled = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(str(library))
    handles = ctypes.c_void_p(graph.raw_cuda_graph_exec()), ctypes.c_void_p(stream.ptr)

    def run() -> None:
        assert compiled.launch_many(driver.cuGraphLaunch, *handles, count) == 0
        cuda.current_stream().wait_stream(stream)

    return run


def torch_replay(torch: Any, nodes: int, count: int) -> Call:
    a, b, out = (torch.ones(ELEMENTS, device="cuda") for _ in range(3))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(nodes):
            torch.add(a, b, out=out)

    def run(kept: Any = (a, b, out)) -> None:
        with torch.cuda.stream(stream):
            for _ in repeat(None, count):
                graph.replay()
        cuda.current_stream().wait_stream(stream)
        assert kept

    return run


# ------------------------------------------------------------------------------------------------ capture


@on("cuda")
def test_capture_and_instantiate(operands: tuple[Any, Any, Any], torch: Any, measured: Callable[..., None]) -> None:
    """A step of prepared calls, and of calls as they are; destroying the graph is not timed."""
    a, b, out = operands
    plan, stream = ops.add.prepare(a, b, out=out).run, cuda.Stream()
    steps = {"cuassay": times(plan, STEP), "cuassay ops": times(lambda: ops.add(a, b, out=out), STEP)}
    parts: dict[str, list[float]] = {name: [] for name in (*steps, "torch")}
    calls = {name: captured(step, stream, parts[name]) for name, step in steps.items()}
    if torch is not None:
        calls["torch"] = torch_captured(torch, parts["torch"])

    measured(f"capture and instantiate {STEP} nodes", calls, 1, parts)

    assert out.shape == (ELEMENTS,)


def captured(work: Call, stream: Any, seconds: list[float]) -> Call:
    def run() -> None:
        graph = cuda.CUDAGraph()
        with stream:
            begun = perf_counter()
            graph.capture_begin()
            work()
            graph.capture_end()
            seconds.append(perf_counter() - begun)
        graph.reset()

    return run


def torch_captured(torch: Any, seconds: list[float]) -> Call:
    a, b, out = (torch.ones(ELEMENTS, device="cuda") for _ in range(3))
    stream = torch.cuda.Stream()
    torch.add(a, b, out=out)

    def run() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            begun = perf_counter()
            graph.capture_begin()
            for _ in repeat(None, STEP):
                torch.add(a, b, out=out)
            graph.capture_end()
            seconds.append(perf_counter() - begun)
        graph.reset()

    return run


# ------------------------------------------------------------------------------------------------ inputs


@on("cuda")
@pytest.mark.parametrize("readers", [1, 10])
def test_another_input(
    device: Device, readers: int, operands: tuple[Any, Any, Any], torch: Any, measured: Callable[..., None]
) -> None:
    """A call whose one input moves each time; with it the replay alone, and the copy that re-pointing saves."""
    count = 50
    a, b, out = operands

    def work(a: Any) -> Any:
        for _ in range(readers):
            ops.add(a, b, out=out)
        return out

    graphed = cuda.make_graphed_callables(work, (a,))
    assert graphed.repointable == (True,)
    others = [from_host(np.full(ELEMENTS, value, np.float32), device) for value in range(8)]
    pointed, given = cycle([(one,) for one in others]), cycle(others)
    calls: dict[str, Call] = {
        "cuassay": times(lambda: graphed.replay(next(pointed)), count),
        "cuassay replay": times(graphed.graph.replay, count),
        "cuassay copy": times(lambda: graphed(next(given)), count),
    }
    if torch is not None:
        calls["torch"] = torch_given(torch, readers, count)

    measured(f"a moved input with {readers} readers", calls, count)

    graphed.reset()


def torch_given(torch: Any, readers: int, count: int) -> Call:
    b, out = (torch.ones(ELEMENTS, device="cuda") for _ in range(2))
    others = cycle([torch.ones(ELEMENTS, device="cuda") for _ in range(8)])

    def work(a: Any) -> Any:
        for _ in range(readers):
            torch.add(a, b, out=out)
        return out

    graphed = torch.cuda.make_graphed_callables(work, (torch.ones(ELEMENTS, device="cuda"),))
    return times(lambda: graphed(next(others)), count)
