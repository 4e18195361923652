"""The OpSpec of the fused Adam step; implemented in ``devices/<kind>/optim.py``.

The op returns nothing. The test compares everything that it writes, one list after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cuassay import ops
from cuassay.arrays.dtypes import HALVES
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples
from cuassay.testing.specs.multi_tensor import LONG, SHAPES, Array, Arrays, flat, layer, list_of, nbytes_of, size_of

__all__ = ["SPECS"]


def _adam_lists(make: Samples, shapes: Sequence[tuple[int, ...]], *, amsgrad: bool, states: str | None) -> list[Any]:
    second = {"low": 0.1, "high": 2.0, "dtype": states}
    return [
        list_of(make, shapes),
        list_of(make, shapes),
        list_of(make, shapes, dtype=states),
        list_of(make, shapes, **second),
        list_of(make, shapes, **second) if amsgrad else [],
    ]


def _adam_sample(
    make: Samples,
    label: str,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    *,
    amsgrad: bool = False,
    states: str | None = None,
    master: bool = False,
    lr: Any = 0.01,
    cells: Sequence[float | None] = (None, None, None),
    **kwargs: Any,
) -> Sample:
    """A step in mid-training, with nonzero moments and counts. `cells` are grad_scale, found_inf and norm."""
    lists = _adam_lists(make, shapes, amsgrad=amsgrad, states=states)
    masters = list_of(make, shapes, dtype="float32") if master else []
    steps = make.of(range(3, 3 + len(shapes)), dtype="float32")
    scalars = [None if value is None else make.full((), value, dtype="float32") for value in cells]
    return Sample((*lists, masters, steps, lr, *scalars), kwargs, label)


def _adams(make: Samples) -> Iterator[Sample]:
    rate = make.full((), 0.0625, dtype="float32")
    yield _adam_sample(make, "plain")
    yield _adam_sample(make, "long", LONG, weight_decay=0.1)
    yield _adam_sample(make, "decoupled decay", weight_decay=0.1, decoupled=True)
    yield _adam_sample(make, "decoupled decay, a rate on the device", weight_decay=0.5, decoupled=True, lr=rate)
    yield _adam_sample(make, "amsgrad, maximized", amsgrad=True, maximize=True, lr=rate)
    yield _adam_sample(make, "a rate in double", lr=make.full((), 0.01, dtype="float64"))
    yield _adam_sample(make, "maximized, decay", maximize=True, weight_decay=0.5)
    yield _adam_sample(make, "scaled", cells=(8.0, 0.0, None), beta1=0.0)
    yield _adam_sample(make, "clipped", cells=(None, None, 40.0), max_norm=10.0)
    yield _adam_sample(make, "not clipped", cells=(2.0, 0.0, 7.0), max_norm=10.0, zero_grads=True)
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
    """Algorithm 1 of arXiv 1412.6980. With `size`, the sum of the absolute values of the terms instead."""
    a = np.abs if size else np.asarray
    if found_inf is not None and found_inf != 0:
        left = [np.zeros_like(grad) for grad in grads] if zero_grads else list(grads)
        states = list(exp_avgs), list(exp_avg_sqs), list(max_exp_avg_sqs), list(masters)
        return a(flat(list(params), left, *states, steps))
    scale, clip = 1.0 if grad_scale is None else grad_scale, 1.0
    if max_norm is not None and norm > max_norm:
        clip = max_norm / (norm + 1e-6)
    lists: list[list[Any]] = [[], [], [], [], [], []]
    for i, grad in enumerate(grads):
        t, p, g = steps[i] + 1, (masters or params)[i], grad / scale * clip
        slope = (-g if maximize else g) + (0 if decoupled else weight_decay) * p
        terms = np.abs(g) + weight_decay * np.abs(p) if size else slope  # the terms may cancel
        m = a(beta1 * exp_avgs[i]) + a((1 - beta1) * terms)
        v = beta2 * exp_avg_sqs[i] + (1 - beta2) * slope**2
        x = np.maximum(max_exp_avg_sqs[i], v) if max_exp_avg_sqs else v
        step = lr / _rest(beta1, t) * m / (np.sqrt(x / _rest(beta2, t)) + eps)
        p = a(p) + a(-step) - (a(lr * weight_decay * p) if decoupled else 0) * (-1 if size else 1)
        new = (p, np.zeros_like(g) if zero_grads else g, m, v, x, p)
        for one, value, there in zip(lists, new, (1, 1, 1, 1, max_exp_avg_sqs, masters), strict=True):
            if there:
                one.append(a(value))
    return flat(*lists, steps + 1)


def _rest(beta: float, t: Any) -> Any:
    """``1 - beta**t`` with all digits; the plain difference loses two digits for a beta of 0.999."""
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
        ("an integer gradient", 1, [make(n, dtype="int32") for n in (3, 4)], DTypeError, "grads for"),
        ("mixed parameters", 0, [make(3), make(4, dtype="float64")], DTypeError, "must have one dtype"),
        ("a count missing", 6, make.full((1,), 0, dtype="float32"), ArgumentError, r"steps must be \(2,\) float32"),
        ("counts that are whole", 6, make.full((2,), 0, dtype="int32"), ArgumentError, r"steps must be \(2,\) float32"),
    ):
        args = (*plain.args[:place], arrays, *plain.args[place + 1 :])
        if not (label == "mixed parameters" and make.dtype == "float64"):
            yield ErrorInput(Sample(args, label=label), error, match)


def _adam_work(params: Arrays, grads: Arrays, *states: Any, **hyper: Any) -> Work:
    """The work of reading all arrays, and of writing all but the gradients."""
    lists = [one for one in states[:4] if one]
    return Work(bytes=2 * nbytes_of(params, *lists) + nbytes_of(grads), flops=14 * size_of(params))


def _layers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield _adam_sample(make, "", layer(sizes))


SPECS = (
    OpSpec(
        op=ops.fused_adam_, samples=_adams, reference=_adam, error_inputs=_adam_errors, bench=_layers,
        work=_adam_work, magnitude=lambda *args, **kwargs: _adam(*args, **kwargs, size=True),
    ),
)  # fmt: skip
