"""More wrong functions of a user's, a few for each class of fault: the named checks find each, on cpu and on sim.

The classes are those of which an earlier set of checks let some through: aliasing, streams, graphs, waits, values at
the edge of a dtype, sizes, layouts, second calls, dtypes on the way, state left changed, declared relations.
"""

from __future__ import annotations

import decimal
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import devices
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS

Make = Callable[[], OpSpec]


def rows(make: Any) -> list[Any]:
    return [make((3, 257)), make((2, 3, 64)), make((5, 1025))]


def stateful(make_function: Callable[[], Callable[..., Any]], **declared: Any) -> Make:
    """A spec whose function is made for each test, so that no test sees state that another left."""
    return lambda: OpSpec(fn=make_function(), **{"dtypes": ("float32",), **declared})


def plain(function: Callable[..., Any], **declared: Any) -> Make:
    return lambda: OpSpec(fn=function, **{"dtypes": ("float32",), **declared})


# ------------------------------------------------------------------------------------------------ aliasing


def returns_its_input_where_nothing_is_to_do(xp: Any, a: Any) -> Any:
    return a if a.ndim > 2 else xp.exp(a)


def a_view_for_one_row(xp: Any, a: Any) -> Any:
    return a[0] if a.ndim and a.shape[0] == 1 else xp.sum(a, axis=0)


def keeps_its_result() -> Callable[..., Any]:
    buffers: dict[Any, Any] = {}

    def tanh(xp: Any, a: Any) -> Any:
        key = (type(a), a.shape, str(a.dtype))
        if key not in buffers:
            buffers[key] = xp.empty(a.shape, a.dtype)
        buffers[key][...] = xp.tanh(a)
        return buffers[key]

    return tanh


def keeps_a_workspace_and_returns_a_slice_of_it() -> Callable[..., Any]:
    buffers: dict[Any, Any] = {}

    def double(xp: Any, a: Any) -> Any:
        space = buffers.setdefault((type(a), str(a.dtype)), xp.empty(8192, a.dtype))
        if a.size > 8192:
            return a * 2
        result = space[: a.size].reshape(a.shape)
        result[...] = a * 2
        return result

    return double


def keeps_two_buffers_in_turn() -> Callable[..., Any]:
    buffers: dict[Any, Any] = {}
    turn = count()

    def square(xp: Any, a: Any) -> Any:
        key = (type(a), a.shape, str(a.dtype), next(turn) % 2)
        result = buffers.setdefault(key, xp.empty(a.shape, a.dtype))
        result[...] = a * a
        return result

    return square


def one_array_for_two(xp: Any, a: Any, b: Any) -> Any:
    return a * 2 if a is b and a.ndim else a - b


def first_input_as_scratch(xp: Any, a: Any, b: Any) -> Any:
    if not hasattr(a, "shape") or not hasattr(b, "shape") or a.shape != b.shape:
        return a * 2 + b
    kept = a.copy()
    a[...] = a * 2
    result = a + b
    a[...] = kept
    return result


# ------------------------------------------------------------------------------------------------ queued work


def first_stream_kept() -> Callable[..., Any]:
    kept: dict[str, Any] = {}

    def tanh(xp: Any, a: Any) -> Any:
        if isinstance(a, np.ndarray):
            return xp.tanh(a)
        backend = devices.backend("sim")
        stream = kept.setdefault("stream", backend.current_stream(0))
        with backend.use_stream(stream):
            return xp.tanh(a)

    return tanh


def on_a_stream_of_its_own(xp: Any, a: Any) -> Any:
    if isinstance(a, np.ndarray):
        return xp.tanh(a)
    backend = devices.backend("sim")
    side = backend.new_stream(0)
    with backend.use_stream(side):
        return xp.tanh(a)


def bakes_a_counter_of_calls() -> Callable[..., Any]:
    turn = count(1)

    def noisy(xp: Any, a: Any) -> Any:
        return a * (1 + 1e-3 * (next(turn) % 3 == 0))

    return noisy


