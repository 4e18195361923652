"""History of CUDA's allocators by torch's names; and torch's own viewers on what we write."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuassay.cuda.memory
from cuassay import cuda, devices
from cuassay.memory import CachingAllocator, IntegerSource
from cuassay.memory.snapshot import dump, load
from cuassay.observe.usage import usages

MIB = 2**20
VIEWS = ("trace", "segsum", "trace_plot", "segment_plot", "segments", "memory")


def step(allocator: CachingAllocator) -> None:
    """Blocks of two streams that come, stay and go, one of them used by another stream until the last request."""
    live = [allocator.malloc(size * MIB) for size in (3, 12, 30, 7)]
    allocator.free(live.pop(1))
    live.append(allocator.malloc(5 * MIB, 2))
    allocator.record_stream(live[0], 2)
    allocator.free(live.pop(0))
    allocator.malloc(1000)


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
@pytest.mark.parametrize("view", VIEWS)
def test_torchs_viewer_reads_what_we_write(tmp_path: Path, view: str, granularity: int) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
    allocator.record_history()
    step(allocator)
    dump(allocator.snapshot(), tmp_path / "s.pickle", "torch")
    snapshot = pickle.loads((tmp_path / "s.pickle").read_bytes())  # noqa: S301  just written

    options = {"format_flamegraph": lambda lines: lines} if view in ("segments", "memory") else {}
    text = getattr(viz, view)(snapshot, **options)

    if view == "memory":
        assert "test_history.py:" in text
        assert str(30 * MIB) in text
    if view == "trace":
        # Of ranges that grow torch's viewer knows only what is left at the end, so that it cannot place each block.
        assert ("[0:3.0MiB]" if not granularity else "del a # 3.0MiB") in text
        assert text.count("# free completed") == 2
    assert len(text) > 300


TORCH = """
import sys, torch
memory = torch.cuda.memory
def ask():
    return torch.empty(2**20, device="cuda")
memory._record_memory_history(stacks="python", max_entries=1000)
kept = [ask() for _ in range(3)]
memory._dump_snapshot(sys.argv[1])
"""


def test_what_torch_writes_is_read_and_drawn(tmp_path: Path) -> None:
    """In a process of its own: torch's recording is for the whole process, and stays."""
    if find_spec("torch") is None or not cuda.is_available():
        pytest.skip("no torch, or no CUDA device")
    command = [sys.executable, "-c", TORCH, str(tmp_path / "t.pickle")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (usage,) = usages(load(tmp_path / "t.pickle"))

    assert usage.peak == 12 * MIB
    assert [(site.name.split()[-1], site.requests) for site in usage.sites] == [("ask", 3)]


@pytest.fixture
def recording(on_cuda: None) -> Any:
    cuda.record_memory_history(clear_history=True, record_pinned_host_memory=True)
    yield
    cuda.record_memory_history(None, clear_history=True, record_pinned_host_memory=True)


def test_arrays_of_the_device_are_told_of_with_their_call_site(recording: None, tmp_path: Path) -> None:
    array = devices.empty((3 * MIB,), np.uint8, "cuda:0")

    cuda.dump_snapshot(tmp_path / "s.json")
    snapshot = load(tmp_path / "s.json")

    (event,) = (e for e in snapshot["device_traces"][0] if e["action"] == "alloc" and e["size"] >= array.nbytes)
    assert event["addr"] == array.data.ptr
    assert any(frame["filename"] == __file__ for frame in event["frames"])


def test_pinned_memory_is_told_of_too(recording: None) -> None:
    array = cuda.empty_pinned(5 * MIB, np.uint8)

    snapshot = cuassay.cuda.memory._snapshot()

    assert array.ctypes.data in [
        event["addr"] for trace in snapshot["host_traces"] for event in trace if "addr" in event
    ]
    assert sum(segment["allocated_size"] for segment in snapshot["host_segments"]) >= 5 * MIB
