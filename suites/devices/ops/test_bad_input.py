"""Bad arguments: refused by our errors, in words, before anything is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, amp, devices, from_host, linalg, ops, random, to_host
from cuassay.errors import ArgumentError, CapabilityNameError, DeviceError, OutOfMemoryError
from cuassay.random import GeneratorState

ONES = np.ones((2, 2), np.float32)
MASKED = np.ma.masked_array(ONES, mask=[[0, 1], [0, 0]])
MATRIX = ONES.view(np.matrix)  # its constructor warns
IMAGES, WEIGHT = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 1, 1), np.float32)


class Quantity(np.ndarray[Any, Any]):
    """Computes by rules of its own, as arrays with units do."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented


@pytest.mark.parametrize("array", [MASKED, MATRIX, ONES.view(Quantity)], ids=["masked", "matrix", "quantity"])
@pytest.mark.parametrize("call", [ops.softmax, ops.sum, linalg.inv, random.dropout, to_host, cuassay.empty_like])
def test_array_of_another_meaning_is_refused_by_name(call: Any, array: Any) -> None:
    with pytest.raises(ArgumentError, match=f"no operation takes; got .*{type(array).__name__}: .*give"):
        call(array)


def test_memory_mapped_array_is_taken(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(3,))

    assert ops.add(mapped, 1.0).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: linalg.solve([[1.0]], [1.0]), ArgumentError, "solve's a is not an array of any known device kind"),
        (lambda: devices.copy([1.0], ONES), ArgumentError, "copy's src is not an array"),
        (lambda: ops.slow_conv2d(IMAGES, WEIGHT, [1.0]), ArgumentError, "slow_conv2d's bias is not an array"),
        (lambda: cuassay.parse_requirement(3), CapabilityNameError, "a requirement is a str; got 3"),
        (lambda: random.dropout(ONES, p="0"), ArgumentError, "p must be a real number; got '0'"),
        (lambda: devices.backend(3), DeviceError, "no device kind 3"),
        (lambda: ops.amax(ONES, keepdims=-(2**63) - 1), ArgumentError, "keepdims must be True or False"),
        (lambda: ops.mul(np.ones(3, np.int32), 2**70), ArgumentError, "too large for mul in int32; got b 11805916"),
        (lambda: ops.add(ONES, 10**400), ArgumentError, r"too large for add in float32; got b 10+\.\.\. \(401 char"),
        (lambda: GeneratorState("L"), ArgumentError, "seed does not fit; got 'L'"),
        (lambda: amp.GradScaler("cpu").load_state_dict(3), ArgumentError, "the state is a mapping; got 3"),
        (lambda: devices.empty_pinned((2**42,), "float32", "sim"), OutOfMemoryError, "no host memory to pin"),
        (lambda: ops.softmax(ONES, axis="x"), ArgumentError, "axis 'x' does not exist"),
        (lambda: ops.softmax(ONES, axis=None), ArgumentError, "axis None does not exist"),
        (lambda: ops.copy(ONES, device="sim:99"), DeviceError, "sim:99 does not exist"),
    ],
)
def test_bad_argument_is_named(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_read_only_member_is_found_before_any_is_written() -> None:
    a, b = np.ones(2), np.ones(2)
    b.setflags(write=False)

    with pytest.raises(ArgumentError, match=r"writes a\[1\], which is read-only"):
        ops.foreach_zero_([a, b])

    assert a.tolist() == [1.0, 1.0]


def test_read_only_out_is_refused() -> None:
    out = ONES.copy()
    out.setflags(write=False)

    with pytest.raises(ArgumentError, match="add's out is read-only"):
        ops.add(ONES, ONES, out=out)


def test_number_too_large_leaves_out_as_it_was(device: Device) -> None:
    a, out = from_host(np.ones(3, np.int32), device), from_host(np.full(3, 7, np.int32), device)

    with pytest.raises(ArgumentError, match="too large"):
        ops.mul(a, 2**70, out=out)

    assert to_host(out).tolist() == [7, 7, 7]


def test_array_of_64_axes_is_computed() -> None:
    assert ops.add(np.ones((1,) * 64, np.float32), 1.0).item() == 2.0


def test_message_does_not_fill_the_screen() -> None:
    with pytest.raises(DeviceError) as caught:
        devices.find("y" * 100_000)

    assert len(str(caught.value)) < 4_200
