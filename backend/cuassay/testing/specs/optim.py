"""OpSpecs of operations over lists and of the Adam step: implemented in ``devices/<kind>/{multi_tensor,optim}.py``.

Such an operation makes no array: what is compared is all it writes, one list after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import HALVES
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, Samples

__all__ = ["SPECS"]

Array = NDArray[Any]
Arrays = Sequence[Array]

#: A tensor of one element, odd ones, one of several chunks, one without elements, and several axes.
_SHAPES: tuple[tuple[int, ...], ...] = ((1,), (3, 5), (255,), (4097,), (0,), (2, 3, 7), ())
_LONG: tuple[tuple[int, ...], ...] = ((40_003,), (64,))


def _list(make: Samples, shapes: Sequence[tuple[int, ...]] = _SHAPES, **how: Any) -> list[HostArray]:
    return [make(shape, **how) for shape in shapes]


def _flat(*lists: Any) -> Array:
    """What the ops write, lined up."""
    return np.concatenate([np.ravel(array) for one in lists for array in (one if isinstance(one, list) else [one])])


def _nbytes(*lists: Any) -> int:
    return sum(array.nbytes for one in lists for array in (one if isinstance(one, list) else [one]))


def _size(arrays: Arrays) -> int:
    return sum(array.size for array in arrays)


def _layer(sizes: ModelSizes) -> tuple[tuple[int, ...], ...]:
    """The parameters of an attention's output, and of a normalization."""
    return (sizes.width, sizes.width), (sizes.width,), (sizes.width,)


# ------------------------------------------------------------------------------------------------ elementwise


def _pairs(make: Samples) -> Iterator[Sample]:
    for shapes in (_SHAPES, _LONG):
        yield Sample((_list(make, shapes), _list(make, shapes)), label=f"{len(shapes)} arrays")


def _wide_number(make: Samples) -> HostArray:
    """A number on the device, in the dtype that `make`'s is computed in."""
    return make.full((), 0.375, dtype="float64" if make.dtype == "float64" else "float32")


def _adds(make: Samples) -> Iterator[Sample]:
    yield from _pairs(make)
    yield Sample((_list(make), _list(make)), {"alpha": -0.5}, "alpha -0.5")
    yield Sample((_list(make), 1.1), {"alpha": 2.0}, "a number")
    yield Sample((_list(make), _wide_number(make)), label="a number on the device")


def _muls(make: Samples) -> Iterator[Sample]:
    yield from _pairs(make)
    yield Sample((_list(make), 1.1), label="a number")
    yield Sample((_list(make), _wide_number(make)), label="a number on the device")


def _lerps(make: Samples) -> Iterator[Sample]:
    for weight in (0.0, 0.3, 0.75, 1.0):
        yield Sample((_list(make), _list(make), weight), label=f"weight {weight}")
    yield Sample((_list(make, _LONG), _list(make, _LONG), _wide_number(make)), label="a weight on the device")


def _copies(make: Samples) -> Iterator[Sample]:
    yield from _pairs(make)
    for other in ("float32", "float16", "bfloat16"):
        yield Sample((_list(make), _list(make, dtype=other)), label=f"from {other}")


def _zeros(make: Samples) -> Iterator[Sample]:
    yield Sample((_list(make),), label="many")
    yield Sample((_list(make, _LONG),), label="long")


def _others(a: Arrays, b: Any) -> list[Any]:
    return list(b) if isinstance(b, list) else [np.asarray(b).reshape(())] * len(a)


def _add(a: Arrays, b: Any, *, alpha: float = 1) -> Array:
    return _flat([x + alpha * y for x, y in zip(a, _others(a, b), strict=True)])


def _add_magnitude(a: Arrays, b: Any, *, alpha: float = 1) -> Array:
    return _flat([np.abs(x) + np.abs(alpha * y) for x, y in zip(a, _others(a, b), strict=True)])


def _mul(a: Arrays, b: Any) -> Array:
    return _flat([x * y for x, y in zip(a, _others(a, b), strict=True)])


def _lerp(a: Arrays, b: Arrays, weight: Any) -> Array:
    share = np.asarray(weight).reshape(())
    return _flat([x + share * (y - x) for x, y in zip(a, b, strict=True)])


