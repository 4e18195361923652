"""Which addresses a product gives the library's plan, without a GPU: the plan writes down what it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay.devices.cuda.blas import gemm, plans
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.blas.product import Product

Array = Any

#: What the first array begins at, and how far apart arrays are, bytes.
FIRST, APART = 1 << 20, 1 << 16


@dataclass
class Written:
    """A plan that computes nothing."""

    problem: Problem
    library: str = "none"
    algorithm: Any = None
    workspace_nbytes: int = 0
    biases: list[int] = field(default_factory=list)
    calls: list[tuple[int, int, int, int]] = field(default_factory=list)

    def point(self, name: str, address: int) -> None:
        assert name == "BIAS_POINTER"
        self.biases.append(address)

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        self.calls.append((a, b, c, d))


class Nowhere(cupy.ndarray):  # type: ignore[misc] # cupy ships no types
    """An array at an address where nothing is; its copy is at an aligned one."""

    def copy(self, order: str = "C") -> Array:
        return nowhere(self.shape, 15)


def nowhere(shape: tuple[int, ...], place: int, past: int = 0) -> Array:
    """A float32 array `past` bytes beyond the beginning of a place."""
    address, nbytes = FIRST + place * APART + past, 4 * int(np.prod(shape))
    memory = cupy.cuda.UnownedMemory(address, nbytes, None, 0)
    return Nowhere(shape, np.float32, memptr=cupy.cuda.MemoryPointer(memory, 0))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Written]:
    """The plans that were made, all of this test."""
    found: list[Written] = []
    routes: dict[Any, Any] = {}
    monkeypatch.setattr(gemm, "table", lambda: routes)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: cupy.cuda.Stream.null)
    monkeypatch.setattr(plans, "make", lambda problem: found.append(Written(problem)) or found[-1])
    return found


@pytest.mark.parametrize("past", [4, 8, 12])
def test_a_bias_off_alignment_is_not_given_to_a_plan_that_was_made_for_an_aligned_one(
    made: list[Written], past: int
) -> None:
    a, b, out = nowhere((16, 32), 0), nowhere((32, 64), 1), nowhere((16, 64), 2)
    aligned = nowhere((64,), 3)

    gemm.gemm(a, b, out, bias=aligned, activation="relu")
    gemm.gemm(a, b, out, bias=nowhere((64,), 4, past), activation="relu")

    assert [address % gemm.BIAS_ALIGNMENT for plan in made for address in plan.biases] == [0, 0]
    assert made[0].biases[0] == aligned.data.ptr


@pytest.mark.parametrize("is_bound", [False, True], ids=["called", "prepared"])
def test_a_third_operand_is_read_and_the_output_is_written(made: list[Written], is_bound: bool) -> None:
    a, b, c, out = nowhere((16, 32), 0), nowhere((32, 64), 1), nowhere((16, 64), 2), nowhere((16, 64), 3)

    if is_bound:
        gemm.bind(Product(a, b, out, c, beta=0.5))()
    else:
        gemm.gemm(a, b, out, c, beta=0.5)

    assert [call[2:] for plan in made for call in plan.calls] == [(c.data.ptr, out.data.ptr)]
