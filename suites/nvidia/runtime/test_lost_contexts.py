"""A kernel that spoils its context or never ends: it costs one test, which names the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import own_plugin
import pytest

import cuassay.cuda
from cuassay.devices import backend

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

#: How many tests there are.
NUMBER = 300

#: What a kernel does, and which of the tests launch it.
FAULTS = {
    "illegal address": ("*(volatile int*)0 = 1;", (0, 149, 299)),
    "trap": ("__trap();", (0, 149, 299)),
    "hang": ("while (*(volatile int*)a != 7) {}", (5,)),
}

#: What each lost test says: its own two launches, in order, and no other test's.
LAUNCHES = (("good", 11), ("bad", 13))

TESTS = """
    import cuassay.cuda, os, pytest

    def kernel(name, body):
        return cuassay.cuda.compile_kernel(f"__global__ void {name}(int* a) {{ {body} }}", name)

    good, bad = kernel("good", "a[0] = 1;"), kernel("bad", os.environ["FAULT"])

    @pytest.mark.parametrize("n", range(NUMBER))
    def test_it(device, xp, n):
        a = xp.zeros(1, "int32")
        good(1, 1, (a,))
        if str(n) in os.environ["AT"].split():
            bad(1, 1, (a,))
        assert int(a[0]) == 1
"""


@pytest.fixture(autouse=True)
def _device() -> None:
    if not cuassay.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_the_device_costs_one_test_and_names_the_kernel(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    body, places = FAULTS[fault]
    monkeypatch.setenv("FAULT", body)
    monkeypatch.setenv("AT", " ".join(map(str, places)))
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "20")  # the first test of a process makes a context and compiles
    pytester.makepyfile(test_many=TESTS.replace("NUMBER", str(NUMBER)))

    result = pytester.runpytest_subprocess(
        *own_plugin.words(), "--device=cuda:0", "--cuassay-isolate", "-p", "no:benchmark"
    )

    result.assert_outcomes(passed=NUMBER - len(places), failed=len(places))
    named = [line for line in result.outlines if line.startswith("kernel ")]
    wanted = [f"kernel {name}, grid 1, block 1, at test_many.py:{line}" for name, line in LAUNCHES]
    assert named == wanted * len(places)


def test_launches_are_noted_by_name_shape_and_line() -> None:
    noted: list[str] = []
    fill = cuassay.cuda.compile_kernel("__global__ void fill(int* a) { a[threadIdx.x] = 1; }", "fill")
    backend("cuda").note_launches(noted.append)
    try:
        fill(1, (32, 1), (cupy.empty(32, "int32"),))
    finally:
        backend("cuda").note_launches(None)
    fill(1, 32, (cupy.empty(32, "int32"),))

    (line,) = noted
    assert line.startswith(f"kernel fill, grid 1, block (32, 1), at {Path(__file__).name}:")
