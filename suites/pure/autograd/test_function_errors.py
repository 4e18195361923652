"""What a `Function` does wrong is an error that names it, the line and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import from_host, ops
from cuassay.autograd import Function, grad, vjp
from cuassay.errors import ArgumentError, GradientError, ShapeError


def squared(backward: Callable[..., Any], saved: Callable[[Any], Any] = lambda x: x) -> type[Function]:
    """``x * x`` with that backward, which saves what `saved` gives."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(saved(x))
        return ops.mul(x, x)

    return type("Squared", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def doubled(ctx: Any, grad: Any) -> Any:
    return ops.mul(grad, ops.mul(ctx.saved_tensors[0], 2.0))


def written(x: Any) -> Any:
    buffer = ops.copy(from_host(np.ones(3), "sim:0"))
    value = squared(doubled, lambda x: buffer).apply(x)
    ops.mul.inplace(buffer, 2.0)
    return ops.sum(value)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            written, GradientError,
            r"mul, called at \w+.py:\d+, would write out .* the derivative of Squared, called at \w+.py:\d+, reads as",
        ),
        (squared(lambda ctx, g: (g, g)).apply, GradientError, "Squared.backward gave 2 gradients for 1 arguments"),
        (squared(lambda ctx, g: 1.0).apply, GradientError, r"gave 1.0 for argument 0; give an array of shape \(3,\)"),
        (squared(lambda ctx, g: g[:2]).apply, ShapeError, r"gradient of shape \(2,\) for argument 0, which has \(3,\)"),
        (squared(doubled, lambda x: 2.0).apply, ArgumentError, "takes arrays; got 2.0 at place 0; set anything else"),
        (lambda x: squared(doubled).apply([x]), ArgumentError, "argument 0, at .*, holds traced arrays; give each"),
        (lambda x: squared(doubled, lambda y: x).apply(x), GradientError, "saved a traced array of another function"),
        (Function.apply, NotImplementedError, "needs a static method forward"),
        (
            lambda x: grad(lambda y: ops.sum(squared(doubled, lambda y: ops.mul(y, 1.0)).apply(y)))(x), GradientError,
            "saved an array that is neither an argument nor a result of forward; its second derivative would miss",
        ),
    ],
    ids=["written", "count", "number", "shape", "saved", "list", "closure", "abstract", "second"],
)  # fmt: skip
def test_what_is_wrong_is_told(function: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        grad(lambda x: ops.sum(function(x)))(from_host(np.array([0.5, 1.0, 2.0]), "sim:0"))


def test_an_array_of_a_finished_function_is_refused() -> None:
    kept = []
    vjp(lambda x: kept.append(x) or x * 1.0, from_host(np.ones(3), "sim:0"))

    with pytest.raises(GradientError, match=r"Squared's argument 0 is a traced array .* where no recorder sees it"):
        squared(doubled).apply(kept[0])


def test_an_error_in_backward_names_the_function_and_the_line() -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        grad(lambda x: ops.sum(squared(backward).apply(x)))(from_host(np.ones(3), "sim:0"))

    assert "in the derivative of Squared, called at test_function_errors.py:" in caught.value.__notes__[0]
