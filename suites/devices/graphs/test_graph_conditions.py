"""If and while nodes of a graph, on every kind that has them; the kernel is condition.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays_read import values

from cuassay import Device, cuda, devices, from_host, ops
from cuassay.errors import ArgumentError, CaptureError
from cuassay.testing import requires

pytestmark = [requires("graphs", "conditional_graphs"), pytest.mark.usefixtures("warm_kernels")]


def test_an_if_node_runs_where_its_predicate_holds(device: Device, made: Any, full: Any) -> None:
    total, graph = full(0), made()
    predicate = from_host(np.array([True]), device)
    with cuda.graph(graph):
        ops.add(total, 1.0, out=total)
        with graph.if_node(predicate):
            ops.add(total, 10.0, out=total)

    for value in (True, False, True):
        ops.copy(from_host(np.array([value]), device), out=predicate)
        graph.replay()

    assert values(total) == [23.0] * 8


def test_a_while_node_runs_until_its_predicate_fails(device: Device, made: Any, full: Any) -> None:
    left, steps, graph = full(3, 1), full(0, 1), made()
    more = from_host(np.array([True]), device)
    xp = devices.namespace(device)
    xp.greater(left, steps, out=more)
    with cuda.graph(graph):
        xp.greater(left, steps, out=more)
        with graph.while_node(more):
            ops.add(steps, 1.0, out=steps)
            xp.greater(left, steps, out=more)

    for limit, expected in ((3.0, 3.0), (50.0, 50.0), (7.0, 50.0)):
        ops.copy(full(limit, 1), out=left)
        graph.replay()
        assert values(steps) == [expected]


def test_conditional_nodes_nest(device: Device, made: Any, full: Any) -> None:
    total, graph = full(0), made()
    outer, inner = (from_host(np.array([True]), device) for _ in range(2))
    with cuda.graph(graph), graph.if_node(outer):
        ops.add(total, 1.0, out=total)
        with graph.if_node(inner):
            ops.add(total, 10.0, out=total)

    for first, second in ((True, True), (True, False), (False, True)):
        ops.copy(from_host(np.array([first]), device), out=outer)
        ops.copy(from_host(np.array([second]), device), out=inner)
        graph.replay()

    assert values(total) == [12.0] * 8


def test_a_conditional_node_belongs_inside_a_capture_and_reads_one_bool(device: Device, made: Any, full: Any) -> None:
    eight, graph = full(1), made()
    with pytest.raises(CaptureError, match="between begin and end"), graph.if_node(eight):
        pass
    with pytest.raises(ArgumentError, match="one bool"), cuda.graph(graph), graph.while_node(eight):
        pass
