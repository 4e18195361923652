"""OpSpecs of matrix products; implemented in ``devices/cpu/linalg.py`` and ``devices/cuda/blas``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import HALVES
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.default_samples import promoting
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, Samples
from cuassay.testing.tolerance import Tolerance

__all__ = ["ACTIVATED", "SPECS", "activated", "unit"]

Array = NDArray[Any]
Shape = tuple[int, ...]

#: Extents around tiles of 16, 32 and 128, and around vectors; stacks, and stacks that broadcast.
_PRODUCTS: tuple[tuple[Shape, Shape], ...] = (
    ((1, 1), (1, 1)), ((2, 3), (3, 4)), ((31, 33), (33, 32)), ((64, 64), (64, 64)), ((127, 129), (129, 65)),
    ((1, 257), (257, 3)), ((33,), (33,)), ((33,), (33, 5)), ((5, 33), (33,)), ((4, 3, 5), (4, 5, 2)),
    ((3, 1025), (1025, 2)),
)  # fmt: skip


def _products(make: Samples) -> Iterator[Sample]:
    yield from (Sample((make(a, low=-1, high=1), make(b, low=-1, high=1))) for a, b in _PRODUCTS)
    yield Sample((make.full((3, 4096), 1), make.full((4096, 2), 1)), label="4,096 ones in each product")
    stacks: tuple[tuple[Shape, Shape], ...] = (((2, 1, 3, 5), (4, 5, 2)), ((3, 5), (4, 5, 2)), ((4, 3, 5), (5,)))
    yield from (Sample((make(a), make(b)), kind="broadcast") for a, b in stacks)
    hollow: tuple[tuple[Shape, Shape], ...] = (((0, 3), (3, 2)), ((3, 0), (0, 2)), ((2, 0, 3), (3, 4)))
    yield from (Sample((make(a), make(b)), kind="empty") for a, b in hollow)
    for other in promoting(make.dtype, "float16", "float32", "complex64"):
        yield Sample((make((5, 33)), make((33, 7), dtype=other)), label=f"with {other}", kind="promotion")
    if not make.dtype.startswith("complex"):
        row = make((3, 33)).values.copy()
        row[1, 32] = np.nan
        yield Sample((row, make((33, 4))), label="NaN stays in its row", kind="extremal")


def _mismatched(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((2, 3)), make((2, 3))), label="inner extents differ"), ShapeError, "contract")
    yield ErrorInput(Sample((make(()), make((2, 3))), label="0-d"), ShapeError, "one dimension or more")
    yield ErrorInput(
        Sample((make((2, 2), dtype="int32"), make((2, 2), dtype="int32")), label="integers"), DTypeError, "int32"
    )


def _projections(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a layer's widening projection, and the scores of its heads."""
    rows = sizes.batch * sizes.length
    yield Sample((make((rows, sizes.width)), make((sizes.width, 4 * sizes.width))))
    heads = sizes.batch * sizes.heads, sizes.length, sizes.width // sizes.heads
    yield Sample((make(heads), make((heads[0], heads[2], heads[1]))))


def _product_work(a: Array, b: Array) -> Work:
    rows, columns = (a.shape[-2] if a.ndim > 1 else 1), (b.shape[-1] if b.ndim > 1 else 1)
    stacks = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    written = stacks * rows * columns * max(a.itemsize, b.itemsize)
    flops = 2 * stacks * rows * columns * a.shape[-1] * (4 if np.iscomplexobj(a) else 1)
    return Work(bytes=a.nbytes + b.nbytes + written, flops=flops)


# ------------------------------------------------------------------------------------------------ matrices, and pairs


_MATRICES: tuple[tuple[int, int, int], ...] = (
    (1, 1, 1), (2, 3, 4), (31, 33, 32), (64, 64, 64), (127, 129, 65), (16, 257, 8), (3, 1025, 2),
)  # fmt: skip


def _mms(make: Samples) -> Iterator[Sample]:
    yield from (Sample((unit(make, (m, k)), unit(make, (k, n)))) for m, k, n in _MATRICES)
    if make.dtype in HALVES:
        arrays = unit(make, (5, 33)), unit(make, (33, 7))
        yield Sample(arrays, {"out_dtype": "float32"}, "to float32")
    yield from (Sample((make(a), make(b)), kind="empty") for a, b in (((0, 3), (3, 2)), ((3, 0), (0, 2))))
    yield from _promoted(make, (5, 33), (33, 7))