def _lerp_magnitude(a: Arrays, b: Arrays, weight: Any) -> Array:
    return _flat([np.abs(x) + np.abs(y) for x, y in zip(a, b, strict=True)])


def _copy(a: Arrays, b: Arrays) -> Array:
    return _flat(list(b))


def _zero(a: Arrays) -> Array:
    return np.zeros(_size(a))


def _unscales(make: Samples) -> Iterator[Sample]:
    clear, factor = make.full((), 0, dtype="float32"), make.full((), 2**-4, dtype="float32")
    yield Sample((_list(make), clear, factor), label="finite")
    yield Sample((_list(make), make.full((), 1, dtype="float32"), factor), label="found before")
    for bad in (math.inf, math.nan):
        grads = _list(make, _LONG)
        grads[0].values[39_999] = bad
        yield Sample((grads, clear, factor), label=f"{bad} at the end")
    grads = _list(make, _LONG)
    for grad in grads:
        grad.values[0] = math.inf
    yield Sample((grads, clear, factor), label="infinity in two arrays")


def _unscale(grads: Arrays, found_inf: Array, inv_scale: Array) -> Array:
    found = found_inf if all(np.isfinite(grad).all() for grad in grads) else np.ones_like(found_inf)
    return _flat([grad * inv_scale for grad in grads], found)


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
        yield Sample((_list(make),), {"ord": order}, f"{order}-norms of many")
        yield Sample((_list(make, _LONG),), {"ord": order}, f"{order}-norms of long ones")
    grads = _list(make, _LONG)
    grads[1].values[63] = math.nan
    yield Sample((grads,), {"ord": math.inf}, "NaN", "extremal")


def _norm(a: Arrays, *, ord: float = 2) -> Array:  # noqa: A002  NumPy's name
    if ord == math.inf:
        return np.array([np.max(np.abs(one), initial=0.0) for one in a])
    return np.array([np.linalg.norm(one.ravel()) for one in a])


def _norm_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample(([make(3)],), {"ord": 1}, "another norm"), ArgumentError, "ord must be 2 or infinity")


def _global_norms(make: Samples) -> Iterator[Sample]:
    def cells(norm: float = 0.0, found: float = 1.0, scale: float = 8.0) -> tuple[HostArray, ...]:
        return tuple(make.full((), value, dtype="float32") for value in (norm, found, scale))

    yield Sample((_list(make), *cells()), label="scaled")
    yield Sample((_list(make, _LONG), *cells()[:2], None), label="unscaled")
    yield Sample((_list(make), *cells(3.0, 0.0)), {"accumulate": True}, "on top of 3")
    yield Sample((_list(make), *cells(3.0, 1.0)), {"accumulate": True}, "on top of an infinity")
    large = [make.full(40_003, 6e4 if make.dtype == "float16" else 1e30)]  # its square is beyond float32
    yield Sample((large, *cells()), label="squares that overflow float32")
    grads = _list(make, _LONG)
    grads[0].values[39_999] = math.inf
    yield Sample((grads, *cells(0.0, 0.0)), label="infinity at the end")


def _global_norm(grads: Arrays, norm: Any, found_inf: Any, grad_scale: Any, *, accumulate: bool = False) -> Array:
    mine = np.sqrt(sum(np.sum(grad**2) for grad in grads)) / (1.0 if grad_scale is None else grad_scale)
    found = float(not np.isfinite(mine)) or (float(found_inf) if accumulate else 0.0)
    return np.array([np.hypot(mine, norm) if accumulate else mine, found])


# ------------------------------------------------------------------------------------------------ Adam


def _adam_lists(make: Samples, shapes: Sequence[tuple[int, ...]], *, amsgrad: bool, states: str | None) -> list[Any]:
    second = {"low": 0.1, "high": 2.0, "dtype": states}
    return [
        _list(make, shapes),
        _list(make, shapes),
        _list(make, shapes, dtype=states),
        _list(make, shapes, **second),
        _list(make, shapes, **second) if amsgrad else [],
    ]


