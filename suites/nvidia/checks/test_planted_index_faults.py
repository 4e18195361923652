"""CUDA kernels with indexes of 32 bits: the check of large arrays finds each, and passes their right twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay import cuda, devices
from cuassay.testing import OpSpec, exclusive
from cuassay.testing.generated.checks import CHECKS

pytestmark = [pytest.mark.usefixtures("on_cuda"), exclusive]

BLOCK = 256

#: A function of int8 with a grid of one thread for each element, and one with a loop over the elements.
PLAIN = """
extern "C" __global__ void f(const signed char* a, signed char* out, long long n) {{
    {index} i = {first};
    if ({inside}) out[i] = a[i] / 2;
}}
"""
LOOP = """
extern "C" __global__ void f(const signed char* a, signed char* out, long long n) {{
    for ({index} i = blockIdx.x * blockDim.x + threadIdx.x; {inside}; i += gridDim.x * blockDim.x)
        out[{place}] = a[{place}] / 2;
}}
"""
WIDE = "(long long)blockIdx.x * blockDim.x + threadIdx.x"
INT = "blockIdx.x * blockDim.x + threadIdx.x"

#: Each source, and the blocks of its grid; None is one thread for each element. No fault leaves the arrays.
RIGHT = {
    "plain": (PLAIN.format(index="long long", first=WIDE, inside="i < n"), None),
    "loop": (LOOP.format(index="long long", inside="i < n", place="i"), 1024),
}
WRONG = {
    "int index": (PLAIN.format(index="int", first=INT, inside="i >= 0 && i < n"), None),
    "int size": (PLAIN.format(index="long long", first=WIDE, inside="i < (int)n"), None),
    "last element": (PLAIN.format(index="long long", first=WIDE, inside="i < n - (n > 1LL << 31)"), None),
    "grid too small": (PLAIN.format(index="long long", first=WIDE, inside="i < n"), 2**31 // BLOCK),
    "place wraps": (LOOP.format(index="long long", inside="i < n", place="i & 0x7fffffff"), 1024),
}


def halved(source: str, blocks: int | None) -> OpSpec:
    """A function that halves integers, rounded towards zero, with this kernel on a GPU."""
    kernel = cuda.compile_kernel(source, "f")

    def fn(xp: Any, a: Any) -> Any:
        if xp.__name__ != "cupy":
            return np.trunc(a / 2).astype(a.dtype)
        a = xp.ascontiguousarray(a)
        out = xp.empty_like(a)
        grid = -(-a.size // BLOCK)
        kernel(grid if blocks is None else min(grid, blocks), BLOCK, (a, out, a.size))
        return out

    return OpSpec(
        fn=fn, name="halved", dtypes=("int8",), samples=lambda make: [make(1025, low=-100, high=100)],
        reference=lambda a: np.trunc(a / 2).astype(a.dtype),
    )  # fmt: skip


@pytest.fixture
def _has_room() -> None:
    """Enough memory is free; else the test is skipped, as the check would be."""
    free, _ = devices.backend("cuda").memory_info(0)
    if free < 17 * 2**30:
        pytest.skip(f"cuda:0 has {free:,} bytes of free memory; 17 GiB are needed")


@pytest.mark.usefixtures("_has_room")
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernel_passes(name: str) -> None:
    CHECKS["beyond_32_bits"](halved(*RIGHT[name]), "cuda:0")


@pytest.mark.usefixtures("_has_room")
@pytest.mark.parametrize("name", WRONG)
def test_fault_is_found_at_its_index(name: str) -> None:
    first = r"\d+" if name == "int size" else r"2,147,48\d,\d{3}"  # a negative size leaves everything out
    with pytest.raises(AssertionError, match=f"the first element that differs has index {first};"):
        CHECKS["beyond_32_bits"](halved(*WRONG[name]), "cuda:0")
