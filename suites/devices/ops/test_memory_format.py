"""Memory formats on every kind: kept by elementwise ops, asked for of copies, suggested by strides; torch's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, from_host, ops, to_host
from cuassay.errors import ArgumentError, ShapeError
from cuassay.random import GeneratorState

SHAPE = 2, 3, 4, 5
LAST = 60, 1, 15, 3
FIRST = 60, 20, 5, 1


def numbers(shape: tuple[int, ...] = SHAPE) -> Any:
    return np.linspace(0.25, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def first(device: Device, values: Any = None) -> Any:
    return from_host(numbers() if values is None else values, device)


def last(device: Device, values: Any = None) -> Any:
    """The same numbers in the same shape, the channels next to one another in memory."""
    values = numbers() if values is None else values
    return from_host(np.ascontiguousarray(values.transpose(0, 2, 3, 1)), device).transpose(0, 3, 1, 2)


def steps(array: Any) -> tuple[int, ...]:
    """The strides in elements."""
    return tuple(stride // array.dtype.itemsize for stride in array.strides)


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "unary": lambda a, b: ops.relu(a),
    "scalars": lambda a, b: ops.clamp(a, min=0.5),
    "binary": lambda a, b: ops.add(a, b),
    "a-number": lambda a, b: ops.mul(2.0, a),
    "a-row": lambda a, b: ops.add(a, b[:1, :, :1, :1]),
    "a-row-first": lambda a, b: ops.mul(b[:, :1], a),
    "comparison": lambda a, b: ops.less(a, b),
    "not": lambda a, b: ops.logical_not(a),
    "where": lambda a, b: ops.where(ops.less(a, b), a, 0.0),
    "backward": lambda a, b: ops.gelu_backward(a, b),
    "cast": lambda a, b: ops.cast(a, dtype="float64"),
    "copy": lambda a, b: ops.copy(a),
    "pad": lambda a, b: ops.pad(a, widths=((0, 0), (0, 0), (1, 1), (2, 0))),
    "cat": lambda a, b: ops.cat([a, b], axis=1),
    "conv": lambda a, b: ops.slow_conv2d(a, b[:1, :, :3, :3]),
    "dropout": lambda a, b: ops.dropout(a, state=GeneratorState(7)),
    "part": lambda a, b: ops.relu(a[:, :2]),
}


@pytest.mark.parametrize("name", KEPT)
def test_channels_last_is_kept(name: str, device: Device) -> None:
    wanted = KEPT[name](numbers(), numbers()[::-1])

    for _ in range(3):  # repeated calls are served another way on some kinds
        found = KEPT[name](last(device), last(device, numbers()[::-1]))

    assert found.transpose(0, 2, 3, 1).flags.c_contiguous
    assert ops.suggest_memory_format(found) == "channels_last"
    np.testing.assert_allclose(to_host(found), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_channels_first_stays_so(name: str, device: Device) -> None:
    for _ in range(3):
        found = KEPT[name](first(device), first(device))

    assert found.flags.c_contiguous


C_ORDER: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda a: ops.softmax(a, axis=1),
    "softmax-backward": lambda a: ops.softmax_backward(a, a, axis=1),
    "log-softmax": lambda a: ops.log_softmax(a, axis=1),
    "layer-norm": lambda a: ops.layer_norm(a, a[0, 0, 0], a[0, 0, 1]),
    "sum": lambda a: ops.sum(a, axis=1, keepdims=True),
    "mean": lambda a: ops.mean(a, axis=(2, 3), keepdims=True),
    "bernoulli": lambda a: ops.bernoulli(a, state=GeneratorState(7)),
    "cumsum": lambda a: ops.cumsum(a, axis=1),
    "transposed": lambda a: ops.relu(a.transpose(1, 0, 2, 3)),
}


@pytest.mark.parametrize("name", C_ORDER)
def test_other_results_are_in_c_order_as_in_torch(name: str, device: Device) -> None:
    assert C_ORDER[name](last(device)).flags.c_contiguous


def test_the_first_array_of_the_results_shape_decides(device: Device) -> None:
    assert steps(ops.add(last(device), first(device))) == LAST
    assert steps(ops.add(first(device), last(device))) == FIRST
    assert steps(ops.add(b=first(device), a=last(device))) == LAST


def test_a_plan_makes_the_same_output_as_a_call(device: Device) -> None:
    plan = ops.add.prepare(last(device), last(device))

    plan.run()

    assert steps(plan.out) == LAST
    np.testing.assert_allclose(to_host(plan.out), 2 * numbers())


def test_out_and_in_place_forms_keep_the_layout_of_their_array(device: Device) -> None:
    a, out = last(device), cuassay.zeros(SHAPE, "float32", device)

    assert ops.add(a, 1.0, out=out) is out
    assert ops.add.inplace(a, 1.0) is a

    np.testing.assert_array_equal(to_host(out), to_host(a))
    assert (steps(out), steps(a)) == (FIRST, LAST)


# ------------------------------------------------------------------------------------------------ asked for


@pytest.mark.parametrize("given", [first, last], ids=["first", "last"])
@pytest.mark.parametrize("make", [ops.copy, cuassay.empty_like], ids=["copy", "empty_like"])
def test_a_new_array_has_the_format_asked_for(make: Any, given: Any, device: Device) -> None:
    a = given(device)

    assert steps(make(a, memory_format="contiguous")) == FIRST
    assert steps(make(a, memory_format="channels_last")) == LAST
    assert steps(make(a, memory_format="preserve")) == steps(make(a)) == steps(a)


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last", "preserve"])
def test_a_copy_has_the_same_numbers_in_every_format(memory_format: str, device: Device) -> None:
    np.testing.assert_array_equal(to_host(ops.copy(last(device), memory_format=memory_format)), numbers())
    np.testing.assert_array_equal(to_host(ops.copy(first(device), memory_format=memory_format)), numbers())


@pytest.mark.parametrize("away", [True, False], ids=["to-host", "to-device"])
def test_a_copy_between_kinds_has_the_format_asked_for(away: bool, device: Device) -> None:
    a, target = (last(device), "cpu") if away else (last(Device("cpu")), device)

    assert steps(ops.copy(a, device=target)) == LAST
    assert steps(ops.copy(a, device=target, memory_format="contiguous")) == FIRST
    assert steps(ops.copy.prepare(a, device=target).out) == LAST
    with pytest.raises(ArgumentError, match="memory_format"):
        ops.copy(a, device=target, memory_format="nhwc")


@pytest.mark.parametrize("make", [ops.copy, cuassay.empty_like], ids=["copy", "empty_like"])
def test_a_format_that_does_not_fit_is_refused(make: Any, device: Device) -> None:
    with pytest.raises(ArgumentError, match="'contiguous', 'channels_last' or 'preserve'; got 'nhwc'"):
        make(first(device), memory_format="nhwc")
    with pytest.raises(ShapeError, match=r"needs 4 dimensions \(N, C, H, W\); got shape \(3, 4, 5\)"):
        make(first(device)[0], memory_format="channels_last")


# ------------------------------------------------------------------------------------------------ suggested

#: Shape, strides in elements, and what torch suggests for them.
SUGGESTED = {
    "first": (SHAPE, FIRST, "contiguous"),
    "last": (SHAPE, LAST, "channels_last"),
    "part": ((2, 2, 4, 5), LAST, "channels_last"),
    "one-channel": ((2, 1, 4, 5), (20, 1, 5, 1), "channels_last"),
    "one-channel-first": ((2, 1, 4, 5), (20, 20, 5, 1), "contiguous"),
    "one-place": ((2, 3, 1, 1), (3, 1, 3, 3), "channels_last"),
    "one-place-first": ((2, 3, 1, 1), (3, 1, 1, 1), "contiguous"),
    "one-number": ((2, 1, 1, 1), (1, 1, 1, 1), "contiguous"),
    "column": ((2, 1, 4, 1), (4, 1, 1, 1), "channels_last"),
    "column-first": ((2, 1, 4, 1), (4, 4, 1, 1), "contiguous"),
    "exchanged": ((1, 4, 1, 3), (12, 1, 4, 4), "contiguous"),
    "broadcast": (SHAPE, (0, 0, 0, 0), "contiguous"),
    "backwards": (SHAPE, (60, -1, 15, 3), "contiguous"),
    "five": ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), "contiguous"),
    "three": ((3, 4, 5), (1, 15, 3), "contiguous"),
    "empty": ((0, 3, 4, 5), LAST, "contiguous"),
}


@pytest.mark.parametrize("name", SUGGESTED)
def test_the_suggested_format_is_torchs(name: str) -> None:
    shape, strides, wanted = SUGGESTED[name]
    memory = np.zeros(200, np.float32)[1:]

    array = np.lib.stride_tricks.as_strided(memory, shape, [4 * stride for stride in strides])

    assert ops.suggest_memory_format(array) == wanted


def test_a_format_is_suggested_on_every_kind(device: Device) -> None:
    assert ops.suggest_memory_format(last(device)) == "channels_last"
    assert ops.suggest_memory_format(first(device)) == "contiguous"


def test_only_an_array_has_a_format() -> None:
    with pytest.raises(ArgumentError, match="array"):
        ops.suggest_memory_format([[1.0]])


def test_arrays_in_both_formats_at_once_give_c_order(device: Device) -> None:
    a = from_host(np.ones((2, 1, 4, 5), np.float32), device)

    both = ops.copy(a, memory_format="channels_last")

    assert (steps(both), steps(ops.relu(both))) == ((20, 1, 5, 1), (20, 20, 5, 1))
