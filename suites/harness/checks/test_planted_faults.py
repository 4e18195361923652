"""Faults planted in kernels, each a mistake somebody made once: a generated check that names the op finds it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from cuassay import devices, precision, set_default_precision
from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.sim.capture import SimCapture
from cuassay.errors import ArgumentError, DeviceError, RaceError
from cuassay.ops import Op, outputs, registry
from cuassay.random import GeneratorState
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.guards import guarded
from cuassay.testing.own_specs import own_specs

Kernel = Callable[..., None]
SPECS = {spec.name: spec for spec in own_specs()}


@dataclass(frozen=True)
class Fault:
    """`plant` turns a right kernel, or view, into a wrong one; `check` must find it in `dtype` ("": one for all)."""

    op: str
    what: str
    check: str
    dtype: str
    plant: Callable[[Kernel], Kernel]

    def __str__(self) -> str:
        return f"{self.op}: {self.what}".replace(" ", "-")


def last_element_wrong(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        kernel(*arrays, out=out, **scalars)
        if out.size:
            out[(-1,) * out.ndim] += 1

    return run


def tail_of_warp_missing(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        whole = np.empty(out.shape, out.dtype)
        kernel(*arrays, out=whole, **scalars)
        whole.reshape(-1)[out.size - out.size % 32 :] = 0
        out[...] = whole

    return run


def strides_ignored(kernel: Kernel) -> Kernel:
    def in_memory_order(a: Any) -> Any:
        return a.ravel(order="K").reshape(a.shape) if isinstance(a, np.ndarray) else a

    return lambda *arrays, out, **scalars: kernel(*map(in_memory_order, arrays), out=out, **scalars)


def list_strides_ignored(kernel: Kernel) -> Kernel:
    def run(arrays: Any, *, out: Any, axis: int) -> None:
        kernel([a.ravel(order="K").reshape(a.shape) for a in arrays], out=out, axis=axis)

    return run


def out_strides_ignored(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        whole = np.empty(out.shape, out.dtype)
        kernel(*arrays, out=whole, **scalars)
        start = out[tuple(slice(0, 1) for _ in out.shape)]
        flat = (
            np.lib.stride_tricks.as_strided(start, (out.size,), (abs(out.strides[-1]) // 2 or 1,)) if out.ndim else out
        )
        if out.ndim == 1 and out.strides[0] == 2 * out.itemsize:
            flat[...] = whole
        else:
            out[...] = whole

    return run


def outside_out_written(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        if out.ndim == 1 and out.strides[0] == 2 * out.itemsize:
            np.lib.stride_tricks.as_strided(out, (2 * out.size - 1,), (out.itemsize,))[...] = 0
        kernel(*arrays, out=out, **scalars)

    return run


def number_in_sixteen_bits(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        narrow = [a if getattr(a, "ndim", 0) else out.dtype.type(np.float16(a)) for a in arrays]
        kernel(*narrow, out=out, **scalars)

    return run


def long_rows_cut(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        kernel(*arrays, out=out, **scalars)
        out[..., 4096:] = 0

    return run


def positive_above_half_of_the_largest(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        kernel(*arrays, out=out, **scalars)
        np.abs(out, out=out, where=np.abs(out) > np.finfo(out.dtype).max / 2)

    return run


def off_by(relative: float) -> Callable[[Kernel], Kernel]:
    """Each result wrong by so much of itself."""

    def plant(kernel: Kernel) -> Kernel:
        def run(*arrays: Any, out: Any, **scalars: Any) -> None:
            kernel(*arrays, out=out, **scalars)
            out[...] = out * (1 + relative)

        return run

    return plant


def eps_ignored_in_rows(shortest: int) -> Callable[[Kernel], Kernel]:
    """Of that many numbers and more."""

    def plant(kernel: Kernel) -> Kernel:
        def run(*arrays: Any, out: Any, eps: float) -> None:
            kernel(*arrays, out=out, eps=0.0 if out.shape[-1] >= shortest else eps)

        return run

    return plant


def out_not_written(kernel: Kernel) -> Kernel:
    return lambda *arrays, out, **scalars: kernel(*arrays, out=out.copy(), **scalars)


def input_overwritten(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        kernel(*arrays, out=out, **scalars)
        arrays[0][...] = 0

    return run


def unlike_each_time(kernel: Kernel) -> Kernel:
    runs = count()

    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        kernel(*arrays, out=out, **scalars)
        if next(runs) % 2:
            out[...] = np.nextafter(out, np.inf)

    return run


def computed_in(dtype: str) -> Callable[[Kernel], Kernel]:
    def plant(kernel: Kernel) -> Kernel:
        def run(*arrays: Any, out: Any, **scalars: Any) -> None:
            narrow = [a.astype(as_dtype(dtype)).astype(a.dtype) if isinstance(a, np.ndarray) else a for a in arrays]
            kernel(*narrow, out=out, **scalars)

        return run

    return plant


def second_cast_to_first(kernel: Kernel) -> Kernel:
    return lambda a, b, out: kernel(a, np.asarray(b).astype(np.asarray(a).dtype), out=out)


def first_element_for_all(kernel: Kernel) -> Kernel:
    def run(a: Any, b: Any, *, out: Any) -> None:
        kernel(a, b if b.shape == out.shape or not b.size else np.full_like(b, b.flat[0]), out=out)

    return run


def fails_on_empty(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        _ = 1 // out.size  # a launch with a grid of zero blocks
        kernel(*arrays, out=out, **scalars)

    return run


def fails_on_zero_dim(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, out: Any, **scalars: Any) -> None:
        _ = out.shape[-1]
        kernel(*arrays, out=out, **scalars)

    return run


def scalars_changed(**changed: Any) -> Callable[[Kernel], Kernel]:
    return lambda kernel: lambda *arrays, out, **scalars: kernel(*arrays, out=out, **{**scalars, **changed})


def written_with(**changed: Any) -> Callable[[Kernel], Kernel]:
    """The same, of an op that makes no array, or several."""
    return lambda kernel: lambda *arrays, **scalars: kernel(*arrays, **{**scalars, **changed})


def given_as(changed: dict[int, Callable[[Any], Any]]) -> Callable[[Kernel], Kernel]:
    """The kernel gets other arrays, by place."""

    def plant(kernel: Kernel) -> Kernel:
        def run(*arrays: Any, **named: Any) -> None:
            kernel(*(changed.get(place, lambda same: same)(one) for place, one in enumerate(arrays)), **named)

        return run

    return plant


def cast_by(change: Callable[[Any], Any]) -> Callable[[Kernel], Kernel]:
    """The operand changed before it is cast."""
    return lambda kernel: lambda a, *, dtype, out: kernel(change(a), dtype=dtype, out=out)


def _chopped(a: Any) -> Any:
    """Without the bits that bfloat16 lacks: no rounding happens then."""
    return (np.ascontiguousarray(a).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def one_step_late(kernel: Kernel) -> Kernel:
    return lambda *arrays, growth_interval, **more: kernel(*arrays, growth_interval=growth_interval + 1, **more)


def instead(function: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """The kernel replaced by a NumPy expression."""

    def plant(kernel: Kernel) -> Kernel:
        def run(*arrays: Any, out: Any, **scalars: Any) -> None:
            with np.errstate(all="ignore"):
                out[...] = np.asarray(function(*arrays, **scalars)).astype(out.dtype).reshape(out.shape)

        return run

    return plant


def forms_swapped(kernel: Kernel) -> Kernel:
    other = {"none": "tanh", "tanh": "none"}
    return lambda a, *, out, approximate: kernel(a, out=out, approximate=other.get(approximate, approximate))


def other_axis(kernel: Kernel) -> Kernel:
    def run(a: Any, *, out: Any, axis: Any, **scalars: Any) -> None:
        square = a.ndim == 2 and axis in (0, 1, -1)
        turned = a.reshape(a.shape[::-1]).T if square else a
        kernel(turned, out=out, axis=axis, **scalars)

    return run


def _narrow_sum(a: Any, axis: Any, keepdims: bool) -> Any:
    """Every partial sum is rounded to the array's own dtype."""
    flat = a.reshape(-1) if axis is None else a
    return np.add.accumulate(flat, dtype=a.dtype, axis=0 if axis is None or isinstance(axis, tuple) else axis).take(
        -1, axis=0 if axis is None or isinstance(axis, tuple) else axis
    )


