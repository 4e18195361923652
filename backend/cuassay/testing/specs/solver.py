"""OpSpecs of linear algebra; implemented in ``devices/<kind>/solver.py``.

A factorization has many right results, which differ in signs and more. Its properties are compared instead: the factors
multiply to the matrix, columns are orthonormal, triangles are triangular, and values are in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops.decompositions import real_dtype
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


def _blank(shape: Shape, dtype: Any) -> HostArray:
    """Make an array that the op overwrites."""
    return HostArray(np.full(shape, 7, dtype))


def _adjoint(a: Array) -> Array:
    return np.asarray(np.swapaxes(a, -2, -1).conj())


def _codes(shape: Shape) -> HostArray:
    return _blank(shape[:-2], np.int32)


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
        wide = (*shape[:-1], count % 3 + 1)
        kind: Any = "empty" if 0 in shape else "values"
        arrays = _regular(make, shape), make(wide, low=-1, high=1), _blank(wide, as_dtype(make.dtype)), _codes(shape)
        yield Sample(arrays, kind=kind)
    singular = np.zeros((3, 2, 2), as_dtype(make.dtype))
    singular[1] = np.eye(2)
    right = make.full((3, 2, 1), 1)
    yield Sample((singular, right, _blank((3, 2, 1), singular.dtype), _codes((3, 2, 2))), label="two of three singular")


def _solved(a: Array, b: Array, x: Array, info: Array) -> Meant:
    """The product of matrix and solution, which is the right side; for a singular matrix, only the flag counts."""
    worked = (info == 0)[..., None, None]
    return np.where(worked, a @ np.where(worked, x, 0), 0), np.broadcast_to(info != 0, info.shape)


def _solve(a: Array, b: Array, x: Array, info: Array) -> Array:
    singular = np.abs(np.linalg.det(a)) == 0 if a.size else np.zeros(info.shape, np.bool_)
    return _lined(np.where(singular[..., None, None], 0, b), singular)


def _solve_errors(make: Samples) -> Iterator[ErrorInput]:
    dtype = as_dtype(make.dtype)
    a, b = _regular(make, (3, 3)), make((3, 2))
    yield ErrorInput(Sample((make((3, 2)), b, b, _codes((3, 3))), label="not square"), ShapeError, "square matrices")
    short = make((2, 2))
    yield ErrorInput(Sample((a, short, short, _codes((3, 3))), label="rows differ"), ShapeError, "needs b with shape")
    wrong = _blank((3, 3), dtype)
    yield ErrorInput(Sample((a, b, wrong, _codes((3, 3))), label="x too wide"), ShapeError, "x must have shape")
    other = _blank((), np.int64)
    yield ErrorInput(Sample((a, b, b, other), label="info of int64"), DTypeError, "info must be int32")


def _inverses(make: Samples) -> Iterator[Sample]:
    for shape in (*_SQUARES, *_HOLLOW):
        kind: Any = "empty" if 0 in shape else "values"
        yield Sample((_regular(make, shape), _blank(shape, as_dtype(make.dtype)), _codes(shape)), kind=kind)


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
        kind: Any = "empty" if 0 in shape else "values"
        yield Sample((_positive(make, shape), _blank(shape, as_dtype(make.dtype)), _codes(shape)), kind=kind)
    negative = np.stack([np.eye(3), -np.eye(3)]).astype(as_dtype(make.dtype))
    yield Sample((negative, _blank((2, 3, 3), negative.dtype), _codes((2, 3, 3))), label="the second is negative")


def _factored(a: Array, factor: Array, info: Array) -> Meant:
    lower = np.where((info == 0)[..., None, None], factor, 0)
    return lower @ _adjoint(lower), _above(lower), info != 0


def _cholesky(a: Array, factor: Array, info: Array) -> Array:
    failed = np.asarray((np.diagonal(a, axis1=-2, axis2=-1).real < 0).any(axis=-1))
    return _lined(np.where(failed[..., None, None], 0, a), np.zeros(a.shape), failed)


def _qrs(make: Samples) -> Iterator[Sample]:
    dtype = as_dtype(make.dtype)
    for shape in (*_RECTANGLES, *_HOLLOW_RECTANGLES):
        for mode in ("reduced", "complete"):
            inner = min(shape[-2:]) if mode == "reduced" else shape[-2]
            q, r = _blank((*shape[:-1], inner), dtype), _blank((*shape[:-2], inner, shape[-1]), dtype)
            kind: Any = "empty" if 0 in shape else "values"
            yield Sample((make(shape), q, r), {"mode": mode}, f"{shape}, {mode}", kind)


def _orthogonal(a: Array, q: Array, r: Array, mode: str = "reduced") -> Meant:
    return q @ r, _adjoint(q) @ q, np.tril(r, -1)


def _qr(a: Array, q: Array, r: Array, mode: str = "reduced") -> Array:
    return _lined(a, _ones(a, q.shape[-1]), np.zeros(r.shape))


def _qr_errors(make: Samples) -> Iterator[ErrorInput]:
    a = make((3, 2))
    q, r = _blank((3, 2), a.dtype), _blank((2, 2), a.dtype)
    yield ErrorInput(Sample((a, q, r), {"mode": "raw"}, "no such mode"), ArgumentError, "mode must be")
    yield ErrorInput(Sample((a, r, r), label="q too short"), ShapeError, "q must have shape")
    yield ErrorInput(Sample((make(3), q, r), label="a vector"), ShapeError, "needs a matrix")
    half = make((3, 2), dtype="float16")
    yield ErrorInput(Sample((half, half, half), label="16 bits"), DTypeError, "not defined for float16")


def _svds(make: Samples) -> Iterator[Sample]:
    dtype = as_dtype(make.dtype)
    for shape in (*_RECTANGLES, *_HOLLOW_RECTANGLES):
        (*stack, rows, columns), inner = shape, min(shape[-2:])
        for full in (False, True):
            u, vh = (rows, rows if full else inner), (columns if full else inner, columns)
            arrays = (
                make(shape), _blank((*stack, *u), dtype), _blank((*stack, inner), real_dtype(dtype)),
                _blank((*stack, *vh), dtype), _codes(shape),
            )  # fmt: skip
            kind: Any = "empty" if 0 in shape else "values"
            yield Sample(arrays, {"full_matrices": full}, f"{shape}{', full' * full}", kind)


def _singular(a: Array, u: Array, s: Array, vh: Array, info: Array, full_matrices: bool = False) -> Meant:
    inner = s.shape[-1]
    return (u[..., :inner] * s[..., None, :]) @ vh[..., :inner, :], _adjoint(u) @ u, vh @ _adjoint(vh), s, info


def _svd(a: Array, u: Array, s: Array, vh: Array, info: Array, full_matrices: bool = False) -> Array:
    values = np.linalg.svd(a, compute_uv=False) if a.size else np.zeros(s.shape)
    return _lined(a, _ones(a, u.shape[-1]), _ones(a, vh.shape[-2]), values, np.zeros(info.shape))


def _eighs(make: Samples) -> Iterator[Sample]:
    dtype = as_dtype(make.dtype)
    for shape in (*_SQUARES, *_HOLLOW):
        arrays = _blank(shape[:-1], real_dtype(dtype)), _blank(shape, dtype), _codes(shape)
        whole = _hermitian(make, shape)
        kind: Any = "empty" if 0 in shape else "values"
        yield Sample((whole, *arrays), label=f"{shape}", kind=kind)
        upper = HostArray(np.triu(whole.values) + 9 * np.tril(np.ones(shape, dtype), -1))
        yield Sample((upper, *arrays), {"uplo": "U"}, f"{shape}, the other triangle is another's", kind)


def _eigen(a: Array, w: Array, v: Array, info: Array, uplo: str = "L") -> Meant:
    return (v * w[..., None, :]) @ _adjoint(v), _adjoint(v) @ v, w, info


def _eigh(a: Array, w: Array, v: Array, info: Array, uplo: str = "L") -> Array:
    if uplo == "U":
        a = np.triu(a) + _adjoint(np.triu(a, 1))
    return _lined(a, _ones(a, a.shape[-1]), np.linalg.eigvalsh(a), np.zeros(info.shape))


def _eigh_errors(make: Samples) -> Iterator[ErrorInput]:
    a = _hermitian(make, (2, 2))
    arrays = a, _blank((2,), real_dtype(a.dtype)), _blank((2, 2), a.dtype), _codes((2, 2))
    yield ErrorInput(Sample(arrays, {"uplo": "l"}, "no such triangle"), ArgumentError, "uplo must be")


# ------------------------------------------------------------------------------------------------ least squares


def _fits(make: Samples) -> Iterator[Sample]:
    for shape in (*_RECTANGLES, *_HOLLOW_RECTANGLES):
        yield _fit(make, make(shape, low=-1, high=1), 2, "empty" if 0 in shape else "values")
    twice = make((6, 2), low=-1, high=1).values
    yield _fit(make, HostArray(np.ascontiguousarray(np.concatenate([twice, twice], axis=1))), 1, "values")


def _fit(make: Samples, a: HostArray, count: int, kind: Any) -> Sample:
    (*stack, rows, columns), dtype = a.shape, as_dtype(make.dtype)
    real = real_dtype(dtype)
    return Sample(
        (
            a, make((*stack, rows, count), low=-1, high=1), _blank((*stack, columns, count), dtype),
            _blank((*stack, count), real), _blank(tuple(stack), np.int32), _blank((*stack, min(rows, columns)), real),
            _codes(a.shape),
        ),
        {"rcond": 1e-4},
        kind=kind,
    )  # fmt: skip


def _fitted(
    a: Array, b: Array, x: Array, residuals: Array, rank: Array, s: Array, info: Array, rcond: float | None = None
) -> Meant:
    return a @ x, np.linalg.norm(x, axis=-2), residuals, rank, s, info


def _lstsq(
    a: Array, b: Array, x: Array, residuals: Array, rank: Array, s: Array, info: Array, rcond: float | None = None
) -> Array:
    found = np.linalg.pinv(a, rcond=rcond) @ b if a.size else np.zeros(x.shape)
    rest = b - a @ found
    values = np.linalg.svd(a, compute_uv=False) if a.size else np.zeros(s.shape)
    kept = (values > 1e-4 * values.max(axis=-1, keepdims=True, initial=0)).sum(axis=-1)
    norms = np.linalg.norm(found, axis=-2)
    return _lined(a @ found, norms, (np.abs(rest) ** 2).sum(axis=-2), kept, values, np.zeros(info.shape))


def _fit_size(a: Array, b: Array, *others: Any, **named: Any) -> float:
    """The error of a solution grows with the condition number, which is at most some hundreds for these samples."""
    return 100 * _size(a) * _size(b)


def _fit_errors(make: Samples) -> Iterator[ErrorInput]:
    good = _fit(make, make((4, 2)), 1, "values").args
    yield ErrorInput(Sample((good[0], make((3, 1)), *good[2:]), label="rows differ"), ShapeError, "needs b with shape")


# ------------------------------------------------------------------------------------------------ measured


def _bench(generate: Any) -> Any:
    """Yield one matrix, as wide as the model's heads, from the samples' own maker."""

    def bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
        yield generate(make, (sizes.width // sizes.heads, sizes.width // sizes.heads))

    return bench


def _one_solve(make: Samples, shape: Shape) -> Sample:
    a = _regular(make, shape)
    return Sample((a, make(shape), _blank(shape, a.dtype), _codes(shape)))


def _one_fit(make: Samples, shape: Shape) -> Sample:
    return _fit(make, make(shape), shape[1], "values")


def _one_svd(make: Samples, shape: Shape) -> Sample:
    a = make(shape)
    blank = _blank(shape, a.dtype)
    return Sample((a, blank, _blank(shape[:-1], real_dtype(a.dtype)), blank, _codes(shape)))


def _one_eigh(make: Samples, shape: Shape) -> Sample:
    a = _hermitian(make, shape)
    return Sample((a, _blank(shape[:-1], real_dtype(a.dtype)), _blank(shape, a.dtype), _codes(shape)))


def _work(multiple: float) -> Any:
    """The work of `multiple` N**3 operations (Golub & Van Loan 2013), and of each array once."""

    def work(a: Array, *others: Any, **named: Any) -> Work:
        arrays = [one for one in others if isinstance(one, np.ndarray)]
        return Work(bytes=a.nbytes + sum(one.nbytes for one in arrays), flops=int(multiple * a.size * a.shape[-1]))

    return work


#: The backward errors of these algorithms are a small multiple of epsilon times the norm (Higham 2002, ch. 9, 10, 19).
_STABLE = Tolerance(ulps=16, growth="sqrt")

#: Ops that return nothing have no such check.
_NOT_CAPTURED = KnownFailure(
    reason="CuPy calls neither cuSOLVER nor cuBLAS in a capture", kind="cuda", check="graph_replay"
)

SPECS = (
    OpSpec(
        op=ops.solve_, samples=_solves, reference=_solve, meaning=_solved, error_inputs=_solve_errors,
        terms=_count, magnitude=lambda a, b, *others: _size(a, b), tolerance=_STABLE,
        bench=_bench(_one_solve), work=_work(8 / 3),
    ),
    OpSpec(
        op=ops.inv_, samples=_inverses, meaning=lambda a, inverse, info: (a @ inverse, info),
        reference=lambda a, inverse, info: _lined(_ones(a, a.shape[-1]), np.zeros(info.shape)),
        terms=_count, magnitude=_first, tolerance=_STABLE, work=_work(2),
        bench=_bench(lambda make, shape: Sample((_regular(make, shape), make(shape), _codes(shape)))),
    ),
    OpSpec(
        op=ops.det, samples=_dets, reference=np.linalg.det, error_inputs=_det_errors, terms=_count, tolerance=_STABLE,
        like={"sim": "cpu"},
        # Hadamard's bound, because the terms of a determinant may cancel.
        magnitude=lambda a: np.prod(np.linalg.norm(a, axis=-1), axis=-1), work=_work(2 / 3),
        bench=_bench(lambda make, shape: Sample((_regular(make, (2, 8, 8)),))), known_failures=(_NOT_CAPTURED,),
    ),
    OpSpec(
        op=ops.cholesky_, samples=_factors, reference=_cholesky, meaning=_factored, terms=_count, magnitude=_first,
        tolerance=_STABLE, work=_work(1 / 3),
        bench=_bench(lambda make, shape: Sample((_positive(make, shape), make(shape), _codes(shape)))),
    ),
    OpSpec(
        op=ops.qr_, samples=_qrs, reference=_qr, meaning=_orthogonal, error_inputs=_qr_errors, terms=_count,
        magnitude=_first, tolerance=_STABLE, work=_work(8 / 3),
        bench=_bench(lambda make, shape: Sample((make(shape), make(shape), make(shape)))),
    ),
    OpSpec(
        op=ops.svd_, samples=_svds, reference=_svd, meaning=_singular, terms=_count, magnitude=_first,
        tolerance=_STABLE, bench=_bench(_one_svd), work=_work(22),
    ),
    OpSpec(
        op=ops.eigh_, samples=_eighs, reference=_eigh, meaning=_eigen, error_inputs=_eigh_errors, terms=_count,
        magnitude=_first, tolerance=_STABLE, bench=_bench(_one_eigh), work=_work(9),
    ),
    OpSpec(
        op=ops.lstsq_, samples=_fits, reference=_lstsq, meaning=_fitted, error_inputs=_fit_errors, terms=_count,
        magnitude=_fit_size, tolerance=_STABLE, bench=_bench(_one_fit), work=_work(24),
    ),
)  # fmt: skip
