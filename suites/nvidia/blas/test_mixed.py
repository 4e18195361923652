"""`mixed_linear` on a GPU, against float64: the kernel's tilings and tails, and the products of a library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import devices, ops
from cuassay.arrays.dtypes import as_dtype, epsilon
from cuassay.devices.cuda.blas import mixed, skinny
from cuassay.devices.cuda.blas.mixed import MixedTiling
from cuassay.ops.products import MixedForm


@pytest.fixture(autouse=True)
def on_a_device() -> None:
    reason = devices.backend("cuda").why_absent()
    if reason is not None:
        pytest.skip(reason)


class Layer:
    """Random inputs (rows, depth), weights (columns, depth) of `bits`, scales, and the product in float64."""

    def __init__(
        self, rows: int, columns: int, depth: int, bits: int, group: int = 0, dtype: str = "bfloat16", seed: int = 0
    ) -> None:
        random = np.random.default_rng(seed)
        self.dtype = dtype
        a = random.standard_normal((rows, depth)).astype(as_dtype(dtype))
        numbers = random.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (columns, depth))
        scales = random.uniform(0.005, 0.02, (columns, depth // group) if group else (columns,)).astype(np.float32)
        of_groups = scales.reshape(columns, -1).astype(np.float64)
        full = numbers * np.repeat(of_groups, depth // of_groups.shape[1], axis=1)
        wide = a.astype(np.float64)
        self.expected, self.magnitude = wide @ full.T, np.abs(wide) @ np.abs(full).T
        codes = numbers.astype(np.int8)
        if bits == 4:
            low, high = (numbers[:, start::2] & 15 for start in (0, 1))
            codes = (low | high << 4).astype(np.uint8)
        self.arrays = cupy.asarray(a), cupy.asarray(codes), cupy.asarray(scales)
        self.form = MixedForm(columns, depth, bits, of_groups.shape[1])

    def check(self, found: Any) -> None:
        """One rounding of the result, and an error of float32 sums."""
        close = np.abs(found.get().astype(np.float64) - self.expected)
        allowed = epsilon(as_dtype(self.dtype)) * np.abs(self.expected) + 2.0**-21 * self.magnitude
        assert (close <= allowed).all(), f"{close.max()} of {np.abs(self.expected).max()}"


SHAPES = ((1, 8, 64), (3, 65, 80), (8, 328, 640), (9, 31, 4096), (16, 1000, 1024), (17, 130, 256), (64, 40, 2048))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_scale_for_each_row(shape: tuple[int, int, int], bits: int, dtype: str) -> None:
    layer = Layer(*shape, bits, dtype=dtype)

    layer.check(ops.mixed_linear(*layer.arrays, None))


@pytest.mark.parametrize("rows", [1, 13, 64, 65, 200])
@pytest.mark.parametrize(("bits", "group"), [(8, 64), (8, 192), (4, 128), (4, 384), (4, 32), (8, 16)])
def test_one_scale_for_each_group(rows: int, bits: int, group: int) -> None:
    layer = Layer(rows, 97, 5 * group, bits, group)

    layer.check(ops.mixed_linear(*layer.arrays, None))


def test_a_row_of_more_lines_than_the_kernel_can_divide() -> None:
    group = 64 * (2**16 + 1)
    layer = Layer(1, 2, 2 * group, 8, group)

    layer.check(ops.mixed_linear(*layer.arrays, None))


@pytest.mark.parametrize("rows", [5, 80])
@pytest.mark.parametrize(("of_scales", "of_inputs"), [(2.0**-20, 2.0**13), (2.0**17, 2.0**-10)], ids=["small", "large"])
def test_scaled_weights_that_float16_does_not_hold(of_scales: float, of_inputs: float, rows: int) -> None:
    layer = Layer(rows, 33, 512, 8, 64, dtype="float16")
    a, weight, scale = layer.arrays
    factor = of_scales * of_inputs
    layer.expected, layer.magnitude = layer.expected * factor, layer.magnitude * factor

    found = ops.mixed_linear(a * np.float16(of_inputs), weight, scale * np.float32(of_scales), None)

    layer.check(found)


@pytest.mark.parametrize("tokens", [8, 16])
@pytest.mark.parametrize(("bits", "group"), [(8, 0), (8, 64), (4, 0), (4, 128)])
@pytest.mark.parametrize("numbers", [(16, 2, 2, 2, 1), (32, 2, 4, 1, 1), (32, 1, 4, 2, 4), (16, 1, 16, 4, 1)], ids=str)
def test_every_way_of_cutting(numbers: tuple[int, int, int, int, int], bits: int, group: int, tokens: int) -> None:
    reason = skinny.why_not(0)
    if reason is not None:
        pytest.skip(f"the kernel cannot run here: {reason}")
    layer = Layer(tokens - 3, 203, 1408, bits, group)
    rows, warps, slices, depth, blocks = numbers
    tiling = MixedTiling(tokens=tokens, rows=rows, warps=warps, slices=slices, depth=depth, blocks=blocks)
    out = cupy.full((tokens - 3, 203), np.nan, as_dtype("bfloat16"))
    a, weight, scale = layer.arrays

    plan = mixed.MixedPlan(tokens - 3, layer.form, ("bfloat16", "float32"), None, tiling)
    plan.run(weight.data.ptr, a.data.ptr, scale.data.ptr, out.data.ptr, 0)

    layer.check(out)


@pytest.mark.parametrize("rows", [5, 70])
def test_infinities_and_nan_stay_in_their_row(rows: int) -> None:
    layer = Layer(rows, 40, 256, 8)
    a, weight, scale = layer.arrays
    finite = ops.mixed_linear(a, weight, scale, None)
    a[1, 255], a[3, 0] = np.inf, np.nan

    found = ops.mixed_linear(a, weight, scale, None)

    assert cupy.isnan(found[3]).all()
    assert not cupy.isfinite(found[1]).any()
    others = [row for row in range(rows) if row not in (1, 3)]
    assert (found[others] == finite[others]).all()


@pytest.mark.parametrize("by", [1, 8], ids="{} elements".format)
def test_inputs_and_weights_that_are_not_aligned(by: int) -> None:
    layer = Layer(6, 33, 320, 4, 64)
    a, weight, scale = layer.arrays
    moved = cupy.empty(a.size + by, a.dtype)[by:].reshape(a.shape)
    shifted = cupy.empty(weight.size + by, weight.dtype)[by:].reshape(weight.shape)
    moved[...], shifted[...] = a, weight

    layer.check(ops.mixed_linear(moved, shifted, scale, None))


def test_a_graph_follows_its_inputs_and_weights() -> None:
    first, second = (Layer(4, 64, 512, 4, 128, seed=seed) for seed in (0, 1))
    out = cupy.empty((4, 64), as_dtype("bfloat16"))
    stream = cupy.cuda.Stream(non_blocking=True)
    arrays = [array.copy() for array in first.arrays]
    ops.mixed_linear(*arrays, None, out=out)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        ops.mixed_linear(*arrays, None, out=out)
        graph = stream.end_capture()

    for layer in (second, first):
        for mine, new in zip(arrays, layer.arrays, strict=True):
            mine[...] = new
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        layer.check(out)


def test_the_way_is_explained() -> None:
    few, many = Layer(4, 64, 512, 4, 128), Layer(80, 64, 512, 4, 128)

    told = str(ops.explain(lambda: ops.mixed_linear(*few.arrays, None)))
    if skinny.why_not(0) is None:
        assert "skinny_mixed<bfloat16, float32, 4, true" in told
    assert "in two parts" in str(ops.explain(lambda: ops.mixed_linear(*many.arrays, None)))