def sixteen_bit_sum(kernel: Kernel) -> Kernel:
    def run(a: Any, *, out: Any, axis: Any, keepdims: bool) -> None:
        if isinstance(axis, tuple) or keepdims or not a.ndim or not a.size:
            kernel(a, out=out, axis=axis, keepdims=keepdims)
        else:
            out[...] = _narrow_sum(a, axis, keepdims)

    return run


def sixteen_bit_product(kernel: Kernel) -> Kernel:
    def run(a: Any, b: Any, *, out: Any, **scalars: Any) -> None:
        if a.ndim == b.ndim == 2 and a.shape[1]:
            out[...] = np.add.accumulate(a[:, :, None] * b[None], axis=1)[:, -1]
        else:
            kernel(a, b, out=out, **scalars)

    return run


def last_of_k_missing(kernel: Kernel) -> Kernel:
    def run(a: Any, b: Any, *, out: Any, **scalars: Any) -> None:
        tail = a.shape[-1] % 2 and a.ndim == b.ndim
        kernel(a[..., :-1] if tail else a, b[..., :-1, :] if tail and b.ndim > 1 else b, out=out, **scalars)

    return run


def first_matrix_for_all(kernel: Kernel) -> Kernel:
    return lambda a, b, **scalars: kernel(a, b[:1].repeat(len(b), 0), **scalars)


def last_group_missing(kernel: Kernel) -> Kernel:
    return lambda a, b, *, out, offs, **scalars: kernel(
        a, b, out=out, offs=(*offs[:-1], offs[-2] if offs[1:] else 0), **scalars
    )


def weight_not_transposed(kernel: Kernel) -> Kernel:
    def run(a: Any, weight: Any, bias: Any, *, out: Any, **scalars: Any) -> None:
        kernel(a, weight.reshape(weight.shape[::-1]).T, bias, out=out, **scalars)

    return run


def scales_exchanged(kernel: Kernel) -> Kernel:
    def run(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, *, out: Any, **scalars: Any) -> None:
        kernel(a, b, np.full_like(scale_a, scale_a.flat[0]), scale_b, bias, out=out, **scalars)

    return run


def weight_changed(change: Callable[[Any], Any]) -> Callable[[Kernel], Kernel]:
    """Integer weights are changed before they are multiplied."""
    return lambda kernel: lambda a, weight, *others, **scalars: kernel(a, change(weight), *others, **scalars)


def halves_exchanged(weight: Any) -> Any:
    return weight if weight.dtype == np.int8 else weight << 4 | weight >> 4


def first_group_for_all(kernel: Kernel) -> Kernel:
    def run(a: Any, weight: Any, scale: Any, bias: Any, **scalars: Any) -> None:
        kernel(a, weight, scale if scale.ndim == 1 else np.broadcast_to(scale[:, :1], scale.shape), bias, **scalars)

    return run


def after(spoil: Callable[[list[Any]], None]) -> Callable[[Kernel], Kernel]:
    """The kernel of an op over lists computes, then `spoil` gets its first list, the one that is written."""

    def plant(kernel: Kernel) -> Kernel:
        def run(a: Any, *rest: Any, **scalars: Any) -> None:
            kernel(a, *rest, **scalars)
            spoil(a)

        return run

    return plant


def last_element_zero(arrays: list[Any]) -> None:
    for array in arrays:
        array.reshape(-1)[-1:] = 0


def last_array_doubled(arrays: list[Any]) -> None:
    arrays[-1][...] *= 2


def vh_not_conjugate(kernel: Kernel) -> Kernel:
    def run(a: Any, u: Any, s: Any, vh: Any, info: Any, **scalars: Any) -> None:
        kernel(a, u, s, vh, info, **scalars)
        np.conjugate(vh, out=vh)

    return run


def adam_with(**changed: Any) -> Callable[[Kernel], Kernel]:
    """Adam with other arguments, by name."""

    def plant(kernel: Kernel) -> Kernel:
        names = ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "masters", "steps", "lr")
        names += ("grad_scale", "found_inf", "norm")

        def run(*arrays: Any, **scalars: Any) -> None:
            kernel(**{**dict(zip(names, arrays, strict=True)), **scalars, **changed})

        return run

    return plant


def counted_when_skipped(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, **scalars: Any) -> None:
        kernel(*arrays, **scalars)
        found_inf = arrays[9]
        if found_inf is not None and found_inf != 0:
            arrays[6][...] += 1

    return run


def counted_twice(kernel: Kernel) -> Kernel:
    def run(*arrays: Any, **scalars: Any) -> None:
        arrays[6][...] += 1
        kernel(*arrays, **scalars)
        arrays[6][...] -= 1

    return run


def decay_maximized(kernel: Kernel) -> Kernel:
    """The decay added before the sign is turned."""

    def run(*arrays: Any, weight_decay: float, maximize: bool, decoupled: bool, **more: Any) -> None:
        turned = -weight_decay if maximize and not decoupled else weight_decay
        kernel(*arrays, weight_decay=turned, maximize=maximize, decoupled=decoupled, **more)

    return run


def flags_counted(kernel: Kernel) -> Kernel:
    """One more for each array that is not finite."""

    def run(grads: Any, found_inf: Any, inv_scale: Any) -> None:
        bad = sum(not np.isfinite(grad.astype(np.float64)).all() for grad in grads)
        kernel(grads, found_inf, inv_scale)
        found_inf[...] = max(bad, found_inf)

    return run


def inverted(kernel: Kernel) -> Kernel:
    def run(like: Any, *, out: Any, **scalars: Any) -> None:
        kernel(like, out=out, **scalars)
        np.logical_not(out, out=out)

    return run


def instead_of_zero(kernel: Kernel) -> Kernel:
    def run(a: Any) -> None:
        for array in a:
            array[...] += array

    return run


def second_list_zero(kernel: Kernel) -> Kernel:
    """The list that is only read is written."""

    def run(a: Any, b: Any, **scalars: Any) -> None:
        kernel(a, b, **scalars)
        for array in b if isinstance(b, list) else ():
            array[...] = 0

    return run


