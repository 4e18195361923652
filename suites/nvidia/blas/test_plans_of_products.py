"""Which plan a product takes and which addresses it gives it, without a GPU: the plan writes down what it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import devices, precision
from cuassay.devices.cuda.blas import gemm, plans, product_shortcuts
from cuassay.devices.cuda.blas.plan_cache import PlanCache
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
    workspace_nbytes: int = 1  # so that no calls become a graph
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


def nowhere(shape: tuple[int, ...], place: int, past: int = 0, kind: Any = Nowhere) -> Array:
    """A float32 array `past` bytes beyond the beginning of a place."""
    address, nbytes = FIRST + place * APART + past, 4 * int(np.prod(shape))
    memory = cupy.cuda.UnownedMemory(address, nbytes, None, 0)
    return kind(shape, np.float32, memptr=cupy.cuda.MemoryPointer(memory, 0))


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


@pytest.fixture
def shortcuts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """By op, those of products, which keep plans in a cache of this test's own."""
    assert devices.backend("cuda")  # its import registers the operations
    found: dict[str, Any] = {}
    cache = PlanCache()
    monkeypatch.setattr(product_shortcuts, "table", lambda index: cache)
    monkeypatch.setattr(product_shortcuts.Products, "install", lambda self: found.update({self.op.name: self}))
    product_shortcuts.install()
    return found


def test_calls_of_one_shape_in_two_modes_take_two_plans(made: list[Written], shortcuts: dict[str, Any]) -> None:
    shapes = (16, 32), (32, 64), (16, 64)
    a, b, out = (nowhere(shape, place, kind=cupy.ndarray) for place, shape in enumerate(shapes))

    for mode in ("ieee", "tf32", "ieee"):
        with precision(mode):
            assert shortcuts["mm"].serve((a, b), out, {}) is out

    assert [(plan.problem.compute, len(plan.calls)) for plan in made] == [("32F", 2), ("32F_FAST_TF32", 1)]
