"""How tests are cut into shards: each in one of them, long ones first, the last shards short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.fleet.cutting import MOST_TESTS, UNKNOWN_SECONDS, cut, expected_seconds

SECONDS = st.lists(st.floats(0, 100), max_size=200)


@given(SECONDS, st.integers(1, 20), st.none() | st.integers(1, 50))
def test_each_test_is_in_one_shard_and_none_is_empty(seconds: list[float], workers: int, shards: int | None) -> None:
    parts = cut(seconds, workers, shards=shards)

    assert sorted(at for part in parts for at in part) == list(range(len(seconds)))
    assert all(parts)


def test_the_last_shards_are_shorter_than_the_first() -> None:
    lengths = [0.1 * len(part) for part in cut([0.1] * 10_000, 4)]

    assert lengths[0] == pytest.approx(100, rel=0.01)
    assert lengths[-1] < lengths[0] / 5


def test_long_tests_come_first_and_short_ones_keep_their_order() -> None:
    queue = [at for part in cut([1.0, 20.0, 1.0, 30.0, 1.0], 2, floor=6.0) for at in part]

    assert queue == [3, 1, 0, 2, 4]


def test_a_number_of_shards_is_held() -> None:
    parts = cut([0.05] * 1_000, 4, shards=200)

    assert {len(part) for part in parts} == {5}


def test_a_shard_holds_a_bounded_number_of_tests() -> None:
    assert max(map(len, cut([0.0] * (2 * MOST_TESTS), 1))) == MOST_TESTS


def test_a_test_without_a_record_takes_the_median() -> None:
    assert expected_seconds(["a", "new"], {"a": 1.0, "b": 2.0, "c": 9.0}) == [1.0, 2.0]
    assert expected_seconds(["new"], {}) == [UNKNOWN_SECONDS]