def _bmms(make: Samples) -> Iterator[Sample]:
    yield from (Sample((unit(make, (2, m, k)), unit(make, (2, k, n)))) for m, k, n in _MATRICES)
    yield Sample((unit(make, (70, 3, 5)), unit(make, (70, 5, 2))), label="a large batch of small ones")
    hollow: tuple[tuple[Shape, Shape], ...] = (((0, 2, 3), (0, 3, 4)), ((2, 3, 0), (2, 0, 4)))
    yield from (Sample((make(a), make(b)), kind="empty") for a, b in hollow)
    yield from _promoted(make, (2, 5, 33), (2, 33, 7))


def unit(make: Samples, shape: Shape) -> HostArray:
    """An array of numbers from -1 to 1, so that sums of products stay small."""
    return make(shape, low=-1, high=1)


def _promoted(make: Samples, *shapes: Shape) -> Iterator[Sample]:
    """Yield arrays in the dtype under test, except for the last one, which has another dtype."""
    for other in promoting(make.dtype, "float16", "float32"):
        arrays = *(make(shape) for shape in shapes[:-1]), make(shapes[-1], dtype=other)
        yield Sample(arrays, label=f"with {other}", kind="promotion")


def _mm_errors(make: Samples) -> Iterator[ErrorInput]:
    for a, b in (((2, 3), (2, 3)), ((3,), (3, 2)), ((2, 2, 3), (3, 2))):
        yield ErrorInput(Sample((make(a), make(b)), label=f"{a} and {b}"), ShapeError, "mm needs matrices")
    wrong = Sample((make((2, 3)), make((3, 2))), {"precision": "fp8"}, "no such mode")
    yield ErrorInput(wrong, ArgumentError, "is not a precision mode")
    yield from _out_dtype_errors(make, (2, 3), (3, 2))


def _out_dtype_errors(make: Samples, *shapes: Shape) -> Iterator[ErrorInput]:
    narrower = ("float32",) if make.dtype.startswith("complex") else ("complex64",)
    for name in ("int32", "bool", "float8_e4m3fn", *narrower):
        wrong = Sample(tuple(make(shape) for shape in shapes), {"out_dtype": name}, f"out_dtype {name}")
        yield ErrorInput(wrong, DTypeError, "out_dtype must be one of")


def _bmm_errors(make: Samples) -> Iterator[ErrorInput]:
    for a, b in (((2, 3, 4), (1, 4, 2)), ((2, 3, 4), (2, 3, 4)), ((3, 4), (4, 2))):
        yield ErrorInput(Sample((make(a), make(b)), label=f"{a} and {b}"), ShapeError, "bmm needs stacks")
    yield from _out_dtype_errors(make, (2, 2, 3), (2, 3, 2))


# ------------------------------------------------------------------------------------------------ with a third operand


#: Shapes of `c`: (M, N), a row, a column, a single number.
_THIRDS = (lambda m, n: (m, n), lambda m, n: (n,), lambda m, n: (1, n), lambda m, n: (m, 1), lambda m, n: ())


def _addmms(make: Samples) -> Iterator[Sample]:
    for position, (m, k, n) in enumerate(_MATRICES):
        third = _THIRDS[position % len(_THIRDS)](m, n)
        factors = {"alpha": 0.5, "beta": -2.0} if position % 2 else {}
        yield Sample((make(third), unit(make, (m, k)), unit(make, (k, n))), factors)
    arrays = make(24), unit(make, (17, 40)), unit(make, (40, 24))
    if not make.dtype.startswith("complex"):
        for activation in ("relu", "gelu_tanh"):
            yield Sample(arrays, {"activation": activation}, f"{activation} after a row")
            yield Sample(arrays, {"activation": activation, "beta": 0.5}, f"{activation} after half a row")
    yield Sample((make((127, 129)), unit(make, (127, 65)), unit(make, (65, 129))), {"beta": 0.5}, "half a matrix")
    if not make.dtype.startswith("complex"):
        small = make(4), unit(make, (2, 3)), unit(make, (3, 4))  # small enough for differences
        for activation in ("relu", "gelu_tanh"):
            yield Sample(small, {"activation": activation, "alpha": 0.5, "beta": -2.0}, f"{activation} with factors")
    nothing = make.full((2, 4), float("nan"))
    yield Sample((nothing, make((2, 3)), make((3, 4))), {"beta": 0.0}, "NaN that is not read")
    yield from _promoted(make, (7,), (5, 33), (33, 7))
    hollow: tuple[tuple[Shape, Shape, Shape], ...] = (((2,), (3, 0), (0, 2)), ((2,), (0, 3), (3, 2)))
    yield from (Sample((make(c), make(a), make(b)), kind="empty") for c, a, b in hollow)


