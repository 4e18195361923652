"""The kernel whose weights are integers: exact sums in each way of cutting a product, on a GPU and on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from kernel_places import KINDS, Place

from cuassay import Device
from cuassay.arrays.dtypes import as_dtype
from cuassay.testing import devices

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.devices.cuda.blas import skinny
from cuassay.devices.cuda.blas.mixed import MixedTiling
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.ops.products import MixedForm


class Case(NamedTuple):
    """Extents of a product, its bits, the terms that share a scale (0: all of a row), and how it is cut."""

    tokens: int
    rows: int
    depth: int
    bits: int
    group: int
    cut: tuple[int, int, int, int, int]  # tokens, rows, warps, slices, depth

    @property
    def form(self) -> MixedForm:
        return MixedForm(self.rows, self.depth, self.bits, self.depth // self.group if self.group else 1)

    @property
    def tiling(self) -> MixedTiling:
        tokens, rows, warps, slices, depth = self.cut
        return MixedTiling(tokens=tokens, rows=rows, warps=warps, slices=slices, depth=depth, blocks=1)


#: The depth is not a whole number of lines of 64 bytes where a scale belongs to a row.
CASES = {
    "8 bits": Case(3, 21, 208, 8, 0, (8, 16, 1, 2, 2)),
    "4 bits": Case(3, 22, 416, 4, 0, (8, 16, 1, 2, 2)),
    "two warps": Case(8, 50, 336, 8, 0, (8, 16, 2, 2, 4)),
    "a group of one line": Case(5, 70, 256, 8, 64, (8, 32, 1, 2, 2)),
    "a group of three lines": Case(11, 40, 576, 8, 192, (16, 16, 2, 2, 1)),
    "a group of one line, 4 bits": Case(1, 16, 384, 4, 128, (8, 16, 1, 1, 2)),
    "a group of two lines, 4 bits": Case(16, 35, 768, 4, 256, (16, 32, 1, 4, 2)),
}


class Product:
    """Whole numbers and scales of few bits, so that float32 holds every sum, and the product."""

    def __init__(self, case: Case, dtype: str, of_scale: str) -> None:
        random = np.random.default_rng(2026)
        self.case, self.dtype, self.of_scale = case, as_dtype(dtype), as_dtype(of_scale)
        rows, depth, bits, groups = case.form
        self.inputs = random.integers(-3, 4, (case.tokens, depth))
        self.numbers = random.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (rows, depth))
        self.numbers[0, :2] = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.scales = random.integers(1, 8, (rows, groups)) / 512
        self.bias = random.integers(-64, 65, rows) / 8
        self.sums = self.inputs @ (self.numbers * np.repeat(self.scales, depth // groups, axis=1)).T

    @property
    def codes(self) -> np.ndarray[Any, Any]:
        """The weights as bytes."""
        if self.case.bits == 8:
            return self.numbers.astype(np.uint8)
        low, high = (self.numbers[:, start::2] & 15 for start in (0, 1))
        return (low | high << 4).astype(np.uint8)

    def by_kernel(self, device: Device, activation: int = 0, *, bias: bool = False) -> np.ndarray[Any, Any]:
        """What the kernel stores, in float64."""
        if device.kind == "cuda" and (reason := skinny.why_not(device.index)) is not None:
            pytest.skip(f"the kernel cannot run here: {reason}")
        place, (case, form, tiling) = Place(device), (self.case, self.case.form, self.case.tiling)
        arrays = [
            place(one.astype(dtype))
            for one, dtype in [(self.codes, np.uint8), (self.inputs, self.dtype), (self.scales, self.of_scale)]
        ]
        of_bias = place(self.bias.astype(self.dtype)) if bias else 0
        out = place(np.full((case.tokens, case.rows), np.nan).astype(self.dtype))
        extents = skinny.Extents(
            case.rows, case.tokens, case.depth, case.depth * case.bits // 8, case.depth, 0, case.rows
        )
        lines = case.group * case.bits // 512
        inverse = np.uint32(-(-(2**32) // lines) if lines > 1 else 0)
        numbers = ", ".join(map(str, (*case.cut, tiling.blocks)))
        grouped = "true" if form.groups > 1 else "false"
        types = f"{self.dtype.name}, {self.of_scale.name}, {case.bits}, {grouped}"

        launch = kernel("skinny_mixed.cu", f"skinny_mixed<{types}, {numbers}>")
        arguments = (*arrays, out, of_bias, extents, np.int32(form.groups), inverse, np.int32(activation))
        launch(tiling.tiles(form), tiling.threads, arguments, shared=tiling.shared_nbytes)

        return place.back(out).astype(np.float64)

    def rounded(self, exact: Any) -> np.ndarray[Any, Any]:
        """Round once to the dtype of the result."""
        return np.asarray(exact).astype(np.float32).astype(self.dtype).astype(np.float64)


@devices(*KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sums_are_exact_in_each_way_of_cutting(device: Device, case: Case, dtype: str) -> None:
    product = Product(case, dtype, "float32")

    np.testing.assert_array_equal(product.by_kernel(device), product.rounded(product.sums))


@devices(*KINDS)
@pytest.mark.parametrize("case", ["8 bits", "a group of two lines, 4 bits"])
def test_scales_in_16_bits_a_bias_and_relu(device: Device, case: str) -> None:
    product = Product(CASES[case], "bfloat16", "bfloat16")

    found = product.by_kernel(device, skinny.ACTIVATIONS["relu"], bias=True)

    np.testing.assert_array_equal(found, product.rounded(np.maximum(product.sums + product.bias, 0)))
