"""The OpSpec of convolution; implemented in ``devices/<kind>/conv.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, ShapeError
from cuassay.testing.default_samples import promoting
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples

__all__ = ["SPECS"]

Array = NDArray[Any]
Shape = tuple[int, ...]

#: Shapes of images and weight, and options: first one option at a time, then all together. Padding beyond the kernel's
#: reach is combined with a stride that does not divide it: the gradient by the image then begins within a step.
_WINDOWS: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((2, 3, 7, 6), (4, 3, 3, 2), {}),
    ((2, 3, 9, 5), (5, 3, 1, 1), {}),
    ((1, 4, 9, 8), (3, 4, 3, 3), {"stride": (2, 3)}),
    ((2, 3, 5, 6), (4, 3, 3, 3), {"padding": (1, 2)}),
    ((1, 2, 4, 5), (3, 2, 1, 1), {"stride": (1, 2), "padding": (2, 1)}),
    ((1, 2, 9, 9), (3, 2, 3, 2), {"dilation": (2, 3)}),
    ((2, 6, 5, 5), (4, 3, 2, 2), {"groups": 2}),
    ((2, 4, 6, 5), (8, 1, 3, 3), {"groups": 4, "padding": 1}),
    ((3, 4, 11, 12), (6, 2, 3, 2), {"stride": 2, "padding": (2, 1), "dilation": (1, 2), "groups": 2}),
)


def _convolutions(make: Samples) -> Iterator[Sample]:
    for a, weight, window in _WINDOWS:
        arrays = make(a, low=-1, high=1), make(weight, low=-1, high=1)
        yield Sample((*arrays, None), window)
        yield Sample((*arrays, make(weight[0])), window, f"{a}, {weight}, {window}, a bias")
    hollow: tuple[tuple[Shape, Shape], ...] = (((0, 3, 4, 4), (2, 3, 3, 3)), ((2, 3, 4, 4), (0, 3, 3, 3)))
    yield from (Sample((make(a), make(weight), make(weight[0])), kind="empty") for a, weight in hollow)
    yield Sample((make((2, 0, 4, 4)), make((3, 0, 3, 3)), make(3)), label="no channels: the bias", kind="empty")
    for other in promoting(make.dtype, "float16", "float32", "complex64"):
        mixed = make((1, 2, 4, 4)), make((3, 2, 2, 2), dtype=other), make(3)
        yield Sample(mixed, label=f"with {other}", kind="promotion")


def _errors(make: Samples) -> Iterator[ErrorInput]:
    a, weight = make((1, 4, 5, 5)), make((2, 4, 3, 3))
    yield ErrorInput(Sample((a, make((2, 3, 3, 3)), None), label="other channels"), ShapeError, "needs images")
    yield ErrorInput(Sample((a, weight, None), {"groups": 2}, "channels of one group"), ShapeError, "groups=2")
    yield ErrorInput(Sample((a, weight, make(3)), label="a bias too long"), ShapeError, "bias must have")
    yield ErrorInput(Sample((a, weight, None), {"dilation": 3}, "a window too wide"), ShapeError, "does not fit")
    for name, value in (("stride", 0), ("padding", -1), ("dilation", 1.5), ("stride", (1, 2, 3))):
        bad = Sample((a, weight, None), {name: value}, f"{name} {value}")
        yield ErrorInput(bad, ArgumentError, f"{name} must be a whole number")


def _conv2d(a: Array, weight: Array, bias: Array | None, **window: Any) -> Array:
    """Convolve with sliding windows and one einsum."""
    pair = {name: _pair(window.get(name, least)) for name, least in (("stride", 1), ("padding", 0), ("dilation", 1))}
    groups, filters = window.get("groups", 1), len(weight)
    padded = np.pad(a, ((0, 0), (0, 0), *((pad, pad) for pad in pair["padding"])))
    reach = [spread * (n - 1) + 1 for n, spread in zip(weight.shape[2:], pair["dilation"], strict=True)]
    (down, right), (tall, wide) = pair["stride"], pair["dilation"]
    seen = sliding_window_view(padded, reach, axis=(2, 3))[:, :, ::down, ::right, ::tall, ::wide]
    seen = seen.reshape(len(a), groups, a.shape[1] // groups, *seen.shape[2:])
    split = weight.reshape(groups, filters // groups, *weight.shape[1:])
    result = np.einsum("ngchwij,gocij->ngohw", seen, split).reshape(len(a), filters, *seen.shape[3:5])
    return np.asarray(result if bias is None else result + bias[:, None, None])


def _pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _magnitude(a: Array, weight: Array, bias: Array | None, **window: Any) -> Array:
    return _conv2d(np.abs(a), np.abs(weight), None if bias is None else np.abs(bias), **window)


def _bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a 3 by 3 layer of 64 channels, as at the start of residual networks."""
    yield Sample((make((sizes.batch, 64, 28, 28)), make((64, 64, 3, 3)), make(64)), {"padding": 1})


def _work(a: Array, weight: Array, bias: Array | None, **window: Any) -> Work:
    meta = ops.slow_conv2d.meta(a, weight, bias, **window)
    read = a.nbytes + weight.nbytes + (0 if bias is None else bias.nbytes)
    return Work(bytes=read + meta.nbytes, flops=2 * meta.size * weight[0].size * (4 if np.iscomplexobj(a) else 1))


SPECS = (
    OpSpec(
        op=ops.slow_conv2d, samples=_convolutions, reference=_conv2d, error_inputs=_errors, bench=_bench, work=_work,
        terms=lambda a, weight, bias, **window: weight[:1].size + 1, magnitude=_magnitude, supports_grad=True,
        like={"sim": "cpu"},
    ),
)  # fmt: skip
