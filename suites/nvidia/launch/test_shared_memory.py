"""Races between the threads of a block, as racecheck of compute-sanitizer sees them: a barrier that is left out.

A test of values finds such a race now and then. The tool finds it in each run that meets it. `ci/run sanitize --tool
racecheck` runs whole suites under it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

_HEAD = """
import numpy as np, cupy
from cuassay import cuda, ops
from cuassay.cuda import memory
cupy.cuda.set_allocator(None)
memory.caching_allocator_enable(False)
def draw(*shape, dtype="float32"):
    return cupy.asarray(np.random.default_rng(7).standard_normal(shape).astype(dtype))
"""

#: By the kernels: calls whose rows or columns go through shared memory more than once. The products are left out: the
#: tool does not know the barriers in memory by which their copies and multiplications are ordered.
CALLS = {
    "scans": ["ops.cumsum(draw(5, 5000), axis=1)", "ops.cumsum(draw(5000, 5), axis=0)"],
    "rows": [
        "ops.softmax(draw(4, 3000))",
        "ops.log_softmax(draw(4, 900))",
        "ops.logsumexp(draw(4, 70_000), axis=1)",
        "ops.softmax_backward(draw(4, 3000), ops.softmax(draw(4, 3000)))",
    ],
    "norms": [
        "ops.layer_norm(draw(5, 3000), draw(3000), draw(3000))",
        "ops.layer_norm_backward(draw(40, 3000), draw(40, 3000), draw(3000))",
        "ops.var(draw(5, 3000), axis=1)",
        "ops.var(draw(3000, 5), axis=0)",
    ],
    "reductions": [
        "ops.sum(draw(5, 70_000), axis=1)",
        "ops.sum(draw(3000, 33), axis=0)",
        "ops.amax(draw(5, 3000), axis=1)",
        "ops.argmax(draw(5, 3000), axis=1)",
        "ops.foreach_norm([draw(5000), draw(33)])",
    ],
    "sums by index": [
        "ops.segment_sum(draw(3000, 5), cupy.arange(3000) * 7919 % 3001, count=3001)",
        "ops.segment_sum(draw(3000, 5), cupy.arange(3000) % 7, count=9)",
        "ops.index_add(draw(500, 5), cupy.arange(3000) * 7919 % 500, draw(3000, 5))",
    ],
}


def checked(tool: str, calls: list[str]) -> tuple[int, str]:
    """The exit status of the calls under racecheck, and what it says."""
    script = "\n".join([_HEAD, *calls, "cuda.synchronize()"])
    command = [
        tool,
        "--tool",
        "racecheck",
        "--error-exitcode",
        "99",
        "--print-limit",
        "5",
        sys.executable,
        "-c",
        script,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        try:
            said, _ = running.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # the program under the tool too
            raise
    return running.returncode, said


@pytest.fixture(scope="module")
def racecheck() -> str:
    """The tool; the test is skipped where there is none, or it does not know the device."""
    tool = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/local/cuda/bin")
    if tool is None:
        pytest.skip("compute-sanitizer is not on PATH; it comes with the CUDA toolkit")
    if "Device not supported" in checked(tool, [])[1]:
        pytest.skip("compute-sanitizer says that this device is not supported, as it does inside some containers")
    return tool


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("kernels", CALLS)
def test_no_thread_reads_what_another_may_still_write(racecheck: str, kernels: str) -> None:
    status, said = checked(racecheck, CALLS[kernels])

    assert status == 0, said[-4000:]
    assert "RACECHECK SUMMARY: 0 hazards" in said
