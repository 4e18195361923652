"""OpSpecs of operations that read or add at indices from an integer array; implemented in ``indexing.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, Samples

__all__ = ["SPECS"]

Array = NDArray[Any]
Shape = tuple[int, ...]


def _below(make: Samples, shape: int | Shape, extent: int, dtype: str = "int64") -> HostArray:
    """An array of integers from 0 to below `extent`."""
    return make(shape, low=0, high=extent - 1, dtype=dtype)


def _lookups(make: Samples) -> Iterator[Sample]:
    for shape, rows, columns in (
        ((1,), 1, 1),
        ((33,), 7, 5),
        ((3, 65), 31, 16),
        ((257,), 129, 33),
        ((2, 3, 5), 9, 128),
    ):
        yield Sample((_below(make, shape, rows), make((rows, columns))))
    for dtype in ("uint8", "int32"):
        yield Sample((_below(make, 33, 7, dtype), make((7, 5))), label=f"an index of {dtype}")
    yield Sample((_below(make, (0, 3), 7), make((7, 5))), kind="empty")
    yield Sample((_below(make, (), 7), make((7, 5))), kind="scalar")
    edge = make.extremal()
    yield Sample((_below(make, 33, edge.shape[0]), HostArray(edge.values[:, None].copy())), kind="extremal")


def _bad_lookups(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make(3, dtype="bool"), make((2, 3))), label="truth values"), DTypeError, "whole numbers")
    yield ErrorInput(Sample((_below(make, 3, 2), make(3)), label="a vector"), ShapeError, "a weight of rows")


def _segments(make: Samples) -> Iterator[Sample]:
    for shape, rest, count in (
        ((1,), (1,), 1),
        ((33,), (5,), 7),
        ((700,), (33,), 31),
        ((3, 65), (300,), 9),
        ((513,), (), 5),
    ):
        yield Sample((make((*shape, *rest)), _below(make, shape, count)), {"count": count})
    yield Sample((make((33, 5)), _below(make, 33, 3, "int32")), {"count": 40}, "rows that nothing is added to")
    yield Sample((make.full((4096, 2), 1), _below(make, 4096, 1)), {"count": 1}, "4,096 ones")
    yield Sample((make((1500, 2)), _below(make, 1500, 40)), {"count": 8200}, "a few of very many rows")
    yield Sample((make((0, 5)), _below(make, 0, 3)), {"count": 3}, kind="empty")
    row = make((33, 2)).values.copy()
    row[3, 1] = np.nan
    yield Sample((row, np.arange(33) % 4), {"count": 4}, "NaN stays in its row", "extremal")


def _segment_sum(a: Array, index: Array, *, count: int) -> Array:
    total = np.zeros((count, *a.shape[index.ndim :]))
    np.add.at(total, index, a)
    return total


def _bad_segments(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(
        Sample((make((3, 2)), _below(make, 4, 2)), {"count": 2}, "another length"), ShapeError, "begins with"
    )
    yield ErrorInput(Sample((make((3, 2)), _below(make, 3, 2)), {"count": -1}, "negative"), ArgumentError, "at least 0")


#: The shape of the indexed array, the axis, and the length of the index along it.
_ALONG: tuple[tuple[Shape, int, int], ...] = (
    ((1,), 0, 1), ((33,), 0, 65), ((33, 7), 0, 5), ((33, 7), 1, 12), ((5, 33, 7), 1, 9), ((5, 33, 7), -1, 1),
    ((65, 129), -1, 1),
)  # fmt: skip


def _index_shape(shape: Shape, axis: int, length: int) -> Shape:
    axis %= len(shape)
    return (*shape[:axis], length, *shape[axis + 1 :])


def _gathers(make: Samples) -> Iterator[Sample]:
    for shape, axis, length in _ALONG:
        yield Sample((make(shape), _below(make, _index_shape(shape, axis, length), shape[axis])), {"axis": axis})
    yield Sample((make((3, 5)), _below(make, (3, 4), 5, "uint8")), {"axis": 1}, "an index of uint8")
    yield Sample((make((3, 5)), _below(make, (3, 0), 5)), {"axis": 1}, kind="empty")
    edge = make.extremal()
    yield Sample((edge, _below(make, 65, edge.shape[0])), {"axis": 0}, kind="extremal")


def _bad_gathers(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(
        Sample((make((3, 5)), _below(make, (2, 5), 5)), {"axis": 1}, "fewer rows"), ShapeError, "index of the shape"
    )
    yield ErrorInput(Sample((make(3), _below(make, 3, 3)), {"axis": 1}, "an axis too many"), ShapeError, "axis")


def _scatters(make: Samples) -> Iterator[Sample]:
    for shape, axis, length in _ALONG:
        given = _index_shape(shape, axis, length)
        yield Sample((make(given), _below(make, given, shape[axis])), {"count": shape[axis], "axis": axis})
    yield Sample((make((3, 0)), _below(make, (3, 0), 5)), {"count": 5, "axis": 1}, kind="empty")


def _scatter_sum(a: Array, index: Array, *, count: int, axis: int) -> Array:
    a, index = np.moveaxis(a, axis, -1), np.moveaxis(index, axis, -1)
    chosen = index[..., None] == np.arange(count)
    return np.moveaxis(np.sum(np.where(chosen, a[..., None], 0.0), axis=-2), -1, axis)


def _bad_scatters(make: Samples) -> Iterator[ErrorInput]:
    wrong = Sample((make((3, 5)), _below(make, (3, 4), 5)), {"count": 5, "axis": 1}, "another length")
    yield ErrorInput(wrong, ShapeError, "index of the shape")


def _additions(make: Samples) -> Iterator[Sample]:
    for shape, axis, length in _ALONG:
        given = make(shape), _below(make, length, shape[axis]), make(_index_shape(shape, axis, length))
        yield Sample(given, {"axis": axis})
    yield Sample((make((3, 5)), _below(make, 0, 3), make((0, 5))), {"axis": 0}, "an empty index")
    yield Sample((make((8200, 2)), _below(make, 1100, 8200), make((1100, 2))), {"axis": 0}, "very many rows")
    yield Sample((make((0, 5)), _below(make, 0, 3), make((0, 5))), {"axis": 0}, kind="empty")


def _index_add(a: Array, index: Array, source: Array, *, axis: int = 0) -> Array:
    total = np.moveaxis(np.array(a, np.float64), axis, 0)
    np.add.at(total, index, np.moveaxis(source, axis, 0))
    return np.moveaxis(total, 0, axis)


def _bad_additions(make: Samples) -> Iterator[ErrorInput]:
    given = make((3, 5)), _below(make, 2, 3), make((3, 5))
    yield ErrorInput(Sample(given, {"axis": 0}, "a source too long"), ShapeError, "index_add needs")


def _tokens(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the embeddings of a batch."""
    index = _below(make, (sizes.batch, sizes.length), sizes.vocabulary)
    yield Sample((index, make((sizes.vocabulary, sizes.width))))


