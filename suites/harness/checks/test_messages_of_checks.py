"""What a failed check says: which input, sample and dtype, each once, and what the reader can do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

Function = Callable[..., Any]


def failure(check: str, fn: Function, dtype: str = "float32", device: str = "cpu:0", **declared: Any) -> str:
    """The message and the notes with which a check fails."""
    spec = OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared)
    with pytest.raises(AssertionError) as caught:
        CHECKS[check](spec, device, *((np.dtype(dtype),) if CHECKS[check].per_dtype else ()))
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def sums_of_segments(a: Any, ids: Any, segments: int = 10) -> Any:
    out = np.zeros((segments, a.shape[1]), a.dtype)
    np.add.at(out, ids, a)
    return out


SEGMENTS: dict[str, Any] = {
    "reference": sums_of_segments,
    "samples": lambda make: [(make((24, 3)), make(24, dtype="int64", low=0, high=9))],
}


def of_sorted(xp: Any, a: Any, ids: Any) -> Any:
    a = a[np.argsort(ids)]
    ids.sort()
    return sums_of_segments(a, ids)


def of_largest(xp: Any, a: Any, ids: Any) -> Any:
    return sums_of_segments(a, ids, int(ids.max()) + 1)


@pytest.mark.parametrize("check", ["inputs_unchanged", "layouts", "stress", "sizes"])
def test_an_input_that_was_written_is_named(check: str) -> None:
    told = failure(check, of_sorted, **SEGMENTS)

    assert "\n  input 1 (ids): " in told
    assert "an input that holds a NaN" not in told


def test_an_input_is_named_by_its_position_where_the_signature_shows_no_more() -> None:
    told = failure("inputs_unchanged", lambda xp, *arrays: of_sorted(xp, *arrays), **SEGMENTS)

    assert "\n  input 1: " in told


def test_a_written_member_of_a_list_is_named() -> None:
    def clears(xp: Any, arrays: Any) -> Any:
        total = arrays[0] + arrays[1]
        arrays[1][...] = 0
        return total

    told = failure("inputs_unchanged", clears, samples=lambda make: [([make(5), make(5)],)])

    assert "\n  input 0 (arrays)[1]: " in told


@pytest.mark.parametrize("check", ["combined", "inputs_unchanged", "layouts", "stress", "sizes", "zeros"])
def test_the_sample_is_named_once(check: str) -> None:
    fn = of_largest if check in ("combined", "zeros") else of_sorted

    assert failure(check, fn, **SEGMENTS).count("sample: ") == 1


KEPT: dict[object, Any] = {}


def kept(xp: Any, a: Any) -> Any:
    out = KEPT.setdefault((a.shape, a.dtype), xp.empty_like(a))
    out[...] = 0
    out[...] = a * 2
    return out


def through_global(xp: Any, a: Any) -> Any:
    KEPT["a"] = a
    return KEPT["a"] * 2


def test_the_sample_of_interrupted_calls_is_named_once() -> None:
    told = failure("threads", through_global, samples=lambda make: [make((3, 5))], reference=lambda a: a * 2)

    assert told.count("sample: ") == 1
    assert "the other call: 0: shape 3x5, new numbers" in told


@pytest.mark.parametrize(
    ("check", "fn"),
    [("sizes", of_sorted), ("aliasing", kept), ("threads", through_global)],
)
def test_a_check_in_one_dtype_says_in_which(check: str, fn: Function) -> None:
    declared = SEGMENTS if fn is of_sorted else {"samples": lambda make: [make((3, 5))], "reference": lambda a: a * 2}

    assert "op: f on cpu:0 in float64" in failure(check, fn, "float64", **declared)


def test_a_second_call_names_the_dtype_that_is_wrong() -> None:
    thirds: dict[object, Any] = {}

    def fn(xp: Any, a: Any) -> Any:
        return (a * thirds.setdefault(a.shape, xp.ones_like(a) / 3)).astype(a.dtype)

    spec = OpSpec(fn=fn, name="f", dtypes=("float32", "float64"), reference=lambda a: a / 3)
    with pytest.raises(AssertionError, match="op: f on cpu:0 in float64"):
        CHECKS["second_call"](spec, "cpu:0")


def test_positions_that_float16_cannot_count_are_reported_in_float16() -> None:
    def odd(xp: Any, a: Any) -> Any:
        return a * (xp.arange(a.shape[-1], dtype=a.dtype) % 2)

    spec = OpSpec(
        fn=odd,
        name="f",
        dtypes=("float16", "float32"),
        samples=lambda make: [make((3, 20))],
        reference=lambda a: a * (np.arange(a.shape[-1]) % 2),
    )
    with pytest.raises(AssertionError, match="op: f on cpu:0 in float16"):
        CHECKS["sizes"](spec, "cpu:0")


# ------------------------------------------------------------------------------------------------ single checks


def masked_softmax(fill: float) -> Function:
    def fn(xp: Any, a: Any, mask: Any) -> Any:
        a = xp.where(mask, a, xp.asarray(fill, a.dtype))
        e = xp.exp(a - a.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    return fn


def test_a_row_without_a_number_is_named_where_the_reference_gives_nan() -> None:
    told = failure(
        "sizes",
        masked_softmax(-1e4),
        reference=lambda a, mask: masked_softmax(-np.inf)(np, a, mask),
        samples=lambda make: [(make((5, 33)), make((5, 33), dtype="bool"))],
    )

    assert "input 1 (mask) is False in all of [" in told
    assert "let the reference give what is meant, or raise an error" in told
    assert "subtract the maximum" not in told


def test_a_reference_that_overflows_is_told_of_as_before() -> None:
    told = failure(
        "values",
        lambda xp, a: 1 / (1 + xp.exp(-a)),
        reference=lambda a: np.exp(a) / (1 + np.exp(a)),
        samples=lambda make: [make(5, low=800, high=900)],
    )

    assert "it may overflow on the way: subtract the maximum" in told


def test_a_wider_result_names_the_dtypes_that_the_sample_has() -> None:
    told = failure(
        "wider_result",
        lambda xp, a, ids: sums_of_segments(a.astype("float64"), ids),
        **SEGMENTS,
    )

    assert "wider than its inputs (float32): " in told
    assert "sample: 0: shapes 24x3, 24, integers in int16" in told


def test_another_number_of_results_is_said_first() -> None:
    told = failure("values", lambda xp, a: (a, xp.exp(a)), reference=lambda a: a, samples=lambda make: [make(2)])

    assert told.startswith("fn gives 2 arrays, and reference= gives 1 array\n  shape is (4,); expected (2,)")


def test_an_infinity_that_a_sum_drops_is_shown_with_its_place() -> None:
    told = failure(
        "infinities",
        lambda xp, a: xp.where(xp.isfinite(a), a, 0).sum(axis=0),
        reference=lambda a: a.sum(axis=0),
        samples=lambda make: [make((33, 4))],
    )

    assert re.search(r" \.\.\. \(33 numbers; inf at \[\d+, \d\]\)", told)


def test_stress_is_described_in_words_that_stand_alone() -> None:
    sentence = CHECKS["stress"].doc.partition("\n")[0]

    assert "graphs that are chains" in sentence
    assert "chains as graphs" not in sentence


def test_another_number_of_results_is_named_for_numbers_of_every_magnitude() -> None:
    told = failure("full_range", lambda xp, a: (a + 1, a + 2), reference=lambda a: a + 1)

    assert told.startswith("fn gives 2 arrays, and reference= gives 1 array\n")


def test_a_dtype_other_than_the_declared_one_names_the_declaration() -> None:
    told = failure("values", lambda xp, a: a + 1, reference=lambda a: a + 1, result_dtype="float64")

    assert told.startswith("the declared result_dtype= is 'float64'\n  dtype is float32; expected float64")


def test_a_relation_that_does_not_hold_is_not_stated_as_a_fact() -> None:
    told = failure("relations", lambda xp, a: a + 1, reference=lambda a: a + 1, relations=("odd",))

    assert told.startswith("relations= declares 'odd', which does not hold: f(-a) = -f(a)\n")


def test_quotients_by_a_scale_of_a_declared_range_are_ties() -> None:
    told = failure(
        "halves",
        lambda xp, a, scale: xp.floor(a / scale + 0.5),
        reference=lambda a, scale: np.rint(a / scale),
        samples=lambda make: [(make((4, 33)), make((4, 1), low=0.01, high=0.1))],
    )

    assert "input 1 is 0.0625, the others are multiples of half of it: quotients are ties" in told


def test_numbers_in_a_far_unit_come_with_what_to_do_if_they_are_not_meant() -> None:
    told = failure(
        "units",
        lambda xp, a: xp.sqrt(a * a),
        reference=np.abs,
        samples=lambda make: [make(200)],
    )

    assert re.search(r"2\^-?80; if such numbers are not meant, give the samples a range: make\(shape, low=", told)
