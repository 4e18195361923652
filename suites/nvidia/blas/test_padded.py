"""Products of misaligned operands on padded copies: against float64, leaving what is between columns alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda.blas import controls
from cuassay.devices.cuda.blas.padded import PADDED, may_round, padded, why_not
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.errors import CapabilityError

pytestmark = pytest.mark.usefixtures("cublaslt")


def make_problem(
    m: int, n: int, k: int, layout: str = "NN", gap: int = 0, dtype: str = "bfloat16", **more: Any
) -> Problem:
    """`layout` T: rows of the operand lie together; `gap`: elements between columns as stored."""
    a = Operand(*((k, m) if layout[0] == "T" else (m, k)), 0, 0, dtype)
    b = Operand(*((n, k) if layout[1] == "T" else (k, n)), 0, 0, dtype)
    a, b, d = (Operand(one.rows, one.columns, one.rows + gap, 0, dtype) for one in (a, b, Operand(m, n, 0, 0, dtype)))
    transposes = {"transpose_a": layout[0] == "T", "transpose_b": layout[1] == "T"}
    return Problem(m=m, n=n, k=k, batch=1, a=a, b=b, c=d, d=d, **{"compute": "32F", **transposes, **more})


class Stored:
    """An operand on the device, NaN between its columns, `offset` elements behind an aligned address."""

    def __init__(self, operand: Operand, seed: int, offset: int = 0) -> None:
        dtype, self._shape = as_dtype(operand.dtype), (operand.columns, operand.leading)
        self._rows = operand.rows
        values = np.full(self._shape, np.nan, np.float32)
        values[:, : operand.rows] = np.random.default_rng(seed).standard_normal((operand.columns, operand.rows))
        self.memory = cupy.zeros(values.size + offset, np.uint8 if dtype.itemsize == 1 else f"u{dtype.itemsize}")
        self.memory[offset:] = cupy.asarray(values.astype(dtype).ravel().view(self.memory.dtype))
        self.address = self.memory.data.ptr + offset * dtype.itemsize
        self._dtype, self._offset = dtype, offset

    def stored(self) -> np.ndarray:
        """(columns, leading) in float64."""
        held = self.memory.get()[self._offset :].view(self._dtype)
        return held.reshape(self._shape).astype(np.float64)

    def values(self) -> np.ndarray:
        """(rows, columns) in float64."""
        return self.stored()[:, : self._rows].T


def check(problem: Problem, offset: int = 0, workspace: bool = False) -> None:
    a, b, d = (Stored(one, seed, offset) for seed, one in enumerate((problem.a, problem.b, problem.d)))
    candidates = PADDED.candidates(problem, 0)
    assert candidates
    left = a.values().T if problem.transpose_a else a.values()
    right = b.values().T if problem.transpose_b else b.values()
    expected = problem.alpha * (left @ right)
    if problem.epilogue == "relu":
        expected = np.maximum(expected, 0)
    for candidate in candidates:
        plan = PADDED.plan(problem, candidate, 0)
        memory = cupy.full(plan.workspace_nbytes, 255, np.uint8) if workspace else None
        plan.run(a.address, b.address, d.address, d.address, workspace=memory.data.ptr if workspace else 0)
        cupy.cuda.runtime.deviceSynchronize()
        np.testing.assert_allclose(d.values(), expected, rtol=2e-2, atol=2e-2 * problem.k**0.5)
        assert np.isnan(d.stored()[:, problem.m :]).all()


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("extents", [(132, 68, 260), (35, 70, 204), (131, 257, 77), (5124, 33, 256)], ids=str)
def test_each_layout(layout: str, extents: tuple[int, int, int]) -> None:
    check(make_problem(*extents, layout=layout))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_each_dtype(dtype: str) -> None:
    check(make_problem(133, 65, 99, dtype=dtype))


def test_columns_apart() -> None:
    check(make_problem(130, 66, 98, gap=3))


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_an_address_that_is_not_aligned(offset: int) -> None:
    problem = make_problem(128, 64, 256, alignment=2 * offset)

    assert why_not(problem) is None
    check(problem, offset=offset)


def test_alpha_an_activation_and_memory_of_the_callers() -> None:
    check(make_problem(132, 68, 260, alpha=0.5, epilogue="relu"), workspace=True)


def test_columns_of_the_copies_begin_aligned() -> None:
    problem = make_problem(5124, 700, 2048)

    found = padded(problem)

    assert (found.a.leading, found.b.leading, found.d.leading) == (5128, 2048, 5128)
    assert found.c == found.d
    assert (found.m, found.n, found.k) == (5124, 700, 2048)


@pytest.mark.parametrize(
    ("layout", "extents"),
    [("NN", (5128, 701)), ("TN", (5128, 701)), ("NT", (5128, 704)), ("TT", (5128, 704))],
)
def test_extents_are_rounded_up_along_what_is_misaligned(layout: str, extents: tuple[int, int]) -> None:
    problem = make_problem(5124, 701, 2048, layout=layout)

    found = padded(problem, rounded=True)

    assert may_round(problem)
    assert (found.m, found.n) == extents
    assert (found.d.rows, found.d.columns, found.d.leading) == (*extents, 5128)
    assert (found.a.columns if found.transpose_a else found.a.rows) == found.m
    assert (found.b.rows if found.transpose_b else found.b.columns) == found.n


@pytest.mark.parametrize(
    "problem",
    [make_problem(5124, 700, 2048, epilogue="bias"), make_problem(128, 64, 256, gap=3), make_problem(128, 64, 99)],
    ids=["a bias", "gaps alone", "terms alone"],
)
def test_extents_are_not_rounded(problem: Problem) -> None:
    assert why_not(problem) is None
    assert not may_round(problem)
    assert not any(candidate["rounded"] for candidate in PADDED.candidates(problem, 0))


@pytest.mark.parametrize(
    "problem",
    [
        make_problem(128, 64, 256),
        make_problem(133, 65, 99, beta=1.0),
        make_problem(133, 65, 99, dtype="float8_e4m3fn", scaling="tensor"),
    ],
    ids=["aligned", "added to", "scaled"],
)
def test_what_is_left_to_the_library(problem: Problem) -> None:
    assert PADDED.candidates(problem, 0) == ()
    with pytest.raises(CapabilityError, match="tune again"):
        PADDED.plan(problem, PADDED.candidates(make_problem(133, 65, 99), 0)[0], 0)


def copies_of(problem: Problem) -> int:
    """Bytes of the workspace that are copies."""
    candidate = PADDED.candidates(problem, 0)[0]
    return PADDED.plan(problem, candidate, 0).workspace_nbytes - candidate["workspace"]


def test_the_library_gets_of_the_workspace_what_copies_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(132, 68, 260)
    copies = copies_of(problem)
    monkeypatch.setattr(controls, "_workspaces", {0: copies})

    found = [PADDED.plan(problem, candidate, 0).workspace_nbytes for candidate in PADDED.candidates(problem, 0)]

    assert found == [copies] * len(found) != []


def test_copies_that_exceed_the_limit_are_not_offered_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(132, 68, 260)
    candidate, copies = PADDED.candidates(problem, 0)[0], copies_of(problem)
    monkeypatch.setattr(controls, "_workspaces", {0: copies - 1})

    assert PADDED.candidates(problem, 0) == ()
    with pytest.raises(CapabilityError, match=rf" bytes, of {copies - 1:,} allowed on cuda:0; tune again"):
        PADDED.plan(problem, candidate, 0)


def test_a_capture_replays_it() -> None:
    problem = make_problem(132, 68, 260)
    a, b, d = (Stored(one, seed) for seed, one in enumerate((problem.a, problem.b, problem.d)))
    plan = PADDED.plan(problem, PADDED.candidates(problem, 0)[0], 0)
    memory = cupy.zeros(plan.workspace_nbytes, np.uint8)
    addresses = a.address, b.address, d.address, d.address
    plan.run(*addresses, workspace=memory.data.ptr)
    expected = d.values()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        plan.run(*addresses, workspace=memory.data.ptr)
        graph = stream.end_capture()
    d.memory.fill(0)
    cupy.cuda.runtime.deviceSynchronize()

    graph.launch(stream)
    stream.synchronize()

    np.testing.assert_array_equal(d.values(), expected)