def _token_gradients(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    index = _below(make, sizes.batch * sizes.length, sizes.vocabulary)
    yield Sample((make((sizes.batch * sizes.length, sizes.width)), index), {"count": sizes.vocabulary})


def _targets(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the logits of the next tokens, as for a loss."""
    rows = sizes.batch * sizes.length // 8
    yield Sample((make((rows, sizes.vocabulary)), _below(make, (rows, 1), sizes.vocabulary)), {"axis": 1})


def _target_gradients(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    rows = sizes.batch * sizes.length // 8
    given = make((rows, 1)), _below(make, (rows, 1), sizes.vocabulary)
    yield Sample(given, {"count": sizes.vocabulary, "axis": 1})


def _row_additions(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    rows = sizes.batch * sizes.length
    given = make((rows, sizes.width)), _below(make, rows // 4, rows), make((rows // 4, sizes.width))
    yield Sample(given, {"axis": 0})


def _moved(index: Array, itemsize: int, columns: int = 1) -> Work:
    """The work of reading and writing each indexed element."""
    return Work(bytes=index.nbytes + 2 * index.size * columns * itemsize)


SPECS = (
    OpSpec(
        op=ops.embedding, reference=lambda index, weight: weight[index], samples=_lookups, error_inputs=_bad_lookups,
        like={"sim": "cpu"}, bench=_tokens, supports_grad=True,
        work=lambda index, weight: _moved(index, weight.itemsize, weight.shape[1]),
    ),
    OpSpec(
        op=ops.gather, reference=lambda a, index, *, axis: np.take_along_axis(a, index, axis), samples=_gathers,
        like={"cpu": "embedding", "sim": "cpu"}, error_inputs=_bad_gathers, bench=_targets, supports_grad=True,
        work=lambda a, index, **named: _moved(index, a.itemsize),
    ),
    OpSpec(
        op=ops.segment_sum, reference=_segment_sum, samples=_segments, error_inputs=_bad_segments,
        like={"sim": "cpu"}, bench=_token_gradients, supports_grad=True,
        terms=lambda a, index, *, count: max(np.bincount(index.ravel(), minlength=1)),
        magnitude=lambda a, index, *, count: _segment_sum(np.abs(a), index, count=count),
        work=lambda a, index, *, count: Work(bytes=a.nbytes + index.nbytes + count * a.nbytes // max(index.size, 1)),
    ),
    OpSpec(
        op=ops.scatter_sum, reference=_scatter_sum, samples=_scatters, error_inputs=_bad_scatters,
        like={"sim": "cpu"}, bench=_target_gradients, supports_grad=True,
        terms=lambda a, index, *, count, axis: a.shape[axis],
        magnitude=lambda a, index, *, count, axis: _scatter_sum(np.abs(a), index, count=count, axis=axis),
        work=lambda a, index, *, count, axis: Work(
            bytes=a.nbytes + index.nbytes + count * a.nbytes // max(a.shape[axis], 1)
        ),
    ),
    OpSpec(
        op=ops.index_add, reference=_index_add, samples=_additions, error_inputs=_bad_additions,
        like={"sim": "cpu"}, bench=_row_additions, supports_grad=True,
        terms=lambda a, index, source, *, axis=0: index.size + 1,
        magnitude=lambda a, index, source, *, axis=0: _index_add(np.abs(a), index, np.abs(source), axis=axis),
        work=lambda a, index, source, *, axis=0: Work(bytes=2 * a.nbytes + index.nbytes + source.nbytes),
    ),
)  # fmt: skip
