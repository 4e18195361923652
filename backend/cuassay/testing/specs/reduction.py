"""OpSpecs of reductions and row-wise normalizations; implemented in ``reduction.py`` and ``normalization.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import INTEGERS, largest
from cuassay.errors import DTypeError, ShapeError
from cuassay.testing.default_samples import AWKWARD, promoting
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples

__all__ = [
    "SPECS",
    "attention",
    "bad_axes",
    "logits",
    "maxima",
    "no_maximum",
    "reduction_work",
    "reductions",
    "row_work",
    "rows",
    "softmax_errors",
    "softmax_magnitude",
    "terms",
    "weights",
]

Array = NDArray[Any]

#: Shapes and reduced axes: rows, columns, the middle, several axes, and extents around a warp and a block.
_REDUCED: tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...] = (
    ((33, 129), {"axis": 0}),
    ((33, 129), {"axis": 1}),
    ((33, 129), {"axis": -1, "keepdims": True}),
    ((5, 33, 7), {"axis": 1}),
    ((5, 33, 7), {"axis": (0, 2)}),
    ((5, 33, 7), {"axis": (-1, 0), "keepdims": True}),
    ((5, 33, 7), {"axis": None, "keepdims": True}),
    ((2, 1025), {"axis": 1}),
    ((1025, 2), {"axis": 0}),
    ((2, 1025, 5), {"axis": 1}),
    ((20_001, 3), {"axis": 0}),
    ((130, 64), {"axis": 0}),
)


def reductions(make: Samples) -> Iterator[Sample]:
    """Yield arrays to reduce along rows, columns and several axes, and special numbers of the dtype."""
    yield from (Sample((make(extent),)) for extent in AWKWARD)
    yield from (Sample((make(shape),), kwargs) for shape, kwargs in _REDUCED)
    yield Sample((make(()),), kind="scalar")
    yield Sample((make.extremal(),), kind="extremal")
    yield Sample((make.of([1, 2, 0, 3]),), label="finite", kind="extremal")


def _sums(make: Samples) -> Iterator[Sample]:
    yield from reductions(make)
    # 256 + 1 is 256 in bfloat16, and 2,048 + 1 is 2,048 in float16, so only a wider accumulator gives 4,096.
    yield Sample((make.full(4096, 1),), label="4,096 ones")
    yield Sample((make.full((3, 4096), 1),), {"axis": 1}, label="rows of 4,096 ones")
    yield Sample((make.full((4096, 3), 1),), {"axis": 0}, label="columns of 4,096 ones")
    yield Sample((make(100_000, low=-1, high=1),), label="100,000 terms")
    # The sum of 24 of these, a thread's share, is not a bfloat16 number. If rounded, all shares would err alike.
    yield Sample((make.full((3, 5000), 1 + 2**-7),), {"axis": 1}, label="rows of 5,000 times 1.0078125")
    yield from (Sample((make((0, 3)),), {"axis": axis}, kind="empty") for axis in (None, 0, 1))


def maxima(make: Samples) -> Iterator[Sample]:
    """Yield the samples of `reductions`, and further ones at which maxima go wrong."""
    yield from reductions(make)
    yield Sample((make(4097, low=-3, high=-1),), label="all negative")
    if make.dtype in INTEGERS:  # these numbers also exceed 32 bits
        limits = np.iinfo(make.dtype)
        for end, word in ((limits.min, "least"), (limits.max, "largest")):
            near = make((3, 300), low=1, high=9).values
            yield Sample((near + limits.min if end < 0 else end - near,), {"axis": 1}, f"all next to the {word}")
    yield Sample((make((0, 3)),), {"axis": 1}, kind="empty")
    if make.dtype not in ("bool", *INTEGERS):
        for axis in (0, 1):
            yield Sample((make.full((3, 257), -np.inf),), {"axis": axis}, f"nothing but -inf, axis {axis}", "extremal")
        for places in ((0, 128), (3, 131), (7, 200, 256)):  # the first of several NaN counts
            row = make((3, 257)).values.copy()
            row[1, places] = np.nan
            yield Sample((row,), {"axis": 1}, f"NaN at {places}", "extremal")
        for position in (0, 130, 256):
            row = make((3, 257)).values.copy()
            row[1, position] = np.nan
            yield Sample((row,), {"axis": 1}, f"NaN at {position}", "extremal")


def rows(make: Samples) -> Iterator[Sample]:
    """Yield rows of all lengths, and masked ones."""
    yield from (Sample((make((3, extent)),)) for extent in AWKWARD)
    yield from (Sample((make((5, 33, 7)),), {"axis": axis}) for axis in (0, 1, -1))
    yield Sample((make((2, 33), low=80, high=90),), label="would overflow unshifted")
    yield Sample((make((2, 2500), low=0, high=1),), label="a long row")
    # Too wide for one multiprocessor to hold two rows, so that blocks share a row; ascending, so that maxima differ.
    wide = make((2, 57_601)).values
    yield Sample((np.sort(wide.astype(np.float64)).astype(wide.dtype),), label="a wide row that rises")
    yield from (Sample((make(shape),), kind="empty") for shape in ((0, 3), (3, 0)))
    yield Sample((make(1),), label="one element", kind="scalar")
    row = make((3, 33)).values.copy()
    row[0, 3], row[1, 32], row[2, :] = np.nan, -np.inf, -np.inf
    yield Sample((row,), label="NaN, -inf, and nothing but -inf", kind="extremal")
    yield Sample((np.array([[np.inf, 1.0], [-np.inf, 1.0]]).astype(row.dtype),), label="inf", kind="extremal")
    most = largest(make.dtype)
    for value in sorted({-1e4, max(-1e10, -most), -most, most}):  # rows that are masked entirely, by any number
        for extent in (33, 2500, 57_601):
            masked = make.full((2, extent), value)
            yield Sample((masked,), label=f"{extent} times {value:g}", kind="extremal")
    row = make.full((2, 33), -most).values
    row[:, 7] = 1
    yield Sample((row,), label="all but one masked", kind="extremal")


def weights(make: Samples) -> Iterator[Sample]:
    """Yield `rows`, numbers far from zero and close together, and results of other dtypes."""
    yield from rows(make)
    yield Sample((make((3, 33), low=9999, high=10001),), {}, "far from zero")
    for dtype in ("bfloat16", "float64"):
        yield Sample((make((5, 33)),), {"dtype": dtype}, f"to {dtype}")


def _softmax(a: Array, *, axis: int = -1, dtype: Any = None) -> Array:
    if not a.size:
        return a
    weights = np.exp(a - np.max(a, axis=axis, keepdims=True))
    return np.asarray(weights / np.sum(weights, axis=axis, keepdims=True))


def softmax_magnitude(a: Array, *, axis: int = -1, dtype: Any = None) -> Array:
    """The argument of exp is rounded, so the error is relative to its distance from the maximum."""
    if not a.size:
        return a
    return np.asarray(_softmax(a, axis=axis) * (1 + np.nan_to_num(np.ptp(a, axis=axis, keepdims=True))))


#: Beyond this length other kernels compute a row; eps must have an effect on their results too.
_LONG = 4096


def _normal_rows(make: Samples) -> Iterator[Sample]:
    for extent in AWKWARD:
        more = {"eps": 0.5} if extent > _LONG else {}
        yield Sample((make((3, extent)), make(extent), make(extent)), more, f"3x{extent}")
    yield Sample((make((2, 3, 33)), make(33), make(33)), {"eps": 0.5}, "a large eps")
    yield Sample((make.full((2, 33), 2), make(33), make(33)), label="rows without variance")
    yield Sample((make((3, 768), low=999, high=1001), make(768), make(768)), label="a mean far from zero")
    long = make((2, 2500), low=9, high=11), make(2500), make(2500)
    yield Sample(long, label="a long row, its mean far from zero")
    for extent, more in ((120_001, {}), (120_008, {"eps": 0.5})):  # not divisible, and divisible, by vectors
        wide = make((2, extent)), make(extent), make(extent)
        yield Sample(wide, more, f"rows of {extent:,}, more than the shared memory of a block")
    yield from (Sample((make(shape), make(shape[-1]), make(shape[-1])), kind="empty") for shape in ((0, 5), (3, 0)))
    yield Sample((make(7), make(7), make(7)), label="a single row", kind="scalar")
    row = make((3, 33)).values.copy()
    row[1, 5] = np.nan
    yield Sample((row, make(33), make(33)), label="NaN stays in its row", kind="extremal")
    for other in promoting(make.dtype, "float16", "float32", "float64"):
        vectors = make(33, dtype=other), make(33, dtype=other)
        yield Sample((make((2, 33)), *vectors), label=f"{other} weights", kind="promotion")


def _layer_norm(a: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> Array:
    return _normal(a, eps) * weight + bias


def _normal(a: Array, eps: float) -> Array:
    if not a.size:
        return a
    centred = a - a.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps))


def _layer_norm_magnitude(a: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> Array:
    """The mean is subtracted, so the error is relative to the largest element divided by the deviation."""
    if not a.size:
        return a
    deviation = np.sqrt(a.var(axis=-1, keepdims=True) + eps)
    largest = np.max(np.abs(a), axis=-1, keepdims=True) / deviation
    return np.asarray((largest + np.abs(_normal(a, eps))) * np.abs(weight) + np.abs(bias))


def _softmax_gradients(make: Samples) -> Iterator[Sample]:
    for extent in AWKWARD:
        yield Sample((make((3, extent)), make((3, extent), low=0, high=1)), label=f"3x{extent}")
    for shape, axis in (((5, 33, 7), 1), ((33, 5), 0), ((2, 3, 4), -1)):
        yield Sample((make(shape), make(shape, low=0, high=1)), {"axis": axis})
    for extent in (2501, 4096):
        yield Sample((make((2, extent)), make((2, extent), low=0, high=1)), label=f"rows of {extent:,}")
    yield from (Sample((make(shape), make(shape)), kind="empty") for shape in ((0, 5), (3, 0)))
    for other in promoting(make.dtype, "float16", "float32", "float64"):
        yield Sample((make((2, 33)), make((2, 33), dtype=other)), label=f"with {other}", kind="promotion")


def _softmax_backward(grad: Array, result: Array, *, axis: int = -1) -> Array:
    return np.asarray(result * (grad - np.sum(grad * result, axis=axis, keepdims=True)))


def _softmax_backward_magnitude(grad: Array, result: Array, *, axis: int = -1) -> Array:
    return np.asarray(np.abs(result) * (np.abs(grad) + np.sum(np.abs(grad * result), axis=axis, keepdims=True)))


def _softmax_backward_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((2, 3)), make((2, 3))), {"axis": 2}, "an axis too many"), ShapeError, "axis")
    yield ErrorInput(Sample((make(3), make((2, 3))), label="a row as gradient"), ShapeError, "must have the shape")


def _normal_gradients(make: Samples) -> Iterator[Sample]:
    for extent in AWKWARD:
        yield Sample((make((3, extent)), make((3, extent)), make(extent)), label=f"3x{extent}")
    yield Sample((make((2, 3, 33)), make((2, 3, 33)), make(33)), {"eps": 0.5}, "a large eps")
    yield Sample((make((100, 40)), make((100, 40)), make(40)), label="rows for several blocks")
    yield Sample((make((3, 768)), make((3, 768), low=9, high=11), make(768)), label="a mean far from zero")
    for extent, more in ((2500, {}), (4096, {"eps": 0.5})):
        yield Sample((make((2, extent)), make((2, extent)), make(extent)), more, f"rows of {extent:,}")
    yield from (Sample((make(shape), make(shape), make(shape[-1])), kind="empty") for shape in ((0, 5), (3, 0)))
    yield Sample((make(7), make(7), make(7)), label="a single row", kind="scalar")
    for other in promoting(make.dtype, "float16", "float32", "float64"):
        yield Sample((make((2, 33)), make((2, 33)), make(33, dtype=other)), label=f"{other} weights", kind="promotion")


def _layer_norm_backward(grad: Array, a: Array, weight: Array, *, eps: float = 1e-5) -> Array:
    if not a.size:
        return a
    weighted, normal = grad * weight, _normal(a, eps)
    found = weighted - weighted.mean(axis=-1, keepdims=True)
    found = found - normal * (weighted * normal).mean(axis=-1, keepdims=True)
    return np.asarray(found / np.sqrt(a.var(axis=-1, keepdims=True) + eps))


def _layer_norm_backward_magnitude(grad: Array, a: Array, weight: Array, *, eps: float = 1e-5) -> Array:
    """The mean is subtracted, so a normalized row's error is relative to its largest element over the deviation."""
    if not a.size:
        return a
    deviation = np.sqrt(a.var(axis=-1, keepdims=True) + eps)
    normal, weighted = 1 + np.max(np.abs(a), axis=-1, keepdims=True) / deviation, np.abs(grad * weight)
    mean = weighted.mean(axis=-1, keepdims=True)
    return np.asarray((weighted + mean + normal**2 * mean) / deviation)


