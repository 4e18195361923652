"""Where the arrays of a call lie: apart, poisoned, in their strides; and what is taken out of there."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.core.capability import DTYPE_NAMES
from cuassay.errors import ArgumentError
from cuassay.judging.arena import Arena, form_of, interpreted, repeated, same_bits, unwritten
from cuassay.judging.protocol import Claim, dtype_number

BASE = np.arange(240, dtype=np.float32).reshape(4, 6, 10)

ARRAYS = {
    "contiguous": BASE,
    "transposed": BASE.T,
    "reversed": BASE[::-1, :, ::-1],
    "strided": BASE[1::2, :, ::3],
    "broadcast": np.broadcast_to(BASE[0, 0], (3, 10)),
    "scalar": BASE[0, 0, 0, ...],
    "empty": BASE[:0],
    "bfloat16": BASE.astype(ml_dtypes.bfloat16),
    "float8_e5m2": BASE.astype(ml_dtypes.float8_e5m2),
    "bool": BASE > 7,
    "complex": (BASE + 1j)[..., 1::2],
}


def arena(nbytes: int = 1 << 16) -> tuple[Arena, np.ndarray[Any, Any]]:
    memory = bytearray(nbytes)
    return Arena(memoryview(memory)), np.frombuffer(memory, np.uint8)


def seen(memory: np.ndarray[Any, Any], placed: Any, dtype: Any) -> np.ndarray[Any, Any]:
    return np.ndarray(placed.shape, dtype, memory.data, placed.first, placed.strides)


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_input_has_its_numbers_and_strides(array: np.ndarray[Any, Any]) -> None:
    one, memory = arena()

    layout = one.place([array], [])
    one.give(layout, [array])

    (placed,) = layout.inputs
    found = seen(memory, placed, array.dtype)
    assert found.tobytes() == array.tobytes()
    assert placed.strides == array.strides
    assert DTYPE_NAMES[placed.dtype] == np.dtype(array.dtype).name
    assert one.changed(layout, [array]) == ()


@given(st.integers(0, 2**32), st.lists(st.integers(0, 500), max_size=6), st.lists(st.integers(0, 500), max_size=4))
def test_no_two_arrays_touch(seed: int, inputs: list[int], outputs: list[int]) -> None:
    one, _ = arena()

    layout = one.place([np.zeros(n, np.uint8) for n in inputs], outputs, seed)

    spans = [(p.low, p.low + p.nbytes) for p in layout.inputs] + [(r.offset, r.offset + r.nbytes) for r in layout.rooms]
    spans = sorted(spans)
    assert all(low % 256 == 0 for low, _ in spans)
    assert all(high + 256 <= low for (_, high), (low, _) in pairwise(spans))
    assert layout == one.place([np.zeros(n, np.uint8) for n in inputs], outputs, seed)


def test_places_differ_from_call_to_call() -> None:
    one, _ = arena()

    assert len({one.place([BASE], [(BASE.shape, "float32")]).inputs[0].low for _ in range(20)}) > 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "complex64"])
def test_rooms_of_floats_hold_nans(dtype: str) -> None:
    one, _ = arena()
    layout = one.place([], [((9,), dtype)])

    (taken,) = one.take(layout)()

    array, problem = interpreted(taken, Claim((9,), dtype_number(dtype)))
    assert problem == ""
    assert np.isnan(array).all()
    assert unwritten(taken, layout.poisons[0]) == taken.nbytes // 8 * 8


def test_what_was_not_written_is_counted() -> None:
    one, memory = arena()
    layout = one.place([], [((64,), "int64")])
    room = layout.rooms[0]
    memory[room.offset : room.offset + 80] = 1

    (taken,) = one.take(layout)()

    assert unwritten(taken, layout.poisons[0]) == 512 - 80


def test_inputs_are_not_there_before_they_are_given() -> None:
    one, memory = arena()

    layout = one.place([BASE], [(BASE.shape, "float32")])

    (placed,) = layout.inputs
    assert len(set(bytes(memory[placed.low : placed.low + placed.nbytes]))) == 1  # what lies between arrays


def test_bytes_inside_a_strided_input_are_those_between_arrays() -> None:
    one, memory = arena()
    memory[:] = np.arange(len(memory)) % 251

    layout = one.place([BASE[..., ::2]], [])

    (placed,) = layout.inputs
    assert len(set(bytes(memory[: placed.low + placed.nbytes]))) == 1


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 100, 4096, (1 << 19) + 72])
def test_pattern_fills_all_bytes(nbytes: int) -> None:
    pattern = bytes(range(64))

    assert repeated(pattern, nbytes).tobytes() == (pattern * (nbytes // 64 + 1))[:nbytes]


def test_write_after_the_snapshot_is_seen() -> None:
    one, memory = arena()
    layout = one.place([], [((4,), "int32"), ((2,), "int8")])
    taken = one.take(layout)()
    assert one.is_as_taken(layout, taken)

    memory[layout.rooms[1].offset] ^= 1

    assert not one.is_as_taken(layout, taken)


def test_changed_inputs_are_found() -> None:
    one, memory = arena()
    layout = one.place([BASE, BASE.T, np.array([np.nan])], [])
    one.give(layout, [BASE, BASE.T, np.array([np.nan])])
    seen(memory, layout.inputs[1], BASE.dtype)[3, 2, 1] = -1

    assert one.changed(layout, [BASE, BASE.T, np.array([np.nan])]) == (1,)


def test_snapshot_is_private() -> None:
    one, memory = arena()
    layout = one.place([], [((4,), "int32")])

    (taken,) = one.take(layout)()
    before = taken.copy()
    memory[:] = 0

    np.testing.assert_array_equal(taken, before)


CLAIMS = {
    "as said": (Claim((2, 3), dtype_number("float64")), ""),
    "another shape": (Claim((6,), dtype_number("float64")), ""),
    "another dtype": (Claim((12,), dtype_number("bfloat16")), ""),
    "more bytes than taken": (Claim((7,), dtype_number("float64")), "too large"),
    "empty": (Claim((2**58, 0), dtype_number("complex128")), ""),
    "said to be none": (Claim((), 0, "not an array"), "not an array"),
}


@pytest.mark.parametrize(("claim", "problem"), CLAIMS.values(), ids=CLAIMS)
def test_claim_is_taken_by_its_word_as_far_as_bytes_go(claim: Claim, problem: str) -> None:
    array, found = interpreted(np.zeros(48, np.uint8), claim)

    assert found == problem
    assert (array is None) == bool(problem)
    if array is not None:
        assert array.shape == claim.shape


def test_truth_values_are_zero_or_one() -> None:
    array, _ = interpreted(np.array([0, 1, 2, 255], np.uint8), Claim((4,), dtype_number("bool")))

    assert array.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_arguments_that_do_not_fit_are_refused() -> None:
    one, _ = arena(4096)

    with pytest.raises(ArgumentError, match=r"the arena has 4,096; raise Limits\.arena_nbytes"):
        one.place([np.zeros(5000, np.uint8)], [])


def test_form_keeps_arguments_apart() -> None:
    arguments = [BASE, [BASE, 2], (1, None), np.float32(2), 3 + 4j, {"a": BASE, 1: "x"}]

    form, arrays = form_of(arguments, {"axis": -1, "weight": BASE, "eps": float("inf")})

    assert len(arrays) == 5
    positional, named = json.loads(form)
    assert positional == [
        {"array": 0}, [{"array": 1}, 2], {"tuple": [1, None]}, {"scalar": 2}, {"complex": [3.0, 4.0]},
        {"mapping": [["a", {"array": 3}], [1, "x"]]},
    ]  # fmt: skip
    assert named == {"axis": -1, "weight": {"array": 4}, "eps": float("inf")}


def test_argument_of_another_kind_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"cannot be called with <object .* give arrays, numbers, words"):
        form_of([object()], {})


@pytest.mark.parametrize("place", [0, 1, 8, 12, -1])
@pytest.mark.parametrize("count", [1, 7, 8, 13, 4096])
def test_one_other_byte_is_other_bits(count: int, place: int) -> None:
    """Words of eight bytes are compared, and the bytes that are left."""
    array = np.arange(count, dtype=np.uint8)
    other = array.copy()
    assert same_bits(array, other)
    assert same_bits(array.reshape(1, -1), other)

    other[max(place, -count) if place < 0 else place % count] ^= 128
    assert not same_bits(array, other)


def test_arrays_of_other_lengths_and_nans_of_other_bits_differ() -> None:
    nan = np.array([np.nan], np.float32)

    assert same_bits(nan, nan.copy())
    assert not same_bits(nan, -nan)
    assert not same_bits(np.zeros(3, np.uint8), np.zeros(4, np.uint8))
    assert same_bits(BASE.T, np.ascontiguousarray(BASE.T))


@given(st.integers(0, 2**32), st.lists(st.integers(0, 3000), max_size=6), st.lists(st.integers(0, 3000), max_size=4))
def test_arrays_that_it_holds_can_be_placed(seed: int, inputs: list[int], outputs: list[int]) -> None:
    one, memory = arena()
    arrays = [np.zeros(n, np.uint8) for n in inputs]

    if one.holds(arrays, outputs):
        assert one.place(arrays, outputs, seed).end <= len(memory)
    else:
        assert sum(inputs) + sum(outputs) + 256 * 5 * (len(inputs) + len(outputs) + 1) > len(memory)