def _adam_sample(
    make: Samples,
    label: str,
    shapes: Sequence[tuple[int, ...]] = _SHAPES,
    *,
    amsgrad: bool = False,
    states: str | None = None,
    master: bool = False,
    lr: Any = 0.01,
    cells: Sequence[float | None] = (None, None, None),
    **kwargs: Any,
) -> Sample:
    """A step between two: moments and counts are not zero. `cells`: grad_scale, found_inf, norm."""
    lists = _adam_lists(make, shapes, amsgrad=amsgrad, states=states)
    masters = _list(make, shapes, dtype="float32") if master else []
    steps = make.of(range(3, 3 + len(shapes)), dtype="float32")
    scalars = [None if value is None else make.full((), value, dtype="float32") for value in cells]
    return Sample((*lists, masters, steps, lr, *scalars), kwargs, label)


def _adams(make: Samples) -> Iterator[Sample]:
    rate = make.full((), 0.0625, dtype="float32")
    yield _adam_sample(make, "plain")
    yield _adam_sample(make, "long", _LONG, weight_decay=0.1)
    yield _adam_sample(make, "decoupled decay", weight_decay=0.1, decoupled=True)
    yield _adam_sample(make, "amsgrad, maximized", amsgrad=True, maximize=True, lr=rate)
    yield _adam_sample(make, "maximized, decay", maximize=True, weight_decay=0.5)
    yield _adam_sample(make, "scaled", cells=(8.0, 0.0, None), beta1=0.0)
    yield _adam_sample(make, "clipped", cells=(None, None, 40.0), max_norm=10.0)
    yield _adam_sample(make, "not clipped", cells=(2.0, 0.0, 4.0), max_norm=10.0, zero_grads=True)
    yield _adam_sample(make, "skipped", cells=(8.0, 1.0, None), weight_decay=0.1)
    yield _adam_sample(make, "skipped, zeroed", cells=(8.0, 1.0, None), zero_grads=True, amsgrad=True)
    if make.dtype in HALVES:
        yield _adam_sample(make, "masters", states="float32", master=True, weight_decay=0.1, zero_grads=True)


def _adam(
    params: Arrays,
    grads: Arrays,
    exp_avgs: Arrays,
    exp_avg_sqs: Arrays,
    max_exp_avg_sqs: Arrays,
    masters: Arrays,
    steps: Array,
    lr: Any,
    grad_scale: Any = None,
    found_inf: Any = None,
    norm: Any = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
    max_norm: float | None = None,
    zero_grads: bool = False,
    size: bool = False,
) -> Array:
    """Algorithm 1 of arXiv 1412.6980 as it stands there; with `size`, what the terms are as large as together."""
    a = np.abs if size else np.asarray
    if found_inf is not None and found_inf != 0:
        left = [np.zeros_like(grad) for grad in grads] if zero_grads else list(grads)
        states = list(exp_avgs), list(exp_avg_sqs), list(max_exp_avg_sqs), list(masters)
        return a(_flat(list(params), left, *states, steps))
    scale, clip = 1.0 if grad_scale is None else grad_scale, 1.0
    if max_norm is not None and norm > max_norm:
        clip = max_norm / (norm + 1e-6)
    lists: list[list[Any]] = [[], [], [], [], [], []]
    for i, grad in enumerate(grads):
        t, p, g = steps[i] + 1, (masters or params)[i], grad / scale * clip
        slope = (-g if maximize else g) + (0 if decoupled else weight_decay) * p
        terms = np.abs(g) + weight_decay * np.abs(p) if size else slope  # they may cancel
        m = a(beta1 * exp_avgs[i]) + a((1 - beta1) * terms)
        v = beta2 * exp_avg_sqs[i] + (1 - beta2) * slope**2
        x = np.maximum(max_exp_avg_sqs[i], v) if max_exp_avg_sqs else v
        step = lr / _rest(beta1, t) * m / (np.sqrt(x / _rest(beta2, t)) + eps)
        p = a(p) + a(-step) - (a(lr * weight_decay * p) if decoupled else 0) * (-1 if size else 1)
        new = (p, np.zeros_like(g) if zero_grads else g, m, v, x, p)
        for one, value, there in zip(lists, new, (1, 1, 1, 1, max_exp_avg_sqs, masters), strict=True):
            if there:
                one.append(a(value))
    return _flat(*lists, steps + 1)


