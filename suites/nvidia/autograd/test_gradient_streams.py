"""Gradients and streams on a GPU: used with the wait they are right, without it they are not there yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.autograd import grad
from cuassay.testing import devices as on
from cuassay.testing import racing

#: Cycles that keep a stream busy for longer than the host takes to give the device the few calls below.
BUSY = 400_000_000


@on("cuda:*")
@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=racing)])
def test_gradients_of_another_stream_are_there_where_it_is_waited_for(device: Device, waits: bool) -> None:
    backend: Any = devices.backend(device.kind)
    x = from_host(np.full(1024, 5.0), device)
    used = from_host(np.zeros(1024), device)
    two = from_host(np.full(1024, 2.0), device)
    with backend.activate(device.index):
        main, side = backend.current_stream(device.index), backend.new_stream(device.index)
        side.wait_stream(main)
        with backend.use_stream(side):
            squares = lambda x: ops.sum(x * x)  # noqa: E731
            for _ in range(3):
                grad(squares)(x)  # compiled; memory that is taken again holds 10, not 4
            ops.copy(two, out=x)
            side.synchronize()
            backend.spin(device.index, BUSY)
            found = grad(squares)(x)
        if waits:
            main.wait_stream(side)
        ops.copy(found, out=used)
        main.synchronize()
        is_right = to_host(used).tolist() == [4.0] * 1024
        side.synchronize()

    assert is_right == waits
