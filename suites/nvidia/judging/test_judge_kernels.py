"""``cuassay judge --tier kernel``: a right kernel is correct and timed by the device; wrong ones are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuassay import devices
from cuassay.cli import main
from cuassay.judging.verdict import Verdict, read_verdicts

SPEC = """
from cuassay.testing import OpSpec, Sample

def rows(make):
    return [Sample((make((33, 65)),), {"factor": 2.0}), Sample((make((5, 257)),), {"factor": -0.5})]

scaled = OpSpec(
    fn=lambda xp, a, *, factor: a * factor, name="scaled", dtypes=("float32",), samples=rows,
    reference=lambda a, *, factor: a * factor,
    bench=lambda make, sizes: [Sample((make((2048, 2048)),), {"factor": 3.0})],
)
"""

KERNEL = """
extern "C" __global__ void scale(const float* x, float* out, long long n, float factor) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (CONDITION) out[i] = RESULT;
}
"""

PLAN = {
    "outputs": [{"shape": ["in0[0]", "in0[1]"], "dtype": "in0"}],
    "launches": [
        {
            "kernel": "scale",
            "grid": ["ceil_div(in0.size, 256)"],
            "block": [256],
            "arguments": ["in0", "out0", {"int64": "in0.size"}, {"float32": "factor"}],
        }
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reason = devices.backend("cuda").why_absent()
    if reason is not None:
        pytest.skip(f"no CUDA device: {reason}")
    (tmp_path / "spec.py").write_text(SPEC)
    (tmp_path / "launch.json").write_text(json.dumps(PLAN))
    return tmp_path


def judged(folder: Path, condition: str, result: str) -> Verdict:
    kernel, verdicts = folder / "kernel.cu", folder / "verdicts.json"
    kernel.write_text(KERNEL.replace("CONDITION", condition).replace("RESULT", result))
    words = ["--tier", "kernel", "--device", "cuda:0", "--allow-unjailed", "--seconds", "120", "--json", str(verdicts)]
    main(["judge", f"{folder}/spec.py::scaled", str(kernel), *words])
    (verdict,) = read_verdicts(verdicts)
    return verdict


def test_a_right_kernel_is_correct_and_timed_by_the_device(folder: Path) -> None:
    verdict = judged(folder, "i < n", "x[i] * factor")

    assert verdict.verdict == "correct", verdict
    (case,) = verdict.cases
    assert case.clock == "device"
    assert case.fraction is None or 0 < case.fraction < 1.12


@pytest.mark.parametrize(
    ("condition", "result", "number"),
    [("i <= n", "x[i] * factor", "C17"), ("i < n", "x[i]", "C14"), ("i < n / 2", "x[i] * factor", "")],
    ids=["trespasses", "copies", "half"],
)
def test_a_wrong_kernel_is_not(folder: Path, condition: str, result: str, number: str) -> None:
    verdict = judged(folder, condition, result)

    assert verdict.verdict in ("wrong", "refused")
    assert not number or number in {one.id for one in verdict.cheat}, verdict
