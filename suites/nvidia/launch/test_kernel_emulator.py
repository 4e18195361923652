"""Kernels that run on the host: a right one gives what it gives on a GPU, and each fault planted in it is found."""

from __future__ import annotations

import numpy as np
import pytest

from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import CompileError
from cuassay.ops import registry

pytest.importorskip("cuassay_host", reason="the kind `host` is on the path in `ci/run cupy` only")
emulated = pytest.importorskip("kernel_emulator.launches", reason="CuPy is not installed")

from kernel_emulator.memory import as_cupy, guarded  # noqa: E402

from cuassay.devices.cuda.launch import launch  # noqa: E402
from cuassay.devices.cuda.launch.userkernel import compile_kernel  # noqa: E402

#: Sums `n` numbers with a block of 64 threads: each warp by shuffles, then the two warps through shared memory.
TOTAL = r"""
extern "C" __global__ void total(const float* a, float* out, int n) {
    __shared__ float part[2];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 64) sum += a[i];
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) *out = part[0] + part[1];
}
"""

#: Reverses 64 numbers through shared memory.
REVERSED = r"""
extern "C" __global__ void reversed(const float* a, float* out, int n) {
    __shared__ float all[64];
    all[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = all[63 - threadIdx.x];
}
"""


#: Sums 256 numbers with a cluster of four blocks of 64 threads.
CLUSTERED = r"""
#include "cluster.cuh"
template <int BLOCKS> __global__ void CLUSTER_OF(BLOCKS) total(const float* a, float* out, int n) {
    __shared__ float all[64], part;
    all[threadIdx.x] = a[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        part = 0;
        for (int i = 0; i < 64; ++i) part += all[i];
    }
    cluster_arrive();
    cluster_wait();
    float sum = 0;
    for (int other = 0; other < BLOCKS; ++other) sum += *in_block(other, &part);
    cluster_arrive();
    if (cluster_rank() == 0 && threadIdx.x == 0) *out = sum;
    cluster_wait();
}
"""


def launched(text: str, name: str, a: np.ndarray, size: int) -> np.ndarray:
    """What the kernel `name` leaves in a new array of `size` numbers, launched with one block of 64 threads."""
    given, out = guarded(a.shape, a.dtype), guarded((size,), np.dtype(np.float32))
    given[...] = a
    compile_kernel(text, name)(1, 64, (as_cupy(given), as_cupy(out), np.int32(a.size)))
    return out


def totals(text: str, n: int = 100) -> list[float]:
    """The sums of 0 .. n-1 in twenty launches."""
    return [float(launched(text, "total", np.arange(n, dtype=np.float32), 1)[0]) for _ in range(20)]


def without(text: str, *parts: str) -> str:
    """`text` without each of `parts`, which must be in it."""
    for part in parts:
        assert part in text
        text = text.replace(part, "")
    return text


def test_a_right_kernel_gives_its_result_in_every_order_of_threads() -> None:
    assert set(totals(TOTAL)) == {4950.0}


def test_a_right_kernel_through_shared_memory() -> None:
    a = np.arange(64, dtype=np.float32)

    np.testing.assert_array_equal(launched(REVERSED, "reversed", a, 64), a[::-1])


@pytest.mark.parametrize("text", [TOTAL, REVERSED])
def test_a_missing_barrier_changes_results(text: str) -> None:
    name = "total" if text is TOTAL else "reversed"
    a = np.arange(64, dtype=np.float32)
    right = launched(text, name, a, 64)[: 1 if text is TOTAL else 64]

    found = [launched(without(text, "__syncthreads();"), name, a, 64)[: len(right)] for _ in range(20)]

    assert not all(np.array_equal(one, right) for one in found)


def test_a_warp_that_writes_after_the_one_that_should_changes_results() -> None:
    """Every warp writes its own sum, the first one that of the block, which takes it longer."""
    alone = "if (threadIdx.x == 0) *out = part[0] + part[1];"
    shared = "if (threadIdx.x < 32) sum = part[0] + __shfl_sync(0xffffffffu, part[1], 0); *out = sum;"
    assert alone in TOTAL

    assert set(totals(TOTAL.replace(alone, shared))) > {4950.0}


def test_shared_memory_without_a_value_is_nan() -> None:
    assert np.isnan(totals(TOTAL.replace("part[threadIdx.x / 32] = sum", "part[0] = sum"))).all()


