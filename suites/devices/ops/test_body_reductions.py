"""Reductions from a text, on every device: what every operation must hold, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay import Device, from_host, jit, to_host
from cuassay.errors import ArgumentError, CompileError, GradientError, ShapeError
from cuassay.testing import OpSpec, Sample, conformance

HEAD = "template <typename T> "
SUM = HEAD + "T combine(T a, T b) { return a + b; } "

NORM = jit.reduction(
    SUM + HEAD + "T map(T x, T y, T alpha) { return alpha * (x - y) * (x - y); } "
    + HEAD + "T finish(T total) { return sqrt(total); }",
    identity=0, name="weighted_distance", alpha=2.0,
)  # fmt: skip
LARGEST = jit.reduction(
    HEAD + "T combine(T a, T b) { return a > b ? a : b; } " + HEAD + "T map(T x) { return x < 0 ? -x : x; }",
    identity=0, name="largest_magnitude",
)  # fmt: skip

#: Shapes of both arrays, and options: rows, columns, several axes, rows in parts, broadcast arrays.
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((1,), (1,), {}), ((33,), (33,), {}), ((3, 1025), (3, 1025), {"axis": 1}), ((65, 7), (65, 7), {"axis": 0}),
    ((5, 33, 7), (5, 33, 7), {"axis": (0, 2), "keepdims": True}), ((2, 9000), (9000,), {"axis": -1}),
    ((3, 1), (129,), {"axis": 0, "alpha": 0.5}),
)  # fmt: skip


def _pairs(make: Any) -> Iterator[Sample]:
    for left, right, named in CASES:
        yield Sample((make(left), make(right)), named)
    yield Sample((make((0, 3)), make((0, 3))), {"axis": 0}, kind="empty")
    yield Sample((make(()), make(())), kind="scalar")


def _distance(x: Any, y: Any, *, axis: Any = None, keepdims: bool = False, alpha: float = 2.0) -> Any:
    return np.sqrt(np.sum(alpha * (x - y) ** 2, axis=axis, keepdims=keepdims))


test_distance = conformance(
    OpSpec(
        op=NORM.op,
        samples=_pairs,
        reference=_distance,
        dtypes=("float64", "float32", "bfloat16"),
        without={"dtypes": "three of its dtypes are tested"},
        terms=lambda x, y, **named: max(x.size, y.size),
    )
)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", ["int32", "float16", "float32"])
def test_a_text_without_finish_reduces_to_its_combined_values(device: Device, dtype: str, axis: int | None) -> None:
    host = np.arange(-40, 41).reshape(27, 3).astype(dtype)[:, ::-1]

    found = LARGEST(from_host(host, device), axis=axis)

    assert found.dtype == host.dtype
    assert np.array_equal(to_host(found), np.max(np.abs(host), axis=axis))


def test_the_identity_is_the_total_of_nothing(device: Device) -> None:
    product = jit.reduction(
        HEAD + "T combine(T a, T b) { return a * b; } " + HEAD + "T map(T x) { return x; }",
        identity=1,
        name="product_of",
    )

    found = product(from_host(np.ones((2, 0), np.float32), device), axis=1)

    assert to_host(found).tolist() == [1, 1]


def test_one_text_with_two_identities_is_two_operations(device: Device) -> None:
    text = HEAD + "T combine(T a, T b) { return a > b ? a : b; } " + HEAD + "T map(T x) { return x; }"
    first, second = (jit.reduction(text, identity=one) for one in (-8, -9))
    nothing = from_host(np.ones((2, 0), np.float32), device)

    assert to_host(first(nothing, axis=1)).tolist() == [-8, -8]
    assert to_host(second(nothing, axis=1)).tolist() == [-9, -9]


def test_one_text_with_two_defaults_is_two_operations(device: Device) -> None:
    text = SUM + HEAD + "T map(T x, T alpha) { return alpha * x; }"
    first, second = (jit.reduction(text, identity=0, alpha=one) for one in (2.0, 3.0))
    a = from_host(np.ones((2, 4), np.float32), device)

    assert to_host(first(a, axis=1)).tolist() == [8, 8]
    assert to_host(second(a, axis=1)).tolist() == [12, 12]


def test_equal_texts_give_one_operation() -> None:
    assert jit.reduction(SUM + HEAD + "T map(T x) { return x; }", identity=0) is jit.reduction(
        SUM + HEAD + "T map(T x) { return x; }", identity=0
    )


@pytest.mark.parametrize(
    ("code", "named", "error", "message"),
    [
        (HEAD + "T map(T x) { return x; }", {}, ArgumentError, "needs a function combine"),
        (SUM, {}, ArgumentError, "needs a function map"),
        (
            HEAD + "T map(T x) { return x; } " + HEAD + "T combine(T a) { return a; }",
            {},
            ArgumentError,
            "takes 2 values",
        ),
        (SUM + HEAD + "T map(T x) { return x; }", {"beta": 1}, ArgumentError, "the scalars beta"),
        (SUM + HEAD + "T map(T x, T b) { return x; }", {"b": "1"}, ArgumentError, "b must be a number"),
        (SUM + HEAD + "T map(T x) { return x[0]; }", {}, CompileError, "has no meaning in a body"),
    ],
    ids=["no-combine", "no-map", "one-value", "unknown-scalar", "no-number", "no-body"],
)
def test_what_is_no_reduction_is_refused(
    code: str, named: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        jit.reduction(code, identity=0, **named)


def test_an_axis_that_there_is_not_and_a_gradient_are_refused(device: Device) -> None:
    from cuassay.autograd import grad

    array = from_host(np.ones((2, 3), np.float32), device)

    with pytest.raises(ShapeError, match="axis"):
        LARGEST(array, axis=2)
    with pytest.raises(GradientError, match="reduction of a text"):
        grad(lambda x: LARGEST(x))(array)
