"""Wrong derivatives of an op that somebody declares: the generated check finds each, and passes the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cuassay import Device, ops
from cuassay.ops import Formula, registry, rules
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS

Array = Any


def _rows(a: Array) -> Array:
    return ops.mul(ops.sum(ops.mul(a, a), axis=-1, keepdims=True), a)


def right(grad: Array, forward: Any) -> Array:
    """Of ``a |a|^2`` with a row's square: ``g |a|^2 + 2 a sum(g a)``."""
    a = forward.a
    squares = ops.sum(ops.mul(a, a), axis=-1, keepdims=True)
    return ops.add(ops.mul(grad, squares), ops.mul(ops.mul(a, 2.0), ops.sum(ops.mul(grad, a), axis=-1, keepdims=True)))


def of_matrices(grad: Array, forward: Any) -> Array:
    """Axis 1 is the last one of a matrix alone."""
    a, axis = forward.a, min(1, forward.a.ndim - 1)
    squares = ops.sum(ops.mul(a, a), axis=axis, keepdims=True)
    return ops.add(
        ops.mul(grad, squares), ops.mul(ops.mul(a, 2.0), ops.sum(ops.mul(grad, a), axis=axis, keepdims=True))
    )


def without_product_rule(grad: Array, forward: Any) -> Array:
    return ops.mul(grad, ops.sum(ops.mul(forward.a, forward.a), axis=-1, keepdims=True))


def of_equal_gradients(grad: Array, forward: Any) -> Array:
    """Right where all gradients that arrive are 1."""
    a = forward.a
    squares = ops.sum(ops.mul(a, a), axis=-1, keepdims=True)
    return ops.add(ops.mul(grad, squares), ops.mul(ops.mul(a, 2.0), ops.sum(a, axis=-1, keepdims=True)))


def in_single_precision(grad: Array, forward: Any) -> Array:
    return ops.cast(ops.cast(right(grad, forward), dtype="float32"), dtype=forward.a.dtype)


def nan_in_float32(grad: Array, forward: Any) -> Array:
    found = right(grad, forward)
    return found if str(found.dtype) == "float64" else ops.mul(found, float("nan"))


def samples(make: Callable[..., Any]) -> list[Sample]:
    return [Sample((make((3, 33)),)), Sample((make((2, 3, 5)),)), Sample((make(7),))]


def reference(a: Array) -> Array:
    return (a * a).sum(axis=-1, keepdims=True) * a


def in_a_range(make: Callable[..., Any]) -> list[Sample]:
    """No check goes beyond these numbers."""
    return [Sample((make((3, 33), low=0.5, high=2.0),))]


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Array]], OpSpec]:
    """Declares the op with a derivative; the registry forgets it after the test."""
    for module, table in ((registry, "_ops"), (registry, "_implementations"), (rules, "_derivatives")):
        monkeypatch.setattr(module, table, dict(getattr(module, table)))

    def declare(formula: Callable[..., Array], samples: Callable[..., Any] = samples) -> OpSpec:
        op = ops.declare(
            "rows_by_squares(a) -> out", shape=lambda bound: bound["a"].shape, dtypes=("float32", "float64"),
            op_class="elementwise", composite=_rows, parts=("mul", "sum"),
            derivative={"a": Formula(formula, ("a",))},
        )  # fmt: skip
        return OpSpec(op=op, dtypes=("float32", "float64"), samples=samples, reference=reference, supports_grad=True)

    return declare


def test_the_right_derivative_passes(declared: Callable[..., OpSpec]) -> None:
    CHECKS["gradients"](declared(right), Device("cpu"))


@pytest.mark.parametrize(
    "wrong", [of_matrices, without_product_rule, of_equal_gradients, in_single_precision, nan_in_float32]
)
def test_a_wrong_derivative_is_found(declared: Callable[..., OpSpec], wrong: Callable[..., Array]) -> None:
    with pytest.raises(AssertionError):
        CHECKS["gradients"](declared(wrong), Device("cpu"))


@pytest.mark.parametrize("check", ["gradients", "gradients_streams", "gradients_graph"])
def test_the_right_derivative_passes_without_a_race(declared: Callable[..., OpSpec], check: str) -> None:
    CHECKS[check](declared(right), Device("sim"))


def test_a_wrong_derivative_names_its_sample_and_dtype(declared: Callable[..., OpSpec]) -> None:
    with pytest.raises(AssertionError) as caught:
        CHECKS["gradients"](declared(nan_in_float32, in_a_range), Device("cpu"))

    assert "sample: 0: shape 3x33, float32" in "\n".join([str(caught.value), *caught.value.__notes__])


def test_nan_is_no_gradient_within_the_samples_range(declared: Callable[..., OpSpec]) -> None:
    with pytest.raises(AssertionError, match="up to nan from that in float64"):
        CHECKS["gradients"](declared(nan_in_float32, in_a_range), Device("cpu"))