@pytest.mark.parametrize("load", ["a[i]", "__ldg(a + i)"])
def test_a_load_that_goes_beyond_its_array_is_named(load: str) -> None:
    text = TOTAL.replace("a[i]", load)
    assert set(totals(text)) == {4950.0}

    with pytest.raises(emulated.KernelFaultError, match="a load goes beyond its array"):
        totals(text.replace("i < n", "i <= n"))


def test_a_load_before_its_array_is_named() -> None:
    with pytest.raises(emulated.KernelFaultError, match="a load goes beyond its array"):
        totals(TOTAL.replace("a[i]", "a[i - 1]"))


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        pytest.param(
            "__syncthreads();", "if (threadIdx.x < 32) __syncthreads(); else __syncthreads();",
            "threads of a block wait at different barriers", id="two-barriers",
        ),
        pytest.param(
            "__syncthreads();", "if (threadIdx.x < 32) __syncthreads(); else __syncwarp(0x7fffffffu);",
            "a lane takes part in a shuffle whose mask does not name it", id="partial-warp",
        ),
        pytest.param(
            "__syncthreads();", "if (threadIdx.x < 40) __syncthreads(); else __syncwarp();",
            "threads wait for each other", id="half-a-warp-at-a-barrier",
        ),
        pytest.param(
            "float sum = 0.0f;", "float sum = 0.0f; if (threadIdx.x == 40) return;",
            "a shuffle names a lane that has ended", id="lane-has-ended",
        ),
        pytest.param("part[threadIdx.x / 32]", "part[threadIdx.x / 16]", r"index [23] .* 'float \[2\]'", id="index"),
        pytest.param("part[threadIdx.x / 32]", "(&*part)[threadIdx.x / 16]", "past a variable in shared", id="shared"),
        pytest.param("*out =", "out[1] =", "has written outside of its arrays", id="global-behind"),
        pytest.param("*out =", "out[-1] =", "has written outside of its arrays", id="global-before"),
    ],
)  # fmt: skip
def test_a_fault_is_named(right: str, wrong: str, message: str) -> None:
    assert right in TOTAL

    with pytest.raises(emulated.KernelFaultError, match=message):
        totals(TOTAL.replace(right, wrong))


def clustered(text: str) -> list[float]:
    """What a kernel of four blocks of 64 threads gives for 0 .. 255 in twenty launches."""
    given, out = guarded((256,), np.dtype(np.float32)), guarded((1,), np.dtype(np.float32))
    given[...] = np.arange(256)
    kernel, found = compile_kernel(text, "total<4>"), []
    for _ in range(20):
        kernel(4, 64, (as_cupy(given), as_cupy(out), np.int32(256)))
        found.append(float(out[0]))
    return found


def test_the_blocks_of_a_cluster_read_one_anothers_shared_memory() -> None:
    assert set(clustered(CLUSTERED)) == {32640.0}


def test_a_missing_barrier_of_a_cluster_changes_results() -> None:
    assert set(clustered(CLUSTERED.replace("cluster_arrive();\n    cluster_wait();", ""))) != {32640.0}


def test_a_block_that_ends_while_another_reads_it_is_named() -> None:
    without_end = CLUSTERED.replace("cluster_wait();\n}", "}")

    with pytest.raises(emulated.KernelFaultError, match="of a block that has ended"):
        clustered(without_end)


def test_launches_are_noted_also_after_they_were_watched() -> None:
    noted: list[str] = []
    launch.note_launches(noted.append)
    try:
        with launch.watched() as outer:
            with launch.watched():
                launched(REVERSED, "reversed", np.arange(64, dtype=np.float32), 64)
            launched(REVERSED, "reversed", np.arange(64, dtype=np.float32), 64)
        launched(REVERSED, "reversed", np.arange(64, dtype=np.float32), 64)
    finally:
        launch.note_launches(None)

    assert len(outer) == 1
    assert [line.partition(", at")[0] for line in noted] == ["kernel reversed, grid 1, block 64"]


def test_a_kernel_that_does_not_compile_shows_what_the_compiler_says() -> None:
    with pytest.raises(CompileError, match="threadIdy"):
        totals(TOTAL.replace("threadIdx", "threadIdy"))


@pytest.mark.parametrize(
    "op", ["add", "gelu", "softmax", "layer_norm", "sum", "amax", "fused_adam_", "uniform", "dropout", "permutation"]
)
def test_an_operation_with_a_kernel_of_ours_launches_it(op: str) -> None:
    assert registry.find(registry.op(op), "host", as_dtype("int64" if op == "permutation" else "float32")) is not None
