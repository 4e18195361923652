"""Inputs with other numbers: each number is moved once, ranges that were asked for are kept, nothing repeats itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.judging.influence import exchanged, moved_everywhere, scaled, spikes
from cuassay.judging.probes import LARGE
from cuassay.judging.unrepeated import unrepeated
from cuassay.testing import Sample
from cuassay.testing.samples import BENCH_TILE, BenchSamples, HostArray, Samples


def make(dtype: str = "float32") -> Samples:
    return Samples(3, dtype)


def chance() -> np.random.Generator:
    return np.random.default_rng(5)


def arrays(samples: Any, place: int = 0) -> list[np.ndarray[Any, Any]]:
    return [sample.host()[0][place] for sample in samples]


def drawn(draws: Any, place: int = 0) -> list[np.ndarray[Any, Any]]:
    return arrays((draw() for draw in draws), place)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "uint8", "float16", "complex64"])
def test_each_number_is_moved_once_and_a_quarter_at_a_time(dtype: str) -> None:
    sample = Sample((make(dtype)((16, 33)),))
    (values,) = sample.host()[0]

    moved = [one != values for one in drawn(moved_everywhere(sample, chance()))]

    assert len(moved) == 4
    assert np.sum(moved, axis=0).max() == 1
    assert np.any(moved, axis=0).mean() > 0.7  # integers may be drawn again as they were
    assert all(0.1 < one.mean() <= 0.25 for one in moved)


def test_a_range_that_was_asked_for_is_kept() -> None:
    sample = Sample((make()((8, 40), low=0.5, high=2.0),))

    found = drawn(moved_everywhere(sample, chance()))

    assert len(found) == 4
    assert all(one.min() >= 0.5 and one.max() <= 2.0 for one in found)
    assert list(scaled(sample, chance())) == []


def test_integers_of_a_range_are_exchanged_and_not_moved() -> None:
    sample = Sample((make()((3, 4)), make().of([2, 0, 1, 1], dtype="int64")))

    (found,) = arrays(exchanged(sample, chance()), place=1)

    assert sorted(found) == [0, 1, 1, 2]
    assert all((one == [2, 0, 1, 1]).all() for one in drawn(moved_everywhere(sample, chance()), place=1))


def test_integers_in_order_stay_in_order() -> None:
    assert list(exchanged(Sample((make().of([0, 3, 5], dtype="int64"),)), chance())) == []


def test_equal_numbers_are_moved_as_well() -> None:
    (found,) = spikes(Sample((make().full(64, 1.0),)), chance()).host()[0]

    assert 1 <= np.count_nonzero(found != 1.0) <= 3


def test_of_a_large_sample_few_calls_are_made() -> None:
    sample = Sample((make()(LARGE + 1),))

    assert len(list(moved_everywhere(sample, chance()))) == 1
    small, large = (float(np.abs(one).max()) for one in drawn(scaled(sample, chance())))
    assert small < 0.1
    assert large > 3


def test_whole_inputs_are_scaled_to_smaller_and_to_larger_ranges() -> None:
    sample = Sample((make()((8, 40)),))

    sizes = [float(np.abs(one).max()) for one in drawn(scaled(sample, chance()))]

    assert sizes[0] < sizes[1] < 0.1
    assert 3 < sizes[2] < 24 < 2 * sizes[3]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"])
def test_large_inputs_of_benchmarks_do_not_repeat_themselves(dtype: str) -> None:
    drawn = BenchSamples(3, dtype)((2 * BENCH_TILE + 5,))
    assert (drawn.values[BENCH_TILE : BENCH_TILE + 99] == drawn.values[:99]).all()

    (found,) = unrepeated(Sample((drawn,)), 7).args

    assert (found.shape, found.dtype, found.is_free) == (drawn.shape, drawn.dtype, True)
    assert (found.values[:BENCH_TILE] == drawn.values[:BENCH_TILE]).all()
    assert (found.values[BENCH_TILE : BENCH_TILE + 99] != found.values[:99]).any()
    assert (found.values[2 * BENCH_TILE - 99 : 2 * BENCH_TILE] != found.values[BENCH_TILE - 99 : BENCH_TILE]).any()


def test_new_numbers_are_of_the_range_that_was_asked_for() -> None:
    drawn = BenchSamples(3, "float32")((BENCH_TILE + 999,), low=1.0, high=2.0)

    (found,) = unrepeated(Sample((drawn,)), 7).args

    assert 1.0 <= found.values.min() <= found.values.max() <= 2.0


def test_what_nobody_drew_stays_as_it_is() -> None:
    given = HostArray(np.ones(BENCH_TILE + 5, np.float32))

    assert unrepeated(Sample((given,)), 7).args[0] is given
