"""Views as declared ops: they show the array's memory, touch nothing, are seen by interposers, and copy into out=."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.autograd import grad
from cuassay.errors import ArgumentError, GradientError
from cuassay.ops import Call, interpose
from cuassay.testing import requires

HOST = np.arange(24, dtype=np.float32).reshape(1, 4, 6)

VIEWS: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "transpose": ({"axis0": 1, "axis1": 2}, lambda a: a.swapaxes(1, 2)),
    "permute": ({"axes": (2, 0, 1)}, lambda a: a.transpose(2, 0, 1)),
    "reshape": ({"shape": (8, -1)}, lambda a: a.reshape(8, 3)),
    "expand": ({"shape": (3, 4, 6)}, lambda a: np.broadcast_to(a, (3, 4, 6))),
    "slice": ({"axis": -1, "start": 4, "stop": None, "step": -2}, lambda a: a[..., 4::-2]),
    "squeeze": ({}, lambda a: a[0]),
    "unsqueeze": ({"axis": 1}, lambda a: a[:, None]),
}


@pytest.fixture
def array(device: Device) -> Any:
    """The numbers of `HOST` on the device."""
    return from_host(HOST, device)


@pytest.mark.parametrize("name", VIEWS)
@requires("views")
def test_a_view_shows_what_the_array_holds_later(array: Any, name: str) -> None:
    options, expected = VIEWS[name]

    view = ops.op(name)(array, **options)
    ops.copy(ops.neg(array), out=array)

    assert np.array_equal(to_host(view), expected(-HOST))


@pytest.mark.parametrize("name", VIEWS)
def test_out_is_a_copy(array: Any, device: Device, name: str) -> None:
    options, expected = VIEWS[name]
    out = devices.empty(expected(HOST).shape, "float32", device)

    found = ops.op(name)(array, **options, out=out)
    ops.foreach_zero_([array])

    assert found is out
    assert np.array_equal(to_host(out), expected(HOST))


@pytest.mark.parametrize("name", VIEWS)
def test_a_plan_shows_new_numbers(array: Any, name: str) -> None:
    options, expected = VIEWS[name]
    plan = ops.op(name).prepare(array, **options)

    ops.copy(ops.neg(array), out=array)

    assert np.array_equal(to_host(plan.run()), expected(-HOST))


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [
        (None, 2**70, 1), (-(2**70), None, 1), (2**63, None, -1), (None, -(2**63) - 1, -1), (1, None, 10**400),
        (1, None, -(2**70)), (6, None, 1), (-7, 3, 2), (7, -8, -3),
    ],
)  # fmt: skip
def test_a_slice_past_the_ends_is_that_of_a_list(array: Any, start: Any, stop: Any, step: Any) -> None:
    found = ops.slice(array, axis=2, start=start, stop=stop, step=step)

    assert to_host(found)[0, 0].tolist() == HOST[0, 0].tolist()[start:stop:step]


def test_a_plan_of_a_reshape_that_copies_copies_at_each_run(array: Any) -> None:
    plan = ops.reshape.prepare(array.swapaxes(1, 2), shape=-1)

    ops.copy(ops.neg(array), out=array)

    assert np.array_equal(to_host(plan.run()), -HOST.swapaxes(1, 2).ravel())


@requires("views")
def test_a_view_that_would_be_overwritten_while_it_is_read_is_refused(array: Any) -> None:
    square = array[0, :, :4]

    with pytest.raises(ArgumentError, match="out shares memory with a, and would be read after it is written"):
        ops.copy(ops.transpose(square, axis0=0, axis1=1), out=square)
    with pytest.raises(ArgumentError, match="out shares memory with a"):
        ops.transpose(square, axis0=0, axis1=1, out=square)


def test_interposers_see_a_view(array: Any) -> None:
    seen = []

    def note(call: Call, proceed: Callable[[Call], Any]) -> Any:
        seen.append(call.op.name)
        return proceed(call)

    with interpose(note):
        ops.exp(ops.squeeze(array))

    assert seen == ["squeeze", "exp"]


@requires("views")
def test_a_write_over_what_a_derivative_reads_through_a_view_is_found(array: Any) -> None:
    other = ops.copy(array[0])

    def function(x: Any) -> Any:
        product = x * ops.transpose(other, axis0=0, axis1=1)
        ops.foreach_zero_([other])
        return ops.sum(product)

    with pytest.raises(GradientError, match=r"foreach_zero_, called at .* would write a\[0\] over an array that the"):
        grad(function)(ops.copy(array[0].swapaxes(0, 1)))


@requires("streams")
def test_a_view_is_not_an_access(array: Any, device: Device) -> None:
    """Of an array that another stream writes, a view may be made; only reading it needs the wait."""
    backend = devices.backend(device.kind)
    side = backend.new_stream(device.index)
    main = backend.current_stream(device.index)
    side.wait_stream(main)
    with backend.use_stream(side):
        ops.copy(ops.neg(array), out=array)

    view = ops.permute(array, axes=(2, 1, 0))

    main.wait_stream(side)
    assert np.array_equal(to_host(ops.copy(view)), -HOST.transpose(2, 1, 0))
