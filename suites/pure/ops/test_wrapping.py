"""Functions in place of every op's call: in which order they are called, and what is there when one goes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.ops import Op
from cuassay.ops.wrapping import Wrapping, packed, unwrap, wrap


@pytest.fixture
def order() -> list[str]:
    return []


@pytest.fixture
def make(order: list[str]) -> Iterator[Callable[[str], Wrapping]]:
    """A wrapping that notes its name at each call; those that are left are taken off after the test."""
    made: list[Wrapping] = []

    def named(name: str) -> Wrapping:
        def noting(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda op, *args, **options: (order.append(name), call(op, *args, **options))[1]

        made.append(Wrapping(noting))
        wrap(made[-1])
        return made[-1]

    yield named
    for one in made:
        with contextlib.suppress(ValueError):
            unwrap(one)


def test_the_last_is_the_outermost(make: Callable[[str], Wrapping], order: list[str]) -> None:
    make("first")
    make("second")
    result = ops.exp(np.zeros(2))

    assert (order, result.tolist()) == (["second", "first"], [1.0, 1.0])


def test_when_one_goes_those_below_it_are_the_functions_that_they_were(
    make: Callable[[str], Wrapping], order: list[str]
) -> None:
    plain = Op.__call__
    first = make("first")
    of_first = Op.__call__
    second, third = make("second"), make("third")
    unwrap(second)
    ops.exp(np.zeros(2))
    unwrap(third)
    with_first = Op.__call__
    unwrap(first)

    assert order == ["third", "first"]
    assert with_first is of_first
    assert Op.__call__ is plain


def test_one_that_is_not_there_is_an_error(make: Callable[[str], Wrapping]) -> None:
    one = make("one")
    unwrap(one)

    with pytest.raises(ValueError, match="not in list"):
        unwrap(one)


def test_wrapping_that_another_thread_adds_meanwhile_is_called(
    make: Callable[[str], Wrapping], order: list[str]
) -> None:
    def slow(call: Callable[..., Any]) -> Callable[..., Any]:
        if not threads:
            threads.append(threading.Thread(target=make, args=("other",)))
            threads[0].start()
            threads[0].join(0.2)  # in vain, if wrapping holds a lock
        return call

    threads: list[threading.Thread] = []
    wrapping = Wrapping(slow)
    wrap(wrapping)
    threads[0].join()
    ops.exp(np.zeros(2))
    unwrap(wrapping)

    assert order == ["other"]


@pytest.mark.parametrize("below", [[], ["below"]], ids=["the plain call", "another wrapping"])
def test_packed_call_is_the_call_below(make: Callable[[str], Wrapping], order: list[str], below: list[str]) -> None:
    for name in below:
        make(name)
    given: list[Any] = []

    def packing(call: Callable[..., Any]) -> Callable[..., Any]:
        run = packed(call)

        def noted(op: Op, *args: Any, out: Any = None, **scalars: Any) -> Any:
            given.append((op.name, len(args), out is None, scalars))
            return run(op, args, out, scalars)

        return noted

    wrapping, x, out = Wrapping(packing), np.arange(4.0).reshape(2, 2), np.empty((2, 2))
    want = [ops.sum(x, axis=0), ops.add(x, 1.0)]
    order.clear()
    wrap(wrapping)
    got = [ops.sum(x, axis=0), ops.add(x, 1.0, out=out)]
    unwrap(wrapping)

    assert given == [("sum", 1, True, {"axis": 0}), ("add", 2, False, {})]
    assert got[1] is out
    assert [one.tolist() for one in got] == [one.tolist() for one in want]
    assert order == below * 2
