"""How arrays become a problem of the library, without a GPU: the problem is computed by a model of what cuBLAS does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cuassay.core.precision import MatmulOptions
from cuassay.devices.cuda.blas import layouts
from cuassay.devices.cuda.blas.layouts import Placed, Stack
from cuassay.devices.cuda.blas.problem import Operand, Problem, compute_of, reductions_of
from cuassay.testing.samples import LAYOUTS

Array = NDArray[Any]


def stack_of(array: Array, stack: tuple[int, ...] | None = None) -> Stack | None:
    return layouts.collapse(
        array.shape, array.strides, array.itemsize, array.dtype.name, array.shape[:-2] if stack is None else stack
    )


def column_major(memory: Array, operand: Operand, batch: int) -> Array:
    """The library's view of `memory`: matrices by leading dimension and batch stride, nothing else."""
    size = memory.itemsize
    return np.lib.stride_tricks.as_strided(
        memory,
        (batch, operand.rows, operand.columns),
        (operand.batch_stride * size, size, operand.leading * size),
    )


def compute(problem: Problem, a: Array, b: Array, c: Array, d: Array) -> None:
    """What cuBLAS does with the addresses of four arrays."""
    left, right = column_major(a, problem.a, problem.batch), column_major(b, problem.b, problem.batch)
    left = left.swapaxes(1, 2) if problem.transpose_a else left
    right = right.swapaxes(1, 2) if problem.transpose_b else right
    assert left.shape[1:] == (problem.m, problem.k)
    assert right.shape[1:] == (problem.k, problem.n)
    result = problem.alpha * (left @ right)
    if problem.beta:
        result = result + problem.beta * column_major(c, problem.c, problem.batch)
    column_major(d, problem.d, problem.batch)[...] = result