def _layer_norm_backward_errors(make: Samples) -> Iterator[ErrorInput]:
    a = make((2, 3))
    yield ErrorInput(Sample((a, a, make(2)), label="a weight too short"), ShapeError, "weight")
    yield ErrorInput(Sample((make(3), a, make(3)), label="a row as gradient"), ShapeError, "must have the shape")


def _attention_gradients(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    for (scores,) in (sample.args for sample in attention(make, sizes)):
        yield Sample((make(scores.shape), make(scores.shape, low=0, high=1)))


def _hidden_gradients(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    shape = (sizes.batch, sizes.length, sizes.width)
    yield Sample((make(shape), make(shape), make(sizes.width)))


def terms(a: Array, *, axis: Any = None, keepdims: bool = False) -> int:
    """The number of elements that are reduced to one result."""
    return a.size // max(int(np.sum(np.ones(a.shape, bool), axis=axis).size), 1)


def bad_axes(make: Samples) -> Iterator[ErrorInput]:
    """Yield axes that do not exist, or that are repeated."""
    yield ErrorInput(Sample((make((2, 3)),), {"axis": 2}, "an axis too many"), ShapeError, "axis")
    yield ErrorInput(Sample((make((2, 3)),), {"axis": (0, -2)}, "an axis twice"), ShapeError, "twice")


def no_maximum(make: Samples) -> Iterator[ErrorInput]:
    """Yield `bad_axes`, and an array without elements."""
    yield from bad_axes(make)
    yield ErrorInput(Sample((make((0, 3)),), {"axis": 0}, "no elements"), ShapeError, "no elements")


def softmax_errors(make: Samples) -> Iterator[ErrorInput]:
    """Yield axes that do not exist, and unsupported dtypes."""
    yield ErrorInput(Sample((make((2, 3)),), {"axis": 2}, "an axis too many"), ShapeError, "axis")
    yield ErrorInput(Sample((make(3, dtype="int32"),), label="integers"), DTypeError, "not defined for int32")
    yield ErrorInput(Sample((make(3),), {"dtype": "int32"}, "to integers"), DTypeError, "softmax gives one of")


def _layer_norm_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((2, 3)), make(2), make(3)), label="a weight too short"), ShapeError, "weight")
    yield ErrorInput(Sample((make((2, 3)), make(3), make((2, 3))), label="a bias of two axes"), ShapeError, "bias")
    yield ErrorInput(Sample((make(()), make(1), make(1)), label="0-d"), ShapeError, "0-d")


