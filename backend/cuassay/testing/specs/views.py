"""OpSpecs of operations that return views: ``cuassay.ops.views``, for every kind of device.

With ``out=``, as in benchmarks, they copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec
from cuassay.testing.samples import Kind, Sample, Samples

__all__ = ["SPECS"]

Array = NDArray[Any]
Shape = tuple[int, ...]
Given = Sequence[tuple[Shape, dict[str, Any]]]
Drawn = Callable[[Samples], Iterator[Sample]]


def _samples(values: Given, empty: Given = (), scalar: Given = ()) -> Drawn:
    """Make a function that yields one array for each shape, with its options."""
    kinds: dict[Kind, Given] = {"values": values, "empty": empty, "scalar": scalar}

    def samples(make: Samples) -> Iterator[Sample]:
        for kind, given in kinds.items():
            yield from (Sample((make(shape),), options, kind=kind) for shape, options in given)

    return samples


def _errors(*given: tuple[Shape, dict[str, Any], type[Exception], str]) -> Callable[[Samples], Iterator[ErrorInput]]:
    def errors(make: Samples) -> Iterator[ErrorInput]:
        for shape, options, error, match in given:
            yield ErrorInput(Sample((make(shape),), options), error, match)

    return errors


def _slice(a: Array, *, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1) -> Array:
    return np.moveaxis(np.moveaxis(a, axis, 0)[start:stop:step, ...], 0, axis)


def _bench(**options: Any) -> Callable[[Samples, ModelSizes], Iterator[Sample]]:
    """Make a function that yields the queries of all heads: (batch, length, heads, width of a head)."""

    def bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
        yield Sample((make((sizes.batch, sizes.length, sizes.heads, sizes.width // sizes.heads)),), options)

    return bench


def _biases(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a bias to expand, as in the gradient of a sum over rows."""
    yield Sample((make((1, 1, sizes.width)),), {"shape": (sizes.batch, sizes.length, sizes.width)})


#: These ops share all code with `permute`, except for the view itself.
_LIKE = {"cpu": "permute", "sim": "cpu", "cuda": "permute"}