def laid_out(draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    """Numbers of `shape` in some layout: views that a user may make."""
    layout = LAYOUTS[draw(st.sampled_from([*LAYOUTS]))]
    base = np.zeros(layout.base(shape))
    view: Array = layout.view(base, shape)
    order = draw(st.sampled_from(["kept", "columns", "stack inside"]))
    if order == "columns":
        view = np.zeros((*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    if order == "stack inside" and len(shape) == 3:
        view = np.zeros((shape[1], shape[0], shape[2])).transpose(1, 0, 2)
    view[...] = np.arange(view.size).reshape(shape) % 7 - 3
    return view


@st.composite
def calls(draw: st.DrawFn) -> tuple[Array, Array, Array, Array]:
    extents = [draw(st.integers(1, 4)) for _ in range(3)]
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    m, n, k = extents
    shared = draw(st.booleans())
    b = (k, n) if shared else (*batch, k, n)
    target = (*batch, m, n)
    return laid_out(draw, (*batch, m, k)), laid_out(draw, b), laid_out(draw, target), laid_out(draw, target)


@given(calls(), st.sampled_from([(1.0, 0.0), (2.0, -3.0)]))
def test_the_librarys_product_is_the_product(
    arrays: tuple[Array, Array, Array, Array], factors: tuple[float, float]
) -> None:
    a, b, c, d = arrays
    alpha, beta = factors
    expected = alpha * (a @ b) + beta * c
    found: Placed | str = "d"
    for _ in range(5):  # at most each is copied once
        stacks = {name: stack_of(one, d.shape[:-2]) for name, one in zip("abcd", (a, b, c, d), strict=True)}
        found = next((name for name, stack in stacks.items() if stack is None), "")
        if not found:
            kept: dict[str, Any] = {**stacks, "c": stacks["c"] if beta else None}
            found = layouts.place(**kept, alpha=alpha, beta=beta, compute="64F")
        if isinstance(found, Placed):
            break
        a, b = (np.ascontiguousarray(x) if found == name else x for name, x in zip("ab", (a, b), strict=True))
        d = np.zeros(d.shape) if found == "d" else d
        if found == "c":  # it goes where the result will be
            d[...] = c
            c = d

    assert isinstance(found, Placed)
    compute(found.problem, *((b, a) if found.swapped else (a, b)), c, d)
    np.testing.assert_array_equal(d, expected)


def place(a: Array, b: Array, d: Array, **more: Any) -> Placed | str:
    stacks = [stack_of(one, d.shape[:-2]) for one in (a, b, d)]
    return layouts.place(stacks[0], stacks[1], None, stacks[2], compute="32F", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("a", [np.ones((4, 3)), np.ones((3, 4)).T, np.ones((4, 8))[:, :3], np.ones((8, 4)).T[:, :3]])
def test_a_matrix_whose_rows_or_columns_are_contiguous_is_not_copied(a: Array) -> None:
    assert isinstance(place(a, np.ones((3, 5)), np.ones((4, 5))), Placed)


@pytest.mark.parametrize(
    ("a", "b", "d", "culprit"),
    [
        (np.ones((4, 6))[:, ::2], np.ones((3, 5)), np.ones((4, 5)), "a"),
        (np.ones((4, 3)), np.ones((3, 5))[::-1], np.ones((4, 5)), "b"),
        (np.ones((4, 3)), np.ones((3, 5)), np.ones((4, 10))[:, ::2], "d"),
        (np.ones((4, 3)), np.ones((3, 5)), np.broadcast_to(np.ones(5), (4, 5)), "d"),
        (np.ones((4, 6))[:, ::2], np.ones((3, 5)), np.ones((5, 4)).T, "a"),
    ],
    ids=["strided", "reversed", "strided-out", "an-out-that-overlaps", "column-major-out"],
)
def test_what_must_be_copied_is_named(a: Array, b: Array, d: Array, culprit: str) -> None:
    assert place(a, b, d) == culprit


def test_a_shared_right_operand_makes_one_tall_product() -> None:
    found = place(np.ones((7, 4, 3)), np.ones((3, 5)), np.ones((7, 4, 5)))

    assert isinstance(found, Placed)
    assert (found.problem.batch, found.problem.n) == (1, 28)


def test_heads_inside_a_row_are_read_as_they_lie() -> None:
    """(length, heads, width) seen as (heads, length, width): attention's operands."""
    found = place(np.ones((8, 2, 4)).transpose(1, 0, 2), np.ones((2, 4, 8)), np.ones((2, 8, 8)))

    assert isinstance(found, Placed)
    assert (found.problem.batch, found.problem.b.leading, found.problem.b.batch_stride) == (2, 8, 4)


def test_stacks_at_two_distances_need_a_copy() -> None:
    assert stack_of(np.ones((2, 8, 3, 4)).transpose(0, 2, 1, 3)) is None


def test_a_bias_along_columns_needs_a_row_major_output() -> None:
    assert place(np.ones((4, 3)), np.ones((3, 5)), np.ones((5, 4)).T, epilogue="bias") == "d"


@pytest.mark.parametrize(
    ("dtype", "mode", "options", "compute_type"),
    [
        ("float32", "tf32", {}, "32F_FAST_TF32"),
        ("float32", "bf16x9", {}, "32F"),
        ("complex64", "tf32", {}, "32F"),
        ("float64", "tf32", {}, "64F"),
        ("float16", "ieee", {}, "32F"),
        ("float16", "ieee", {"fp16_accumulation": True}, "16F"),
        ("bfloat16", "ieee", {"fp16_accumulation": True}, "32F"),
    ],
)
def test_the_compute_type_follows_dtype_mode_and_options(
    dtype: str, mode: str, options: dict[str, bool], compute_type: str
) -> None:
    assert compute_of(dtype, mode, MatmulOptions(**options)) == compute_type


@pytest.mark.parametrize(
    ("dtype", "options", "mask"),
    [
        ("bfloat16", {}, 2),
        ("bfloat16", {"bf16_reduced_precision_reduction": True}, 7),
        ("bfloat16", {"fp16_reduced_precision_reduction": True}, 2),
        ("float16", {"fp16_split_k": False}, 0),
        ("float32", {}, 7),
    ],
)
def test_16_bit_parts_are_added_in_float32_unless_allowed(dtype: str, options: dict[str, bool], mask: int) -> None:
    assert reductions_of(dtype, MatmulOptions(**options)) == mask


def test_a_problem_says_what_it_is() -> None:
    found = place(np.ones((4, 3)), np.ones((5, 3)).T, np.ones((4, 5)), alpha=2.0, epilogue="relu")

    assert isinstance(found, Placed)
    assert str(found.problem) == ("gemm TN m=5 n=4 k=3, float64 float64 -> float64 in 32F, epilogue relu, alpha 2.0")
    assert (found.problem.flops, found.problem.nbytes) == (120, 8 * (12 + 15 + 20))
