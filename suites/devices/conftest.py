"""What several suites of this folder take: the device's backend, a stream and graphs that are done with at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops
from cuassay.core.graphs import Graph
from cuassay.core.protocols import Backend


@pytest.fixture
def backend(device: Device) -> Any:
    return devices.backend(device.kind)


@pytest.fixture
def side(backend: Backend, device: Device) -> Any:
    """A stream of its own, done with when the test ends."""
    stream = backend.new_stream(device.index)
    yield stream
    stream.synchronize()


@pytest.fixture
def made(device: Device, backend: Any) -> Iterator[Callable[..., Graph]]:
    """Makes graphs; they are reset whatever the test leaves."""
    graphs: list[Graph] = []

    def make(**options: Any) -> Graph:
        graphs.append(backend.new_capture(device.index, **options))
        return graphs[-1]

    yield make
    for graph in graphs:
        graph.reset()


@pytest.fixture
def full(device: Device) -> Callable[..., Any]:
    """Makes float32 arrays of one number."""
    return lambda value, size=8: from_host(np.full(size, value, np.float32), device)


@pytest.fixture
def warm_kernels(device: Device, backend: Any) -> None:
    """Kernels are compiled outside of captures; what ran is done."""
    a = from_host(np.ones(8, np.float32), device)
    ops.add(a, 1.0, out=a)
    ops.mul(a, a)
    ops.copy(a)
    backend.synchronize(device.index)