def _rest(beta: float, t: Any) -> Any:
    """``1 - beta**t``, all of whose digits hold: the difference of the two has lost two by a beta of 0.999."""
    return -np.expm1(t * np.log(np.float64(beta)))


def _adam_errors(make: Samples) -> Iterator[ErrorInput]:
    def bad(label: str, **kwargs: Any) -> Sample:
        return _adam_sample(make, label, ((3,), (4,)), **kwargs)

    yield ErrorInput(
        bad("a NaN rate", lr=math.nan), ArgumentError, "lr must be a number, 0 or more and finite; got nan"
    )
    yield ErrorInput(bad("a negative rate", lr=-1.0), ArgumentError, "lr must be a number")
    for name in ("beta1", "beta2"):
        for value in (-0.1, 1.0):
            yield ErrorInput(bad(f"{name} {value}", **{name: value}), ArgumentError, f"{name} must be a number, 0 or")
    yield ErrorInput(bad("a negative eps", eps=-1e-8), ArgumentError, "eps must be a number")
    yield ErrorInput(bad("a clip without a norm", max_norm=1.0), ArgumentError, "max_norm needs the gradients' norm")
    yield ErrorInput(bad("a negative seed", seed=-1), ArgumentError, "seed must be a whole number")
    plain = _adam_sample(make, "", ((3,), (4,)))
    for label, place, arrays, error, match in (
        ("a gradient missing", 1, [make(3)], ArgumentError, "params has 2 arrays and grads 1"),
        ("a gradient of another shape", 1, [make(3), make(5)], ShapeError, r"grads\[1\] must have the shape of"),
        ("an integer gradient", 1, [make(n, dtype="int32") for n in (3, 4)], DTypeError, "grads beside"),
        ("mixed parameters", 0, [make(3), make(4, dtype="float64")], DTypeError, "must have one dtype"),
        ("a count missing", 6, make.full((1,), 0, dtype="float32"), ArgumentError, r"steps must be \(2,\) float32"),
        ("counts that are whole", 6, make.full((2,), 0, dtype="int32"), ArgumentError, r"steps must be \(2,\) float32"),
    ):
        args = (*plain.args[:place], arrays, *plain.args[place + 1 :])
        if not (label == "mixed parameters" and make.dtype == "float64"):
            yield ErrorInput(Sample(args, label=label), error, match)


def _adam_work(params: Arrays, grads: Arrays, *states: Any, **hyper: Any) -> Work:
    """Everything read, everything but the gradients written."""
    lists = [one for one in states[:4] if one]
    return Work(bytes=2 * _nbytes(params, *lists) + _nbytes(grads), flops=14 * _size(params))


def _layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield _adam_sample(make, "", _layer(sizes))


def _two_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((_list(make, _layer(sizes)), _list(make, _layer(sizes))))


def _mul_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """By ones: run again and again, anything else would end in infinity or zero."""
    yield Sample((_list(make, _layer(sizes)), [make.full(shape, 1) for shape in _layer(sizes)]))


def _lerp_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((_list(make, _layer(sizes)), _list(make, _layer(sizes)), 0.3))


def _one_layer(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((_list(make, _layer(sizes)),))


def _norm_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    cells = [make.full((), value, dtype="float32") for value in (0, 0, 1)]
    yield Sample((_list(make, _layer(sizes)), *cells))


def _unscale_layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((_list(make, _layer(sizes)), *(make.full((), value, dtype="float32") for value in (0, 1))))


def _moved(passes: int) -> Any:
    """`passes` over the first list, one over a second."""

    def work(a: Arrays, b: Any = (), *more: Any, **scalars: Any) -> Work:
        return Work(bytes=passes * _nbytes(list(a)) + (_nbytes(b) if isinstance(b, list) else 0), flops=_size(a))

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
        op=ops.global_norm_, samples=_global_norms, reference=_global_norm, bench=_norm_layers, work=_moved(1),
    ),
    OpSpec(
        op=ops.fused_adam_, samples=_adams, reference=_adam, error_inputs=_adam_errors, bench=_layers,
        work=_adam_work, magnitude=lambda *args, **kwargs: _adam(*args, **kwargs, size=True),
    ),
)  # fmt: skip
