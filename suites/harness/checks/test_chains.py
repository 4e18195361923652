"""Functions of graphs that take a fixed number of steps: right for random graphs, wrong for a chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS


def run(fn: Callable[..., Any], reference: Callable[..., Any]) -> None:
    """The check `stress`, of edges between as many nodes as an option says."""

    def edges(make: Any, nodes: int) -> Sample:
        return Sample(tuple(make(4 * nodes, low=0, high=nodes - 1) for _ in range(2)), {"nodes": nodes})

    spec = OpSpec(
        fn=fn,
        name="f",
        dtypes=("int32",),
        result_dtype="int64",
        samples=lambda make: [edges(make, 16), edges(make, 23)],
        reference=reference,
    )
    CHECKS["stress"](spec, "cpu:0", np.dtype("int32"))


def steps(sources: Any, targets: Any, nodes: int) -> Any:
    found, front = [nodes] * nodes, {0}
    for step in range(nodes):
        for node in front:
            found[node] = min(found[node], step)
        front = {b for a, b in zip(sources.tolist(), targets.tolist(), strict=True) if a in front and found[b] == nodes}
    return np.array(found)


def reached(rounds: Callable[[int], int]) -> Callable[..., Any]:
    """How many nodes each node reaches, by squaring the matrix of the edges."""

    def fn(xp: Any, sources: Any, targets: Any, nodes: int) -> Any:
        linked = xp.eye(nodes, dtype="bool")
        linked[sources, targets] = True
        for _ in range(rounds(nodes)):
            linked = (linked.astype("float32") @ linked.astype("float32")) > 0
        return linked.sum(axis=1)

    return fn


def count_reached(sources: Any, targets: Any, nodes: int) -> Any:
    return np.array([(steps_from(node, sources, targets, nodes) < nodes).sum() for node in range(nodes)])


def steps_from(first: int, sources: Any, targets: Any, nodes: int) -> Any:
    """`steps` from another node, by renaming it to 0."""
    names = np.arange(nodes)
    names[[0, first]] = names[[first, 0]]
    return steps(names[sources], names[targets], nodes)


def test_a_list_of_edges_may_be_a_chain_with_each_set_of_options() -> None:
    run(reached(lambda nodes: (nodes - 1).bit_length()), count_reached)
    with pytest.raises(AssertionError, match="each node is linked only to the next"):
        run(reached(lambda nodes: nodes.bit_length() - 1), count_reached)