def finite_always(kernel: Kernel) -> Kernel:
    def run(grads: Any, norm: Any, found_inf: Any, grad_scale: Any, **scalars: Any) -> None:
        kernel(grads, norm, None, grad_scale, **scalars)
        found_inf[...] = 0

    return run


def number_first_exchanged(kernel: Kernel) -> Kernel:
    """A kernel that expects the number at the right."""

    def run(a: Any, b: Any, *, out: Any) -> None:
        first, second = (b, a) if np.ndim(a) == 0 else (a, b)
        kernel(first, second, out=out)

    return run


def after_least(start: int) -> Callable[[Kernel], Kernel]:
    """The minimum of the elements and of one more number."""

    def plant(kernel: Kernel) -> Kernel:
        def run(a: Any, *, out: Any, **scalars: Any) -> None:
            kernel(a, out=out, **scalars)
            np.minimum(out, start, out=out)

        return run

    return plant


def tiles_apart(kernel: Kernel) -> Kernel:
    """The sum begins again after 1,024 elements."""

    def run(a: Any, *, axis: int, out: Any) -> None:
        kernel(a, axis=axis, out=out)
        if a.ndim == 2 and axis == 1 and a.shape[1] > 1024:
            out[:, 1024:] -= out[:, 1023:1024]

    return run


def moved_to_the_end(kernel: Kernel) -> Kernel:
    return lambda a, *, widths, value, out: kernel(a, widths=[pair[::-1] for pair in widths], value=value, out=out)


def last_of_equals(kernel: Kernel) -> Kernel:
    def run(a: Any, *, axis: Any, keepdims: bool, out: Any) -> None:
        turned = a.reshape(-1)[::-1] if axis is None else np.flip(a, axis)
        kernel(turned, axis=0 if axis is None else axis, keepdims=keepdims, out=out if axis is not None else out[...])
        out[...] = (a.size if axis is None else a.shape[axis]) - 1 - out

    return run


def last_of_each_segment(kernel: Kernel) -> Kernel:
    """Written, not added."""

    def run(a: Any, index: Any, *, out: Any, **scalars: Any) -> None:
        out[...] = 0
        out[index] = a

    return run


def added_in_sixteen_bits(kernel: Kernel) -> Kernel:
    def run(a: Any, index: Any, *, out: Any, **scalars: Any) -> None:
        out[...] = 0
        for place in np.ndindex(index.shape):
            out[index[place]] += a[place]

    return run


def first_of_row(index: Any) -> Any:
    return np.broadcast_to(index[..., :1], index.shape)


def first_for_all(arrays: Any) -> Any:
    return [arrays[0] if one.shape == arrays[0].shape else one for one in arrays]


def last_zero(a: Any) -> Any:
    changed = a.copy()
    changed[(-1,) * a.ndim if a.size else ...] = 0
    return changed


def least_bound_last(kernel: Kernel) -> Kernel:
    """Where the bounds are in the wrong order, the lower one."""

    def run(a: Any, *, out: Any, **bounds: Any) -> None:
        kernel(a, out=out, **bounds)
        if None not in bounds.values() and bounds["min"] > bounds["max"]:
            out[...] = bounds["min"]

    return run


