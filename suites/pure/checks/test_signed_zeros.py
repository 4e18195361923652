"""Which zeros the check of signs compares, and which lost signs it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.arrays.dtypes import FLOATS, FP8
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import signed_zeros
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.specs import SPECS

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")
OWN = {spec.name: spec for spec in SPECS}
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0]


def filled(*arrays: Any) -> list[Any]:
    """The arrays of a call, as the check fills them."""
    return [one.values for one in signed_zeros._of_zeros(Sample(arrays)).args]


def signed(array: Any) -> list[str]:
    return [f"{number:g}" for number in array.reshape(-1).tolist()]


def test_each_number_meets_each_number_of_the_next_array() -> None:
    first, second = filled(np.ones((6, 6), np.float32), np.ones(36, np.float32))

    assert first.shape == (6, 6)
    assert first.reshape(-1).tolist() == NUMBERS * 6
    assert len(set(zip(signed(first), signed(second), strict=True))) == 36


def test_small_arrays_begin_with_zeros() -> None:
    first, second = filled(np.ones(3, np.float32), np.ones(7, np.float32))

    assert signed(first) == ["0", "-0", "1"]
    assert signed(second) == ["0"] * 6 + ["-0"]


def test_the_pattern_is_repeated_in_a_long_list() -> None:
    arrays = filled(*(np.ones(1300, np.float32) for _ in range(6)))

    assert [len(set(signed(array))) for array in arrays] == [6, 6, 6, 6, 2, 6]
    assert (arrays[5] == arrays[0]).all()


def test_integers_and_numbers_stay() -> None:
    integers, sample = np.arange(3), signed_zeros._of_zeros(Sample((np.arange(3), 2.5), label="drawn"))

    assert (sample.args[0] == integers).all()
    assert sample.args[1] == 2.5
    assert sample.label == "drawn, zeros of both signs"


def declared(fn: Callable[[Any], Any], reference: Callable[[Any], Any], **options: Any) -> OpSpec:
    return OpSpec(fn=lambda xp, a: fn(a), reference=reference, name="f", **options)


RIGHT: dict[str, Callable[[Any], Any]] = {
    "itself": lambda a: a * 1,
    "negated": np.negative,
    "sine": np.sin,
    "absolute": np.abs,
    "one more": lambda a: a + 1,
    "cosine": np.cos,
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_right_function_passes(name: str, dtype: str) -> None:
    CHECKS["signed_zeros"](declared(RIGHT[name], RIGHT[name]), "cpu:0", np.dtype(dtype))


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(lambda a: a + 0, lambda a: a * 1, id="minus zero is lost"),
        pytest.param(lambda a: np.where(a == 0, -0.0, a).astype(a.dtype), lambda a: a * 1, id="zero is lost"),
        pytest.param(lambda a: 0 - a, np.negative, id="negated"),
    ],
)
def test_a_lost_sign_of_zero_fails(fn: Any, reference: Any) -> None:
    with pytest.raises(AssertionError, match="the sign of zero is lost"):
        CHECKS["signed_zeros"](declared(fn, reference), "cpu:0", FLOAT32)


@pytest.mark.parametrize(
    ("fn", "reference", "options"),
    [
        pytest.param(lambda a: -a + 0, lambda a: a * 1, {}, id="wrong for all numbers"),
        pytest.param(lambda a: a * 0, lambda a: a * 1, {}, id="nothing but zeros"),
        pytest.param(lambda a: np.where(a == 0, 1, a).astype(a.dtype), lambda a: a * 1, {}, id="another number"),
        pytest.param(lambda a: a[:2] + 0, lambda a: a[:2] * 1, {}, id="another shape"),
        pytest.param(lambda a: np.sign(a).astype(np.int32), np.sign, {}, id="integers"),
        pytest.param(
            lambda a: a + 0, lambda a: a * 1, {"samples": lambda make: [make(9, low=-1)]}, id="numbers of a range"
        ),
        pytest.param(lambda a: a.sum(keepdims=True) * 0, lambda a: a.sum(keepdims=True), {}, id="a sum"),
    ],
)
def test_other_faults_and_other_functions_are_left_to_other_checks(fn: Any, reference: Any, options: Any) -> None:
    CHECKS["signed_zeros"](declared(fn, reference, **options), "cpu:0", FLOAT32)


def test_a_function_of_integers_is_not_asked() -> None:
    CHECKS["signed_zeros"](declared(lambda a: a + 1, lambda a: a, dtypes=("int32",)), "cpu:0", np.dtype("int32"))


def test_a_function_of_two_arrays_is_not_asked() -> None:
    spec = OpSpec(
        fn=lambda xp, a, b: a * 1 + 0, reference=lambda a, b: a * 1, name="first",
        samples=lambda make: [(make(9), make(9))],
    )  # fmt: skip

    CHECKS["signed_zeros"](spec, "cpu:0", FLOAT32)


def compared(got: list[float], expected: list[float], name: str = "f") -> str:
    """The failure of an op of this name that gives `got` for the expected numbers."""
    spec = OpSpec(
        fn=lambda xp, a: np.array(got, np.float32), reference=lambda a: np.array(expected), name=name,
        samples=lambda make: [make(3)],
    )  # fmt: skip
    try:
        signed_zeros._compare(spec, CPU, Sample((np.array(NUMBERS[: len(got)], np.float32),)))
    except AssertionError as failure:
        return str(failure)
    return ""


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        pytest.param([0.0, -0.0, 1.0], [0.0, -0.0, 1.0], "", id="right"),
        pytest.param([0.0, 0.0, 1.0], [0.0, -0.0, 1.0], "1 of 2 zeros have the other sign", id="zero for minus zero"),
        pytest.param([-0.0, 0.0, 1.0], [0.0, -0.0, 1.0], "2 of 2 zeros have the other sign", id="both"),
        pytest.param([1.0, -0.0, 1.0], [-0.0, -0.0, 1.0], "", id="another number"),
        pytest.param([-0.0, -0.0, 1.0], [1.0, -0.0, 1.0], "", id="zero for another number"),
        pytest.param([0.0], [-0.0, -0.0], "", id="another shape"),
    ],
)
def test_zeros_are_compared_where_both_results_are_zero(got: Any, expected: Any, said: str) -> None:
    failure = compared(got, expected)

    assert (said in failure) if said else not failure


def test_the_first_wrong_zero_is_named() -> None:
    assert "the first at (1,): got 0.0, expected -0.0" in compared([0.0, 0.0, 0.0], [0.0, -0.0, -0.0])


@pytest.mark.parametrize(("first", "is_found"), [(-0.0, True), (0.0, False)], ids=["only -0", "both zeros"])
def test_either_zero_is_right_for_operands_of_both_signs(first: float, is_found: bool) -> None:
    a, b = np.array([first], np.float32), np.array([-0.0], np.float32)
    spec = OpSpec(
        fn=lambda xp, a, b: np.array([0.0], np.float32), reference=lambda a, b: np.array([-0.0]), name="maximum",
        samples=lambda make: [(make(3), make(3))],
    )  # fmt: skip
    message = ""
    try:
        signed_zeros._compare(spec, CPU, Sample((a, b)))
    except AssertionError as failure:
        message = str(failure)

    assert message.startswith("the sign of zero is wrong") is is_found


@pytest.mark.parametrize(
    ("operands", "are"),
    [
        pytest.param([[0.0, 1.0], [-0.0, -0.0]], [True, False], id="arrays"),
        pytest.param([[-0.0, 0.0], 0.0], [True, False], id="an array and a number"),
        pytest.param([[0.0, 0.0], [0.0, 1.0]], [False, False], id="no minus zero"),
        pytest.param([[-0.0, -0.0], [-0.0, -1.0]], [False, False], id="no zero"),
        pytest.param([[1e-60, 0.0], [-0.0, -1e-60]], [False, False], id="small numbers"),
    ],
)
def test_operands_of_both_signs_are_found(operands: Any, are: list[bool]) -> None:
    assert signed_zeros._are_of_both_signs(operands, (2,)).tolist() == are


def test_signs_are_asked_of_floats_alone() -> None:
    assert set(CHECKS["signed_zeros"].dtypes) == {*FLOATS, *FP8}


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        pytest.param(OpSpec(op=ops.add, reference=np.add), True, id="elements"),
        pytest.param(OpSpec(op=ops.add, reference=np.add, dtypes=("int32",)), False, id="integers"),
        pytest.param(OpSpec(op=ops.add, reference=np.add, dtypes=("int32", "float16")), True, id="some floats"),
        pytest.param(OWN["sum"], False, id="a reduction"),
        pytest.param(OWN["copy"], True, id="moves elements"),
        pytest.param(OWN["fused_adam_"], False, id="several results"),
        pytest.param(declared(np.negative, np.negative, dtypes=("int32",)), True, id="a function of integers"),
        pytest.param(
            declared(np.negative, np.negative, samples=lambda make: [make(3)]), True, id="samples of one kind"
        ),
    ],
)
def test_signs_are_asked_of_functions_and_of_ops_that_move_or_compute_single_floats(
    spec: OpSpec, applies: bool
) -> None:
    assert CHECKS["signed_zeros"].applies(spec) is applies


def test_an_op_is_called_with_a_zero_of_each_sign_on_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Any] = []
    monkeypatch.setattr(signed_zeros, "_compare", lambda spec, device, sample: met.append(sample))

    CHECKS["signed_zeros"](OWN["add"], "cpu:0", FLOAT32)

    of_numbers = [one for one in met if one.label.startswith("numbers with")]
    assert [one.label for one in of_numbers] == ["numbers with 0.0"] * 2 + ["numbers with -0.0"] * 2
    assert [str(one.args[1]) for one in of_numbers[::2]] == ["0.0", "-0.0"]
    assert [str(one.args[0]) for one in of_numbers[1::2]] == ["0.0", "-0.0"]
    assert of_numbers[0].args[0].values[:8].tolist() == [*NUMBERS, 0.0, -0.0]
    assert of_numbers[0].args[0].values.shape == (301,)
    assert len(met) > len(of_numbers)


def test_the_sample_of_a_wrong_sign_is_named() -> None:
    spec = declared(lambda a: a + 0, lambda a: a * 1)

    assert "sample: drawn" in failure(signed_zeros._compare, spec, CPU, Sample((np.float32([-0.0]),), label="drawn"))


@pytest.mark.parametrize(("number", "said"), [(0.0, "1 of 1 zeros"), (1e-60, "")], ids=["zero", "a small number"])
def test_a_number_too_small_for_float32_is_not_zero(number: float, said: str) -> None:
    spec = declared(lambda a: np.float64([number]), lambda a: np.array([-0.0]), samples=lambda make: [make(1)])
    found = failure(signed_zeros._compare, spec, CPU, Sample((np.ones(1),)))

    assert (said in found) if said else not found


def test_integers_have_no_signs_of_zero() -> None:
    spec = declared(lambda a: np.zeros(1, np.int64), lambda a: np.array([-0.0]), samples=lambda make: [make(1)])

    assert not failure(signed_zeros._compare, spec, CPU, Sample((np.ones(1),)))


def test_signs_are_checked_in_every_floating_point_dtype() -> None:
    assert {*FLOATS, *FP8} <= set(CHECKS["signed_zeros"].dtypes)
