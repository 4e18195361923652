"""Inputs with other numbers: each number is moved once, ranges that were asked for are kept, nothing repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.judging.beyond import beyond
from cuassay.judging.influence import exchanged, influences, moved_everywhere, scaled, spikes
from cuassay.judging.probes import LARGE, Probe
from cuassay.judging.results import Results
from cuassay.judging.unrepeated import unrepeated
from cuassay.testing import OpSpec, Sample
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


def test_a_quarter_of_a_large_array_is_moved() -> None:
    sample = Sample((make()((LARGE + 99,)),))
    (values,) = sample.host()[0]

    (moved,) = drawn(moved_everywhere(sample, chance()))

    assert 0.24 < (moved != values).mean() < 0.26


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


def test_integers_that_are_given_by_name_are_exchanged() -> None:
    sample = Sample((make()((3, 4)),), {"index": make().of([2, 0, 1, 1], dtype="int64")})

    (found,) = exchanged(sample, chance())

    assert found.host()[1]["index"].tolist() != [2, 0, 1, 1]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_two_arrays_of_one_call_get_other_numbers_at_other_places(dtype: str) -> None:
    equal = make(dtype)(64)
    sample = Sample((equal, replace(equal)))

    first, second = drawn(moved_everywhere(sample, chance())), drawn(moved_everywhere(sample, chance()), place=1)

    assert len(first) == len(second) == 4
    for one, two in zip(first, second, strict=True):
        assert ((one != equal.values) != (two != equal.values)).any()
        assert not np.isin(one[one != equal.values], two[two != equal.values]).all()


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (lambda a, b: ((a - b) ** 2).sum(), lambda a, b: (a * a).sum() + (b * b).sum() - 2 * (a * b).sum()),
        (lambda a, b: (a - b) * (a + b), lambda a, b: a * a - b * b),
    ],
    ids=["distance", "difference of squares"],
)
def test_numbers_of_two_arrays_do_not_cancel(reference: Callable[..., Any], candidate: Callable[..., Any]) -> None:
    assert fail(numbers_of(reference, "float32"), candidate) == []


@pytest.mark.parametrize("shape", [(6, 7), (1, 7), (2, 5)])
def test_integers_that_are_distinct_in_each_row_stay_so(shape: tuple[int, int]) -> None:
    rows = np.array([np.random.default_rng(row).permutation(shape[1]) for row in range(shape[0])])

    (found,) = arrays(exchanged(Sample((HostArray(rows),)), chance()))

    assert (found != rows).any()
    assert (np.sort(found, axis=-1) == np.arange(shape[1])).all()


def test_a_number_of_a_range_is_moved_to_the_more_distant_end() -> None:
    spec = OpSpec(
        fn=lambda xp, a: a * 2, name="doubled", reference=lambda a: a * 2, dtypes=("float32",),
        samples=lambda make: [make(64, low=-1.0, high=1.5)],
    )  # fmt: skip
    (sample,) = spec.draw(0, "float32", "values")

    found = list(influences(Results([spec]), "float32", sample, chance()))
    labels = [draw().label for draw in found[0].draws]
    probes = [drawn(probe.draws) for probe in found]
    moved = [(base[one != base], one[one != base]) for base, *others in probes for one in others]

    assert [one for one in labels if one.endswith(" moved") and "number" in one] == labels[1:]
    assert len({float(after[0]) for _, after in moved}) == 2
    assert all(after == (-1 if before > 0.25 else 1.5) for before, after in moved)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("span", [{}, {"low": 0.0, "high": 1.0}], ids=["free", "of a range"])
def test_no_two_spikes_are_equal(dtype: str, span: dict[str, float]) -> None:
    values = make(dtype)(99, **span)

    (found,) = spikes(Sample((values,)), chance()).host()[0]

    put = found[found != values.values]
    assert len(np.unique(put.astype(np.float64))) == len(put) == 3
    assert not span or (found.min() >= 0 and found.max() <= 1)


def test_a_variance_in_one_pass_is_found() -> None:
    probes = numbers_of(lambda a, b: a.var() + b.mean(), "float32", "offset")

    assert len(probes) == 2
    assert fail(probes, lambda a, b: ((a - a.mean()) ** 2).mean() + b.mean()) == []
    assert fail(probes, lambda a, b: (a * a).mean() - a.mean() ** 2 + b.mean()) == ["offset"]


def numbers_of(reference: Callable[..., Any], dtype: str, *checks: str) -> list[Probe]:
    spec = OpSpec(
        fn=lambda xp, *args: reference(*args), name="given", reference=reference, dtypes=(dtype,),
        samples=lambda make: [(make(99), make(99))],
    )  # fmt: skip
    samples = list(spec.draw(0, dtype, "values"))
    found = beyond(Results([spec]), Device("cpu"), dtype, samples, chance(), {})
    return [one for one in found if one.check in (checks or ("moved everywhere", "other ranges"))]


def fail(probes: list[Probe], candidate: Callable[..., Any]) -> list[str]:
    return [
        one.check
        for one in probes
        for sample in [one.draws[0]()]
        if one.judge([sample], [(np.asarray(candidate(*sample.host()[0])),)], {}) is not None
    ]


@pytest.mark.parametrize("dtype", ["int8", "int32"])
@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (lambda a, b: (a + b) >> 1, lambda a, b: (a & b) + ((a ^ b) >> 1)),
        (lambda a, b: abs(a - b), lambda a, b: np.maximum(a, b) - np.minimum(a, b)),
        (lambda a, b: (a * b) // 2, lambda a, b: ((a * b) - ((a * b) & 1)) // 2),
    ],
    ids=["average", "distance", "product"],
)
def test_integers_grow_only_until_a_step_of_the_reference_wraps(
    reference: Callable[..., Any], candidate: Callable[..., Any], dtype: str
) -> None:
    probes = numbers_of(reference, dtype)

    moved = [one.draws[0]().host()[0][0] for one in probes if one.check == "moved everywhere"]

    assert fail(probes, candidate) == []
    assert all(np.abs(one).max() > 3 for one in moved)


def test_a_hash_of_integers_is_asked_for_all_sizes() -> None:
    probes = numbers_of(lambda a, b: a * np.array(2654435761, np.uint32) + b, "uint32")

    moved = [one.draws[0]().host()[0][0] for one in probes if one.check == "moved everywhere"]

    assert all(one.max() > 900 for one in moved)


def test_integers_that_are_cut_are_found_where_the_reference_saturates() -> None:
    def saturating(a: Any, b: Any) -> Any:
        limits = np.iinfo(a.dtype)
        return np.clip(a.astype(np.int64) + b, limits.min, limits.max).astype(a.dtype)

    assert "moved everywhere" in fail(numbers_of(saturating, "int8"), lambda a, b: a + b)


@pytest.mark.parametrize(
    ("function", "bases"),
    [(np.argsort, 1), (np.sort, 2)],
    ids=["places", "numbers"],
)
def test_places_among_equal_numbers_are_not_asked_for(function: Callable[..., Any], bases: int) -> None:
    spec = OpSpec(
        fn=lambda xp, a: function(a), name="given", reference=function, dtypes=("float32",),
        samples=lambda make: [make(64)],
    )  # fmt: skip
    (sample,) = spec.draw(0, "float32", "values")

    assert len(list(influences(Results([spec]), "float32", sample, chance()))) == bases


def test_of_several_results_the_places_among_equal_numbers_are_not_judged() -> None:
    def largest(xp: Any, a: Any) -> tuple[Any, Any]:
        places = xp.argsort(-a, axis=-1)[..., :3]
        return xp.take_along_axis(a, places, axis=-1), places

    specs = [
        OpSpec(
            fn=lambda xp, a, place=place: largest(xp, a)[place], name=f"result {place}", dtypes=("float32",),
            samples=lambda make: [make((2, 24))], reference=lambda a, place=place: largest(np, a)[place],
        )
        for place in range(2)
    ]  # fmt: skip
    (sample,) = specs[0].draw(0, "float32", "values")
    among_zeros = next(influences(Results(specs), "float32", sample, chance()))
    samples = [draw() for draw in among_zeros.draws]
    values = [largest(np, one.host()[0][0])[0] for one in samples]
    places = [23 - np.argsort(one.host()[0][0][..., ::-1], axis=-1)[..., :-4:-1] for one in samples]

    assert not values[0].any()
    assert among_zeros.judge(samples, list(zip(values, places, strict=True)), {}) is None
    assert among_zeros.judge(samples, list(zip(values[:1] * len(values), places, strict=True)), {}) is not None


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


def test_large_samples_get_each_range_by_some_nonce() -> None:
    sample = Sample((make()(LARGE + 1),))

    found = [drawn(scaled(sample, np.random.default_rng(nonce))) for nonce in range(8)]
    smaller, larger = ([float(np.abs(pair[place]).max()) for pair in found] for place in range(2))

    assert min(smaller) < 2.0**-13 < max(smaller)
    assert min(larger) < 24 < max(larger)


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


@pytest.mark.parametrize("high", [4, 6], ids=["equal integers", "several"])
def test_new_integers_are_also_the_largest_of_those_that_were_drawn(high: int) -> None:
    drawn = BenchSamples(3, "int32")((BENCH_TILE + 999,), low=4, high=high)

    (found,) = unrepeated(Sample((drawn,)), 7).args

    assert set(found.values[BENCH_TILE:].tolist()) == set(range(4, high + 1))


def test_what_nobody_drew_stays_as_it_is() -> None:
    given = HostArray(np.ones(BENCH_TILE + 5, np.float32))

    assert unrepeated(Sample((given,)), 7).args[0] is given
