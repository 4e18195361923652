"""OpSpecs of operations that join the arrays of a list; implemented in ``devices/<kind>/joining.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import FLOATS
from cuassay.errors import ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec
from cuassay.testing.samples import Sample, Samples

__all__ = ["SPECS"]

Arrays = Sequence[NDArray[Any]]
Shape = tuple[int, ...]


def _cats(make: Samples) -> Iterator[Sample]:
    lists: tuple[tuple[int, tuple[Shape, ...]], ...] = (
        (0, ((33,), (7,))), (0, ((5, 7), (1, 7), (3, 7))), (-1, ((33, 1), (33, 65))), (1, ((3, 5, 7), (3, 2, 7))),
        (1, ((3, 0), (3, 2))), (0, ((129,),)), (-3, ((2, 2, 3, 5), (2, 1, 3, 5))), (0, ((1,),) * 33),
        (1, ((3, 8),) * 9 + ((3, 16),)), (-1, ((2, 1), (2, 3)) * 33),
    )  # fmt: skip
    for axis, shapes in lists:
        yield _listed(make, shapes, axis)
    yield _listed(make, ((0, 3), (0, 3)), 1, kind="empty")
    yield _promoted(make)
    yield Sample(([make.extremal(), make(3)],), kind="extremal")


def _stacks(make: Samples) -> Iterator[Sample]:
    lists: tuple[tuple[int, Shape, int], ...] = (
        (0, (33,), 2), (0, (5, 7), 3), (-1, (33, 65), 2), (1, (3, 2, 7), 4), (-2, (129,), 1), (2, (2, 3, 5), 2),
    )  # fmt: skip
    for axis, shape, count in lists:
        yield _listed(make, (shape,) * count, axis)
    yield _listed(make, ((0, 3),) * 2, 1, kind="empty")
    yield _listed(make, ((),) * 3, 0, kind="scalar")
    yield _promoted(make)
    edge = make.extremal()
    yield Sample(([edge, make(edge.shape)],), {"axis": 1}, kind="extremal")


def _listed(make: Samples, shapes: Sequence[Shape], axis: int, **how: Any) -> Sample:
    """A sample with a list of arrays of these shapes."""
    told = f"{len(shapes)} of {shapes[0]} and {shapes[-1]}, axis {axis}"
    return Sample(([make(shape) for shape in shapes],), {"axis": axis}, told, **how)


def _promoted(make: Samples) -> Sample:
    other = "float64" if make.dtype in FLOATS else make.dtype
    return Sample(([make((3, 5)), make((3, 5), dtype=other)],), {"axis": 1}, f"with {other}", "promotion")


def _cat_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample(([make((2, 3)), make((2, 4))],), label="other extents"), ShapeError, "along axis 0 alone")
    yield ErrorInput(Sample(([make((2, 3)), make(3)],), label="fewer axes"), ShapeError, r"a\[1\] \(3,\)")
    yield ErrorInput(Sample(([make(3)],), {"axis": 1}, "no such axis"), ShapeError, "axis 1 does not exist")
    yield ErrorInput(Sample(([make(())],), label="0-d"), ShapeError, "a scalar has no axis")


def _stack_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample(([make((2, 3)), make((1, 3))],), label="other shapes"), ShapeError, "arrays of one shape")
    yield ErrorInput(Sample(([make(3)],), {"axis": 2}, "no such axis"), ShapeError, "axis 2 does not exist")


def _cat(a: Arrays, *, axis: int = 0) -> NDArray[Any]:
    return np.concatenate(list(a), axis)


def _stack(a: Arrays, *, axis: int = 0) -> NDArray[Any]:
    return np.stack(list(a), axis)


def _heads(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield two halves of the width, to be joined."""
    shape = sizes.batch, sizes.length, sizes.width // 2
    yield Sample(([make(shape), make(shape)],), {"axis": -1})


def _rows(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample(([make((sizes.length, sizes.width)) for _ in range(sizes.batch)],))


SPECS = (
    OpSpec(
        op=ops.cat, reference=_cat, samples=_cats, error_inputs=_cat_errors, bench=_heads, supports_grad=True,
        like={"sim": "cpu"},
    ),
    OpSpec(
        op=ops.stack, reference=_stack, samples=_stacks, error_inputs=_stack_errors, bench=_rows, supports_grad=True,
        like={"cpu": "cat", "sim": "cpu"},
    ),
)  # fmt: skip
