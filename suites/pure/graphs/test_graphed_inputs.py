"""The inputs of a graphed function, where its graph can be pointed at other arrays: a stand-in for one on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.cuda.graphed import GraphedCallable

Array = Any


class Doubling:
    """A graph that doubles what it is pointed at."""

    device = "cpu"

    def __init__(self, given: Array, out: Array) -> None:
        self.given, self.out = given, out

    def input_pointer(self, array: Array) -> Callable[[Array], bool]:
        return self._point

    def _point(self, given: Array) -> bool:
        self.given = given
        return True

    def replay(self) -> None:
        np.multiply(self.given, 2, out=self.out)


def numbers(value: float) -> Array:
    return np.full(4, value, np.float32)


@pytest.fixture
def doubled() -> Any:
    static, out = numbers(0), numbers(0)
    graph: Any = Doubling(static, out)
    return GraphedCallable(lambda a: a, graph, (static,), out)


def test_a_call_after_a_replay_on_another_array_reads_its_own_argument(doubled: Any) -> None:
    other = numbers(3)

    first = doubled.replay((other,)).tolist()

    assert first == [6.0] * 4
    assert doubled(numbers(5)).tolist() == [10.0] * 4
    assert other.tolist() == [3.0] * 4


def test_a_replay_after_a_call_reads_the_array_it_is_given(doubled: Any) -> None:
    mine = numbers(3)
    doubled(numbers(5))

    doubled.replay((mine,))
    mine[:] = 4

    assert doubled.replay((mine,)).tolist() == [8.0] * 4