def attention(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the scores of a layer, and the logits of the last one."""
    yield Sample((make((sizes.batch, sizes.heads, sizes.length, sizes.length)),))
    yield Sample((make((sizes.batch * sizes.length // 8, sizes.vocabulary)),))


def _hidden(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((make((sizes.batch, sizes.length, sizes.width)), make(sizes.width), make(sizes.width)))


def logits(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a batch to reduce along columns and along rows."""
    yield Sample((make((sizes.batch * sizes.length, sizes.width)),), {"axis": 0})
    yield Sample((make((sizes.batch * sizes.length, 4 * sizes.width)),), {"axis": -1})


def row_work(steps: int) -> Any:
    """The work of reading every array, and writing one like the first; `steps` operations for each of its elements."""
    return lambda a, *more, **scalars: Work(bytes=2 * a.nbytes + sum(b.nbytes for b in more), flops=steps * a.size)


def reduction_work(a: Array, *, axis: Any = None, keepdims: bool = False) -> Work:
    """The work of reading every element, and writing the results."""
    return Work(bytes=a.nbytes + a.nbytes // max(terms(a, axis=axis), 1), flops=a.size)


def _sum_reference(a: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    wide = a.astype(np.int64) if a.dtype == np.bool_ else a
    return np.asarray(np.sum(wide, axis=axis, keepdims=keepdims))


SPECS = (
    OpSpec(
        op=ops.softmax, samples=weights, reference=_softmax, error_inputs=softmax_errors, bench=attention,
        supports_grad=True,
        terms=lambda a, *, axis=-1, dtype=None: a.shape[axis], work=row_work(5),
        magnitude=softmax_magnitude,
    ),
    OpSpec(
        op=ops.layer_norm, samples=_normal_rows, reference=_layer_norm, error_inputs=_layer_norm_errors, bench=_hidden,
        like={"sim": "cpu"},
        supports_grad=True,
        terms=lambda a, weight, bias, **scalars: a.shape[-1], magnitude=_layer_norm_magnitude, work=row_work(8),
    ),
    OpSpec(
        op=ops.softmax_backward, samples=_softmax_gradients, reference=_softmax_backward,
        error_inputs=_softmax_backward_errors, bench=_attention_gradients,
        terms=lambda grad, result, *, axis=-1: result.shape[axis], work=row_work(4),
        magnitude=_softmax_backward_magnitude,
    ),
    OpSpec(
        op=ops.layer_norm_backward, samples=_normal_gradients, reference=_layer_norm_backward,
        error_inputs=_layer_norm_backward_errors, bench=_hidden_gradients,
        terms=lambda grad, a, weight, **scalars: a.shape[-1], magnitude=_layer_norm_backward_magnitude,
        work=row_work(14),
    ),
    OpSpec(
        op=ops.sum, supports_grad=True, samples=_sums, reference=_sum_reference, error_inputs=bad_axes, bench=logits,
        terms=terms, work=reduction_work, magnitude=lambda a, **scalars: _sum_reference(np.abs(a), **scalars),
    ),
    OpSpec(
        op=ops.amax, samples=maxima, reference=np.amax, error_inputs=no_maximum, bench=logits, work=reduction_work,
        like={"sim": "cpu"},
        supports_grad=True,
    ),
)  # fmt: skip
