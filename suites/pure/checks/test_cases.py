"""What a failure says of its case: the check, the sample, the sentence in front, and the inputs of the call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.core import settings
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.cases import explained, name_dtype, naming_case, on_sample, retold, showing_inputs
from cuassay.testing.generated.inputs import assert_inputs_held, input_name
from cuassay.testing.samples import HostArray

SPEC = OpSpec(fn=lambda xp, a: a, name="given", samples=lambda make: [make(3)])


def fails(message: str = "wrong", error: type[Exception] = AssertionError) -> None:
    raise error(message)


def within(*managers: Any, call: Callable[[], None] = fails) -> str:
    """The failure of a call inside context managers, the outermost first."""

    def run() -> None:
        with ExitStack() as stack:
            for manager in managers:
                stack.enter_context(manager)
            call()

    return failure(run)


def test_case_names_check_op_device_dtype_and_seed() -> None:
    found = within(naming_case("check: values", SPEC, "sim:0", "float32"))

    lines = ["wrong", "  check: values", "  op: given on sim:0 in float32", f"  seed: {settings.get('CUASSAY_SEED')}"]
    assert found.split("\n")[:4] == lines
    assert "  op: given on cpu\n" in within(naming_case("check: values", SPEC, "cpu"))


def test_check_may_choose_its_dtype_later() -> None:
    def chosen() -> None:
        name_dtype("float16")
        fails()

    assert "op: given on cpu in float16" in within(naming_case("check: values", SPEC, "cpu"), call=chosen)
    name_dtype("float32")  # outside of a case
    assert "op: given on cpu\n" in within(naming_case("check: values", SPEC, "cpu"))


def test_inner_case_is_named_once_and_the_outer_one_comes_back() -> None:
    inner, outer = (naming_case(f"check: {name}", SPEC, "cpu") for name in ("inner", "outer"))

    def chosen() -> None:
        with inner:
            pass
        name_dtype("float64")
        fails()

    found = within(outer, call=chosen)
    assert "op: given on cpu in float64" in found
    assert "check: inner" not in found


def test_sample_is_named_once() -> None:
    found = within(on_sample(Sample((), {}, "drawn")), on_sample(Sample((), {}, "drawn")))

    assert found == "wrong\n  sample: drawn"
    assert within(on_sample(Sample((), {}, "one")), on_sample(Sample((), {}, "two"))).endswith("two\n  sample: one")


def test_inputs_are_shown() -> None:
    assert "input 0: 1.0, 2.0" in within(showing_inputs(Sample((HostArray(np.array([1.0, 2.0])),))))


def test_sentence_is_put_in_front_and_notes_stay() -> None:
    error = AssertionError("wrong")
    error.add_note("a note")

    told = retold("because", error)

    assert (str(told), told.__notes__) == ("because\n  wrong", ["a note"])
    assert not hasattr(retold("because", AssertionError("wrong")), "__notes__")


def skips() -> None:
    pytest.skip("refused")


@pytest.mark.parametrize(
    ("otherwise", "always", "expected"),
    [
        pytest.param(None, "", "because\n  wrong", id="no plain call"),
        pytest.param(lambda: None, "", "because\n  wrong", id="a right plain call"),
        pytest.param(lambda: None, "in any case", "because\n  wrong", id="a right plain call and another sentence"),
        pytest.param(skips, "in any case", "because\n  wrong", id="a plain call that is skipped"),
        pytest.param(fails, "", "wrong", id="a wrong plain call"),
        pytest.param(fails, "in any case", "in any case\n  wrong", id="a wrong plain call and another sentence"),
        pytest.param(lambda: fails("no", ValueError), "", "wrong", id="a plain call that raises"),
    ],
)
def test_sentence_is_said_unless_the_plain_call_fails_too(otherwise: Any, always: str, expected: str) -> None:
    assert within(explained("because", otherwise, always)) == expected


def test_other_errors_get_no_sentence_and_nothing_is_said_without_a_failure() -> None:
    with pytest.raises(ValueError, match=r"^no$"), explained("because"):
        fails("no", ValueError)
    assert within(explained("because"), call=lambda: None) == ""


# ------------------------------------------------------------------------------------------------ inputs


def of_two(xp: Any, a: Any, weights: Any = 1.0) -> Any:
    return a


TWO = OpSpec(fn=of_two, name="given", samples=lambda make: [make(3)])


@pytest.mark.parametrize(
    ("fn", "key", "name"),
    [
        (of_two, 0, "input 0 (a)"),
        (of_two, 1, "input 1 (weights)"),
        (of_two, 2, "input 2"),
        (of_two, "weights", "input weights"),
        (lambda xp, *arrays: arrays[0], 0, "input 0"),
        (lambda xp, a, *arrays, axis=0: a, 1, "input 1"),
        (lambda xp, a, /, b=0: a, 0, "input 0 (a)"),
    ],
)
def test_input_is_named_by_its_place_and_parameter(fn: Any, key: Any, name: str) -> None:
    assert input_name(OpSpec(fn=fn, name="given", samples=lambda make: [make(3)]), key) == name


def held(args: Any, after: Any, kwargs: Any = None, later: Any = None) -> str:
    return failure(assert_inputs_held, TWO, Sample(args, kwargs or {}), after, later or kwargs or {})


ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("args", "after", "said"),
    [
        pytest.param((ONES, 2), (ONES, 2), "", id="unchanged"),
        pytest.param((ONES, 2), (ONES * 2, 2), "input 0 (a): 3 of 3 elements differ", id="an array"),
        pytest.param(([ONES, ONES], 2), ([ONES, ONES * 2], 2), "input 0 (a)[1]: 3 of 3", id="an array of a list"),
        pytest.param((ONES, [1, 2]), (ONES, [2, 1]), "input 1 (weights)[0] was 1, and is 2 after", id="a list"),
        pytest.param((ONES, [1, 2]), (ONES, [1]), "given 3 arrays and numbers, and leaves 2", id="shorter"),
        pytest.param((ONES, 1), (ONES, 1.0), "input 1 (weights) was 1, and is 1.0 after the call", id="a type"),
        pytest.param((ONES, True), (ONES, False), "was True, and is False", id="a truth value"),
        pytest.param((ONES, "a"), (ONES, "b"), "was 'a', and is 'b'", id="a text"),
        pytest.param((ONES, float("nan")), (ONES, float("nan")), "", id="NaN"),
        pytest.param((ONES, (1, 2)), (ONES, (2, 1)), "", id="a tuple"),
        pytest.param((ONES, np.array([np.nan, 0.0])), (ONES, np.array([np.nan, -0.0])), "1 of 2", id="a sign of zero"),
    ],
)
def test_call_leaves_its_inputs_as_they_were(args: Any, after: Any, said: str) -> None:
    found = held(args, after)

    assert (said in found) if said else not found


def test_input_by_name_is_held_too() -> None:
    assert held((ONES,), (ONES,), {"weights": 2}, {"weights": 3}).startswith("input weights was 2, and is 3 after")
    assert not held((ONES,), (ONES,), {"weights": 2})


def test_device_arrays_are_compared_with_those_of_the_host() -> None:
    sample = Sample((HostArray(ONES),))

    assert not failure(assert_inputs_held, TWO, sample, *sample.on(Device("sim")))