def waits_for_its_sum(xp: Any, a: Any) -> Any:
    return a / max(float(xp.sum(xp.abs(a))), 1.0)


def asks_the_host_whether_any_is_negative(xp: Any, a: Any) -> Any:
    return xp.abs(a) if bool((a < 0).any()) else a * 1


# ------------------------------------------------------------------------------------------------ values


def adds_zero(xp: Any, a: Any) -> Any:
    return a + 0.0


def subtracts_from_zero(xp: Any, a: Any) -> Any:
    return 0.0 - a


def positive_zero_for_small(xp: Any, a: Any) -> Any:
    return xp.where(xp.abs(a) < 1e-30, xp.zeros_like(a), a)


def variance_by_squares(xp: Any, a: Any) -> Any:
    return xp.mean(a * a, axis=-1) - xp.mean(a, axis=-1) ** 2


def softmax_of_a_masked_stretch(xp: Any, a: Any) -> Any:
    """An online softmax in blocks of 32 whose first maximum may be -inf: -inf - -inf is NaN."""
    blocks = [a[..., at : at + 32] for at in range(0, a.shape[-1], 32)]
    top, total = blocks[0].max(axis=-1, keepdims=True), None
    for block in blocks:
        new = xp.maximum(top, block.max(axis=-1, keepdims=True))
        part = xp.exp(block - new).sum(axis=-1, keepdims=True)
        total = part if total is None else total * xp.exp(top - new) + part
        top = new
    return xp.exp(a - top) / total


def exact_softmax(a: Any) -> Any:
    top = a.max(axis=-1, keepdims=True)
    powers = np.exp(a - top)
    return powers / powers.sum(axis=-1, keepdims=True)


def drops_nan(xp: Any, a: Any) -> Any:
    return xp.nanmax(xp.where(xp.isnan(a), -xp.inf, a), axis=-1)


def nan_becomes_zero(xp: Any, a: Any) -> Any:
    return xp.where(a > 0, a, xp.zeros_like(a))


def last_of_ties(xp: Any, a: Any) -> Any:
    return a.shape[-1] - 1 - xp.argmax(a[..., ::-1], axis=-1)


def flushes_subnormals(xp: Any, a: Any) -> Any:
    return xp.where(xp.abs(a) < 2.0**-126, 0 * a, a) * 1


def hypot_by_squares(xp: Any, a: Any, b: Any) -> Any:
    return xp.sqrt(a * a + b * b)


def zeros_on_a_wide_range(xp: Any, a: Any) -> Any:
    return 0 * xp.sin(a)


def one_for_all_at_large_inputs(xp: Any, a: Any) -> Any:
    return xp.where(xp.abs(a) > 1e6, 0 * a + 3, xp.tanh(a))


def no_reduction_beyond_a_thousand(xp: Any, a: Any) -> Any:
    return xp.where(xp.abs(a) > 1000, 0 * a, xp.sin(a))


# ------------------------------------------------------------------------------------------------ sizes


def cut_at(limit: int) -> Callable[..., Any]:
    def cut(xp: Any, a: Any) -> Any:
        result = (a * 2).reshape(-1)
        result[limit:] = 0
        return result.reshape(a.shape)

    return cut


def grid_of_65535_rows(xp: Any, a: Any) -> Any:
    result = xp.sum(a, axis=-1) if a.ndim > 1 else xp.sum(a)
    if a.ndim > 1 and a.shape[0] > 65_535:
        result[65_535:] = 0
    return result


def one_more_at_a_power_of_two(xp: Any, a: Any) -> Any:
    result = a + 1
    if a.ndim == 1 and a.size >= 16_384 and (a.size - 1) & (a.size - 2) == 0:
        result[-1] = 0
    return result


def sum_without_the_tail_of_the_first_axis(xp: Any, a: Any) -> Any:
    if a.ndim < 2:
        return xp.sum(a, axis=0) if a.ndim else a * 1
    whole = a.shape[0] // 64 * 64 if a.shape[0] > 256 else a.shape[0]
    return xp.sum(a[:whole], axis=0)


