"""OpSpecs of comparisons, and of `where`; implemented in ``devices/<kind>``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import BOOL, INTEGERS
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops import Op
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, Samples

__all__ = ["SPECS"]


def _pairs(make: Samples) -> Iterator[Sample]:
    """Yield pairs of integers from a small range, so that many of them are equal."""

    def some(shape: int | tuple[int, ...]) -> HostArray:
        drawn = make(shape, low=-2, high=2)
        if make.dtype in BOOL:
            return drawn
        return HostArray(np.rint(drawn.values.astype(np.float64)).astype(drawn.dtype))

    yield from (Sample((some(extent), some(extent))) for extent in (1, 33, 1025))
    yield Sample((some((64, 129)), some((64, 129))))
    yield Sample((some((0, 3)), some((3,))), kind="empty")
    yield Sample((some(()), some(())), kind="scalar")
    yield Sample((some((33, 1)), some((129,))), kind="broadcast")
    yield from (Sample((some((3, 33)), some((1, 33)).laid_out(layout)), {}) for layout in ("strided", "reversed"))
    yield Sample((some((3, 33)), 1), {}, "1 at the right", "python")
    yield Sample((1, some((3, 33))), {}, "1 at the left", "python")
    if make.dtype not in INTEGERS:
        yield Sample((some((3, 33)), HostArray(some((3, 33)).values.astype(np.float64))), kind="promotion")
        between = 1 + 2.0**-20
        yield Sample((make.of([1, between, 2]), between), {}, "a number that 16 bits do not hold", "python")
    edges = np.meshgrid(make.extremal().values, make.extremal().values)
    yield Sample((HostArray(edges[0].copy()), HostArray(edges[1].copy())), kind="extremal")


def _small(make: Samples) -> Iterator[Sample]:
    """Yield the first operands of `_pairs`."""
    ordinary = (one for one in _pairs(make) if one.kind in ("values", "empty", "scalar", "extremal"))
    yield from (Sample(one.args[:1], kind=one.kind) for one in ordinary)


def _unmatched(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((3, 4)), make(5)), label="shapes that do not broadcast"), ShapeError, "broadcast")
    yield ErrorInput(Sample((2.0, 3.0), label="no array at all"), ArgumentError, "at least one array")


def _choices(make: Samples) -> Iterator[Sample]:
    def truth(shape: int | tuple[int, ...]) -> HostArray:
        return make(shape, dtype="bool")

    yield from (Sample((truth(extent), make(extent), make(extent))) for extent in (1, 33, 1025))
    yield Sample((truth((64, 129)), make((64, 129)), make((64, 129))))
    yield Sample((truth((0, 3)), make(3), make(())), kind="empty")
    yield Sample((truth(()), make(()), make(())), kind="scalar")
    yield Sample((truth((33, 1)), make(129), make((3, 1, 1))), kind="broadcast")
    yield Sample((truth(7), make((2, 7)), make((2, 1))), kind="broadcast")
    yield Sample((truth((5, 32)), make((3, 5, 32)), make((5, 1))), {}, "a mask for all", "broadcast")
    yield Sample((truth((3, 1, 1)), make((5, 1)), make((3, 5, 32))), {}, "a choice for each", "broadcast")
    number = 2 if make.dtype in INTEGERS else 1.1
    if make.dtype not in BOOL:
        yield Sample((truth((3, 33)), make((3, 33)), number), {}, f"{number} at the right", "python")
        yield Sample((truth((3, 33)), number, make(33)), {}, f"{number} at the left", "python")
        yield Sample((truth(32), make((3, 32)), number), {}, f"a mask for all, {number} at the right", "python")
        yield Sample((truth(33), make(33), make(33, dtype="float64")), kind="promotion")
    edge = make.extremal()
    yield Sample((truth(edge.shape), edge, HostArray(edge.values[::-1].copy())), kind="extremal")


def _bad_choices(make: Samples) -> Iterator[ErrorInput]:
    condition = Sample((make(3, dtype="int32"), make(3), make(3)), label="a condition of whole numbers")
    yield ErrorInput(condition, DTypeError, "must be an array of bool")
    shapes = Sample((make(3, dtype="bool"), make(3), make(4)), label="shapes that do not broadcast")
    yield ErrorInput(shapes, ShapeError, "broadcast")


def _residual(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    shape = sizes.batch, sizes.length, sizes.width
    yield Sample((make(shape), make(shape)))


def _masked_scores(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield one mask for the scores of all heads."""
    scores = make((sizes.batch * sizes.heads, sizes.length, sizes.length))
    yield Sample((make((sizes.length, sizes.length), dtype="bool"), scores, make(())))


def _read_and_written(*arrays: NDArray[Any], itemsize: int) -> Work:
    return Work(bytes=sum(a.nbytes for a in arrays) + itemsize * max(a.size for a in arrays))


#: On cpu and sim, comparisons differ only in their formulas.
_COMPARISON = {"cpu": "less_equal", "sim": "cpu"}

#: All but `less_equal` and `equal`, which have specs of their own below.
_OTHERS: tuple[tuple[Op, Any], ...] = (
    (ops.not_equal, np.not_equal),
    (ops.less, np.less),
    (ops.greater, np.greater),
    (ops.greater_equal, np.greater_equal),
    (ops.logical_and, np.logical_and),
    (ops.logical_or, np.logical_or),
    (ops.logical_xor, np.logical_xor),
)

SPECS = (
    *(
        OpSpec(
            op=op, reference=reference, samples=_pairs, error_inputs=_unmatched, bench=_residual,
            like=_COMPARISON, work=lambda a, b: _read_and_written(a, b, itemsize=1),
        )
        for op, reference in _OTHERS
    ),
    OpSpec(
        op=ops.logical_not, reference=np.logical_not, samples=_small,
        like=_COMPARISON, work=lambda a: _read_and_written(a, itemsize=1),
        error_inputs=lambda make: [ErrorInput(Sample((2.0,), label="no array at all"), ArgumentError, "one array")],
        bench=lambda make, sizes: (Sample(one.args[:1]) for one in _residual(make, sizes)),
    ),
    OpSpec(
        op=ops.equal, reference=lambda a, b: a == b, samples=_pairs, error_inputs=_unmatched, bench=_residual,
        like=_COMPARISON,
        work=lambda a, b: _read_and_written(a, b, itemsize=1),
    ),
    OpSpec(
        op=ops.less_equal, reference=lambda a, b: a <= b, samples=_pairs, error_inputs=_unmatched, bench=_residual,
        like={"sim": "cpu"},
        work=lambda a, b: _read_and_written(a, b, itemsize=1),
    ),
    OpSpec(
        op=ops.where, reference=np.where, samples=_choices, error_inputs=_bad_choices, bench=_masked_scores,
        work=lambda condition, a, b: _read_and_written(condition, a, b, itemsize=a.itemsize), supports_grad=True,
    ),
)  # fmt: skip
