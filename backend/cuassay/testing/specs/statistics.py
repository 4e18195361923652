"""OpSpecs of further reductions, and of operations composed of them; implemented in ``devices/<kind>/reduction.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import INTEGERS, as_dtype
from cuassay.errors import ArgumentError, ShapeError
from cuassay.testing.declared import ModelSizes
from cuassay.testing.opspec import ErrorInput, OpSpec, Work
from cuassay.testing.samples import Sample, Samples, joined
from cuassay.testing.specs.reduction import (
    attention,
    bad_axes,
    logits,
    maxima,
    no_maximum,
    reduction_work,
    reductions,
    row_work,
    rows,
    softmax_errors,
    terms,
    weights,
)
from cuassay.testing.tolerance import Tolerance

__all__ = ["SPECS"]

Array = NDArray[Any]


def _minima(make: Samples) -> Iterator[Sample]:
    yield from maxima(make)
    yield Sample((make(4097, low=1, high=3),), label="all positive")


def _places(make: Samples) -> Iterator[Sample]:
    """Yield arrays to reduce over one axis or all, with many equal elements, and with several NaN."""
    yield from (one for one in maxima(make) if not isinstance(one.kwargs.get("axis"), tuple))
    yield Sample((make((5, 20_001), low=-2, high=2),), {"axis": 1}, "rows in parts, many of them equal")
    yield Sample((make.full((3, 300), 1),), {"axis": 1}, "all equal")
    twice = np.zeros((64, 321), as_dtype(make.dtype))
    for place in range(64):
        twice[place, [place, place + 256]] = 1
    yield Sample((twice,), {"axis": 1}, "the largest twice")
    if make.dtype not in ("bool", *INTEGERS):
        row = make((2, 20_001)).values.copy()
        row[:, 9000], row[1, 7] = np.nan, np.nan
        yield Sample((row,), {"axis": 1}, "NaN in a part of a row", "extremal")
        several = make((3, 1025)).values.copy()  # the first NaN of each pair belongs to a later thread of its warp
        several[0, [124, 130]], several[1, [250, 260]], several[2, [508, 900]] = np.nan, np.nan, np.nan
        yield Sample((several,), {"axis": 1}, "several NaN in each row", "extremal")
        yield Sample((np.ascontiguousarray(several.T),), {"axis": 0}, "several NaN in each column", "extremal")


def _argmax(a: Array, *, axis: int | None = None, keepdims: bool = False) -> Array:
    return np.asarray(np.argmax(a, axis=axis, keepdims=keepdims))


def _bad_places(make: Samples) -> Iterator[ErrorInput]:
    yield from (bad for bad in no_maximum(make) if not isinstance(bad.sample.kwargs["axis"], tuple))
    yield ErrorInput(Sample((make((2, 3)),), {"axis": (0, 1)}, "two axes"), ArgumentError, "over one axis")


def _factors(make: Samples) -> Iterator[Sample]:
    """Yield factors near 1, so that products of many neither overflow nor underflow."""
    for one in reductions(make):
        if one.kind == "values" and make.dtype not in ("bool", *INTEGERS):
            shape = one.args[0].shape
            size = 1 if not shape else np.prod(shape)
            yield Sample((make(shape, low=1 - 1 / max(size, 4), high=1 + 1 / max(size, 4)),), one.kwargs, one.label)
        else:
            yield one
    yield Sample((make.of([2, 3, -1 if make.dtype[0] in "ibf" and make.dtype != "bool" else 1, 5]),), label="signs")
    yield Sample((make((3, 0)),), {"axis": 1}, kind="empty")


def _near_one(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    for one in logits(make, sizes):
        yield Sample((make(one.args[0].shape, low=0.999, high=1.001),), one.kwargs)


def _prod(a: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    wide = a.astype(np.int64) if a.dtype == np.bool_ else a
    return np.asarray(np.prod(wide, axis=axis, keepdims=keepdims))


def _means(make: Samples) -> Iterator[Sample]:
    yield from reductions(make)
    yield Sample((make.full((3, 4096), 1),), {"axis": 1}, label="rows of 4,096 ones")
    yield Sample((make.full((2, 40_000), 9),), {"axis": 1}, label="rows whose sums overflow float16")
    yield from (Sample((make((0, 3)),), {"axis": axis}, kind="empty") for axis in (None, 0, 1))


def _variances(make: Samples) -> Iterator[Sample]:
    yield from _means(make)
    yield Sample((make((33, 7)),), {"axis": 0, "correction": 40}, "a correction above the number", "extremal")
    for correction in (0, 1, 2.5):
        yield Sample((make((33, 7)),), {"axis": 0, "correction": correction})
    yield Sample((make((3, 768), low=999, high=1001),), {"axis": 1}, "a mean far from zero")
    yield Sample((make((67, 1537)),), {"axis": -1}, "more long rows than a warp has lanes")
    if make.dtype == "float32":  # the squares of these numbers overflow, their variance does not
        for shape, axis in (((3, 33), 1), ((3, 1537), 1), ((33, 3), 0)):
            far = (1e20 + 1e15 * make(shape, dtype="float64").values).astype(np.float32)
            yield Sample((far,), {"axis": axis}, f"{joined(shape)} about 1e20", "extremal")


def _mean(a: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    return np.asarray(np.sum(a, axis=axis, keepdims=keepdims) / np.float64(_terms_of(a, axis)))


def _terms_of(a: Array, axis: Any) -> int:
    """The number of elements that are reduced to one result, which may be 0."""
    given = range(a.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([a.shape[one] for one in given], dtype=np.int64))


def _var(a: Array, *, axis: Any = None, correction: float = 1, keepdims: bool = False) -> Array:
    rest = a - _mean(a, axis=axis, keepdims=True)
    divisor = np.float64(max(_terms_of(a, axis) - correction, 0))
    return np.asarray(np.sum(rest**2, axis=axis, keepdims=keepdims) / divisor)


def _var_magnitude(a: Array, *, axis: Any = None, correction: float = 1, keepdims: bool = False) -> Array:
    """The error of the mean is relative to the largest element."""
    if not a.size:
        return _var(a, axis=axis, correction=correction, keepdims=keepdims)
    deviation = np.sqrt(_var(a, axis=axis, correction=correction, keepdims=keepdims))
    return np.asarray(deviation * (deviation + np.max(np.abs(a), axis=axis, keepdims=keepdims)))


def _bad_variances(make: Samples) -> Iterator[ErrorInput]:
    yield from bad_axes(make)
    yield ErrorInput(Sample((make(3),), {"correction": "one"}, "a word"), ArgumentError, "must be a real number")


def _sequences(make: Samples) -> Iterator[Sample]:
    """Yield rows around tiles of 1,024, columns and middle axes; and ones, whose sums show a lost carry."""
    yield from (Sample((make((3, extent)),), {"axis": 1}) for extent in (1, 31, 128, 1023, 1024, 1025, 5000))
    yield from (Sample((make((5, 33, 7)),), {"axis": axis}) for axis in (0, 1, 2, -3))
    yield Sample((make((3, 700)),), {"axis": 0}, "columns for several blocks")
    yield Sample((make((2, 700, 5)),), {"axis": 1}, "columns in parts")
    yield Sample((make(257),), {"axis": 0})
    yield Sample((make.full(4096, 1),), {"axis": 0}, "4,096 ones")
    yield Sample((make((0, 3)),), {"axis": 1}, kind="empty")
    yield Sample((make((3, 0)),), {"axis": 1}, kind="empty")
    yield Sample((make.of([1, 2, 0, 3]),), {"axis": 0}, kind="extremal")


def _cumsum(a: Array, *, axis: int) -> Array:
    return np.cumsum(a.astype(np.int64) if a.dtype == np.bool_ else a, axis=axis)


def _no_axis(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((2, 3)),), {"axis": 2}, "an axis too many"), ShapeError, "axis")
    yield ErrorInput(Sample((make((2, 3)),), label="no axis"), ArgumentError, "needs 'axis'")


def _logarithms(make: Samples) -> Iterator[Sample]:
    """Yield `rows`, columns in one and in several parts, and reductions over several axes."""
    yield from (Sample(one.args, {"axis": -1} | dict(one.kwargs), one.label, one.kind) for one in rows(make))
    yield Sample((make((5, 33, 7)),), {"axis": (0, 2)})
    yield Sample((make((5, 33, 7)),), {"axis": None, "keepdims": True})
    yield Sample((make((33, 65)),), {"axis": 0, "keepdims": True})
    yield from (Sample((make(shape),), {"axis": -2}) for shape in ((1025, 2), (2, 300, 8)))


def _logsumexp(a: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    if not _terms_of(a, axis):
        return np.asarray(np.log(np.sum(a, axis=axis, keepdims=keepdims)))
    top = np.max(a, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    found = top + np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True))
    return np.asarray(found if keepdims else found.reshape(np.sum(found, axis=axis).shape))


def _logsumexp_magnitude(a: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The maximum is subtracted and added again, so its error counts."""
    found = np.abs(_logsumexp(a, axis=axis, keepdims=keepdims))
    if not _terms_of(a, axis):
        return found
    return np.asarray(np.maximum(found, 1) + np.nan_to_num(np.ptp(a, axis=axis, keepdims=keepdims), posinf=0))


