"""OpSpecs of grouped and fp8 products; implemented in ``devices/cpu/linalg.py`` and ``devices/cuda/blas``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples
from cuassay.testing.specs.linalg import unit
from cuassay.testing.tolerance import Tolerance

__all__ = ["SPECS"]

Array = NDArray[Any]
Shape = tuple[int, ...]


def _grouped(make: Samples) -> Iterator[Sample]:
    for offs in ((7, 9, 30), (0, 30, 30), (3, 5, 8)):
        yield Sample((unit(make, (30, 16)), unit(make, (3, 16, 8))), {"offs": offs}, f"groups end at {offs}")
    yield Sample((make((0, 3)), make((1, 3, 2))), {"offs": (0,)}, kind="empty")


def _grouped_errors(make: Samples) -> Iterator[ErrorInput]:
    arrays = make((4, 3)), make((2, 3, 2))
    for offs in ((4,), (3, 2), (2, 5), (1.0, 4.0)):
        yield ErrorInput(Sample(arrays, {"offs": offs}, f"offs {offs}"), ArgumentError, "ascending whole numbers")
    yield ErrorInput(Sample((make((4, 2)), arrays[1]), {"offs": (2, 4)}), ShapeError, "grouped_mm needs")


def _grouped_reference(a: Array, b: Array, *, offs: tuple[int, ...]) -> Array:
    starts, out = (0, *offs), np.zeros((len(a), b.shape[2]), np.result_type(a, b))
    for group, (first, last) in enumerate(pairwise(starts)):
        out[first:last] = a[first:last] @ b[group]
    return out


def _scaled(make: Samples) -> Iterator[Sample]:
    """Yield fp8 operands, or their codes; b with contiguous columns, as libraries want it, and not; K of 16 and not."""
    of_a = make.dtype if make.dtype != "uint8" else "float8_e4m3fn"
    named = {"format_a": of_a, "format_b": "float8_e4m3fn"} if make.dtype == "uint8" else {}
    of_b = "float8_e4m3fn" if named else make.dtype
    for m, k, n in ((16, 32, 16), (64, 128, 48), (5, 33, 7), (1, 16, 1), (64, 128, 1), (1, 128, 48), (64, 128, 7)):
        a, b = (_codes(make, shape, name) for shape, name in (((m, k), of_a), ((n, k), of_b)))
        one = (make.full(1, 0.5, dtype="float32"), make.full(1, 3.0, dtype="float32"))
        yield Sample((a, np.ascontiguousarray(b.T), *one, None), named)
        rows = make((m, 1), low=0.5, high=2, dtype="float32"), make((1, n), low=0.5, high=2, dtype="float32")
        yield Sample(
            (a, np.ascontiguousarray(b.T), *rows, None), {**named, "out_dtype": "float32"}, "by row and column"
        )
    bias = make(16, dtype="bfloat16")
    a, b = _codes(make, (16, 64), of_a), _codes(make, (64, 16), of_b)
    yield Sample((a, b, *one, bias), named, "a bias")
    yield Sample((a[:0], b, *one, None), named, kind="empty")


def _codes(make: Samples, shape: Shape, name: str) -> Array:
    values = make(shape, low=-2, high=2, dtype="float32").values.astype(as_dtype(name))
    return values.view(np.uint8) if make.dtype == "uint8" else values


def _scaled_reference(
    a: Array, b: Array, scale_a: Array, scale_b: Array, bias: Array | None, *, format_a: str | None = None,
    format_b: str | None = None, out_dtype: str = "bfloat16",
) -> Array:  # fmt: skip
    product = _decoded(a, format_a) @ _decoded(b, format_b) * (scale_a * scale_b)
    return np.asarray(product if bias is None else product + bias)


def _decoded(codes: Array, name: str | None) -> Array:
    if name is None:
        return codes
    return np.arange(256, dtype=np.uint8).view(as_dtype(name)).astype(np.float64)[codes]


def _scaled_magnitude(a: Array, b: Array, scale_a: Array, scale_b: Array, bias: Array | None, **named: Any) -> Array:
    wide = (np.abs(_decoded(x, named.get(f"format_{name}"))) for name, x in (("a", a), ("b", b)))
    return np.asarray(next(wide) @ next(wide) * (scale_a * scale_b) + (0 if bias is None else np.abs(bias)))


def _scaled_errors(make: Samples) -> Iterator[ErrorInput]:
    name = make.dtype if make.dtype != "uint8" else "float8_e4m3fn"
    named = {"format_a": name, "format_b": name} if make.dtype == "uint8" else {}
    a, b = _codes(make, (4, 16), name), _codes(make, (16, 8), name)
    one, two = make.full(1, 1, dtype="float32"), make.full(2, 1, dtype="float32")
    yield ErrorInput(Sample((a, b, one, two, None), named, "two scales"), ShapeError, "scales must have")
    yield ErrorInput(Sample((a, b, one, one, make(4, dtype="bfloat16")), named, "bias"), ShapeError, "bias must have")
    wrong = {"format_a": "float8_e5m3"}
    yield ErrorInput(Sample((a, b, one, one, None), wrong, "no such format"), DTypeError, "scaled_mm's a is")
    for dtype in ("int8", "complex64"):
        wrong = {**named, "out_dtype": dtype}
        yield ErrorInput(Sample((a, b, one, one, None), wrong, f"to {dtype}"), DTypeError, "out_dtype must be one of")
    unnamed = {**named, "out_dtype": None}
    yield ErrorInput(Sample((a, b, one, one, None), unnamed, "to nothing"), ArgumentError, "needs out_dtype")


def _experts(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the rows of a batch, spread evenly over eight experts."""
    rows = sizes.batch * sizes.length
    offs = tuple(range(rows // 8, rows + 1, rows // 8))
    yield Sample((make((rows, sizes.width)), make((8, sizes.width, sizes.width))), {"offs": offs})


def _grouped_work(a: Array, b: Array, *, offs: tuple[int, ...]) -> Work:
    return Work(bytes=2 * a.nbytes + b.nbytes, flops=2 * a.size * b.shape[2])


def _scaled_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a layer's widening projection in fp8, with the weight as layers store it."""
    name = make.dtype if make.dtype != "uint8" else "float8_e4m3fn"
    named = {"format_a": name, "format_b": name} if make.dtype == "uint8" else {}
    one = make.full(1, 1, dtype="float32")
    a = _codes(make, (sizes.batch * sizes.length, sizes.width), name)
    yield Sample((a, _codes(make, (sizes.width, 4 * sizes.width), name), one, one, None), named)


#: Tensor cores of Hopper keep about 14 bits of a sum of fp8 products: 2**-13 is 1,024 units of float32.
_TENSOR_CORE_FP8 = Tolerance(ulps=1024)

SPECS = (
    OpSpec(
        op=ops.grouped_mm, samples=_grouped, reference=_grouped_reference, error_inputs=_grouped_errors,
        like={"sim": "cpu"},
        supports_grad=True,
        bench=_experts, work=_grouped_work,
        terms=lambda a, b, *, offs: a.shape[-1],
        magnitude=lambda a, b, *, offs: _grouped_reference(np.abs(a), np.abs(b), offs=offs),
    ),
    OpSpec(
        op=ops.scaled_mm, samples=_scaled, reference=_scaled_reference, error_inputs=_scaled_errors,
        like={"sim": "cpu"},
        bench=_scaled_bench,
        terms=lambda a, *others, **named: a.shape[-1], magnitude=_scaled_magnitude, tolerance=_TENSOR_CORE_FP8,
    ),
)  # fmt: skip
