"""Faults planted in the kernels for products of few tokens: a product of a shape that meets the fault differs.

That every fault has its place, and that the spoilt source compiles, needs no GPU. No fault makes a kernel read or write
outside an array, or wait for what does not come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from cuassay import devices
from cuassay.devices.cuda.launch import launch, source
from cuassay.errors import LibraryNotFoundError

NARROW = "skinny_narrow<bfloat16, bfloat16, true, 16, 16, 1, 8, 4>"
TURNED = "skinny_narrow<bfloat16, bfloat16, false, 16, 16, 4, 2, 6>"
SHORT = "skinny_narrow<bfloat16, bfloat16, true, 8, 16, 1, 8, 4>"
WIDE = "skinny_wide<bfloat16, bfloat16, true, 64, 1, 2, 6>"


@dataclass(frozen=True)
class Fault:
    """`right`, once in `file`, becomes `wrong`; a product by `kernel`, of (rows, tokens, depth), differs."""

    what: str
    file: str
    kernel: str
    right: str
    wrong: str
    shape: tuple[int, int, int] = (328, 12, 2056)
    epilogue: str = "none"
    factors: tuple[float, float] = (1.0, 0.0)

    def __str__(self) -> str:
        return self.what.replace(" ", "-")

    @property
    def unit(self) -> str:
        """The file that is compiled."""
        return self.kernel.partition("<")[0] + ".cu"

    def spoilt(self) -> str:
        """The text to compile, the header written out in place."""
        text = source.kernel_source(self.unit)
        if self.file == self.unit:
            return text.replace(self.right, self.wrong)
        header = source.kernel_source(self.file).replace("#pragma once", "")
        return text.replace(f'#include "{self.file}"', header.replace(self.right, self.wrong))


FAULTS = (
    Fault("relu swallows everything below one", "skinny.cuh", NARROW, "return value > 0 ||", "return value > 1 ||",
          epilogue="relu"),
    Fault("square for cube", "skinny.cuh", WIDE, "0.044715f * value * value * value", "0.044715f * value * value",
          epilogue="gelu", shape=(328, 40, 520)),
    Fault("bias left out", "skinny.cuh", WIDE, "if (result.bias) value +=", "if (result.bias) value = value + 0.0f *",
          epilogue="bias", shape=(328, 40, 520)),
    Fault("alpha ignored", "skinny.cuh", NARROW, "finish.alpha * sums[i]", "sums[i]", factors=(0.5, 0.0)),
    Fault("beta ignored", "skinny.cuh", NARROW, "value += finish.beta * widen", "value += widen", factors=(1.0, 0.5),
          shape=(328, 12, 64)),
    Fault("last rows not stored", "skinny.cuh", NARROW, "if (row + i < extents.rows) to[i]",
          "if (row + i + 1 < extents.rows) to[i]", shape=(331, 12, 520)),
    Fault("zeros for the last terms", "skinny_narrow.cu", NARROW, "row < extents.rows && inner < extents.depth;",
          "row < extents.rows && inner + 8 < extents.depth;"),
    Fault("zeros for the last token", "skinny_narrow.cu", NARROW, "token < extents.tokens && inner < extents.depth",
          "token + 1 < extents.tokens && inner < extents.depth"),
    Fault("terms of the first half twice", "skinny_narrow.cu", SHORT, "kGroups == 1 ? k % 2 : group % 2",
          "kGroups == 1 ? 0 : group % 2", shape=(328, 5, 2056)),
    Fault("halves of the terms exchanged", "skinny_narrow.cu", NARROW, "place(row, k * 2 + lane / 16)",
          "place(row, k * 2 + 1 - lane / 16)"),
    Fault("one slice too few", "skinny_warps.cuh", NARROW, "for (int s = 0; s < SLICES; ++s)",
          "for (int s = 1; s < SLICES; ++s)"),
    Fault("terms of another row", "skinny_narrow.cu", TURNED, "first_row + t * 16 + lane / 8 % 2 * 8",
          "first_row + t * 16"),
    Fault("sums of the former tile", "skinny_wide.cu", WIDE, "sums[i / 4][i % 4] = 0;", "sums[i / 4][i % 4] *= 0.5f;",
          shape=(64 * 300, 40, 520)),
    Fault("another block's sums forgotten", "skinny_wide.cu", WIDE, "other < blockIdx.x; ++other) {",
          "other + 1 < blockIdx.x; ++other) {", shape=(64 * 7, 40, 8192)),
    Fault("one panel for two", "skinny_wide.cu", WIDE, "of_inputs + panel * kInputPanel + k * 32",
          "of_inputs + k * 32", shape=(328, 40, 520)),
    Fault("rows of the warp before", "skinny_wide.cu", WIDE, "lane / 4 + i % 4 / 2 * 8]", "lane / 4 + i % 2 * 8]",
          shape=(328, 40, 520)),
)  # fmt: skip


def header_and_units() -> dict[str, str]:
    files = "skinny.cuh", "skinny_warps.cuh", "skinny_narrow.cu", "skinny_wide.cu"
    return {file: source.kernel_source(file) for file in files}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_has_exactly_one_place(fault: Fault) -> None:
    assert header_and_units()[fault.file].count(fault.right) == 1


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_spoilt_kernel_compiles(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
    try:
        right, wrong = compiled_right(fault.unit, fault.kernel), compiled(fault, fault.spoilt())
    except LibraryNotFoundError as error:
        pytest.skip(str(error))

    assert right.cubin != wrong.cubin


@cache
def compiled_right(unit: str, kernel: str) -> source.Compiled:
    """Without a fault: once for all faults of a kernel, because a compilation takes up to a second."""
    return source.compile_source(source.kernel_source(unit), name_expressions=[kernel], arch="sm_90a", file=unit)


def compiled(fault: Fault, text: str) -> source.Compiled:
    return source.compile_source(text, name_expressions=[fault.kernel], arch="sm_90a", file=fault.unit)


# ------------------------------------------------------------------------------------------------ on a device


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault], None]]:
    """Compiles the spoilt text for the fault's kernel; forgets it afterwards."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuassay.devices.cuda.blas import skinny

    reason = devices.backend("cuda").why_absent() or skinny.why_not(0)
    if reason is not None:
        pytest.skip(f"the kernels cannot run here: {reason}")
    right = launch.compile_source

    def plant(fault: Fault) -> None:
        def compile_spoilt(text: str, *, name_expressions: Any, **options: Any) -> source.Compiled:
            spoilt = fault.spoilt() if list(name_expressions) == [fault.kernel] else text
            return right(spoilt, name_expressions=name_expressions, **options)

        monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(launch, "compile_source", compile_spoilt)
        launch.kernel.cache_clear()

    yield plant
    launch.kernel.cache_clear()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_shows_in_a_product(fault: Fault, planted: Callable[[Fault], None]) -> None:
    right = product(fault)
    planted(fault)

    wrong = product(fault)

    assert np.isfinite(right).all()
    assert not np.allclose(right, wrong, rtol=0.05, atol=0.5, equal_nan=False)