def _log_softmax(a: Array, *, axis: int = -1, dtype: Any = None) -> Array:
    """Subtract the maximum separately: together with the logarithm, it would be rounded to its own last place."""
    if not a.size:
        return a
    top = np.max(a, axis=axis, keepdims=True)
    below = a - np.where(np.isfinite(top), top, 0.0)
    return np.asarray(below - np.log(np.sum(np.exp(below), axis=axis, keepdims=True)))


def _log_softmax_magnitude(a: Array, *, axis: int = -1, dtype: Any = None) -> Array:
    """The magnitude of the differences from the maximum, which are exact for large numbers that are close together."""
    if not a.size:
        return a
    spread = np.nan_to_num(np.ptp(a, axis=axis, keepdims=True), posinf=0)
    return np.asarray(1 + spread + np.abs(_log_softmax(a, axis=axis)))


SPECS = (
    OpSpec(
        op=ops.amin, samples=_minima, reference=np.amin, error_inputs=no_maximum, bench=logits, work=reduction_work,
        like={"cpu": "amax", "sim": "cpu"}, supports_grad=True,
    ),
    OpSpec(
        op=ops.argmax, samples=_places, reference=_argmax, error_inputs=_bad_places, bench=logits,
        like={"cpu": "amax", "sim": "cpu"},
        work=lambda a, *, axis=None, keepdims=False: Work(bytes=a.nbytes + 8 * a.size // max(terms(a, axis=axis), 1)),
    ),
    OpSpec(
        op=ops.prod, samples=_factors, reference=_prod, error_inputs=bad_axes, bench=_near_one, work=reduction_work,
        like={"cpu": "sum", "sim": "cpu"}, terms=terms, supports_grad=True,
        # The roundings of products near 1 all have the same direction.
        tolerance=Tolerance(ulps=8, growth="linear"),
    ),
    OpSpec(
        op=ops.mean, samples=_means, reference=_mean, error_inputs=bad_axes, bench=logits, work=reduction_work,
        like={"cpu": "sum", "sim": "cpu"}, terms=terms, supports_grad=True,
        magnitude=lambda a, **scalars: _mean(np.abs(a), **scalars),
    ),
    OpSpec(
        op=ops.var, samples=_variances, reference=_var, error_inputs=_bad_variances, bench=logits,
        like={"cpu": "sum", "sim": "cpu"}, supports_grad=True, magnitude=_var_magnitude,
        terms=lambda a, *, axis=None, correction=1, keepdims=False: terms(a, axis=axis),
        work=lambda a, *, axis=None, correction=1, keepdims=False: reduction_work(a, axis=axis),
    ),
    OpSpec(
        op=ops.cumsum, samples=_sequences, reference=_cumsum, error_inputs=_no_axis, bench=logits,
        like={"cpu": "amax", "sim": "cpu"}, supports_grad=True, terms=lambda a, *, axis: a.shape[axis],
        magnitude=lambda a, *, axis: _cumsum(np.abs(a), axis=axis), work=row_work(1),
    ),
    OpSpec(
        op=ops.logsumexp, samples=_logarithms, reference=_logsumexp, error_inputs=bad_axes, bench=logits,
        like={"sim": "cpu"}, supports_grad=True, terms=terms, work=reduction_work, magnitude=_logsumexp_magnitude,
    ),
    OpSpec(
        op=ops.log_softmax, samples=weights, reference=_log_softmax, error_inputs=softmax_errors, bench=attention,
        like={"cpu": "softmax", "sim": "cpu"}, supports_grad=True, work=row_work(5),
        terms=lambda a, *, axis=-1, dtype=None: a.shape[axis],
        magnitude=_log_softmax_magnitude,
    ),
)  # fmt: skip