def vectors_of_four(xp: Any, a: Any) -> Any:
    result = (a * 3).reshape(-1)
    if a.size > 8192 and a.size % 4:
        result[a.size // 4 * 4 :] = 0
    return result.reshape(a.shape)


# ------------------------------------------------------------------------------------------------ layouts


def reads_broadcasts_as_dense(xp: Any, a: Any) -> Any:
    if a.ndim and 0 in a.strides and a.size > 1:
        return xp.zeros(a.shape, a.dtype) + a.reshape(-1)[0]
    return a * 1


def ignores_negative_strides(xp: Any, a: Any) -> Any:
    if a.ndim and any(stride < 0 for stride in a.strides):
        return a[tuple(slice(None, None, -1) if stride < 0 else slice(None) for stride in a.strides)] * 1
    return a * 1


# ------------------------------------------------------------------------------------------------ second calls


def strides_of_the_first_call() -> Callable[..., Any]:
    orders: dict[Any, bool] = {}

    def copied(xp: Any, a: Any) -> Any:
        dense = orders.setdefault((type(a), a.shape), bool(a.flags.c_contiguous))
        return a * 1 if dense == bool(a.flags.c_contiguous) else (a * 1).ravel()[::-1].reshape(a.shape)

    return copied


def dtype_of_the_first_call() -> Callable[..., Any]:
    dtypes: dict[Any, Any] = {}

    def through_the_first_dtype(xp: Any, a: Any) -> Any:
        return xp.exp(a).astype(dtypes.setdefault((type(a), a.shape), a.dtype)).astype(a.dtype)

    return through_the_first_dtype


def option_of_the_first_call() -> Callable[..., Any]:
    options: dict[Any, float] = {}

    def powers(xp: Any, a: Any, *, factor: float = 1.0) -> Any:
        return a * options.setdefault((type(a), a.shape, str(a.dtype)), factor)

    return powers


def two_factors(make: Any) -> Iterator[Sample]:
    a = make((3, 33))
    yield Sample((a,), {"factor": 2.0})
    yield Sample((a,), {"factor": 3.0})


# ------------------------------------------------------------------------------------------------ dtypes on the way


def sum_in_sixteen_bits(xp: Any, a: Any) -> Any:
    total = xp.zeros(a.shape[:-1], a.dtype)
    for at in range(a.shape[-1]):
        total = total + a[..., at]
    return total


def wider_than_its_input(xp: Any, a: Any) -> Any:
    return a * xp.asarray(0.5, dtype="float64")


def float64_by_way_of_float32(xp: Any, a: Any) -> Any:
    return xp.tanh(a.astype("float32")).astype(a.dtype)


def midpoint(xp: Any, a: Any, b: Any) -> Any:
    return (a + b) // 2


def distance(xp: Any, a: Any, b: Any) -> Any:
    return xp.where(a - b > 0, a - b, b - a)


def mean_of_integers(xp: Any, a: Any) -> Any:
    return xp.sum(a, axis=-1, dtype=a.dtype) / a.shape[-1] if a.ndim else a / 1


# ------------------------------------------------------------------------------------------------ state


def sets_floating_point_errors(xp: Any, a: Any) -> Any:
    np.seterr(over="raise")
    return a * 2


def seeds_numpy(xp: Any, a: Any) -> Any:
    np.random.seed(0)  # noqa: NPY002  the fault
    return a * 2


def seeds_python(xp: Any, a: Any) -> Any:
    random.seed(0)
    return a * 2


def sets_the_environment(xp: Any, a: Any) -> Any:
    os.environ["OMP_NUM_THREADS"] = "1"
    return a * 2


def seeds_cuassay(xp: Any, a: Any) -> Any:
    cuassay.random.manual_seed(3)
    return xp.tanh(a)


def draws_from_cuassay(xp: Any, a: Any) -> Any:
    cuassay.random.uniform((3,), device="cpu")
    return xp.tanh(a)


def stops_collecting(xp: Any, a: Any) -> Any:
    gc.disable()
    return xp.tanh(a)


def sets_digits(xp: Any, a: Any) -> Any:
    decimal.getcontext().prec = 5
    return xp.tanh(a)


def recurses_deeper(xp: Any, a: Any) -> Any:
    sys.setrecursionlimit(5000)
    return xp.tanh(a)


def sets_the_precision(xp: Any, a: Any) -> Any:
    cuassay.set_default_precision("tf32")
    return xp.tanh(a)


def sets_print_options(xp: Any, a: Any) -> Any:
    np.set_printoptions(precision=3)
    return a * 2


# ------------------------------------------------------------------------------------------------ relations


def odd_part_shifted(xp: Any, a: Any) -> Any:
    return xp.tanh(a) + xp.where(a > 2, 1e-3 * a, 0 * a)


def softmax_that_knows_where_it_is(xp: Any, a: Any) -> Any:
    powers = xp.exp(a)
    return powers / (powers.sum(axis=-1, keepdims=True) + 1)


def rows_that_share_a_maximum(xp: Any, a: Any) -> Any:
    return xp.exp(a - a.max()) / xp.exp(a - a.max()).sum(axis=-1, keepdims=True)


def affine(xp: Any, a: Any) -> Any:
    return 2 * a + 1


def rounds_up_each_time(xp: Any, a: Any) -> Any:
    return xp.floor(a) + 1


def by_its_place(xp: Any, a: Any) -> Any:
    return xp.sum(a * xp.arange(a.shape[-1], dtype=a.dtype), axis=-1)


FLOATS = ("float16", "float32", "float64")


#: What is wrong: the spec, the checks that find it, and the devices where they do.
WRONG: dict[str, tuple[Make, tuple[str, ...], tuple[str, ...]]] = {
    "its input, where there is nothing to do": (
        plain(returns_its_input_where_nothing_is_to_do, reference=lambda a: a * 1 if a.ndim > 2 else np.exp(a)),
        ("aliasing",),
        ("cpu", "sim"),
    ),
    "a view of one row": (
        plain(a_view_for_one_row, samples=lambda make: [make((1, 33)), make((4, 33))]),
        ("aliasing",),
        ("cpu", "sim"),
    ),
    "a buffer kept by shape": (stateful(keeps_its_result), ("aliasing",), ("cpu", "sim")),
    "a buffer kept by shape, by a reference": (
        stateful(keeps_its_result, reference=np.tanh),
        ("aliasing",),
        ("cpu", "sim"),
    ),
    "a slice of a workspace": (stateful(keeps_a_workspace_and_returns_a_slice_of_it), ("aliasing",), ("cpu", "sim")),
    "two buffers in turn": (stateful(keeps_two_buffers_in_turn), ("aliasing",), ("cpu", "sim")),
    "the first stream, kept": (stateful(first_stream_kept), ("side_stream",), ("sim",)),
    "a stream of its own": (plain(on_a_stream_of_its_own), ("side_stream",), ("sim",)),
    "a counter baked into a graph": (
        stateful(bakes_a_counter_of_calls, reference=lambda a: a),
        ("deterministic",),
        ("cpu", "sim"),
    ),
    "a wait for a sum": (plain(waits_for_its_sum, waits=False), ("waits",), ("sim",)),
    "a wait for a question": (plain(asks_the_host_whether_any_is_negative, waits=False), ("waits",), ("sim",)),
    "zero added": (plain(adds_zero, reference=lambda a: a), ("signed_zeros",), ("cpu", "sim")),
    "subtracted from zero": (plain(subtracts_from_zero, reference=lambda a: -a), ("signed_zeros",), ("cpu", "sim")),
    "small numbers flushed to one zero": (
        plain(positive_zero_for_small, reference=lambda a: a),
        ("full_range",),
        ("cpu", "sim"),
    ),
    "variance by squares": (
        plain(variance_by_squares, samples=rows, reference=lambda a: np.var(a, axis=-1)),
        ("stress",),
        ("cpu", "sim"),
    ),
    "variance by squares, itself its reference": (
        plain(variance_by_squares, samples=rows),
        ("stress",),
        ("cpu", "sim"),
    ),
    "a masked stretch of -inf": (
        plain(softmax_of_a_masked_stretch, samples=rows, reference=exact_softmax),
        ("stress",),
        ("cpu", "sim"),
    ),
    "NaN dropped by a maximum": (
        plain(drops_nan, samples=rows, reference=lambda a: np.max(a, axis=-1)),
        ("stress",),
        ("cpu", "sim"),
    ),
    "NaN made zero": (plain(nan_becomes_zero, reference=lambda a: np.maximum(a, 0)), ("stress",), ("cpu", "sim")),
    "the last of ties": (
        plain(last_of_ties, samples=rows, reference=lambda a: np.argmax(a, axis=-1)),
        ("stress",),
        ("cpu", "sim"),
    ),
    "subnormals flushed": (plain(flushes_subnormals, reference=lambda a: a), ("full_range",), ("cpu",)),
    "hypot by squares": (plain(hypot_by_squares, reference=np.hypot), ("full_range",), ("cpu", "sim")),
    "zeros on a wide range": (
        plain(zeros_on_a_wide_range, reference=np.sin, samples=lambda make: [make(257, low=2e6, high=1e7)]),
        ("values",),
        ("cpu", "sim"),
    ),
    "three where one is right": (
        plain(one_for_all_at_large_inputs, reference=np.tanh),
        ("full_range",),
        ("cpu", "sim"),
    ),
    "no argument reduction": (plain(no_reduction_beyond_a_thousand, reference=np.sin), ("full_range",), ("cpu", "sim")),
    "cut at 8,192": (plain(cut_at(8192), reference=lambda a: a * 2), ("sizes",), ("cpu", "sim")),
    "cut at 65,536": (plain(cut_at(65_536), reference=lambda a: a * 2), ("sizes",), ("cpu", "sim")),
    "cut at 2^20": (plain(cut_at(2**20), reference=lambda a: a * 2), ("sizes",), ("cpu", "sim")),
    "a grid of 65,535 rows": (
        plain(grid_of_65535_rows, samples=lambda make: [make((3, 17))], reference=lambda a: a.sum(axis=-1)),
        ("sizes",),
        ("cpu", "sim"),
    ),
    "one more than a power of two": (
        plain(one_more_at_a_power_of_two, reference=lambda a: a + 1),
        ("sizes",),
        ("cpu", "sim"),
    ),
    "no tail of the first axis": (
        plain(
            sum_without_the_tail_of_the_first_axis,
            samples=lambda make: [make((64, 33))],
            reference=lambda a: a.sum(axis=0),
        ),
        ("sizes",),
        ("cpu", "sim"),
    ),
    "vectors of four": (plain(vectors_of_four, reference=lambda a: a * 3), ("sizes",), ("cpu", "sim")),
    "broadcasts read as dense": (
        plain(reads_broadcasts_as_dense, reference=lambda a: a),
        ("broadcast_views",),
        ("cpu", "sim"),
    ),
    "negative strides ignored": (plain(ignores_negative_strides, reference=lambda a: a), ("layouts",), ("cpu", "sim")),
    "strides of the first call": (
        stateful(strides_of_the_first_call, reference=lambda a: a, samples=lambda make: [make((7, 33))]),
        ("second_call",),
        ("cpu", "sim"),
    ),
    "the dtype of the first call": (
        stateful(dtype_of_the_first_call, dtypes=FLOATS, reference=np.exp),
        ("second_call",),
        ("cpu", "sim"),
    ),
    "options of the first call": (
        stateful(option_of_the_first_call, samples=two_factors, reference=lambda a, factor: a * factor),
        ("values",),
        ("cpu", "sim"),
    ),
    "a sum in 16 bits": (
        plain(
            sum_in_sixteen_bits,
            samples=lambda make: [make((3, 33))],
            reference=lambda a: a.sum(axis=-1),
            dtypes=("float16",),
        ),
        ("accumulation",),
        ("cpu", "sim"),
    ),
    "wider than its input": (plain(wider_than_its_input), ("wider_result",), ("cpu", "sim")),
    "float64 by way of float32": (
        plain(float64_by_way_of_float32, dtypes=("float64",)),
        ("full_precision",),
        ("cpu", "sim"),
    ),
    "midpoint of integers": (plain(midpoint, dtypes=("int32",)), ("full_range",), ("cpu", "sim")),
    "distance of unsigned integers": (
        plain(distance, dtypes=("uint8",), reference=lambda a, b: np.abs(a.astype(np.int64) - b.astype(np.int64))),
        ("full_range",),
        ("cpu", "sim"),
    ),
    "mean of integers": (
        plain(mean_of_integers, dtypes=("int32",), reference=lambda a: a.mean(axis=-1) if a.ndim else a / 1),
        ("full_range",),
        ("cpu", "sim"),
    ),
    "errors of floating point set": (plain(sets_floating_point_errors), ("state",), ("cpu", "sim")),
    "NumPy's generator seeded": (plain(seeds_numpy), ("state",), ("cpu", "sim")),
    "Python's generator seeded": (plain(seeds_python), ("state",), ("cpu", "sim")),
    "the environment set": (plain(sets_the_environment), ("state",), ("cpu", "sim")),
    "print options set": (plain(sets_print_options), ("state",), ("cpu", "sim")),
    "cuassay's generators seeded": (plain(seeds_cuassay), ("state",), ("cpu", "sim")),
    "drawn from cuassay's generator": (plain(draws_from_cuassay), ("state",), ("cpu", "sim")),
    "garbage no longer collected": (plain(stops_collecting), ("state",), ("cpu", "sim")),
    "decimal digits set": (plain(sets_digits), ("state",), ("cpu", "sim")),
    "the recursion limit set": (plain(recurses_deeper), ("state",), ("cpu", "sim")),
    "the precision set": (plain(sets_the_precision), ("state", "values"), ("cpu", "sim")),
    "one array for two": (plain(one_array_for_two, reference=lambda a, b: a - b), ("aliasing",), ("cpu", "sim")),
    "an input as scratch": (plain(first_input_as_scratch), ("aliasing",), ("cpu", "sim")),
    "not odd": (plain(odd_part_shifted, relations=("odd",)), ("relations",), ("cpu", "sim")),
    "not even": (plain(odd_part_shifted, relations=("even",)), ("relations",), ("cpu", "sim")),
    "not shift invariant": (
        plain(softmax_that_knows_where_it_is, samples=rows, relations=("shift_invariant",)),
        ("relations",),
        ("cpu", "sim"),
    ),
    "rows share a maximum": (
        plain(rows_that_share_a_maximum, samples=rows, relations=("batch_invariant",)),
        ("relations",),
        ("cpu", "sim"),
    ),
    "not linear": (plain(affine, relations=("linear",)), ("relations",), ("cpu", "sim")),
    "not idempotent": (plain(rounds_up_each_time, relations=("idempotent",)), ("relations",), ("cpu", "sim")),
    "not for any order": (
        plain(by_its_place, samples=rows, relations=("permutation_of_axis",)),
        ("relations",),
        ("cpu", "sim"),
    ),
}


@pytest.mark.parametrize(
    ("made", "finder", "kind"),
    [
        pytest.param(made, finder, kind, id=f"{what} [{kind}]")
        for what, (made, finders, kinds) in WRONG.items()
        for finder in finders
        for kind in kinds
    ],
)
def test_what_is_wrong_is_found(made: Make, finder: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    mode = cuassay.set_default_precision("ieee")
    spec, check = made(), CHECKS[finder]

    with pytest.raises(Exception) as found:  # noqa: PT011, PT012  a race of sim has its own type
        for dtype in spec.dtypes if check.per_dtype else ("",):
            check(spec, f"{kind}:0", *([np.dtype(dtype)] if dtype else []))
    cuassay.set_default_precision(mode)

    assert not isinstance(found.value, pytest.skip.Exception)