def _addmm_errors(make: Samples) -> Iterator[ErrorInput]:
    arrays = make((2, 3)), make((3, 4))
    yield ErrorInput(Sample((make(3), *arrays), label="c too short"), ShapeError, "broadcast")
    yield ErrorInput(Sample((make((1, 2, 4)), *arrays), label="c of more axes"), ShapeError, "c must broadcast")
    unknown = Sample((make(4), *arrays), {"activation": "silu"}, "no such activation")
    complex_ = make.dtype.startswith("complex")
    yield ErrorInput(unknown, DTypeError if complex_ else ArgumentError, "real" if complex_ else "activation must be")


def _baddbmms(make: Samples) -> Iterator[Sample]:
    for position, (m, k, n) in enumerate(_MATRICES):
        third = _THIRDS[position % len(_THIRDS)](m, n)
        factors = {"alpha": 0.5, "beta": -2.0} if position % 2 else {}
        yield Sample((make(third), unit(make, (2, m, k)), unit(make, (2, k, n))), factors)
    yield Sample((make((2, 65, 67)), unit(make, (2, 65, 64)), unit(make, (2, 64, 67))), {"alpha": -0.5}, "matrices")
    yield Sample((make((2, 3, 4)), make((2, 3, 5)), make((2, 5, 4))), {"beta": 0.0}, "c is not read")
    yield Sample((make(4), make((2, 3, 0)), make((2, 0, 4))), kind="empty")


def _baddbmm_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((3, 2, 2)), make((2, 2, 2)), make((2, 2, 2)))), ShapeError, "broadcast")


def _addmm(
    c: Array, a: Array, b: Array, *, alpha: float = 1.0, beta: float = 1.0, activation: str | None = None
) -> Array:
    result = alpha * np.matmul(a, b) + (beta * c if beta else 0)
    return activated(np.asarray(result), activation)


def activated(x: Array, activation: str | None) -> Array:
    """Apply the activation that an op names."""
    if activation is None:
        return x
    if activation == "relu":
        return np.maximum(x, 0)
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _addmm_magnitude(
    c: Array, a: Array, b: Array, *, alpha: float = 1.0, beta: float = 1.0, activation: str | None = None
) -> Array:
    return np.asarray(abs(alpha) * np.matmul(np.abs(a), np.abs(b)) + (np.abs(beta * c) if beta else 0))


def _addmm_work(c: Array, a: Array, b: Array, **factors: Any) -> Work:
    product = _product_work(a, b)
    return Work(bytes=product.bytes + c.nbytes, flops=product.flops)


