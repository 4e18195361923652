"""Round robin of a fixed number of things: the order, how many are made, and what may not be handed out."""

from __future__ import annotations

import threading
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.core.round_robin import STREAMS_PER_PRIORITY, RoundRobin


@given(size=st.integers(1, 40), takes=st.integers(0, 200))
def test_things_come_in_turn_and_no_more_are_made_than_asked_for(size: int, takes: int) -> None:
    numbers = count()
    rotation = RoundRobin(lambda: next(numbers), size)

    assert [rotation.take() for _ in range(takes)] == [position % size for position in range(takes)]
    assert next(numbers) == min(size, takes)


@given(size=st.integers(1, 8), barred=st.sets(st.integers(0, 7)), takes=st.integers(1, 40))
def test_what_may_not_be_used_is_passed_over_unless_nothing_may(size: int, barred: set[int], takes: int) -> None:
    numbers = count()
    rotation = RoundRobin(lambda: next(numbers), size, usable=lambda thing: thing not in barred)
    for _ in range(size):
        rotation.take()

    given = {rotation.take() for _ in range(takes)}

    usable = set(range(size)) - barred
    assert given <= (usable or set(range(size)))


@pytest.mark.parametrize("free", range(3))
def test_the_only_one_that_may_be_used_is_found_from_any_turn(free: int) -> None:
    numbers = count()
    rotation = RoundRobin(lambda: next(numbers), 3, usable=lambda thing: thing == free)
    for _ in range(3):
        rotation.take()

    assert [rotation.take() for _ in range(4)] == [free] * 4


def test_a_thread_that_asks_while_one_is_made_waits_for_its_turn() -> None:
    numbers, making, goes_on = count(), threading.Event(), threading.Event()

    def make() -> int:
        making.set()
        goes_on.wait(10)
        return next(numbers)

    rotation = RoundRobin(make, 1)
    threads = [threading.Thread(target=rotation.take) for _ in range(2)]
    threads[0].start()
    making.wait(10)
    threads[1].start()
    threads[1].join(0.05)
    goes_on.set()
    for thread in threads:
        thread.join()

    assert next(numbers) == 1


def test_a_failure_to_make_one_is_passed_on_and_tried_again() -> None:
    answers = iter([RuntimeError("no more"), 7])

    def make() -> int:
        answer = next(answers)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    rotation = RoundRobin(make, 1)
    with pytest.raises(RuntimeError, match="no more"):
        rotation.take()

    assert rotation.take() == 7
    assert repr(rotation) == "RoundRobin(1 of 1 made)"


def test_threads_share_one_turn() -> None:
    numbers = count()
    rotation = RoundRobin(lambda: next(numbers))
    taken: list[int] = []
    threads = [threading.Thread(target=lambda: taken.extend(rotation.take() for _ in range(64))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == sorted([*range(STREAMS_PER_PRIORITY)] * 8)