def viewed(function: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """A view replaced by another one, where that has the same shape."""

    def plant(view: Kernel) -> Kernel:
        def run(a: Any, **scalars: Any) -> Any:
            right = view(a, **scalars)
            try:
                wrong = function(a, **scalars)
            except ValueError:
                return right
            return wrong if wrong.shape == right.shape else right

        return run

    return plant


def _spread_to_the_right(a: Any, shape: Any) -> Any:
    """Square results alone: a column for a row."""
    return np.broadcast_to(a.reshape(*a.shape, *(1,) * (len(shape) - a.ndim)), shape)


def scalars_set(**changed: Any) -> Callable[[Kernel], Kernel]:
    """Other scalars, where the view keeps its shape."""

    def plant(view: Kernel) -> Kernel:
        return viewed(lambda a, **scalars: view(a, **{**scalars, **changed}))(view)

    return plant


def copied(view: Kernel) -> Kernel:
    return lambda a, **scalars: view(a, **scalars).copy()


def memory_order(view: Kernel) -> Kernel:
    def run(a: Any, *, shape: Any) -> Any:
        return view(a.T if a.ndim == 2 and a.strides[0] < a.strides[1] else a, shape=shape)

    return run


def reversed_values(view: Kernel) -> Kernel:
    def run(a: Any, **scalars: Any) -> Any:
        found = view(a, **scalars)
        return found[(slice(None, None, -1),) * found.ndim]

    return run


def _unshifted(a: Any, axis: int) -> Any:
    weights = np.exp(a)
    return weights / weights.sum(axis=axis, keepdims=True)


def _log_of_sum(a: Any, axis: Any, keepdims: bool) -> Any:
    return np.log(np.sum(np.exp(a), axis=axis, keepdims=keepdims))


def _normal(variance: Callable[[Any], Any]) -> Callable[..., Any]:
    def layer_norm(a: Any, weight: Any, bias: Any, *, eps: float) -> Any:
        return (a - a.mean(-1, keepdims=True)) / np.sqrt(variance(a) + a.dtype.type(eps)) * weight + bias

    return layer_norm


def _cancelling(a: Any) -> Any:
    return np.mean(a * a, -1, keepdims=True) - np.mean(a, -1, keepdims=True) ** 2


def drawn_in(dtype: str) -> Callable[[Kernel], Kernel]:
    def plant(kernel: Kernel) -> Kernel:
        def run(like: Any, *, out: Any, **scalars: Any) -> None:
            drawn = np.empty(out.shape, as_dtype(dtype))
            kernel(like, out=drawn, **scalars)
            out[...] = drawn.astype(out.dtype)

        return run

    return plant


FAULTS = (
    Fault("add", "last element", "values", "float32", last_element_wrong),
    Fault("add", "tail of a warp", "values", "int32", tail_of_warp_missing),
    Fault("add", "strides", "layouts", "bfloat16", strides_ignored),
    Fault("add", "strides of out", "out", "float32", out_strides_ignored),
    Fault("add", "out not written", "out", "float32", out_not_written),
    Fault("add", "outside of out written", "out", "float32", outside_out_written),
    Fault("add", "input overwritten", "inputs_unchanged", "float64", input_overwritten),
    Fault("add", "not deterministic", "deterministic", "float32", unlike_each_time),
    Fault("add", "second operand cast", "promotion", "int32", second_cast_to_first),
    Fault("add", "scalar cast", "python_scalars", "int8", instead(lambda a, b: np.asarray(a) + 0 * np.asarray(b))),
    Fault("add", "number in 16 bits", "python_scalars", "float32", number_in_sixteen_bits),
    Fault("add", "broadcast", "broadcast", "float32", first_element_for_all),
    Fault("add", "empty", "zero_size", "float32", fails_on_empty),
    Fault("add", "0-d", "zero_dim", "float32", fails_on_zero_dim),
    Fault("add", "saturates", "extremal", "int8", instead(lambda a, b: np.clip(a.astype(int) + b, -128, 127))),
    Fault("mul", "added", "values", "float8_e5m2", instead(lambda a, b: np.add(a, b))),
    Fault("mul", "float64 in float32", "values", "float64", computed_in("float32")),
    Fault("mul", "no complex part", "values", "complex64", instead(lambda a, b: np.real(a) * np.real(b))),
    Fault("mul", "infinity clipped", "extremal", "float16", instead(lambda a, b: np.clip(a * b, -65504, 65504))),
    Fault("sub", "exchanged", "values", "float32", instead(lambda a, b: b - a)),
    Fault("sub", "number exchanged", "python_scalars", "float32", number_first_exchanged),
    Fault("div", "exchanged", "values", "float64", instead(lambda a, b: b / a)),
    Fault("div", "number exchanged", "python_scalars", "bfloat16", number_first_exchanged),
    Fault("neg", "absolute value", "values", "float32", instead(lambda a: -np.abs(a))),
    Fault("neg", "strides", "layouts", "float16", strides_ignored),
    Fault("sqrt", "NaN swallowed", "extremal", "float32", instead(lambda a: np.nan_to_num(np.sqrt(a)))),
    Fault("sqrt", "by 20 ulps", "values", "float32", off_by(20 * 2**-23)),
    Fault("log", "base two", "values", "float32", instead(np.log2)),
    Fault("log", "of 0 finite", "extremal", "float64", instead(lambda a: np.maximum(np.log(a), -700))),
    Fault("tanh", "rational", "values", "float32", instead(lambda a: a / (1 + np.abs(a)))),
    Fault("tanh", "in 16 bits", "values", "float32", computed_in("float16")),
    Fault("sigmoid", "tanh", "values", "float32", instead(np.tanh)),
    Fault("sigmoid", "NaN swallowed", "extremal", "float32", instead(lambda a: np.nan_to_num(1 / (1 + np.exp(-a))))),
    Fault("gelu_backward", "forms swapped", "values", "float32", forms_swapped),
    Fault("gelu_backward", "gradient left out", "values", "float32", lambda k: lambda g, a, **s: k(1.0, a, **s)),
    Fault("equal", "the other way round", "values", "int32", inverted),
    Fault("equal", "NaN equals NaN", "extremal", "float32", instead(lambda a, b: np.isclose(a, b, 0, 0, True))),
    Fault("less_equal", "less", "values", "float32", instead(lambda a, b: a < b)),
    Fault("less_equal", "not greater", "extremal", "float64", instead(lambda a, b: ~(a > b))),
    Fault("abs", "negated", "values", "float32", instead(np.negative)),
    Fault("abs", "saturates", "extremal", "int8", instead(lambda a: np.minimum(np.abs(a.astype(int)), 127))),
    Fault("sign", "NaN passed on", "extremal", "float32", instead(np.sign)),
    Fault("sign", "zero is positive", "extremal", "int32", instead(lambda a: np.where(a < 0, -1, 1))),
    Fault("rsqrt", "square root", "values", "float32", instead(np.sqrt)),
    Fault("rsqrt", "of 0 finite", "extremal", "float64", instead(lambda a: np.minimum(1 / np.sqrt(a), 1e300))),
    Fault("reciprocal", "by 20 ulps", "values", "float32", off_by(20 * 2**-23)),
    Fault("reciprocal", "NaN swallowed", "extremal", "float32", instead(lambda a: np.nan_to_num(1 / a))),
    Fault("expm1", "cancels", "extremal", "float32", instead(lambda a: np.exp(a) - 1)),
    Fault("expm1", "exp", "values", "float64", instead(np.exp)),
    Fault("log1p", "cancels", "extremal", "float64", instead(lambda a: np.log(1 + a))),
    Fault("log1p", "log", "values", "float32", instead(np.log)),
    Fault("sin", "cosine", "values", "float32", instead(np.cos)),
    Fault("sin", "in 16 bits", "values", "float32", computed_in("float16")),
    Fault("cos", "of degrees", "values", "float64", instead(lambda a: np.cos(np.deg2rad(a)))),
    Fault("cos", "large numbers not reduced", "extremal", "float32", instead(lambda a: np.cos(np.clip(a, -1e4, 1e4)))),
    Fault("erf", "tanh form", "values", "float32", instead(lambda a: np.tanh(1.1283792 * a + 0.10091 * a**3))),
    Fault("erf", "beyond 6", "extremal", "float32", instead(lambda a: np.where(np.abs(a) < 6, a, np.nan))),
    Fault("silu", "sigmoid", "values", "float32", instead(lambda a: 1 / (1 + np.exp(-a)))),
    Fault("silu", "by tanh", "values", "bfloat16", instead(lambda a: a * (0.5 + 0.47 * np.tanh(0.5 * a)))),
    Fault("pow", "exchanged", "values", "float32", instead(lambda a, b: b**a)),
    Fault("pow", "NaN wins", "extremal", "float64", instead(lambda a, b: np.where(np.isnan(a + b), np.nan, a**b))),
    Fault("maximum", "NaN swallowed", "extremal", "float32", instead(np.fmax)),
    Fault("maximum", "through float32", "values", "int64", computed_in("float32")),
    Fault("minimum", "largest", "values", "float32", instead(np.maximum)),
    Fault("minimum", "NaN swallowed", "extremal", "bfloat16", instead(np.fmin)),
    Fault("clamp", "least bound last", "values", "float32", least_bound_last),
    Fault("clamp", "only from below", "values", "int32", scalars_changed(max=None)),
    Fault("clamp", "NaN is 1", "extremal", "float32", lambda k: lambda a, **s: k(np.where(np.isnan(a), 1, a), **s)),
    Fault("not_equal", "equal", "values", "int32", inverted),
    Fault("not_equal", "NaN equals NaN", "extremal", "float32", instead(lambda a, b: ~np.isclose(a, b, 0, 0, True))),
    Fault("less", "or equal", "values", "float32", instead(np.less_equal)),
    Fault("less", "not greater or equal", "extremal", "float64", instead(lambda a, b: ~(a >= b))),
    Fault("greater", "or equal", "values", "int8", instead(np.greater_equal)),
    Fault("greater", "exchanged", "values", "float32", instead(np.less)),
    Fault("greater_equal", "greater", "values", "float32", instead(np.greater)),
    Fault("greater_equal", "not less", "extremal", "float32", instead(lambda a, b: ~(a < b))),
    Fault("logical_and", "or", "values", "int32", instead(np.logical_or)),
    Fault("logical_and", "NaN is 0", "extremal", "float32", instead(lambda a, b: (abs(a) > 0) & (abs(b) > 0))),
    Fault("logical_or", "exclusive", "values", "bool", instead(np.logical_xor)),
    Fault("logical_or", "of the bits", "values", "float32", instead(lambda a, b: (a + b) != 0)),
    Fault("logical_xor", "or", "values", "uint8", instead(np.logical_or)),
    Fault("logical_xor", "unlike", "values", "float32", instead(np.not_equal)),
    Fault("logical_not", "whether it is not 0", "values", "float32", inverted),
    Fault("logical_not", "NaN is 0", "extremal", "float32", instead(lambda a: ~(np.abs(a) > 0))),
    Fault("amin", "of magnitudes", "values", "float32", given_as({0: np.abs})),
    Fault("amin", "starts at 0", "values", "int32", after_least(0)),
    Fault("argmax", "the last", "values", "float32", last_of_equals),
    Fault("argmax", "NaN swallowed", "extremal", "float32", given_as({0: lambda a: np.where(np.isnan(a), -1, a)})),
    Fault("prod", "sum", "values", "float32", instead(lambda a, axis, keepdims: np.sum(a, axis, keepdims=keepdims))),
    Fault("prod", "without signs", "values", "int16", given_as({0: np.abs})),
    Fault("mean", "sum", "values", "float32", instead(lambda a, axis, keepdims: np.sum(a, axis, keepdims=keepdims))),
    Fault("mean", "other axis", "values", "float64", scalars_changed(axis=None)),
    Fault("var", "correction ignored", "values", "float32", scalars_changed(correction=0)),
    Fault("var", "of twice the numbers", "values", "float32", given_as({0: lambda a: 2 * a})),
    Fault("cumsum", "without the last tile's sum", "values", "float32", tiles_apart),
    Fault("cumsum", "other axis", "values", "int32", scalars_changed(axis=0)),
    Fault("pad", "value ignored", "values", "float32", scalars_changed(value=0)),
    Fault("pad", "before and after exchanged", "values", "int8", moved_to_the_end),
    Fault("cat", "the first for all", "values", "float32", given_as({0: first_for_all})),
    Fault("cat", "other order", "values", "int16", instead(lambda a, axis: np.concatenate(a[::-1], axis))),
    Fault("cat", "strides", "layouts", "float32", list_strides_ignored),
    Fault("stack", "the first for all", "values", "complex64", given_as({0: first_for_all})),
    Fault("stack", "last axis", "values", "bool", scalars_changed(axis=-1)),
    Fault("logsumexp", "not shifted", "values", "float32", instead(_log_of_sum)),
    Fault("logsumexp", "base two", "values", "float64", off_by(0.4427)),
    Fault("log_softmax", "not shifted", "values", "float32", instead(lambda a, axis: np.log(_unshifted(a, axis)))),
    Fault("log_softmax", "softmax", "values", "float64", instead(_unshifted)),
    Fault("embedding", "the next row", "values", "float32", given_as({0: lambda index: np.roll(index, 1)})),
    Fault("embedding", "strides", "layouts", "bfloat16", strides_ignored),
    Fault("gather", "the first of a row for all", "values", "int32", given_as({1: first_of_row})),
    Fault("gather", "the first", "values", "float32", given_as({1: lambda index: 0 * index})),
    Fault("segment_sum", "last for all", "values", "float32", last_of_each_segment),
    Fault("segment_sum", "16-bit accumulator", "values", "bfloat16", added_in_sixteen_bits),
    Fault("scatter_sum", "last element left out", "values", "float32", given_as({0: last_zero})),
    Fault("scatter_sum", "index of 8 bits", "values", "float64", given_as({1: lambda i: i % 32})),
    Fault("index_add", "a not read", "values", "float32", given_as({0: np.zeros_like})),
    Fault("index_add", "source subtracted", "values", "bfloat16", given_as({2: np.negative})),
    Fault("where", "exchanged", "values", "float32", lambda k: lambda c, a, b, **s: k(c, b, a, **s)),
    Fault("where", "NaN swallowed", "extremal", "float32", instead(lambda c, a, b: np.nan_to_num(np.where(c, a, b)))),
    Fault("expand", "axes to the right", "values", "float32", viewed(_spread_to_the_right)),
    Fault("expand", "a copy", "aliasing", "", copied),
    Fault("permute", "the inverse", "values", "float32", viewed(lambda a, axes: a.transpose(np.argsort(axes)))),
    Fault("permute", "a copy", "aliasing", "", copied),
    Fault("transpose", "the last two axes", "values", "float64", scalars_set(axis0=-1, axis1=-2)),
    Fault("transpose", "reversed", "values", "int8", viewed(lambda a, axis0, axis1: a.T)),
    Fault("reshape", "in memory order", "layouts", "float32", memory_order),
    Fault("reshape", "always a copy", "aliasing", "", copied),
    Fault("slice", "step ignored", "values", "bool", written_with(step=1)),
    Fault("slice", "from the front", "values", "complex64", written_with(start=None)),
    Fault("squeeze", "the last place", "values", "float32", reversed_values),
    Fault("squeeze", "a copy", "aliasing", "", copied),
    Fault("unsqueeze", "the last place", "values", "float32", reversed_values),
    Fault("unsqueeze", "a copy", "aliasing", "", copied),
    Fault("exp", "base two", "values", "float32", instead(lambda a: np.exp2(a))),
    Fault("exp", "rows longer than 4096", "values", "float32", long_rows_cut),
    Fault("exp", "by 20 ulps", "values", "float32", off_by(20 * 2**-23)),
    Fault("exp", "in 16 bits", "values", "float32", computed_in("float16")),
    Fault("exp", "out not written", "out", "complex64", out_not_written),
    Fault("relu", "NaN swallowed", "extremal", "float32", instead(lambda a: np.fmax(a, 0))),
    Fault("relu", "absolute value", "values", "int8", instead(np.abs)),
    Fault("relu", "in-place ignored", "inplace", "float32", out_not_written),
    Fault("gelu", "erf and tanh swapped", "values", "float32", forms_swapped),
    Fault("gelu", "sigmoid form", "values", "float32", instead(lambda a, **k: a / (1 + np.exp(-1.702 * a)))),
    Fault("softmax", "other axis", "values", "float32", scalars_changed(axis=0)),
    Fault("softmax", "not shifted", "values", "float32", instead(_unshifted)),
    Fault("softmax", "NaN swallowed", "extremal", "float32", instead(lambda a, axis: np.nan_to_num(a))),
    Fault("softmax", "empty", "zero_size", "float32", fails_on_empty),
    Fault("softmax_backward", "other axis", "values", "float32", scalars_changed(axis=0)),
    Fault("softmax_backward", "sum left out", "values", "float64", instead(lambda g, y, axis: g * y)),
    Fault("layer_norm_backward", "eps ignored", "values", "float32", scalars_changed(eps=0.0)),
    Fault("layer_norm_backward", "eps ignored in long rows", "values", "float32", eps_ignored_in_rows(1025)),
    Fault("layer_norm", "eps ignored in long rows", "values", "float32", eps_ignored_in_rows(1025)),
    Fault("layer_norm", "eps ignored in wide rows", "values", "float32", eps_ignored_in_rows(100_000)),
    Fault("layer_norm_backward", "no weight", "values", "float64", lambda k: lambda g, a, w, **s: k(g, a, w / w, **s)),
    Fault("layer_norm", "eps ignored", "values", "float32", scalars_changed(eps=0.0)),
    Fault("layer_norm", "unbiased", "values", "float32", instead(_normal(lambda a: a.var(-1, ddof=1, keepdims=True)))),
    Fault("layer_norm", "cancellation", "values", "float32", instead(_normal(_cancelling))),
    Fault("layer_norm", "weight for bias", "values", "bfloat16", lambda k: lambda a, w, b, **s: k(a, b, w, **s)),
    Fault("sum", "16-bit accumulator", "values", "bfloat16", sixteen_bit_sum),
    Fault("sum", "16-bit accumulator", "values", "float16", sixteen_bit_sum),
    Fault("sum", "8-bit accumulator", "values", "int8", sixteen_bit_sum),
    Fault("sum", "other axis", "values", "float32", other_axis),
    Fault("sum", "of nothing is one", "zero_size", "float32", instead(lambda a, axis, keepdims: np.sum(a, axis) + 1)),
    Fault("amax", "NaN swallowed", "extremal", "float32", instead(lambda a, axis, keepdims: np.fmax.reduce(a, axis))),
    Fault("amax", "starts at zero", "values", "float32", instead(lambda a, axis, keepdims: np.max(a, axis, initial=0))),
    Fault("amax", "strides", "layouts", "int64", strides_ignored),
    Fault("matmul", "last of K", "values", "float32", last_of_k_missing),
    Fault("matmul", "16-bit accumulator", "values", "bfloat16", sixteen_bit_product),
    Fault("matmul", "conjugated", "values", "complex128", instead(lambda a, b, **s: np.matmul(np.conj(a), b))),
    Fault("matmul", "float32 in tf32", "values", "float32", computed_in("bfloat16")),
    Fault("matmul", "strides", "layouts", "float64", strides_ignored),
    Fault("mm", "last of K", "values", "float32", last_of_k_missing),
    Fault("mm", "16-bit accumulator", "values", "float16", sixteen_bit_product),
    Fault("mm", "last of K", "values", "float32", last_of_k_missing),
    Fault("bmm", "last of K", "values", "float64", last_of_k_missing),
    Fault("bmm", "the first of each", "values", "float32", first_matrix_for_all),
    Fault("addmm", "beta ignored", "values", "float32", scalars_changed(beta=1.0)),
    Fault("addmm", "alpha ignored", "values", "float32", scalars_changed(alpha=1.0)),
    Fault("addmm", "no activation", "values", "bfloat16", scalars_changed(activation=None)),
    Fault("baddbmm", "beta ignored", "values", "complex64", scalars_changed(beta=1.0)),
    Fault("baddbmm", "alpha ignored", "values", "float32", scalars_changed(alpha=1.0)),
    Fault("linear", "not transposed", "values", "float32", weight_not_transposed),
    Fault("linear", "no activation", "values", "float16", scalars_changed(activation=None)),
    Fault("grouped_mm", "last group", "values", "float32", last_group_missing),
    Fault("grouped_mm", "one matrix for all", "values", "bfloat16", first_matrix_for_all),
    Fault("scaled_mm", "one scale for all rows", "values", "float8_e4m3fn", scales_exchanged),
    Fault("scaled_mm", "bias left out", "values", "uint8", lambda k: lambda *arrays, **s: k(*arrays[:4], None, **s)),
    Fault("mixed_linear", "halves of 4 bits exchanged", "values", "float32", weight_changed(halves_exchanged)),
    Fault("mixed_linear", "the least of 8 bits limited", "values", "float32",
          weight_changed(lambda weight: np.maximum(weight, -127) if weight.dtype == np.int8 else weight)),
    Fault("mixed_linear", "one scale for all groups", "values", "float16", first_group_for_all),
    Fault("mixed_linear", "bias left out", "values", "float32",
          lambda k: lambda *arrays, **s: k(*arrays[:3], None, **s)),
    Fault("copy", "tail of a warp", "values", "bool", tail_of_warp_missing),
    Fault("copy", "strides", "layouts", "complex128", strides_ignored),
    Fault("copy", "sign of large numbers", "extremal", "float32", positive_above_half_of_the_largest),
    Fault("copy", "NaN swallowed", "extremal", "float16", instead(lambda a, device: np.nan_to_num(a))),
    Fault("uniform", "state ignored", "values", "float64", scalars_changed(state=GeneratorState(1))),
    Fault("uniform", "upper bound ignored", "values", "float32", scalars_changed(high=7.0)),
    Fault("uniform", "24 bits rounded to nearest", "values", "bfloat16", drawn_in("float32")),
    Fault("uniform", "strides of out", "out", "float32", out_strides_ignored),
    Fault("normal", "mean ignored", "values", "float16", scalars_changed(mean=0.0)),
    Fault("normal", "in 16 bits", "values", "float32", drawn_in("float16")),
    Fault("integers", "lower bound ignored", "values", "int32", scalars_changed(low=0)),
    Fault("integers", "last element", "values", "uint64", last_element_wrong),
    Fault("permutation", "in order", "values", "int64", instead(lambda like, state: np.arange(like.size))),
    Fault("permutation", "state ignored", "values", "int32", scalars_changed(state=GeneratorState(1))),
    Fault("bernoulli", "the other probability", "values", "float32", lambda k: lambda p, **s: k(1 - p, **s)),
    Fault("bernoulli", "state ignored", "values", "float32", scalars_changed(state=GeneratorState(1))),
    Fault("dropout_mask", "probability ignored", "values", "float32", scalars_changed(p=0.5)),
    Fault("dropout_mask", "the other way round", "values", "float32", inverted),
    Fault("dropout", "probability ignored", "values", "bfloat16", scalars_changed(p=0.5)),
    Fault("dropout", "strides", "layouts", "float32", strides_ignored),
    Fault("foreach_add_", "last elements", "values", "float32", after(last_element_zero)),
    Fault("foreach_add_", "alpha ignored", "values", "float32", scalars_changed(alpha=1)),
    Fault("foreach_mul_", "last array", "values", "bfloat16", after(last_array_doubled)),
    Fault("foreach_mul_", "added", "values", "float32", lambda k: lambda a, b: [x.__iadd__(1) for x in a] and None),
    Fault("foreach_mul_", "factors lost", "functional", "float32", second_list_zero),
    Fault("foreach_add_", "addends lost", "functional", "float32", second_list_zero),
    Fault("index_add", "in-place ignored", "inplace", "float32", out_not_written),
    Fault("foreach_lerp_", "lists exchanged", "values", "float64", lambda k: lambda a, b, w: k(b, a, w)),
    Fault("foreach_lerp_", "weight ignored", "values", "float32", lambda k: lambda a, b, w: k(a, b, 0.5)),
    Fault("foreach_copy_", "last elements", "values", "float16", after(last_element_zero)),
    Fault("foreach_copy_", "last array", "values", "float32", lambda k: lambda a, b: k(a[:-3], b[:-3])),
    Fault("foreach_zero_", "only the first", "values", "float32", lambda k: lambda a: k(a[:1])),
    Fault("foreach_zero_", "doubled", "values", "bfloat16", instead_of_zero),
    Fault("foreach_unscale_", "not looked at", "values", "float32", lambda k: lambda g, f, s: k(g, f.copy(), s)),
    Fault("foreach_unscale_", "flags counted", "values", "float32", flags_counted),
    Fault("foreach_unscale_", "scaled once more", "values", "bfloat16", lambda k: lambda g, f, s: k(g, f, 1 / s)),
    Fault("foreach_norm", "square", "values", "float32", lambda k: lambda a, **o: k([x * x for x in a], **o)),
    Fault("foreach_max", "of magnitudes", "values", "float32", given_as({0: lambda a: [np.abs(one) for one in a]})),
    Fault("foreach_max", "last array left out", "values", "bfloat16", lambda k: lambda a, **o: k(a[:-1], **o)),
    Fault("foreach_norm", "last array left out", "values", "float32", lambda k: lambda a, **o: k(a[:-1], **o)),
    Fault("global_norm_", "infinity not told", "values", "float32", finite_always),
    Fault("global_norm_", "not unscaled", "values", "float32", lambda k: lambda g, n, f, s, **o: k(g, n, f, None, **o)),
    Fault("global_norm_", "not accumulated", "values", "float32", scalars_changed(accumulate=False)),
    Fault("fused_adam_", "coupled decay", "values", "float32", adam_with(decoupled=False)),
    Fault("fused_adam_", "decay maximized", "values", "float32", decay_maximized),
    Fault("fused_adam_", "eps ignored", "values", "float64", adam_with(eps=1e-3)),
    Fault("fused_adam_", "found_inf ignored", "values", "float32", adam_with(found_inf=None)),
    Fault("fused_adam_", "scale ignored", "values", "bfloat16", adam_with(grad_scale=None)),
    Fault("fused_adam_", "not clipped", "values", "float32", adam_with(max_norm=None)),
    Fault("fused_adam_", "gradients left", "values", "float32", adam_with(zero_grads=False)),
    Fault("fused_adam_", "a skipped step counted", "values", "float32", counted_when_skipped),
    Fault("fused_adam_", "correction of the next step", "values", "float32", counted_twice),
    Fault("fused_adam_", "last elements", "values", "float32", after(last_element_zero)),
    Fault("cast", "towards zero", "values", "float32", cast_by(_chopped)),
    Fault("cast", "rounded twice", "values", "float64", cast_by(lambda a: a.astype(np.float32))),
    Fault("cast", "strides", "layouts", "float16", strides_ignored),
    Fault("cast", "largest number for infinity", "extremal", "float32", cast_by(np.nan_to_num)),
    Fault("update_scale_", "scale not written", "values", "float32", given_as({0: np.copy})),
    Fault("update_scale_", "never backed off", "values", "float32", given_as({3: np.zeros_like})),
    Fault("update_scale_", "inverse left", "values", "float32", given_as({1: np.copy})),
    Fault("update_scale_", "flag left up", "values", "float32", given_as({3: np.copy})),
    Fault("update_scale_", "grows a step late", "values", "float32", one_step_late),
    Fault("slow_conv2d", "dilation ignored", "values", "float32", scalars_changed(dilation=1)),
    Fault("slow_conv2d", "a convolution proper", "values", "float16", given_as({1: lambda w: w[:, :, ::-1, ::-1]})),
    Fault("slow_conv2d", "bias left out", "values", "float32", given_as({2: lambda bias: None})),
    Fault("solve", "the transpose", "values", "float64", given_as({0: lambda a: a.swapaxes(-2, -1)})),
    Fault("solve", "singular not told", "values", "float32", given_as({3: np.zeros_like})),
    Fault("inv", "not conjugate", "values", "complex64", given_as({0: np.conj})),
    Fault("inv", "transposed", "values", "float64", given_as({1: lambda inverse: inverse.swapaxes(-2, -1)})),
    Fault("det", "sign", "values", "float32", given_as({0: lambda a: a[..., ::-1, :]})),
    Fault("det", "last element", "values", "complex128", last_element_wrong),
    Fault("cholesky", "upper", "values", "float32", given_as({1: lambda factor: factor.swapaxes(-2, -1)})),
    Fault("cholesky", "failure not told", "values", "float64", given_as({2: np.zeros_like})),
    Fault("qr", "r not written", "values", "float32", given_as({2: np.zeros_like})),
    Fault("qr", "of the conjugate", "values", "complex64", given_as({0: np.conj})),
    Fault("svd", "v, not its adjoint", "values", "complex64", vh_not_conjugate),
    Fault("svd", "ascending", "values", "float32", given_as({2: lambda s: s[..., ::-1]})),
    Fault("eigh", "the other triangle", "values", "float32", written_with(uplo="L")),
    Fault("eigh", "rows for columns", "values", "float64", given_as({2: lambda v: v.swapaxes(-2, -1)})),
    Fault("lstsq", "rcond ignored", "values", "float32", written_with(rcond=0.0)),
    Fault("lstsq", "rank not told", "values", "float32", given_as({4: np.zeros_like})),
)  # fmt: skip


def told(error: BaseException) -> str:
    """All that pytest shows of an exception."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def dtype_of_fault(fault: Fault) -> tuple[Any, ...]:
    return (as_dtype(fault.dtype),) if fault.dtype else ()


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """In the kernel of kind cpu; in what gives the view, of an op that moves nothing."""
    op = SPECS[fault.op].declared
    if not op.schema.view_of:
        with registry.substituted(fault.op, kind="cpu", wrap=fault.plant):
            yield
        return
    view = op.composite
    op.composite = fault.plant(view)
    try:
        yield
    finally:
        op.composite = view


@pytest.mark.parametrize("kind", ["cpu", "sim"])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_fails_a_check_that_names_the_op(fault: Fault, kind: str) -> None:
    spec, check = SPECS[fault.op], CHECKS[fault.check]
    assert not fault.dtype or devices.why_unsupported(spec.op, kind, fault.dtype) is None

    with planted(fault), pytest.raises(Exception) as caught:  # noqa: PT011
        check(spec, kind, *dtype_of_fault(fault))

    assert f"op: {fault.op} on {kind}" in told(caught.value)
    assert "sample: " in told(caught.value)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_check_passes_without_the_fault(fault: Fault) -> None:
    CHECKS[fault.check](SPECS[fault.op], "cpu", *dtype_of_fault(fault))


@pytest.mark.parametrize("spec", own_specs(), ids=lambda spec: spec.name)
def test_every_op_has_two_planted_faults_or_more(spec: OpSpec) -> None:
    planted = [str(fault) for fault in FAULTS if fault.op == spec.name]

    assert len(planted) >= 2, (
        f"{spec.name} has {len(planted)} planted faults; add rows Fault({spec.name!r}, what, check, dtype, plant) to "
        "FAULTS until there are two, each a mistake that an implementation could make"
    )


Box = Callable[..., None]


def _nothing(box: Box) -> Box:
    return lambda op, bound, dtype, out: None


def _a_copy_of_out(box: Box) -> Box:
    return lambda op, bound, dtype, out: box(op, bound, dtype, _copied(out))


def _copied(out: Any) -> Any:
    return tuple(map(_copied, out)) if isinstance(out, tuple) else out.copy()


def _shifted(box: Box) -> Box:
    """The first array's last axis is read from the other end."""

    def run(op: Any, bound: dict[str, Any], dtype: Any, out: Any) -> None:
        first = op.schema.arrays[0].name
        box(op, {**bound, first: bound[first][..., ::-1]}, dtype, out)

    return run


@pytest.fixture
def boxed() -> Iterator[Callable[[Callable[[Box], Box]], None]]:
    """Spoils the sim kind's one implementation."""
    devices.backend("sim")  # what is loaded at first use
    right = registry.fallback("sim")
    assert right is not None
    yield lambda wrong: registry.register_fallback("sim", wrong(right), like="cpu")
    registry.register_fallback("sim", right, like="cpu")


def dtype_of(name: str) -> str:
    """float32, or the first dtype of an op that has none of it."""
    return "float32" if "float32" in SPECS[name].dtypes else SPECS[name].dtypes[0]


#: Whose result does not depend on the order of the numbers along an axis; of some nothing is read but the shape.
UNORDERED = ("amax", "sum", "dropout_mask", "integers", "normal", "permutation", "uniform")
#: Of those that make no array there is no output to be copied, and of a list no last axis.
#: On sim the box of an op that is like cpu's there is the one of all others.
BOXED = sorted(name for name, spec in SPECS.items() if "sim" not in spec.like)
LISTS = [name for name, spec in SPECS.items() if spec.op is not None and spec.op.schema.is_irregular]
WRITERS = [name for name in LISTS if not SPECS[name].op.schema.outputs]
BOXES = [(name, _nothing) for name in BOXED]
BOXES += [(name, _a_copy_of_out) for name in BOXED if name not in WRITERS]
BOXES += [(name, _shifted) for name in BOXED if name not in (*UNORDERED, *LISTS)]


@pytest.mark.parametrize(("name", "wrong"), BOXES, ids=[f"{name}{wrong.__name__}" for name, wrong in BOXES])
def test_a_fault_in_the_box_of_sim_fails_a_check_that_names_the_op(name: str, wrong: Any, boxed: Any) -> None:
    boxed(wrong)

    with pytest.raises(AssertionError) as caught:
        CHECKS["values"](SPECS[name], "sim", as_dtype(dtype_of(name)))

    assert f"op: {name} on sim" in told(caught.value)


def test_leaked_memory_is_found(boxed: Any) -> None:
    kept: list[Any] = []

    def leaking(box: Box) -> Box:
        return lambda op, bound, dtype, out: (kept.append(out.copy()), box(op, bound, dtype, out))

    boxed(leaking)
    gc.collect()  # arrays that earlier tests left in cycles would go inside the guard, and hide as many bytes

    with pytest.raises(AssertionError, match="of device memory are still in use after the test") as caught:
        CHECKS["values"](SPECS["exp"], "sim", as_dtype("float32"))

    assert "op: exp on sim in float32" in told(caught.value)


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_a_stray_stream_is_found(kind: str) -> None:
    backend = devices.backend(kind)
    stray = backend.use_stream(backend.new_stream(0))

    with pytest.raises(AssertionError, match="the current stream is"), guarded(kind):
        stray.__enter__()

    stray.__exit__(None, None, None)


def test_a_stray_precision_mode_is_found() -> None:
    def stray(xp: Any, a: Any) -> Any:
        set_default_precision("tf32")
        return a

    spec = OpSpec(fn=stray)
    set_default_precision("ieee")
    try:
        with pytest.raises(AssertionError, match="the precision mode is 'tf32' after the test"):
            CHECKS["values"](spec, "cpu", as_dtype("float32"))
    finally:
        set_default_precision("ieee")


# What an op writes in place is copied for it, and that copy would be the first to race.
@pytest.mark.parametrize("name", [name for name in BOXED if name not in WRITERS])
def test_a_missing_wait_between_streams_is_a_race_on_sim(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_type = type(devices.backend("sim").new_stream(0))
    monkeypatch.setattr(stream_type, "wait_stream", lambda self, stream: None)

    with pytest.raises(RaceError, match=f"by {name} of") as caught:
        CHECKS["side_stream"](SPECS[name], "sim", as_dtype(dtype_of(name)))

    assert f"op: {name} on sim" in told(caught.value)


def test_a_replay_that_does_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimCapture, "replay", lambda self: None)

    with pytest.raises(AssertionError, match="op: add on sim"):
        CHECKS["graph_replay"](SPECS["add"], "sim", as_dtype("float32"))


def test_a_plan_that_computes_once_fails() -> None:
    def stale(kernel: Kernel) -> Kernel:
        def prepare(op: Op, bound: dict[str, Any], out: Any) -> Callable[[], None]:
            kernel(*op.schema.pick_arrays(bound), out=out)
            return lambda: None

        def run(*arrays: Any, out: Any) -> None:
            kernel(*arrays, out=out)

        run.prepare = prepare  # type: ignore[attr-defined]
        return run

    with registry.substituted("add", kind="cpu", wrap=stale), pytest.raises(AssertionError, match="op: add on cpu"):
        CHECKS["plan"](SPECS["add"], "cpu", as_dtype("float32"))


@pytest.mark.parametrize(
    ("name", "dtype", "error", "said"),
    [
        ("exp", "float32", DeviceError, "sim:0"),
        ("permutation", "int64", ArgumentError, "shares memory"),
        ("exp", "float32", ArgumentError, "shares memory"),
        ("add", "float64", ArgumentError, "shares memory"),
    ],
    ids=["device", "overlap", "overlap of two axes", "overlap of two operands"],
)
def test_a_refusal_of_out_that_does_not_say_why_fails(
    name: str, dtype: str, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute(*args: Any, **named: Any) -> None:
        try:
            outputs.check_out(*args, **named)
        except error as raised:
            raise error("no") if type(raised) is error else raised from None

    monkeypatch.setattr("cuassay.ops.dispatch.check_out", mute)

    with pytest.raises(AssertionError, match=f"{error.__name__} does not say '{said}': no"):
        CHECKS["out_refused"](SPECS[name], "sim", as_dtype(dtype))


def test_a_meta_that_tells_arrays_from_their_descriptions_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Op.meta

    def meta(self: Op, *args: Any, **scalars: Any) -> Any:
        found = right(self, *args, **scalars)
        return replace(found, shape=()) if hasattr(args[0], "shape") else found

    monkeypatch.setattr(Op, "meta", meta)

    with pytest.raises(AssertionError, match="meta says"):
        CHECKS["meta"](SPECS["exp"], "cpu", as_dtype("float32"))


def test_a_product_in_two_parts_that_is_worse_than_they_are_fails() -> None:
    with (
        precision("bf16x3"),
        registry.substituted("mm", kind="cpu", wrap=off_by(2**-13)),
        pytest.raises(AssertionError, match="op: mm on cpu"),
    ):
        CHECKS["values"](SPECS["mm"], "cpu", as_dtype("float32"))


def test_a_dtype_that_is_claimed_but_not_supported_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay import ops

    spec = OpSpec(op=ops.add, reference=lambda a, b: a + b)
    monkeypatch.setattr(devices, "supported_dtypes", lambda op, device: op.schema.dtypes[1:])

    with pytest.raises(AssertionError, match=r"no implementation on cpu.* for int8, which dtypes= claims"):
        CHECKS["dtypes"](spec, "cpu")


def test_a_dtype_that_is_supported_but_not_claimed_fails() -> None:
    from cuassay import ops

    spec = OpSpec(op=ops.add, reference=lambda a, b: a + b, dtypes=("float32",))

    with pytest.raises(AssertionError, match=r"is also implemented for .*float64.*; claim them"):
        CHECKS["dtypes"](spec, "cpu")
