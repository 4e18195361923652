"""OpSpecs of operations over lists of arrays; implemented in ``devices/<kind>/multi_tensor.py``.

Such an op returns nothing. The tests compare everything that it writes, one list after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, Samples

__all__ = ["LONG", "SHAPES", "SPECS", "Array", "Arrays", "flat", "layer", "list_of", "nbytes_of", "size_of"]

Array = NDArray[Any]
Arrays = Sequence[Array]

#: Shapes of one element, odd sizes, several chunks, no elements, several axes, and 0-d.
SHAPES: tuple[tuple[int, ...], ...] = ((1,), (3, 5), (255,), (4097,), (0,), (2, 3, 7), ())
LONG: tuple[tuple[int, ...], ...] = ((40_003,), (64,))


def list_of(make: Samples, shapes: Sequence[tuple[int, ...]] = SHAPES, **how: Any) -> list[HostArray]:
    """Make an array of each of `shapes`; `how` is passed to `make`."""
    return [make(shape, **how) for shape in shapes]


def flat(*lists: Any) -> Array:
    """Join everything that an op writes into one array."""
    return np.concatenate([np.ravel(array) for one in lists for array in (one if isinstance(one, list) else [one])])


def nbytes_of(*lists: Any) -> int:
    """The number of bytes of all arrays of these lists."""
    return sum(array.nbytes for one in lists for array in (one if isinstance(one, list) else [one]))


def size_of(arrays: Arrays) -> int:
    """The number of elements of all `arrays`."""
    return sum(array.size for array in arrays)


def layer(sizes: ModelSizes) -> tuple[tuple[int, ...], ...]:
    """The shapes of the parameters of an attention's output and of a normalization."""
    return (sizes.width, sizes.width), (sizes.width,), (sizes.width,)


# ------------------------------------------------------------------------------------------------ elementwise


def _pairs(make: Samples) -> Iterator[Sample]:
    for shapes in (SHAPES, LONG):
        yield Sample((list_of(make, shapes), list_of(make, shapes)), label=f"{len(shapes)} arrays")


def _wide_number(make: Samples) -> HostArray:
    """A number on the device, in the dtype in which the arrays of `make` are computed."""
    return make.full((), 0.375, dtype="float64" if make.dtype == "float64" else "float32")


def _adds(make: Samples) -> Iterator[Sample]:
    yield from _pairs(make)
    yield Sample((list_of(make), list_of(make)), {"alpha": -0.5}, "alpha -0.5")
    yield Sample((list_of(make), 1.1), {"alpha": 2.0}, "a number")
    yield Sample((list_of(make), _wide_number(make)), label="a number on the device")


def _muls(make: Samples) -> Iterator[Sample]:
    yield from _pairs(make)
    yield Sample((list_of(make), 1.1), label="a number")
    yield Sample((list_of(make), _wide_number(make)), label="a number on the device")


def _lerps(make: Samples) -> Iterator[Sample]:
    for weight in (0.0, 0.3, 0.75, 1.0):
        yield Sample((list_of(make), list_of(make), weight), label=f"weight {weight}")
    yield Sample((list_of(make, LONG), list_of(make, LONG), _wide_number(make)), label="a weight on the device")


def _copies(make: Samples) -> Iterator[Sample]:
    yield from _pairs(make)
    for other in ("float32", "float16", "bfloat16"):
        yield Sample((list_of(make), list_of(make, dtype=other)), label=f"from {other}")


def _zeros(make: Samples) -> Iterator[Sample]:
    yield Sample((list_of(make),), label="many")
    yield Sample((list_of(make, LONG),), label="long")


def _others(a: Arrays, b: Any) -> list[Any]:
    return list(b) if isinstance(b, list) else [np.asarray(b).reshape(())] * len(a)


def _add(a: Arrays, b: Any, *, alpha: float = 1) -> Array:
    return flat([x + alpha * y for x, y in zip(a, _others(a, b), strict=True)])


def _add_magnitude(a: Arrays, b: Any, *, alpha: float = 1) -> Array:
    return flat([np.abs(x) + np.abs(alpha * y) for x, y in zip(a, _others(a, b), strict=True)])


def _mul(a: Arrays, b: Any) -> Array:
    return flat([x * y for x, y in zip(a, _others(a, b), strict=True)])


def _lerp(a: Arrays, b: Arrays, weight: Any) -> Array:
    share = np.asarray(weight).reshape(())
    return flat([x + share * (y - x) for x, y in zip(a, b, strict=True)])


