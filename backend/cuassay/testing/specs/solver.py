"""OpSpecs of linear algebra; implemented in ``devices/<kind>/solver.py``.

A factorization has many right results, which differ in signs and more. Its properties are compared instead: the factors
multiply to the matrix, columns are orthonormal, triangles are triangular, and values are in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops import Op
from cuassay.testing.opspec import ErrorInput, KnownFailure, ModelSizes, OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, Samples
from cuassay.testing.tolerance import Tolerance

__all__ = ["SPECS"]

Array = NDArray[Any]
Shape = tuple[int, ...]
Meant = Sequence[Any]

#: Single elements, odd extents, extents around a warp, and stacks of one and two axes.
_SQUARES: tuple[Shape, ...] = ((1, 1), (5, 5), (33, 33), (3, 4, 4), (2, 2, 7, 7), (2, 35, 35))
_RECTANGLES: tuple[Shape, ...] = ((1, 1), (7, 3), (3, 7), (40, 33), (3, 5, 4), (2, 2, 3, 5), (2, 34, 36))
_HOLLOW: tuple[Shape, ...] = ((0, 0), (0, 3, 3), (2, 0, 0))
_HOLLOW_RECTANGLES: tuple[Shape, ...] = ((0, 3), (3, 0), (0, 3, 2))


# ------------------------------------------------------------------------------------------------ inputs


def _regular(make: Samples, shape: Shape) -> HostArray:
    """Make matrices far from singular: the diagonal is as large as the rest of its row may be."""
    values = make(shape, low=-1, high=1).values.copy()
    values += np.eye(shape[-1], dtype=values.dtype) * (2 + np.sqrt(shape[-1]))
    return HostArray(values)


def _hermitian(make: Samples, shape: Shape) -> HostArray:
    values = make(shape, low=-1, high=1).values
    return HostArray(np.ascontiguousarray((values + _adjoint(values)) / 2))


def _positive(make: Samples, shape: Shape) -> HostArray:
    values = _hermitian(make, shape).values
    return HostArray(values + np.eye(shape[-1], dtype=values.dtype) * (2 + shape[-1]))


def _adjoint(a: Array) -> Array:
    return np.asarray(np.swapaxes(a, -2, -1).conj())


def _worked(a: Array) -> Array:
    """The codes of matrices that it worked for."""
    return np.zeros(a.shape[:-2])


def _size(*arrays: Array) -> float:
    """The magnitude that errors are relative to: the product of the Frobenius norms."""
    return math.prod(max(1.0, float(np.linalg.norm(a.ravel()))) for a in arrays)


def _first(a: Array, *others: Any, **named: Any) -> float:
    return _size(a)


def _count(a: Array, *others: Any, **named: Any) -> int:
    return int(max(1, *a.shape[-2:]))


def _lined(*arrays: Array) -> Array:
    return np.concatenate([np.ravel(one) for one in arrays])


def _ones(a: Array, extent: int) -> Array:
    return np.asarray(np.broadcast_to(np.eye(extent), (*a.shape[:-2], extent, extent)))


def _above(a: Array) -> Array:
    """The elements above the diagonal, which are zero in a lower triangle."""
    return np.triu(a, 1)


# ------------------------------------------------------------------------------------------------ solve, inv, det


def _solves(make: Samples) -> Iterator[Sample]:
    for count, shape in enumerate((*_SQUARES, *_HOLLOW), 1):
        kind: Any = "empty" if 0 in shape else "values"
        yield Sample((_regular(make, shape), make((*shape[:-1], count % 3 + 1), low=-1, high=1)), kind=kind)
    singular = np.zeros((3, 2, 2), as_dtype(make.dtype))
    singular[1] = np.eye(2)
    yield Sample((singular, make.full((3, 2, 1), 1)), label="two of three singular")


def _solved(a: Array, b: Array, x: Array, info: Array) -> Meant:
    """The product of matrix and solution, which is the right side; for a singular matrix, only the flag counts."""
    worked = (info == 0)[..., None, None]
    return np.where(worked, a @ np.where(worked, x, 0), 0), np.broadcast_to(info != 0, info.shape)


def _solve(a: Array, b: Array) -> Array:
    singular = np.abs(np.linalg.det(a)) == 0 if a.size else np.zeros(a.shape[:-2], np.bool_)
    return _lined(np.where(singular[..., None, None], 0, b), singular)


def _solve_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((3, 2)), make((3, 2))), label="not square"), ShapeError, "square matrices")
    short = Sample((_regular(make, (3, 3)), make((2, 2))), label="rows differ")
    yield ErrorInput(short, ShapeError, "needs b with shape")


def _inverses(make: Samples) -> Iterator[Sample]:
    for shape in (*_SQUARES, *_HOLLOW):
        yield Sample((_regular(make, shape),), kind="empty" if 0 in shape else "values")


def _dets(make: Samples) -> Iterator[Sample]:
    yield from (Sample((_regular(make, shape),)) for shape in _SQUARES[:2] + _SQUARES[3:5])
    swapped = np.eye(4, dtype=as_dtype(make.dtype))[[1, 2, 3, 0]]
    yield Sample((swapped,), label="three exchanges of rows")
    yield Sample((make.full((3, 3), 0),), label="singular")
    yield from (Sample((make(shape),), kind="empty") for shape in _HOLLOW)


def _det_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((2, 3)),)), ShapeError, "square matrices")
    yield ErrorInput(Sample((make(3),)), ShapeError, "det needs a matrix")
    yield ErrorInput(Sample((make((2, 2), dtype="float16"),)), DTypeError, "not defined for float16")


# ------------------------------------------------------------------------------------------------ factorizations


def _factors(make: Samples) -> Iterator[Sample]:
    for shape in (*_SQUARES, *_HOLLOW):
        yield Sample((_positive(make, shape),), kind="empty" if 0 in shape else "values")
    negative = np.stack([np.eye(3), -np.eye(3)]).astype(as_dtype(make.dtype))
    yield Sample((negative,), label="the second is negative")


def _factored(a: Array, factor: Array, info: Array) -> Meant:
    lower = np.where((info == 0)[..., None, None], factor, 0)
    return lower @ _adjoint(lower), _above(lower), info != 0


def _cholesky(a: Array) -> Array:
    failed = np.asarray((np.diagonal(a, axis1=-2, axis2=-1).real < 0).any(axis=-1))
    return _lined(np.where(failed[..., None, None], 0, a), np.zeros(a.shape), failed)


def _qrs(make: Samples) -> Iterator[Sample]:
    for shape in (*_RECTANGLES, *_HOLLOW_RECTANGLES):
        for mode in ("reduced", "complete"):
            kind: Any = "empty" if 0 in shape else "values"
            yield Sample((make(shape),), {"mode": mode}, f"{shape}, {mode}", kind)


def _orthogonal(a: Array, q: Array, r: Array, mode: str = "reduced") -> Meant:
    return q @ r, _adjoint(q) @ q, np.tril(r, -1)


def _qr(a: Array, mode: str = "reduced") -> Array:
    inner = a.shape[-2] if mode == "complete" else min(a.shape[-2:])
    return _lined(a, _ones(a, inner), np.zeros((*a.shape[:-2], inner, a.shape[-1])))


def _qr_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((3, 2)),), {"mode": "raw"}, "no such mode"), ArgumentError, "mode must be")
    yield ErrorInput(Sample((make(3),), label="a vector"), ShapeError, "needs a matrix")
    half = Sample((make((3, 2), dtype="float16"),), label="16 bits")
    yield ErrorInput(half, DTypeError, "not defined for float16")


def _svds(make: Samples) -> Iterator[Sample]:
    for shape in (*_RECTANGLES, *_HOLLOW_RECTANGLES):
        for full in (False, True):
            kind: Any = "empty" if 0 in shape else "values"
            yield Sample((make(shape),), {"full_matrices": full}, f"{shape}{', full' * full}", kind)


def _singular(a: Array, u: Array, s: Array, vh: Array, info: Array, full_matrices: bool = False) -> Meant:
    inner = s.shape[-1]
    return (u[..., :inner] * s[..., None, :]) @ vh[..., :inner, :], _adjoint(u) @ u, vh @ _adjoint(vh), s, info


def _svd(a: Array, full_matrices: bool = False) -> Array:
    rows, columns = a.shape[-2:] if full_matrices else [min(a.shape[-2:])] * 2
    return _lined(a, _ones(a, rows), _ones(a, columns), _singular_values(a), _worked(a))


def _singular_values(a: Array) -> Array:
    shape = *a.shape[:-2], min(a.shape[-2:])
    return np.linalg.svd(a, compute_uv=False) if a.size else np.zeros(shape)


def _eighs(make: Samples) -> Iterator[Sample]:
    for shape in (*_SQUARES, *_HOLLOW):
        whole = _hermitian(make, shape)
        kind: Any = "empty" if 0 in shape else "values"
        yield Sample((whole,), label=f"{shape}", kind=kind)
        upper = HostArray(np.triu(whole.values) + 9 * np.tril(np.ones(shape, whole.dtype), -1))
        yield Sample((upper,), {"uplo": "U"}, f"{shape}, the other triangle is another's", kind)


def _eigen(a: Array, w: Array, v: Array, info: Array, uplo: str = "L") -> Meant:
    return (v * w[..., None, :]) @ _adjoint(v), _adjoint(v) @ v, w, info


def _eigh(a: Array, uplo: str = "L") -> Array:
    if uplo == "U":
        a = np.triu(a) + _adjoint(np.triu(a, 1))
    return _lined(a, _ones(a, a.shape[-1]), np.linalg.eigvalsh(a), _worked(a))


def _eigh_errors(make: Samples) -> Iterator[ErrorInput]:
    unknown = Sample((_hermitian(make, (2, 2)),), {"uplo": "l"}, "no such triangle")
    yield ErrorInput(unknown, ArgumentError, "uplo must be")


# ------------------------------------------------------------------------------------------------ least squares


def _fits(make: Samples) -> Iterator[Sample]:
    for shape in (*_RECTANGLES, *_HOLLOW_RECTANGLES):
        yield _fit(make, make(shape, low=-1, high=1), 2, "empty" if 0 in shape else "values")
    twice = make((6, 2), low=-1, high=1).values
    yield _fit(make, HostArray(np.ascontiguousarray(np.concatenate([twice, twice], axis=1))), 1, "values")


def _fit(make: Samples, a: HostArray, count: int, kind: Any) -> Sample:
    return Sample((a, make((*a.shape[:-1], count), low=-1, high=1)), {"rcond": 1e-4}, kind=kind)


def _fitted(
    a: Array, b: Array, x: Array, residuals: Array, rank: Array, s: Array, info: Array, rcond: float | None = None
) -> Meant:
    return a @ x, np.linalg.norm(x, axis=-2), residuals, rank, s, info


def _lstsq(a: Array, b: Array, rcond: float | None = None) -> Array:
    blank = np.zeros((*a.shape[:-2], a.shape[-1], b.shape[-1]))
    found = np.linalg.pinv(a, rcond=rcond) @ b if a.size else blank
    rest, values = b - a @ found, _singular_values(a)
    kept = (values > 1e-4 * values.max(axis=-1, keepdims=True, initial=0)).sum(axis=-1)
    norms = np.linalg.norm(found, axis=-2)
    return _lined(a @ found, norms, (np.abs(rest) ** 2).sum(axis=-2), kept, values, _worked(a))


def _fit_size(a: Array, b: Array, **named: Any) -> float:
    """The error of a solution grows with the condition number, which is at most some hundreds for these samples."""
    return 100 * _size(a) * _size(b)


def _fit_errors(make: Samples) -> Iterator[ErrorInput]:
    short = Sample((make((4, 2)), make((3, 1))), label="rows differ")
    yield ErrorInput(short, ShapeError, "needs b with shape")


# ------------------------------------------------------------------------------------------------ measured


def _bench(generate: Any) -> Any:
    """Yield one matrix, as wide as the model's heads, from the samples' own maker."""

    def bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
        yield generate(make, (sizes.width // sizes.heads, sizes.width // sizes.heads))

    return bench


def _one_solve(make: Samples, shape: Shape) -> Sample:
    return Sample((_regular(make, shape), make(shape)))


def _one_fit(make: Samples, shape: Shape) -> Sample:
    return _fit(make, make(shape), shape[1], "values")


def _alone(maker: Callable[[Samples, Shape], HostArray]) -> Any:
    return _bench(lambda make, shape: Sample((maker(make, shape),)))


def _work(op: Op, multiple: float) -> Any:
    """The work of `multiple` N**3 operations (Golub & Van Loan 2013), and of each array once."""

    def work(*arrays: Array, **named: Any) -> Work:
        a, made = arrays[0], op.meta(*arrays, **named)
        nbytes = sum(one.nbytes for one in (*arrays, *(made if isinstance(made, tuple) else (made,))))
        return Work(bytes=nbytes, flops=int(multiple * a.size * a.shape[-1]))

    return work


#: The backward errors of these algorithms are a small multiple of epsilon times the norm (Higham 2002, ch. 9, 10, 19).
_STABLE = Tolerance(ulps=16, growth="sqrt")

#: Ops that return several arrays have no such check.
_NOT_CAPTURED = KnownFailure(
    reason="CuPy calls neither cuSOLVER nor cuBLAS in a capture", kind="cuda", check="graph_replay"
)

SPECS = (
    OpSpec(
        op=ops.solve, samples=_solves, reference=_solve, meaning=_solved, error_inputs=_solve_errors,
        terms=_count, magnitude=_size, tolerance=_STABLE, bench=_bench(_one_solve), work=_work(ops.solve, 8 / 3),
    ),
    OpSpec(
        op=ops.inv, samples=_inverses, meaning=lambda a, inverse, info: (a @ inverse, info),
        reference=lambda a: _lined(_ones(a, a.shape[-1]), _worked(a)),
        terms=_count, magnitude=_first, tolerance=_STABLE, bench=_alone(_regular), work=_work(ops.inv, 2),
    ),
    OpSpec(
        op=ops.det, samples=_dets, reference=np.linalg.det, error_inputs=_det_errors, terms=_count, tolerance=_STABLE,
        like={"sim": "cpu"},
        # Hadamard's bound, because the terms of a determinant may cancel.
        magnitude=lambda a: np.prod(np.linalg.norm(a, axis=-1), axis=-1), work=_work(ops.det, 2 / 3),
        bench=_bench(lambda make, shape: Sample((_regular(make, (2, 8, 8)),))), known_failures=(_NOT_CAPTURED,),
    ),
    OpSpec(
        op=ops.cholesky, samples=_factors, reference=_cholesky, meaning=_factored, terms=_count, magnitude=_first,
        tolerance=_STABLE, bench=_alone(_positive), work=_work(ops.cholesky, 1 / 3),
    ),
    OpSpec(
        op=ops.qr, samples=_qrs, reference=_qr, meaning=_orthogonal, error_inputs=_qr_errors, terms=_count,
        magnitude=_first, tolerance=_STABLE, bench=_alone(lambda make, shape: make(shape)), work=_work(ops.qr, 8 / 3),
    ),
    OpSpec(
        op=ops.svd, samples=_svds, reference=_svd, meaning=_singular, terms=_count, magnitude=_first,
        tolerance=_STABLE, bench=_alone(lambda make, shape: make(shape)), work=_work(ops.svd, 22),
    ),
    OpSpec(
        op=ops.eigh, samples=_eighs, reference=_eigh, meaning=_eigen, error_inputs=_eigh_errors, terms=_count,
        magnitude=_first, tolerance=_STABLE, bench=_alone(_hermitian), work=_work(ops.eigh, 9),
    ),
    OpSpec(
        op=ops.lstsq, samples=_fits, reference=_lstsq, meaning=_fitted, error_inputs=_fit_errors, terms=_count,
        magnitude=_fit_size, tolerance=_STABLE, bench=_bench(_one_fit), work=_work(ops.lstsq, 24),
    ),
)  # fmt: skip
