"""What random words become: ranges, moments, frequencies, permutations; every test draws from a fixed seed."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay import ops
from cuassay.arrays import distributions, philox
from cuassay.arrays.dtypes import FLOATS, as_dtype
from cuassay.errors import ArgumentError
from cuassay.random import GeneratorState

N = 100_000
#: Six standard errors: of a right generator one estimate in 10^9 is further off.
SIX = 6 / math.sqrt(N)


def uniform(dtype: str, n: int, low: float = 0.0, high: float = 1.0, seed: int = 11) -> np.ndarray:
    kind = as_dtype(dtype)
    return distributions.uniform(GeneratorState(seed), n, distributions.bounds(low, high, kind), kind)


def chi_square(counts: np.ndarray) -> float:
    """In standard deviations above what is expected of equal frequencies."""
    expected, degrees = counts.sum() / counts.size, counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees))


def all_words_of_16_bits() -> np.ndarray:
    halves = np.arange(2**16, dtype=np.uint32)
    return (halves[::2] | halves[1::2] << 16).reshape(-1, 4)


# ------------------------------------------------------------------------------------------------ uniform


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniforms_have_the_moments_of_their_interval(dtype: str) -> None:
    drawn = uniform(dtype, N, -2.0, 6.0).astype(np.float64)

    # 16-bit results are rounded down: by half a unit of their size, at most half a unit of the largest.
    rounding = {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(dtype, 0.0)
    assert abs(drawn.mean() - 2) < 8 / math.sqrt(12) * SIX + rounding
    assert abs(drawn.var() - 64 / 12) < 64 / 12 * 1.2 * SIX + 4 * rounding
    assert drawn.min() >= -2
    assert drawn.max() < 6


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniforms_fill_their_interval_evenly(dtype: str) -> None:
    counts, _ = np.histogram(uniform(dtype, N).astype(np.float64), bins=64, range=(0, 1))

    assert abs(chi_square(counts)) < 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_no_word_becomes_one_in_16_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = all_words_of_16_bits()
    monkeypatch.setattr(distributions, "random_words", lambda state, n: words)

    drawn = uniform(dtype, 2**16).astype(np.float64)

    exact = np.arange(2**16) * 2.0**-16
    assert drawn.max() < 1
    assert (drawn <= exact).all()
    assert (exact - drawn <= exact * float(np.float64(2.0) ** (-10 if dtype == "float16" else -7))).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("word", [0, 2**32 - 1], ids=["least", "most"])
def test_the_ends_of_the_words_are_in_the_interval(dtype: str, word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "random_words", lambda state, n: np.full((n, 4), word, np.uint32))

    drawn = uniform(dtype, 3, 3.0, 3.0625).astype(np.float64)

    assert (drawn >= 3).all()
    assert (drawn < 3.0625).all()


@given(
    low=st.floats(-1e4, 1e4),
    width=st.just(0.0) | st.floats(1e-3, 1e4),
    dtype=st.sampled_from(FLOATS),
    seed=st.integers(0, 2**64 - 1),
)
def test_uniforms_stay_within_their_rounded_bounds(low: float, width: float, dtype: str, seed: int) -> None:
    kind = as_dtype(dtype)
    ends = np.array([low, low + width]).astype(kind).astype(np.float64)

    drawn = uniform(dtype, 33, low, low + width, seed).astype(np.float64)

    assert (drawn >= ends[0]).all()
    assert ((drawn < ends[1]) | (ends[0] == ends[1])).all()


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(1.0, 0.0, "float32"), (0.0, math.inf, "float64"), (math.nan, 1.0, "float32"), (-6e4, 7e4, "float16"),
     (-3e38, 3e38, "float32")],
    ids=["wrong order", "infinite", "NaN", "beyond the dtype", "difference too large"],
)  # fmt: skip
def test_bounds_without_an_interval_are_refused(low: float, high: float, dtype: str) -> None:
    with pytest.raises(ArgumentError, match="low <= high and a finite difference"):
        distributions.bounds(low, high, as_dtype(dtype))


@pytest.mark.parametrize(
    ("high", "dtype"), [(1e-31, "float32"), (1e-300, "float64"), (2e-34, "bfloat16")], ids=lambda v: str(v)
)
def test_an_interval_too_narrow_for_steps_is_refused(high: float, dtype: str) -> None:
    with pytest.raises(ArgumentError, match="too narrow"):
        distributions.bounds(0.0, high, as_dtype(dtype))


def test_a_uniform_below_p_has_probability_p() -> None:
    drawn = uniform("bfloat16", N).astype(np.float64)

    for p in (0.125, 0.5, 0.90625):
        assert abs((drawn < p).mean() - p) < SIX * math.sqrt(p * (1 - p))


# ------------------------------------------------------------------------------------------------ normal


@pytest.mark.parametrize("dtype", FLOATS)
def test_normals_have_four_moments(dtype: str) -> None:
    z = distributions.normal(GeneratorState(5), N, as_dtype(dtype))

    moments = z.mean(), (z**2).mean(), (z**3).mean(), (z**4).mean()
    for got, (wanted, spread) in zip(moments, [(0, 1), (1, 2**0.5), (0, 15**0.5), (3, 96**0.5)], strict=True):
        assert abs(got - wanted) < spread * SIX


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_are_spread_as_the_error_function_says(dtype: str) -> None:
    z = distributions.normal(GeneratorState(6), N, as_dtype(dtype))

    probability = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in z[:20_000]])
    counts, _ = np.histogram(probability, bins=50, range=(0, 1))

    assert abs(chi_square(counts)) < 6


def test_neighbouring_normals_are_not_correlated() -> None:
    z = distributions.normal(GeneratorState(7), N, as_dtype("float32"))

    for lag in (1, 2, 3, 4, 8):
        assert abs(np.corrcoef(z[:-lag], z[lag:])[0, 1]) < SIX
        assert abs(np.corrcoef(z[:-lag] ** 2, z[lag:] ** 2)[0, 1]) < SIX


@pytest.mark.parametrize(
    ("word", "radius"),
    [(0, math.sqrt(66 * math.log(2))), (2**31, math.sqrt(2 * math.log(2))), (2**32 - 1, math.sqrt(2.0**-32))],
)
def test_the_radius_reaches_far_out_and_is_precise_next_to_zero(word: int, radius: float) -> None:
    got = distributions._radius(np.array([word], np.uint32))

    np.testing.assert_allclose(got, radius, rtol=1e-7)


def test_sine_and_cosine_are_exact_at_quarters() -> None:
    sine, cosine = philox.sine_cosine(np.arange(5) / 4)

    assert sine.tolist() == [0, 1, 0, -1, 0]
    assert cosine.tolist() == [1, 0, -1, 0, 1]


# ------------------------------------------------------------------------------------------------ integers

WORDS = st.integers(0, 2**64 - 1)


@given(first=WORDS, second=WORDS, low=st.integers(-(2**63), 2**63 - 1), reach=st.integers(1, 2**64))
def test_integers_are_the_upper_part_of_a_product(first: int, second: int, low: int, reach: int) -> None:
    words = [number >> shift & 0xFFFFFFFF for number in (first, second) for shift in (0, 32)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distributions, "random_words", lambda state, n: np.array([words], np.uint32))
        got = distributions.integers(GeneratorState(), 1, low, low + reach)

    x, bits = (first, 64) if reach <= 2**32 else (second << 64 | first, 128)
    assert int(got[0]) == (low + (x * reach >> bits)) % 2**64


@pytest.mark.parametrize("high", [7, 100])
def test_integers_are_equally_frequent(high: int) -> None:
    drawn = distributions.integers(GeneratorState(3), N, 0, high).astype(np.int64)

    assert abs(chi_square(np.bincount(drawn, minlength=high))) < 6


def test_integers_reach_both_ends_and_nothing_beyond() -> None:
    drawn = distributions.integers(GeneratorState(3), N, -5, 6).astype(np.int64)

    assert (drawn.min(), drawn.max()) == (-5, 5)


def test_ranges_above_two_to_the_32_vary_in_all_bits() -> None:
    drawn = distributions.integers(GeneratorState(4), 10_000, 0, 2**63)

    for bit in range(63):
        assert abs((drawn >> np.uint64(bit) & np.uint64(1)).mean() - 0.5) < 0.03


# ------------------------------------------------------------------------------------------------ permutation


@given(n=st.integers(0, 3000), seed=st.integers(0, 2**64 - 1))
def test_a_permutation_holds_each_index_once(n: int, seed: int) -> None:
    assert sorted(distributions.permutation(GeneratorState(seed), n).tolist()) == list(range(n))


@pytest.mark.parametrize(("n", "times"), [(3, 600), (4, 800), (5, 2400)])
def test_all_orders_of_few_are_equally_frequent(n: int, times: int) -> None:
    number = {order: place for place, order in enumerate(permutations(range(n)))}
    drawn = [number[tuple(distributions.permutation(GeneratorState(1, 4 * k), n).tolist())] for k in range(times)]

    assert abs(chi_square(np.bincount(drawn, minlength=math.factorial(n)))) < 6


def test_every_index_comes_to_every_place_equally_often() -> None:
    n, times = 16, 1600
    orders = np.stack([distributions.permutation(GeneratorState(2, 4 * k), n) for k in range(times)]).astype(np.int64)

    counts = np.stack([np.bincount(orders[:, place], minlength=n) for place in range(n)])
    assert abs(chi_square(counts.ravel())) < 6


def test_even_and_odd_permutations_of_sixteen_are_equally_frequent() -> None:
    def is_odd(order: np.ndarray) -> bool:
        return bool(np.triu(order[:, None] > order[None, :], 1).sum() % 2)

    odd = sum(is_odd(distributions.permutation(GeneratorState(2, 4 * k), 16)) for k in range(1000))

    assert abs(odd - 500) < 6 * math.sqrt(250)


def test_neighbours_in_a_long_permutation_are_not_correlated() -> None:
    order = distributions.permutation(GeneratorState(9), N).astype(np.float64)

    assert abs(np.corrcoef(np.arange(N), order)[0, 1]) < SIX
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < SIX


# ------------------------------------------------------------------------------------------------ streams of numbers


@pytest.mark.parametrize(
    ("first", "second"),
    [(GeneratorState(1), GeneratorState(2)), (GeneratorState(1), GeneratorState(1, 4)),
     (GeneratorState(1), GeneratorState(1 + 2**32)), (GeneratorState(0, 2**34), GeneratorState(0))],
    ids=["seeds", "offsets", "upper halves of the seed", "upper halves of the offset"],
)  # fmt: skip
def test_streams_of_numbers_are_not_correlated(first: GeneratorState, second: GeneratorState) -> None:
    a, b = (philox.uniform_float64(philox.random_words(state, N)).ravel()[:N] for state in (first, second))

    assert abs(np.corrcoef(a, b)[0, 1]) < SIX
    assert np.intersect1d(a, b).size == 0


@pytest.mark.parametrize("n", [1, 7, 8, 1001])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_longer_array_begins_with_the_numbers_of_a_shorter_one(dtype: str, n: int) -> None:
    np.testing.assert_array_equal(uniform(dtype, n), uniform(dtype, 2048)[:n])


@pytest.mark.parametrize(("p", "words"), [(0.0, 0), (0.5, 2**31), (1.0, 2**32)])
def test_the_words_that_drop(p: float, words: int) -> None:
    assert distributions.dropped_words(p) == words


# ------------------------------------------------------------------------------------------------ word by word


@pytest.mark.parametrize("reach", [1, 10, 2**31 + 1, 2**32, 2**32 + 1, 2**63 - 3, 2**64 - 1, 2**64])
@pytest.mark.parametrize("low", [0, -7])
def test_an_integer_is_the_upper_part_of_range_times_words(reach: int, low: int) -> None:
    """With Python's integers, of any size."""
    state, n = GeneratorState(5, 8), 1000
    a_number = 2 if reach <= 2**32 else 4
    words = philox.random_words(state, n * a_number // 4).reshape(n, a_number).tolist()
    expected = [
        (low + (reach * sum(word << 32 * place for place, word in enumerate(row)) >> 32 * a_number)) % 2**64
        for row in words
    ]

    assert distributions.integers(state, n, low, low + reach).tolist() == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_normals_of_16_bits_are_those_of_float32_rounded(dtype: str) -> None:
    like, state = np.empty(N, as_dtype(dtype)), GeneratorState(3)

    drawn = ops.normal(like, state=state, mean=0.3, std=1.7)

    wide = ops.normal(np.empty(N, np.float32), state=state, mean=0.3, std=1.7)
    np.testing.assert_array_equal(drawn.view(np.uint16), wide.astype(as_dtype(dtype)).view(np.uint16))


def test_of_two_normals_the_first_is_the_sine() -> None:
    words = philox.random_words(GeneratorState(3), 25).reshape(-1, 2)
    angle = 2 * np.pi * (words[:, 1] >> np.uint32(6)).astype(np.float64) * 2.0**-26

    pairs = distributions.normal(GeneratorState(3), 100, as_dtype("float32")).reshape(-1, 2)

    np.testing.assert_allclose(np.arctan2(pairs[:, 0], pairs[:, 1]) % (2 * np.pi), angle, atol=1e-9)


@pytest.mark.parametrize("n", [2, 4, 64, 4096])
def test_a_permutation_of_a_power_of_two_needs_no_second_walk(n: int) -> None:
    assert distributions.permutation_bits(n) == n.bit_length() - 1


def test_a_word_at_the_probability_is_no_hit() -> None:
    state, n = GeneratorState(9), 1000
    p = distributions.words_of(state, n) / 2.0**32

    drawn = ops.bernoulli(p, state=state), ops.bernoulli(np.nextafter(p, 1), state=state)

    assert [float(one.sum()) for one in drawn] == [0, n]


def test_a_word_at_the_threshold_is_kept_by_dropout() -> None:
    state, n = GeneratorState(9), 8
    words = distributions.words_of(state, n)

    for place, word in enumerate(words.tolist()):
        at, above = (ops.dropout_mask(np.empty(n, np.float32), state=state, p=p / 2**32) for p in (word, word + 1))
        assert (bool(at[place]), bool(above[place])) == (True, False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_below_zero_lies_the_smallest_negative_number(dtype: str) -> None:
    kind = as_dtype(dtype)

    last = distributions.bounds(-1.0, 0.0, kind).last

    assert last.astype(kind).view(f"i{kind.itemsize}") == np.iinfo(f"i{kind.itemsize}").min + 1