def _lerp_magnitude(a: Arrays, b: Arrays, weight: Any) -> Array:
    return flat([np.abs(x) + np.abs(y) for x, y in zip(a, b, strict=True)])


def _copy(a: Arrays, b: Arrays) -> Array:
    return flat(list(b))


def _zero(a: Arrays) -> Array:
    return np.zeros(size_of(a))


def _unscales(make: Samples) -> Iterator[Sample]:
    clear, factor = make.full((), 0, dtype="float32"), make.full((), 2**-4, dtype="float32")
    yield Sample((list_of(make), clear, factor), label="finite")
    yield Sample((list_of(make), make.full((), 1, dtype="float32"), factor), label="found before")
    for bad in (math.inf, math.nan):
        grads = list_of(make, LONG)
        grads[0].values[39_999] = bad
        yield Sample((grads, clear, factor), label=f"{bad} at the end")
    grads = list_of(make, LONG)
    for grad in grads:
        grad.values[0] = math.inf
    yield Sample((grads, clear, factor), label="infinity in two arrays")


def _unscale(grads: Arrays, found_inf: Array, inv_scale: Array) -> Array:
    found = found_inf if all(np.isfinite(grad).all() for grad in grads) else np.ones_like(found_inf)
    return flat([grad * inv_scale for grad in grads], found)


def _pair_errors(make: Samples) -> Iterator[ErrorInput]:
    pair = [make(3), make(4)]
    yield ErrorInput(Sample((pair, [make(3)]), label="one list shorter"), ArgumentError, "has 2 arrays and b 1")
    yield ErrorInput(Sample((pair, pair[::-1]), label="another order"), ShapeError, "must have the shape of a")
    other = "float32" if make.dtype != "float32" else "float64"
    mixed = [make(3), make(4, dtype=other)]
    yield ErrorInput(Sample((mixed, pair), label="two dtypes in a list"), DTypeError, "must have one dtype")
    strided = [make(3), make((4, 5), layout="transposed")]
    yield ErrorInput(Sample((strided, strided), label="strides"), ArgumentError, "is not C-contiguous")


def _number_errors(make: Samples) -> Iterator[ErrorInput]:
    yield from _pair_errors(make)
    yield ErrorInput(Sample(([make(3)], make(2)), label="two numbers"), ShapeError, "must have one element")
    yield ErrorInput(
        Sample(([make(3)], None), label="no number"), ArgumentError, "give a list of arrays, a real number"
    )


# ------------------------------------------------------------------------------------------------ norms


def _normed(make: Samples) -> Iterator[Sample]:
    for order in (2, math.inf):
        yield Sample((list_of(make),), {"ord": order}, f"{order}-norms of many")
        yield Sample((list_of(make, LONG),), {"ord": order}, f"{order}-norms of long ones")
    grads = list_of(make, LONG)
    grads[1].values[63] = math.nan
    yield Sample((grads,), {"ord": math.inf}, "NaN", "extremal")


def _norm(a: Arrays, *, ord: float = 2) -> Array:  # noqa: A002  NumPy's name
    if ord == math.inf:
        return np.array([np.max(np.abs(one), initial=0.0) for one in a])
    return np.array([np.linalg.norm(one.ravel()) for one in a])


def _norm_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample(([make(3)],), {"ord": 1}, "another norm"), ArgumentError, "ord must be 2 or infinity")


def _maxima(make: Samples) -> Iterator[Sample]:
    shapes = [shape for shape in SHAPES if 0 not in shape]
    yield Sample((list_of(make, shapes),), label="of many")
    yield Sample((list_of(make, LONG),), label="of long ones")
    yield Sample((list_of(make, shapes, low=-3, high=-1),), label="below zero")
    yield Sample(([make((33, 7), layout="transposed"), make((9,), layout="strided")],), label="strides")
    grads = list_of(make, LONG)
    grads[1].values[63] = math.nan
    yield Sample((grads,), label="NaN", kind="extremal")


def _max(a: Arrays) -> Array:
    return np.array([np.max(one) for one in a])


def _max_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample(([make(3), make((0, 2))],), label="no elements"), ShapeError, r"no elements .* a\[1\]")
    other = "float32" if make.dtype != "float32" else "float64"
    yield ErrorInput(Sample(([make(3), make(4, dtype=other)],), label="two dtypes"), DTypeError, "must have one dtype")


