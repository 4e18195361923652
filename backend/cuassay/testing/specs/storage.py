"""OpSpecs of operations that move numbers without computing; implemented in ``devices/<kind>/elementwise.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import FLOATS, as_dtype
from cuassay.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from cuassay.testing.default_samples import unary
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples

__all__ = ["SPECS"]


def _copy_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make(3),), {"device": "warp:0"}, "no such kind"), DeviceError, "warp")
    yield ErrorInput(Sample((), label="nothing to copy"), ArgumentError, "needs 'a'")
    yield ErrorInput(Sample((make(3),), {"memory_format": "nhwc"}, "no such format"), ArgumentError, "got 'nhwc'")
    yield ErrorInput(Sample((make(3),), {"memory_format": "channels_last"}, "a vector"), ShapeError, "4 dimensions")


def _copy_samples(make: Samples) -> Iterator[Sample]:
    yield from unary(make)
    for memory_format in ("contiguous", "channels_last"):
        yield Sample((make((2, 3, 5, 7)),), {"memory_format": memory_format}, memory_format)


def _copies(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((make((sizes.batch, sizes.length, sizes.width)),))


def _cast_samples(make: Samples) -> Iterator[Sample]:
    """Yield casts, also of ties and their neighbours, which show a number that is rounded twice."""
    near_ties = [
        1 + sign * (2.0**-at + side * 2.0**-52) for at in (8, 9, 11, 12, 24) for sign in (1, -1) for side in (-1, 0, 1)
    ]
    for dtype in FLOATS:
        yield from (replace(one, kwargs={"dtype": dtype}, label=f"{one.label} to {dtype}") for one in unary(make))
        yield Sample((np.array(near_ties).astype(make.dtype),), {"dtype": dtype}, f"near ties to {dtype}")


def _cast_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make(3),), {"dtype": "int32"}, "to integers"), DTypeError, "cast goes between bfloat16")
    yield ErrorInput(Sample((make(3, dtype="bool"),), {"dtype": "float32"}, "from bool"), DTypeError, "not defined for")
    yield ErrorInput(Sample((make(3),), label="no dtype"), ArgumentError, "needs 'dtype'")


def _casts(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    shape = sizes.batch, sizes.length, 4 * sizes.width
    yield from (Sample((make(shape),), {"dtype": dtype}) for dtype in ("float32", "bfloat16"))


def _paddings(make: Samples) -> Iterator[Sample]:
    pairs: tuple[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], ...] = (
        ((33,), ((0, 0),)), ((33,), ((3, 0),)), ((33, 7), ((0, 1), (2, 3))), ((5, 33, 7), ((1, 0), (0, 0), (0, 65))),
        ((3, 5, 32), ((0, 0), (1, 2), (0, 0))), ((3, 32), ((1, 0), (16, 32))),
    )  # fmt: skip
    yield from (Sample((make(shape),), {"widths": widths}) for shape, widths in pairs)
    yield Sample((make((33, 7)),), {"widths": ((1, 1), (1, 1)), "value": 1})
    yield Sample((make((0, 3)),), {"widths": ((1, 1), (0, 2))}, kind="empty")
    yield Sample((make(()),), {"widths": ()}, kind="scalar")
    yield Sample((make.extremal(),), {"widths": ((2, 1),)}, kind="extremal")


def _pad(a: NDArray[Any], *, widths: Sequence[tuple[int, int]], value: float = 0) -> NDArray[Any]:
    return np.pad(a, widths, constant_values=value) if a.ndim else a


def _pad_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((2, 3)),), {"widths": ((1, 1),)}, "a pair missing"), ArgumentError, "each of 2 axes")
    yield ErrorInput(Sample((make(3),), {"widths": ((-1, 1),)}, "negative"), ArgumentError, "at least 0")
    yield ErrorInput(Sample((make(3),), {"widths": ((1, 1),), "value": "x"}, "a word"), ArgumentError, "a real number")


def _borders(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((make((sizes.batch, sizes.length, sizes.width)),), {"widths": ((0, 0), (1, 1), (0, 0))})


SPECS = (
    OpSpec(
        op=ops.pad, reference=_pad, samples=_paddings, error_inputs=_pad_errors, bench=_borders, supports_grad=True,
        like={"cpu": "cat", "sim": "cpu"},
    ),
    OpSpec(
        op=ops.copy, supports_grad=True, reference=lambda a, **scalars: a, samples=_copy_samples,
        error_inputs=_copy_errors, bench=_copies,
    ),
    OpSpec(
        op=ops.cast, reference=lambda a, **scalars: a, samples=_cast_samples, error_inputs=_cast_errors, bench=_casts,
        supports_grad=True,
        work=lambda a, **scalars: Work(bytes=a.size * (a.dtype.itemsize + as_dtype(scalars["dtype"]).itemsize)),
    ),
)  # fmt: skip
