"""OpSpecs of grouped products, and of products with fp8 operands or integer weights.

They are implemented in ``devices/cpu/linalg.py`` and ``devices/cuda/blas``.
"""

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
from cuassay.testing.samples import HostArray, Sample, Samples
from cuassay.testing.specs.linalg import ACTIVATED, activated, unit
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


# ------------------------------------------------------------------------------------------------ integer weights


def _mixed(make: Samples) -> Iterator[Sample]:
    """Yield weights of both kinds with one scale a row and one a group; few rows and many; odd extents, and a bias."""
    for m, k, n in ((1, 64, 8), (5, 96, 7), (16, 256, 130), (9, 1024, 70), (33, 512, 65), (3, 6, 5), (67, 256, 24)):
        for bits in (8, 4):
            arrays = unit(make, (m, k)), _integers(make, (n, k), bits)
            yield Sample((*arrays, _scales(make, n), None), label=f"{bits} bits")
            if k % 128 == 0:
                yield Sample((*arrays, _scales(make, n, k // 128), None), label=f"{bits} bits, groups of 128")
    halves = _integers(make, (24, 96), 4), _scales(make, 24, 3)
    yield Sample((unit(make, (2, 3, 96)), *halves, make((24,))), label="a stack, groups of 32, and a bias")
    yield Sample((unit(make, (96,)), *halves, None), label="a vector")
    wide = _integers(make, (40, 64), 8), make((40,), low=0.5, high=2)
    for activation in ("relu", "gelu_tanh"):
        for rows in (6, 70):
            yield Sample(
                (unit(make, (rows, 64)), *wide, make((40,))), {"activation": activation}, f"{activation} of {rows} rows"
            )
    yield Sample((make((0, 64)), *wide, None), kind="empty")
    yield Sample((make((3, 0)), make((4, 0), dtype="int8"), _scales(make, 4), None), kind="empty")


def _integers(make: Samples, shape: Shape, bits: int) -> HostArray:
    if bits == 8:
        return make(shape, low=-128, high=127, dtype="int8")
    return make((shape[0], shape[1] // 2), low=0, high=255, dtype="uint8")


def _scales(make: Samples, *shape: int) -> HostArray:
    return make(shape, low=2.0**-8, high=2.0**-6, dtype="float32")


def _numbers(a: Array, weight: Array) -> Array:
    """The weights as integers; uint8 holds two numbers of 4 bits, the first in its low half."""
    if weight.shape[1] == a.shape[-1]:
        return weight
    low, high = weight.astype(np.int64) % 16, weight.astype(np.int64) // 16
    both = np.stack((low, high), axis=-1).reshape(len(weight), -1)
    return np.where(both > 7, both - 16, both)


def _mixed_reference(
    a: Array, weight: Array, scale: Array, bias: Array | None, *, activation: str | None = None
) -> Array:
    numbers, scale = _numbers(a, weight), scale.reshape(len(weight), -1)
    group = a.shape[-1] // scale.shape[1]
    parts = (slice(start, start + group) for start in range(0, a.shape[-1], max(group, 1)))
    sums = sum(((a[..., part] @ numbers[:, part].T) * scale[:, i] for i, part in enumerate(parts)), _nothing(a, weight))
    return np.asarray(activated(sums if bias is None else sums + bias, activation))


def _nothing(a: Array, weight: Array) -> Array:
    return np.zeros((*a.shape[:-1], len(weight)), a.dtype)


def _mixed_magnitude(
    a: Array, weight: Array, scale: Array, bias: Array | None, *, activation: str | None = None
) -> Array:
    numbers = np.abs(_numbers(a, weight).astype(np.float64))
    return _mixed_reference(np.abs(a), numbers, np.abs(scale), None if bias is None else np.abs(bias))


def _mixed_errors(make: Samples) -> Iterator[ErrorInput]:
    a, weight, scale = make((3, 8)), make((4, 8), dtype="int8"), make((4,), dtype="float32")
    yield ErrorInput(Sample((a, make((4, 8)), scale, None), label="floats"), DTypeError, "weight must be one of")
    packed = make((4, 8), dtype="uint8")
    yield ErrorInput(Sample((a, packed, scale, None), label="K bytes of 4 bits"), ShapeError, "needs inputs")
    yield ErrorInput(Sample((make((3, 9)), weight, scale, None), label="another K"), ShapeError, "needs inputs")
    for shape in ((3,), (4, 3), (4, 0), (1, 4)):
        wrong = Sample((a, weight, make(shape, dtype="float32"), None), label=f"scales {shape}")
        yield ErrorInput(wrong, ShapeError, "scale must have shape")
    whole = Sample((a, weight, make((4,), dtype="int32"), None), label="whole scales")
    yield ErrorInput(whole, DTypeError, "scale must be one of")
    yield ErrorInput(Sample((a, weight, scale, make((3,))), label="a bias of 3"), ShapeError, "bias must have")
    named = Sample((a, weight, scale, None), {"activation": "tanh"}, "no such activation")
    yield ErrorInput(named, ArgumentError, "activation must be one of")


def _mixed_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a layer's widening projection of 16 tokens, with weights of 8 bits, and of 4 bits in groups of 128."""
    a, n = make((16, sizes.width)), 4 * sizes.width
    yield Sample((a, _integers(make, (n, sizes.width), 8), _scales(make, n), None), label="8 bits")
    groups = sizes.width // 128
    yield Sample((a, _integers(make, (n, sizes.width), 4), _scales(make, n, groups), None), label="4 bits")


def _mixed_work(a: Array, weight: Array, scale: Array, bias: Array | None, **named: Any) -> Work:
    rows = a.size // a.shape[-1]
    read = a.nbytes + weight.nbytes + scale.nbytes
    return Work(bytes=read + rows * len(weight) * a.itemsize, flops=2 * a.size * len(weight))


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
    OpSpec(
        op=ops.mixed_linear, samples=_mixed, reference=_mixed_reference, error_inputs=_mixed_errors,
        like={"sim": "cpu"},
        bench=_mixed_bench, work=_mixed_work,
        terms=lambda a, *others, **named: a.shape[-1], magnitude=_mixed_magnitude, tolerance=ACTIVATED,
    ),
)  # fmt: skip