SPECS = (
    OpSpec(
        op=ops.permute, reference=lambda a, *, axes: np.transpose(a, axes), bench=_bench(axes=(0, 2, 1, 3)),
        samples=_samples(
            [((33,), {"axes": (0,)}), ((33, 7), {"axes": (1, 0)}), ((5, 5), {"axes": (-1, -2)}),
             ((3, 3, 3), {"axes": (1, 2, 0)}), ((2, 3, 5, 7), {"axes": (0, 2, -1, 1)})],
            [((0, 3), {"axes": (1, 0)})], [((), {"axes": ()})],
        ),
        error_inputs=_errors(
            ((2, 3), {"axes": (0, 0)}, ShapeError, "each of 2 axes once"),
            ((2, 3), {"axes": (0,)}, ShapeError, "each of 2 axes once"),
            ((2, 3), {"axes": (0, 2)}, ShapeError, "axis 2 does not exist"),
        ),
        like={"sim": "cpu"}, supports_grad=True,
    ),
    OpSpec(
        op=ops.transpose, reference=lambda a, *, axis0, axis1: np.swapaxes(a, axis0, axis1),
        bench=_bench(axis0=1, axis1=2),
        samples=_samples(
            [((33, 7), {"axis0": 0, "axis1": 1}), ((5, 5, 5), {"axis0": 0, "axis1": 1}),
             ((3, 5, 3), {"axis0": -1, "axis1": 1}), ((4, 4), {"axis0": 1, "axis1": 1})],
        ),
        error_inputs=_errors(((2, 3), {"axis0": 0, "axis1": 2}, ShapeError, "axis 2 does not exist")),
        like=_LIKE, supports_grad=True,
    ),
    OpSpec(
        op=ops.reshape, reference=lambda a, *, shape: np.reshape(a, shape), bench=_bench(shape=(-1,)),
        samples=_samples(
            [((33,), {"shape": (3, 11)}), ((6, 5), {"shape": (5, -1)}), ((2, 3, 5), {"shape": -1}),
             ((4, 6), {"shape": (2, 2, 6)}), ((7, 7), {"shape": (7, 7)})],
            [((0, 3), {"shape": (5, 0)})], [((), {"shape": (1, 1)}), ((1,), {"shape": ()})],
        ),
        error_inputs=_errors(
            ((2, 3), {"shape": (4, 2)}, ShapeError, "it has 6 elements"),
            ((2, 3), {"shape": (-1, -1)}, ShapeError, "one of which may be -1"),
            ((2, 3), {"shape": (4, -1)}, ShapeError, "it has 6 elements"),
            ((2, 3), {"shape": "ab"}, ShapeError, "is not a shape"),
        ),
        like=_LIKE, supports_grad=True,
    ),
    OpSpec(
        op=ops.expand, reference=lambda a, *, shape: np.broadcast_to(a, shape), bench=_biases,
        samples=_samples(
            [((33,), {"shape": (33,)}), ((33, 1), {"shape": (33, 129)}), ((1, 129), {"shape": (33, 129)}),
             ((5, 1, 7), {"shape": (2, 5, 3, 7)}), ((7,), {"shape": (7, 7)}), ((1,), {"shape": (1025,)})],
            [((3, 1), {"shape": (3, 0)})], [((), {"shape": (5,)})],
        ),
        error_inputs=_errors(
            ((2, 3), {"shape": (3,)}, ShapeError, "cannot broadcast"),
            ((3,), {"shape": (4,)}, ShapeError, "broadcast"),
            ((3,), {"shape": (-1,)}, ShapeError, "negative"),
        ),
        like=_LIKE, supports_grad=True,
    ),
    OpSpec(
        op=ops.slice, reference=_slice, bench=_bench(axis=1, start=1),
        samples=_samples(
            [((33,), {"start": 3}), ((33, 7), {"axis": 1, "start": -3, "stop": -1}), ((9,), {"start": 8, "step": -2}),
             ((2, 9, 3), {"axis": -2, "step": 2}), ((9, 4), {"start": 1, "stop": 5}), ((5, 5), {})],
            [((5, 3), {"start": 3, "stop": 2})],
        ),
        error_inputs=_errors(
            ((5,), {"start": 0.5}, ArgumentError, "start must be a whole number"),
            ((5,), {"step": 0}, ArgumentError, "step must not be 0"),
            ((5,), {"axis": 1}, ShapeError, "axis 1 does not exist"),
        ),
        like=_LIKE, supports_grad=True,
    ),
    OpSpec(
        op=ops.squeeze, reference=lambda a, *, axis=None: np.squeeze(a, axis), bench=_bench(),
        samples=_samples(
            [((1, 33), {}), ((33, 1, 7, 1), {"axis": 1}), ((1, 33, 1), {"axis": (0, -1)}), ((5, 7), {})],
            [((0, 1), {})], [((1,), {}), ((), {})],
        ),
        error_inputs=_errors(
            ((2, 3), {"axis": 0}, ShapeError, "axis 0 of .* has 2"), ((1,), {"axis": 1}, ShapeError, "does not exist"),
        ),
        like=_LIKE, supports_grad=True,
    ),
    OpSpec(
        op=ops.unsqueeze, reference=lambda a, *, axis: np.expand_dims(a, axis), bench=_bench(axis=1),
        samples=_samples(
            [((33,), {"axis": 0}), ((33,), {"axis": -1}), ((5, 7), {"axis": 1})], [((0,), {"axis": 1})],
            [((), {"axis": 0})],
        ),
        error_inputs=_errors(((3,), {"axis": 2}, ShapeError, "axis 2 does not exist")),
        like=_LIKE, supports_grad=True,
    ),
)  # fmt: skip