def _global_norms(make: Samples) -> Iterator[Sample]:
    def cells(norm: float = 0.0, found: float = 1.0, scale: float = 8.0) -> tuple[HostArray, ...]:
        return tuple(make.full((), value, dtype="float32") for value in (norm, found, scale))

    yield Sample((list_of(make), *cells()), label="scaled")
    yield Sample((list_of(make, LONG), *cells()[:2], None), label="unscaled")
    yield Sample((list_of(make), *cells(3.0, 0.0)), {"accumulate": True}, "on top of 3")
    yield Sample((list_of(make), *cells(3.0, 1.0)), {"accumulate": True}, "on top of an infinity")
    large = [make.full(40_003, 6e4 if make.dtype == "float16" else 1e30)]  # its square is beyond float32
    yield Sample((large, *cells()), label="squares that overflow float32")
    yield Sample((list_of(make, [(3,)] * 300), *cells()), label="more arrays than a block has threads")
    if make.dtype != "float16":
        yield Sample(([make.full(9, 3e38)], *cells()), label="a norm that overflows float32 until it is unscaled")
    grads = list_of(make, LONG)
    grads[0].values[39_999] = math.inf
    yield Sample((grads, *cells(0.0, 0.0)), label="infinity at the end")


def _global_norm(grads: Arrays, norm: Any, found_inf: Any, grad_scale: Any, *, accumulate: bool = False) -> Array:
    mine = np.sqrt(sum(np.sum(grad**2) for grad in grads)) / (1.0 if grad_scale is None else grad_scale)
    found = float(not np.isfinite(mine)) or (float(found_inf) if accumulate else 0.0)
    return np.array([np.hypot(mine, norm) if accumulate else mine, found])


def _two_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((list_of(make, layer(sizes)), list_of(make, layer(sizes))))


def _mul_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Multiply by ones, because repeated calls with other factors would end in infinity or zero."""
    yield Sample((list_of(make, layer(sizes)), [make.full(shape, 1) for shape in layer(sizes)]))


def _lerp_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((list_of(make, layer(sizes)), list_of(make, layer(sizes)), 0.3))


def _one_layer(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((list_of(make, layer(sizes)),))


def _norm_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    cells = [make.full((), value, dtype="float32") for value in (0, 0, 1)]
    yield Sample((list_of(make, layer(sizes)), *cells))


def _unscale_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((list_of(make, layer(sizes)), *(make.full((), value, dtype="float32") for value in (0, 1))))


def _moved(passes: int) -> Any:
    """The work of `passes` over the first list, and of one pass over a second list."""

    def work(a: Arrays, b: Any = (), *more: Any, **scalars: Any) -> Work:
        return Work(bytes=passes * nbytes_of(list(a)) + (nbytes_of(b) if isinstance(b, list) else 0), flops=size_of(a))

    return work


SPECS = (
    OpSpec(
        op=ops.foreach_add_, samples=_adds, reference=_add, magnitude=_add_magnitude, error_inputs=_number_errors,
        bench=_two_layers, work=_moved(2),
    ),
    OpSpec(
        op=ops.foreach_mul_, samples=_muls, reference=_mul, error_inputs=_number_errors, bench=_mul_layers,
        work=_moved(2),
    ),
    OpSpec(
        op=ops.foreach_lerp_, samples=_lerps, reference=_lerp, magnitude=_lerp_magnitude, bench=_lerp_layers,
        work=_moved(2),
    ),
    OpSpec(op=ops.foreach_copy_, samples=_copies, reference=_copy, bench=_two_layers, work=_moved(1)),
    OpSpec(op=ops.foreach_zero_, samples=_zeros, reference=_zero, bench=_one_layer, work=_moved(1)),
    OpSpec(
        op=ops.foreach_unscale_, samples=_unscales, reference=_unscale, bench=_unscale_layers, work=_moved(2),
    ),
    OpSpec(
        op=ops.foreach_norm, samples=_normed, reference=_norm, error_inputs=_norm_errors, bench=_one_layer,
        work=_moved(1),
    ),
    OpSpec(
        op=ops.foreach_max, samples=_maxima, reference=_max, error_inputs=_max_errors, bench=_one_layer,
        work=_moved(1), supports_grad=True, like={"cpu": "foreach_norm", "sim": "cpu"},
    ),
    OpSpec(
        op=ops.global_norm_, samples=_global_norms, reference=_global_norm, bench=_norm_layers, work=_moved(1),
    ),
)  # fmt: skip