def product(fault: Fault) -> Any:
    """What the fault's kernel computes, in float32; of numbers that are the same each time."""
    import cupy

    from cuassay.arrays.dtypes import as_dtype
    from cuassay.devices.cuda.blas import skinny
    from cuassay.devices.cuda.blas.problem import Operand, Problem

    rows, tokens, depth = fault.shape
    is_turned = fault.kernel == TURNED
    numbers = np.random.default_rng(0)
    a, b, c, bias = (
        cupy.asarray(numbers.standard_normal(shape).astype(as_dtype("bfloat16")))
        for shape in ((depth, rows) if is_turned else (rows, depth), (tokens, depth), (tokens, rows), (rows,))
    )
    d = cupy.zeros((tokens, rows), np.uint16)
    of_d = Operand(rows, tokens, rows, 0, "bfloat16")
    problem = Problem(
        m=rows, n=tokens, k=depth, batch=1, transpose_a=not is_turned, transpose_b=False,
        a=Operand(a.shape[1], a.shape[0], a.shape[1], 0, "bfloat16"), b=Operand(depth, tokens, depth, 0, "bfloat16"),
        c=of_d, d=of_d, compute="32F", alpha=fault.factors[0], beta=fault.factors[1], epilogue=fault.epilogue,
    )  # fmt: skip
    name, _, numbers_of = fault.kernel.removesuffix(">").partition("<")
    stages = int(numbers_of.split(", ")[-1])
    fitting = (
        candidate
        for candidate in skinny.SKINNY.candidates(problem, 0)
        if (candidate["kernel"], candidate["stages"]) == (name.removeprefix("skinny_"), stages)
    )
    plan = skinny.SKINNY.plan(problem, next(fitting), 0)
    if "bias" in fault.epilogue:
        plan.point("BIAS_POINTER", bias.data.ptr)
    plan.run(*(array.data.ptr for array in (a, b, c, d)))
    return np.asarray(d.get().view(as_dtype("bfloat16")), np.float32)
