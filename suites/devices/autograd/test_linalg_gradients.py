"""Derivatives of linear algebra: central differences in float64, of stacks and shapes, first and second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, linalg, ops, to_host
from cuassay.autograd import grad, gradcheck, gradgradcheck, vjp
from cuassay.errors import GradientError
from cuassay.testing import requires

pytestmark = requires("reduction:float64")


def symmetric(a: Any) -> Any:
    """Positive definite, with eigenvalues apart; a function of every element of `a`."""
    return ops.matmul(a, a.mT) + a + a.mT


def of_symmetric(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda a: function(symmetric(a))


#: Function, and the shapes of its arguments.
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "solve": (linalg.solve, ((2, 3, 3), (2, 3, 2))),
    "solve broadcast": (linalg.solve, ((3, 3), (2, 3, 2))),
    "solve vector": (linalg.solve, ((2, 3, 3), (3,))),
    "inv": (linalg.inv, ((2, 3, 3),)),
    "det": (linalg.det, ((2, 3, 3),)),
    "cholesky": (of_symmetric(linalg.cholesky), ((2, 3, 3),)),
    "qr tall": (linalg.qr, ((2, 4, 3),)),
    "qr wide": (linalg.qr, ((2, 3, 4),)),
    "qr complete": (lambda a: linalg.qr(a, "complete"), ((3, 4),)),
    "svd tall": (lambda a: linalg.svd(a, False), ((2, 4, 3),)),
    "svd wide": (lambda a: linalg.svd(a, False), ((3, 4),)),
    "svd square": (linalg.svd, ((3, 3),)),
    "svd values": (lambda a: linalg.svd(a).S, ((2, 4, 3),)),
    "eigh": (of_symmetric(linalg.eigh), ((2, 3, 3),)),
    "eigh values": (lambda a: linalg.eigh(symmetric(a), "U").eigenvalues, ((3, 3),)),
    "lstsq tall": (lambda a, b: linalg.lstsq(a, b).solution, ((2, 4, 3), (2, 4, 2))),
    "lstsq wide": (lambda a, b: linalg.lstsq(a, b).solution, ((3, 4), (3, 2))),
    "lstsq vector": (lambda a, b: linalg.lstsq(a, b).solution, ((4, 3), (4,))),
    "lstsq residuals": (lambda a, b: linalg.lstsq(a, b).residuals, ((4, 3), (4, 2))),
    "lstsq values": (lambda a, b: linalg.lstsq(a, b).singular_values, ((4, 3), (4, 2))),
}


@pytest.fixture
def drawn(device: Device) -> Callable[..., Any]:
    """Makes arrays of normal numbers, the same ones in each test; square matrices far from singular ones."""
    generator = np.random.default_rng(1)

    def make(shape: tuple[int, ...]) -> Any:
        square = len(shape) > 1 and shape[-1] == shape[-2]
        return from_host(generator.standard_normal(shape) + 3 * (np.eye(shape[-1]) if square else 0), device)

    return make


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_differences(drawn: Callable[..., Any], name: str) -> None:
    function, shapes = CASES[name]

    gradcheck(function, [drawn(shape) for shape in shapes], elements=4)


@pytest.mark.parametrize("name", CASES)
def test_second_gradients_are_those_of_differences(drawn: Callable[..., Any], name: str) -> None:
    function, shapes = CASES[name]

    gradgradcheck(function, [drawn(shape) for shape in shapes], elements=2)


def test_lstsq_leaves_out_the_same_directions_in_its_gradient(device: Device, drawn: Callable[..., Any]) -> None:
    left, _, right = np.linalg.svd(to_host(drawn((4, 3))), full_matrices=False)
    a = from_host(left * [3.0, 2.0, 1e-7] @ right, device)  # above the default rcond, below the one given

    gradcheck(lambda a, b: linalg.lstsq(a, b, 1e-3).solution, [a, drawn((4, 2))], rtol=1e-4)


def test_a_singular_matrix_has_the_cofactors_as_gradient_of_det(device: Device) -> None:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])

    found = grad(linalg.det)(from_host(a, device))

    cofactors = [
        [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(3)] for i in range(3)
    ]
    assert to_host(found) == pytest.approx(np.array(cofactors), abs=1e-13)


def test_the_gradient_of_a_function_of_one_triangle_is_symmetric(drawn: Callable[..., Any]) -> None:
    found = to_host(grad(lambda a: ops.sum(linalg.cholesky(a)))(symmetric(drawn((3, 3)))))

    assert np.array_equal(found, found.T)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: linalg.qr(a, "complete").Q, "qr in mode 'complete' .* give mode='reduced'"),
        (lambda a: linalg.svd(a).U, r"svd with full_matrices .* \(4, 3\) .* give full_matrices=False"),
    ],
)
def test_vectors_that_may_be_any_have_no_derivative(
    drawn: Callable[..., Any], function: Callable[[Any], Any], message: str
) -> None:
    value, pull = vjp(function, drawn((4, 3)))

    with pytest.raises(GradientError, match=message):
        pull(value)