def _biased(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    rows = sizes.batch * sizes.length
    arrays = make(4 * sizes.width), make((rows, sizes.width)), make((sizes.width, 4 * sizes.width))
    yield Sample(arrays, {"activation": "gelu_tanh"})


# ------------------------------------------------------------------------------------------------ layers


def _linears(make: Samples) -> Iterator[Sample]:
    for rows, inner, columns in ((1, 1, 1), (3, 33, 5), (31, 129, 65), (2, 1025, 3)):
        yield Sample((unit(make, (rows, inner)), unit(make, (columns, inner)), make(columns)))
    yield Sample((make((2, 3, 33)), make((5, 33)), make(5)), label="a stack")
    yield Sample((make((2, 3, 33)), make((5, 33))), label="a stack without a bias")
    yield Sample((unit(make, (16, 64)), unit(make, (32, 64))), {"activation": "gelu_tanh"}, "gelu without a bias")
    for activation in ("relu", "gelu_tanh"):
        arrays = unit(make, (16, 64)), unit(make, (32, 64)), make(32)
        yield Sample(arrays, {"activation": activation}, activation)
        small = unit(make, (3, 5)), unit(make, (4, 5)), make(4)  # small enough for differences
        yield Sample(small, {"activation": activation}, f"{activation} of few rows")
    yield Sample((make(33), make((5, 33)), make(5)), label="a vector", kind="scalar")
    yield from (Sample((make(shape), make((3, shape[1])), make(3)), kind="empty") for shape in ((0, 4), (4, 0)))


def _linear_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(
        Sample((make((2, 3)), make((4, 2)), make(4)), label="inner extents differ"), ShapeError, "linear needs"
    )
    yield ErrorInput(
        Sample((make((2, 3)), make((4, 3)), make(3)), label="a bias too short"), ShapeError, "linear needs"
    )


def _linear(a: Array, weight: Array, bias: Any = 0.0, *, activation: str | None = None) -> Array:
    return activated(np.asarray(a @ weight.T + bias), activation)


def _linear_magnitude(a: Array, weight: Array, bias: Any = 0.0, **named: Any) -> Array:
    return np.asarray(np.abs(a) @ np.abs(weight).T + np.abs(bias))


def _linear_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    rows = sizes.batch * sizes.length
    yield Sample((make((rows, sizes.width)), make((4 * sizes.width, sizes.width)), make(4 * sizes.width)))


def _linear_work(a: Array, weight: Array, bias: Array | None = None, *, activation: str | None = None) -> Work:
    written = a.size // a.shape[-1] * weight.shape[0]
    added = 0 if bias is None else bias.nbytes
    flops = (2 * a.shape[-1] + (bias is not None)) * written
    return Work(bytes=a.nbytes + weight.nbytes + added + written * a.itemsize, flops=flops)


def _mm(a: Array, b: Array, *, out_dtype: str | None = None) -> Array:
    return np.asarray(np.matmul(a, b))


def _inner(a: Array, b: Array, **named: Any) -> int:
    return int(a.shape[-1])


def _projection(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield next(_projections(make, sizes))


def _heads(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the scores of a layer's heads."""
    *_, scores = _projections(make, sizes)
    yield scores


def _masked_heads(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the scores, and a mask that is added to all of them."""
    *_, scores = _projections(make, sizes)
    yield Sample((make((sizes.length, sizes.length)), *scores.args), {"alpha": 0.125})


def _mm_work(a: Array, b: Array, **named: Any) -> Work:
    return _product_work(a, b)


#: Allows for the epilogue's tanh, and for a second rounding if a library does not fuse it.
ACTIVATED = Tolerance(ulps=8, growth="sqrt", roundings=2)

SPECS = (
    OpSpec(
        op=ops.matmul, samples=_products, reference=np.matmul, error_inputs=_mismatched, bench=_projections,
        supports_grad=True,
        terms=lambda a, b: a.shape[-1], magnitude=lambda a, b: np.matmul(np.abs(a), np.abs(b)), work=_product_work,
    ),
    OpSpec(
        op=ops.mm, supports_grad=True, samples=_mms, reference=_mm, error_inputs=_mm_errors, bench=_projection,
        like={"sim": "cpu"},
        terms=_inner, magnitude=lambda a, b, **named: np.matmul(np.abs(a), np.abs(b)), work=_mm_work,
    ),
    OpSpec(
        op=ops.bmm, supports_grad=True, samples=_bmms, reference=_mm, error_inputs=_bmm_errors, bench=_heads,
        like={"sim": "cpu"},
        terms=_inner, magnitude=lambda a, b, **named: np.matmul(np.abs(a), np.abs(b)), work=_mm_work,
    ),
    OpSpec(
        op=ops.addmm, supports_grad=True, samples=_addmms, reference=_addmm, error_inputs=_addmm_errors, bench=_biased,
        terms=lambda c, a, b, **named: a.shape[-1], magnitude=_addmm_magnitude, work=_addmm_work, tolerance=ACTIVATED,
    ),
    OpSpec(
        op=ops.baddbmm, samples=_baddbmms, reference=_addmm, error_inputs=_baddbmm_errors, bench=_masked_heads,
        like={"sim": "cpu"},
        supports_grad=True,
        terms=lambda c, a, b, **named: a.shape[-1], magnitude=_addmm_magnitude, work=_addmm_work,
    ),
    OpSpec(
        op=ops.linear, supports_grad=True, samples=_linears, reference=_linear, error_inputs=_linear_errors,
        like={"sim": "cpu"},
        terms=lambda a, weight, bias=None, **named: a.shape[-1], bench=_linear_bench, work=_linear_work,
        magnitude=_linear_magnitude, tolerance=ACTIVATED,
    ),
)  # fmt: skip
