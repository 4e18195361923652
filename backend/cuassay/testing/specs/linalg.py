"""OpSpecs of matrix products: implemented in ``devices/<kind>/linalg.py`` (on cuda also ``gemm.py``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples, promoting
from cuassay.testing.tolerance import Tolerance

__all__ = ["SPECS"]

Array = NDArray[Any]
Shape = tuple[int, ...]

#: Extents around tiles of 16, 32 and 128, vectors, stacks, and stacks that broadcast.
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
    """One layer's widening projection, and the scores of its heads."""
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


def _linears(make: Samples) -> Iterator[Sample]:
    for rows, inner, columns in ((1, 1, 1), (3, 33, 5), (31, 129, 65), (2, 1025, 3)):
        yield Sample((make((rows, inner), low=-1, high=1), make((columns, inner), low=-1, high=1), make(columns)))
    yield Sample((make((2, 3, 33)), make((5, 33)), make(5)), label="a stack")
    yield Sample((make(33), make((5, 33)), make(5)), label="a vector", kind="scalar")
    yield from (Sample((make((rows, 4)), make((3, 4)), make(3)), kind="empty") for rows in (0,))


def _linear_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(
        Sample((make((2, 3)), make((4, 2)), make(4)), label="inner extents differ"), ShapeError, "linear needs"
    )
    yield ErrorInput(
        Sample((make((2, 3)), make((4, 3)), make(3)), label="a bias too short"), ShapeError, "linear needs"
    )


def _linear_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    rows = sizes.batch * sizes.length
    yield Sample((make((rows, sizes.width)), make((4 * sizes.width, sizes.width)), make(4 * sizes.width)))


def _linear_work(a: Array, weight: Array, bias: Array) -> Work:
    rows = a.size // a.shape[-1]
    written = rows * bias.size
    return Work(
        bytes=a.nbytes + weight.nbytes + bias.nbytes + written * a.itemsize, flops=(2 * a.shape[-1] + 1) * written
    )


SPECS = (
    OpSpec(
        op=ops.matmul, samples=_products, reference=np.matmul, error_inputs=_mismatched, bench=_projections,
        terms=lambda a, b: a.shape[-1], magnitude=lambda a, b: np.matmul(np.abs(a), np.abs(b)), work=_product_work,
    ),
    OpSpec(
        op=ops.linear, samples=_linears, reference=lambda a, weight, bias: a @ weight.T + bias,
        error_inputs=_linear_errors,
        terms=lambda a, weight, bias: a.shape[-1], bench=_linear_bench, work=_linear_work,
        magnitude=lambda a, weight, bias: np.abs(a) @ np.abs(weight).T + np.abs(bias),
        tolerance=Tolerance(ulps=2, growth="sqrt", roundings=2),  # where it is composed of matmul and add
    ),
)  # fmt: skip
