"""The eight functions with their derivatives, as formulas of ops and of these functions for real matrices.

In the formulas a bar marks the gradient of a value, as in M. Giles, "Collected matrix derivative results for forward
and reverse mode algorithmic differentiation", 2008, which is the source for solve, inv and det.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cuassay import devices, ops
from cuassay.autograd import Function
from cuassay.autograd.traced import TracedArray
from cuassay.autograd.trees import leaves
from cuassay.errors import GradientError
from cuassay.linalg import functions
from cuassay.ops import registry

__all__ = ["cholesky", "det", "eigh", "inv", "lstsq", "qr", "solve", "svd"]

Array = Any
Grads = Sequence[Any]
Options = Mapping[str, Any]

#: Takes the gradients of the results (None for none), the arguments, the results and the options of a call, and returns
#: the gradients of the arguments.
Rule = Callable[[Grads, Sequence[Array], Sequence[Array], Options], Sequence[Array | None]]

Call = TypeVar("Call", bound=Callable[..., Any])


def _differentiable(function: Call, rule: Rule) -> Call:
    """Return `function`, whose first parameters are arrays and whose others are options, with the derivative `rule`."""
    signature = inspect.signature(function)

    class Recorded(Function):
        name = f"linalg.{function.__name__}"

        @staticmethod
        def forward(ctx: Any, options: Options, *arrays: Array) -> Any:
            ctx.set_materialize_grads(False)
            result = function(*arrays, **options)
            ctx.options, ctx.count = options, len(arrays)
            ctx.save_for_backward(*arrays, *leaves(result))
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Array | None) -> Sequence[Array | None]:
            saved = ctx.saved_tensors
            return [None, *rule(grads, saved[: ctx.count], saved[ctx.count :], ctx.options)]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(one, TracedArray) for one in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        options = {name: value for name, value in bound.arguments.items() if name not in ("a", "b")}
        return Recorded.apply(options, *(bound.arguments[name] for name in ("a", "b") if name in bound.arguments))

    return cast("Call", call)


# ------------------------------------------------------------------------------------------------ parts of formulas


def _t(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def _made(like: Array, make: Callable[[Any], Array]) -> Array:
    """Return a constant matrix on the device of `like` in its dtype."""
    xp = devices.namespace(registry.device_of(like, "the matrix"))
    return make(xp).astype(like.dtype)


def _eye(like: Array, rows: int, columns: int | None = None, k: int = 0) -> Array:
    return _made(like, lambda xp: xp.eye(rows, columns, k))


def _lower(a: Array, diagonal: float) -> Array:
    """Return the lower triangle with its diagonal multiplied by a number."""
    count = a.shape[-1]
    return ops.mul(a, _made(a, lambda xp: xp.tri(count, count, -1) + diagonal * xp.eye(count)))


def _both(a: Array) -> Array:
    """Return the mean of a matrix and its transpose."""
    return ops.mul(ops.add(a, _t(a)), 0.5)


def _solved(a: Array, b: Array) -> Array:
    return solve(a, b, check_errors=False)  # the forward call has checked the matrix


def _outer(column: Array, row: Array) -> Array:
    """Return ``column @ row.T`` for matrices."""
    return ops.matmul(column, _t(row))


def _add(*terms: Array | None) -> Array | None:
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else ops.add(total, term)
    return total


def _differences(values: Array) -> Array:
    """Return the matrix of ``values[j] - values[i]``, with 1 on the diagonal."""
    count = values.shape[-1]
    apart = ops.sub(values.reshape((*values.shape[:-1], 1, count)), values.reshape((*values.shape, 1)))
    return ops.add(apart, _eye(values, count))


def _columns(a: Array, factors: Array) -> Array:
    """Multiply each column j of `a` by ``factors[j]``."""
    return ops.mul(a, factors.reshape((*factors.shape[:-1], 1, factors.shape[-1])))


# ------------------------------------------------------------------------------------------------ systems


def _solve(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """B bar = A^-T X bar; A bar = -B bar X^T (Giles, 2.3.1)."""
    (grad,), (a, b), (x,) = grads, arrays, results
    if b.ndim > 1:
        by_b = _solved(_t(a), grad)
        return ops.neg(_outer(by_b, x)), by_b
    by_b = _solved(_t(a), grad.reshape((*grad.shape, 1)))
    return ops.neg(_outer(by_b, x.reshape((*x.shape, 1)))), by_b.reshape(grad.shape)


def _inv(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """A bar = -Y^T Y bar Y^T of the inverse Y (Giles, 2.2.3)."""
    (grad,), (inverse,) = grads, results
    return (ops.neg(ops.matmul(_t(inverse), ops.matmul(grad, _t(inverse)))),)


def _det(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """A bar = d bar times the matrix of cofactors, d A^-T (Giles, 2.2.4).

    For plain arrays the cofactors are computed from singular values, so that they are also right for singular matrices:
    for ``U S V^T`` they are ``det(U) det(V)`` times ``U C V^T``, where C holds the products of the other singular
    values. A second derivative uses the inverse.
    """
    (grad,), (a,), (value,) = grads, arrays, results
    if isinstance(grad, TracedArray) or isinstance(a, TracedArray):
        cofactors = ops.mul(value.reshape((*value.shape, 1, 1)), _t(inv(a, check_errors=False)))
    else:
        u, s, vh = svd(a, check_errors=False)
        count = s.shape[-1]
        apart = ops.equal(_eye(s, count), 1.0)
        logarithms = ops.where(apart, 0.0, ops.log(s).reshape((*s.shape[:-1], 1, count)))
        others = ops.exp(ops.sum(logarithms, axis=-1))
        sign = ops.mul(det(u), det(vh))
        cofactors = ops.mul(sign.reshape((*sign.shape, 1, 1)), ops.matmul(_columns(u, others), vh))
    return (ops.mul(grad.reshape((*grad.shape, 1, 1)), cofactors),)


def _lstsq(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array | None]:
    """The derivative by the pseudoinverse P, for constant rank, and the residual R = B - A X.

    B bar = P^T X bar; A bar = -B bar X^T + P^T X (X bar - A^T B bar)^T + R (P B bar)^T (G. Golub, V. Pereyra, "The
    differentiation of pseudo-inverses and nonlinear least squares problems", SIAM J. Numer. Anal. 10, 1973).
    """
    by_x, by_residuals, _, by_s = grads
    a, b = arrays
    shapes = [grad.shape for grad in (by_x,) if grad is not None]
    is_vector = b.ndim == 1
    x, b = (one.reshape((*one.shape, 1)) if is_vector else one for one in (results[0], b))
    rest = ops.sub(b, ops.matmul(a, x))
    by_a = by_b = None
    if by_x is not None:
        by_x = by_x.reshape((*shapes[0], 1)) if is_vector else by_x
        by_a, by_b = _by_solution(a, x, rest, by_x, options["rcond"])
    if by_residuals is not None:
        factors = by_residuals.reshape((*by_residuals.shape, 1)) if is_vector else by_residuals
        pulled = _columns(rest, ops.mul(factors, 2.0))
        by_a, by_b = _add(by_a, ops.neg(_outer(pulled, x))), _add(by_b, pulled)
    if by_s is not None:
        u, _, vh = svd(a, full_matrices=False, check_errors=False)
        by_a = _add(by_a, ops.matmul(_columns(u, by_s), vh))
    if by_b is not None and is_vector:
        by_b = by_b.reshape(by_b.shape[:-1])
    return by_a, by_b


def _by_solution(a: Array, x: Array, rest: Array, by_x: Array, rcond: float | None) -> tuple[Array, Array]:
    def shortest(matrix: Array, right: Array) -> Array:
        return lstsq(matrix, right, rcond, check_errors=False).solution

    by_b = shortest(_t(a), by_x)
    outside = ops.sub(by_x, ops.matmul(_t(a), by_b))  # the part of the gradient that no right-hand side can produce
    terms = (
        ops.neg(_outer(by_b, x)),
        _outer(shortest(_t(a), ops.copy(x)), outside),
        _outer(rest, shortest(a, by_b)),
    )
    return _add(*terms), by_b


# ------------------------------------------------------------------------------------------------ factorizations


def _cholesky(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """A bar = the symmetric part of L^-T Phi(L^T L bar) L^-1, Phi the lower triangle with half of its diagonal.

    I. Murray, "Differentiation of the Cholesky decomposition", arXiv 1602.07527.
    """
    (grad,), (factor,) = grads, results
    inner = _lower(ops.matmul(_t(factor), _lower(grad, 1.0)), 0.5)
    left = _solved(_t(factor), inner)
    return (_both(_t(_solved(_t(factor), _t(left)))),)


def _qr(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """A bar = (Q bar + Q sym(R R bar^T - Q bar^T Q)) R^-T, sym copying the lower triangle to the upper one.

    D. Roberts, L. Roberts, "QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep
    matrices", arXiv 2009.10071. For a wide ``(X, Y) = Q (U, V)``, Y bar = Q V bar, and X bar is that of a square matrix
    with Q bar + Y V bar^T.
    """
    (by_q, by_r), (a,), (q, r) = grads, arrays, results
    rows, columns = a.shape[-2:]
    if options["mode"] == "complete" and rows > columns:
        raise GradientError(
            f"qr in mode 'complete' of a matrix with more rows than columns, {(rows, columns)}, has no derivative: the "
            "columns of Q beyond those of the matrix may be any; give mode='reduced'"
        )
    if rows >= columns:
        return (_by_square(by_q, by_r, q, r),)
    first, last = _eye(a, rows, columns), _eye(a, columns - rows, columns, rows)
    by_u = by_y = None
    if by_r is not None:
        by_y = ops.matmul(q, by_r[..., rows:])
        by_q = _add(by_q, _outer(a[..., rows:], by_r[..., rows:]))
        by_u = by_r[..., :rows]
    by_x = _by_square(by_q, by_u, q, r[..., :rows])
    return (_add(ops.matmul(by_x, first), None if by_y is None else ops.matmul(by_y, last)),)


def _by_square(by_q: Array | None, by_r: Array | None, q: Array, r: Array) -> Array:
    inner = _add(None if by_r is None else _outer(r, by_r), None if by_q is None else ops.neg(ops.matmul(_t(by_q), q)))
    half = _lower(inner, 0.5)
    outer = _add(by_q, ops.matmul(q, ops.add(half, _t(half))))
    return _t(_solved(r, _t(outer)))


def _svd(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """A bar = U ((K(U^T U bar) / E) S + S (K(V^T V bar) / E) + S bar) V^T, plus the parts outside of U and V.

    K(X) is X - X^T, and E has ``s_j^2 - s_i^2``; J. Townsend, "Differentiating the singular value decomposition", 2016.
    """
    (by_u, by_s, by_vh), (u, s, vh) = grads, results
    rows, columns, count = u.shape[-2], vh.shape[-1], s.shape[-1]
    if options["full_matrices"] and rows != columns and (by_u is not None or by_vh is not None):
        raise GradientError(
            f"svd with full_matrices of a matrix of shape {(rows, columns)} has no derivative by its vectors: those "
            "beyond the singular values may be any; give full_matrices=False"
        )
    u, vh = u[..., :count], vh[..., :count, :]
    if by_u is None and by_vh is None:
        if isinstance(u, TracedArray) and options["full_matrices"]:  # a second derivative needs the reduced vectors
            u, _, vh = svd(arrays[0], full_matrices=False, check_errors=False)
        return (ops.matmul(_columns(u, by_s), vh),)
    apart, inverse = _differences(ops.mul(s, s)), ops.div(1.0, s)
    inner = None if by_s is None else _columns(_eye(s, count), by_s)
    outside: list[Array] = []
    if by_u is not None:
        turned = ops.matmul(_t(u), by_u)
        inner = _add(inner, _columns(ops.div(ops.sub(turned, _t(turned)), apart), s))
        if rows > count:
            rest = ops.sub(by_u, ops.matmul(u, turned))
            outside.append(ops.matmul(_columns(rest, inverse), vh))
    if by_vh is not None:
        turned = _outer(vh, by_vh)
        rows_scaled = _t(_columns(_t(ops.div(ops.sub(turned, _t(turned)), apart)), s))
        inner = _add(inner, rows_scaled)
        if columns > count:
            rest = ops.sub(by_vh, ops.matmul(_t(turned), vh))
            outside.append(ops.matmul(_columns(u, inverse), rest))
    return (_add(ops.matmul(u, ops.matmul(inner, vh)), *outside),)


def _eigh(grads: Grads, arrays: Sequence[Array], results: Sequence[Array], options: Options) -> Sequence[Array]:
    """A bar = the symmetric part of V (w bar + F o (V^T V bar)) V^T, F having ``1 / (w_j - w_i)`` (Giles, 3.1)."""
    (by_w, by_v), (w, v) = grads, results
    inner = None if by_w is None else _columns(_eye(w, w.shape[-1]), by_w)
    if by_v is not None:
        turned = ops.div(ops.matmul(_t(v), by_v), _differences(w))
        inner = _add(inner, ops.where(ops.equal(_eye(w, w.shape[-1]), 1.0), 0.0, turned))
    return (_both(ops.matmul(v, ops.matmul(inner, _t(v)))),)


if TYPE_CHECKING:  # gives type checkers and the reference pages the signatures and docstrings
    from cuassay.linalg.functions import cholesky, det, eigh, inv, lstsq, qr, solve, svd
else:
    solve = _differentiable(functions.solve, _solve)
    inv = _differentiable(functions.inv, _inv)
    det = _differentiable(functions.det, _det)
    cholesky = _differentiable(functions.cholesky, _cholesky)
    qr = _differentiable(functions.qr, _qr)
    svd = _differentiable(functions.svd, _svd)
    eigh = _differentiable(functions.eigh, _eigh)
    lstsq = _differentiable(functions.lstsq, _lstsq)
