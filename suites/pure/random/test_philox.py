"""Philox words against the published answers; what uniforms, normals and generator states promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.arrays import philox
from cuassay.core.generator import DEFAULT_SEED
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.random import GeneratorState

ONES = 0xFFFFFFFF
STATES = st.builds(
    GeneratorState, seed=st.integers(0, 2**64 - 1), offset=st.integers(0, 2**61 - 1).map(lambda calls: calls * 4)
)


# Known-answer vectors published with Random123 (its file kat_vectors).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_the_published_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    words = philox.philox4x32(np.array(counter, np.uint32), np.array(key, np.uint32))

    assert words.dtype == np.uint32
    assert words.tolist() == expected


def test_counters_and_keys_broadcast() -> None:
    counter = np.arange(24, dtype=np.uint32).reshape(3, 2, 4)
    key = np.arange(6, dtype=np.uint32).reshape(3, 1, 2)

    together = philox.philox4x32(counter, key)

    assert together.shape == (3, 2, 4)
    np.testing.assert_array_equal(together[1, 1], philox.philox4x32(counter[1, 1], key[1, 0]))


def test_words_of_another_dtype_or_width_are_refused() -> None:
    good = np.zeros(4, np.uint32)

    with pytest.raises(DTypeError, match="counter must be uint32; got int64"):
        philox.philox4x32(np.zeros(4, np.int64), good[:2])
    with pytest.raises(ShapeError, match=r"key must have shape \(..., 2\)"):
        philox.philox4x32(good, good)


@given(state=STATES, element=st.integers(0, 2**64 - 2))
def test_the_counter_is_the_offset_below_the_subsequence(state: GeneratorState, element: int) -> None:
    call = state.offset // 4
    halves = [number >> shift & ONES for number in (call, element) for shift in (0, 32)]
    key = np.array([state.seed & ONES, state.seed >> 32], np.uint32)

    words = philox.random_words(state, 1, first=element)

    np.testing.assert_array_equal(words[0], philox.philox4x32(np.array(halves, np.uint32), key))


@given(state=STATES, cut=st.integers(0, 7), per_element=st.integers(1, 9))
def test_a_call_in_two_pieces_gives_the_same_words(state: GeneratorState, cut: int, per_element: int) -> None:
    whole = philox.random_words(state, 7, per_element)
    pieces = [philox.random_words(state, n, per_element, first=first) for n, first in ((cut, 0), (7 - cut, cut))]

    assert whole.shape == (7, per_element)
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("per_element", [1, 4, 6])
def test_successive_calls_share_no_word(per_element: int) -> None:
    state = GeneratorState(7)
    first = philox.random_words(state, 1000, per_element)
    second = philox.random_words(state.advance(1000, per_element), 1000, per_element)

    assert np.intersect1d(first, second).size == 0


def test_a_long_element_goes_on_where_the_next_call_starts() -> None:
    state = GeneratorState(7, 8)

    eight = philox.random_words(state, 3, 8)

    np.testing.assert_array_equal(eight[:, 4:], philox.random_words(state.advance(3, 4), 3, 4))


@pytest.mark.parametrize(
    ("words", "below_one", "above_zero"),
    [
        ([0, 0], 0.0, 2.0**-53),
        ([2047, 0], 0.0, 2.0**-53),
        ([0, 2**31], 0.5, 0.5 + 2.0**-53),
        ([ONES, ONES], 1 - 2.0**-53, 1.0),
    ],
)
def test_float64_uniforms_take_53_bits(words: list[int], below_one: float, above_zero: float) -> None:
    pair = np.array(words, np.uint32)

    assert philox.uniform_float64(pair).tolist() == [below_one]
    assert philox.uniform_float64(pair, include_one=True).tolist() == [above_zero]


def test_uniforms_and_normals_have_their_moments() -> None:
    n = 50_000
    words = philox.random_words(GeneratorState(1), n)
    u, v = philox.uniform_float64(words, include_one=True).T
    sine, cosine = philox.normals(u, v)

    # Six standard errors of each estimate.
    bound = 6 / np.sqrt(n)
    assert abs(u.mean() - 1 / 2) < bound * np.sqrt(1 / 12)
    assert abs(np.corrcoef(u, v)[0, 1]) < bound
    for z in (sine, cosine):
        assert abs(z.mean()) < bound
        assert abs(z.var() - 1) < bound * np.sqrt(2)
    assert abs(np.corrcoef(sine, cosine)[0, 1]) < bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_at_the_ends_of_the_uniforms(dtype: str) -> None:
    least = {"float32": 2.0**-24, "float64": 2.0**-53}[dtype]
    sine, cosine = philox.normals(np.array([least, 1.0], dtype), np.array([0.25, 0.0], dtype))

    assert sine.dtype == cosine.dtype == np.dtype(dtype)
    np.testing.assert_allclose(sine, [np.sqrt(-2 * np.log(least)), 0.0], rtol=1e-6)


@given(calls=st.integers(0, 2**60), n=st.integers(1, 2**64), per_thread=st.integers(0, 1000))
def test_advancing_moves_past_the_words_taken_in_fours(calls: int, n: int, per_thread: int) -> None:
    state = GeneratorState(5, calls * 4)

    after = state.advance(n, per_thread)

    assert after.seed == state.seed
    assert per_thread <= after.offset - state.offset < per_thread + 4
    assert after.offset % 4 == 0


def test_a_call_of_no_elements_takes_nothing() -> None:
    state = GeneratorState(3, 8)

    assert state.advance(0, 100) == state


@given(state=STATES)
def test_a_state_survives_the_round_trip_through_bytes(state: GeneratorState) -> None:
    data = state.to_bytes()

    assert len(data) == 16
    assert GeneratorState.from_bytes(data) == state
    assert GeneratorState.from_bytes(data[:8]) == GeneratorState(state.seed)


def test_the_bytes_are_seed_then_offset_little_endian() -> None:
    assert GeneratorState(0x0102, 4).to_bytes() == bytes([2, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0])


def test_an_unseeded_state_is_torchs() -> None:
    assert GeneratorState() == GeneratorState(67_280_421_310_721, 0)
    assert DEFAULT_SEED == 67_280_421_310_721


@pytest.mark.parametrize(
    ("seed", "offset", "said"),
    [
        (-1, 0, "seed does not fit; got -1"),
        (2**64, 0, "does not fit"),
        (0, -4, "offset does not fit; got -4"),
        (0, 2**63, "does not fit"),
        (0, 6, "not a multiple of 4"),
    ],
)
def test_a_state_out_of_range_is_refused(seed: int, offset: int, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        GeneratorState(seed, offset)


@pytest.mark.parametrize(
    ("n", "per_thread", "said"),
    [(-1, 4, "n_elements is -1"), (2**64 + 1, 4, "its own subsequence"), (1, -4, "per_thread is -4"), (1, 8, "offset")],
)
def test_an_impossible_advance_is_refused(n: int, per_thread: int, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        GeneratorState(0, 2**63 - 4).advance(n, per_thread)


@pytest.mark.parametrize("data", [b"", b"1234", bytes(17)])
def test_bytes_of_another_length_are_refused(data: bytes) -> None:
    with pytest.raises(ArgumentError, match=f"got {len(data)}"):
        GeneratorState.from_bytes(data)


def test_bytes_of_a_bad_offset_are_refused() -> None:
    with pytest.raises(ArgumentError, match="not a multiple of 4"):
        GeneratorState.from_bytes(bytes(8) + bytes([1]) + bytes(7))
