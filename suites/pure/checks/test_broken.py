"""Calls that break, or give another shape or dtype, where the reference gives a result: which are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.errors import RaceError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.broken import assert_dtype_of, assert_whole, breaking
from cuassay.testing.generated.execution import is_raised_on_purpose
from cuassay.testing.samples import HostArray

CPU = Device("cpu")
REFUSED = "an error of the reference"


def spec_of(fn: Any, reference: Any = None) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, name="given", dtypes=("float32",), samples=lambda make: [make.of([1, 2])])


def sample_of(*numbers: float, label: str = "drawn") -> Sample:
    return Sample((HostArray(np.array(numbers, np.float32)),), {}, label)


BASE, OTHER = sample_of(1, 2), sample_of(-1, -2, label="negative")


def negative(a: Any) -> bool:
    return bool(a.size and a.min() < 0)


# ------------------------------------------------------------------------------------------------ whole results


def breaks(xp: Any, a: Any) -> Any:
    return a.reshape(3) if negative(a) else a


def refuses(xp: Any, a: Any) -> Any:
    if negative(a):
        raise ValueError("give positive numbers")
    return a


def one_less(xp: Any, a: Any) -> Any:
    return a[1:] if negative(a) else a


@pytest.mark.parametrize(
    ("fn", "reference", "said"),
    [
        pytest.param(lambda xp, a: a, lambda a: a, "", id="right"),
        pytest.param(breaks, lambda a: a, "breaks for others: ValueError: cannot reshape", id="breaks"),
        pytest.param(refuses, lambda a: a, "", id="refuses"),
        pytest.param(breaks, None, "", id="without a reference"),
        pytest.param(
            one_less, lambda a: a,
            "the shape of the result changes with the numbers: (1,), where the reference gives (2,)",
            id="another shape",
        ),
        pytest.param(one_less, lambda a: one_less(np, a), "", id="the shape depends on the numbers"),
        pytest.param(lambda xp, a: a[1:], lambda a: a, "", id="another shape for all numbers"),
    ],
)  # fmt: skip
def test_other_numbers_give_a_result_of_the_same_shape(fn: Any, reference: Any, said: str) -> None:
    found = failure(assert_whole, spec_of(fn, reference), OTHER, BASE)

    assert (said in found) if said else not found
    assert not said or "sample: negative" in found


def test_shape_that_the_reference_gives_is_told() -> None:
    found = failure(assert_whole, spec_of(breaks, lambda a: a), OTHER, BASE)

    assert "the reference gives a result of shape (2,): give it too" in found


def test_error_of_the_reference_is_returned() -> None:
    def refusing(a: Any) -> Any:
        if negative(a):
            raise ValueError(REFUSED)
        return a

    assert str(assert_whole(spec_of(breaks, refusing), OTHER, BASE)) == REFUSED
    assert assert_whole(spec_of(lambda xp, a: a, refusing), BASE, BASE) is None
    assert assert_whole(spec_of(lambda xp, a: a), OTHER, BASE) is None


# ------------------------------------------------------------------------------------------------ dtypes


def wider(xp: Any, a: Any) -> Any:
    return a.astype("float64") if negative(a) else a


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_another_dtype_for_other_numbers_is_found(device: str) -> None:
    found = failure(assert_dtype_of, spec_of(wider), Device(device), OTHER, BASE)

    assert "the result is float64, and float32 for ordinary inputs: is it made here without a dtype?" in found
    assert found.endswith("sample: negative")


def refuses_base(xp: Any, a: Any) -> Any:
    if not negative(a):
        raise ValueError("give negative numbers")
    return a.astype("float64")


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda xp, a: a, id="the same"),
        pytest.param(lambda xp, a: 1.0 if negative(a) else a, id="a number"),
        pytest.param(lambda xp, a: a if negative(a) else 1.0, id="a number for ordinary inputs"),
        pytest.param(refuses, id="refused"),
    ],
)
def test_dtype_is_the_same_or_not_known(fn: Any) -> None:
    assert not failure(assert_dtype_of, spec_of(fn), CPU, OTHER, BASE)


def test_inputs_that_the_function_refuses_have_no_dtype() -> None:
    calls: list[bool] = []

    def counted(xp: Any, a: Any) -> Any:
        calls.append(True)
        return refuses(xp, a)

    spec = spec_of(counted)
    for one, other, count in ((OTHER, BASE, 1), (BASE, OTHER, 2)):
        calls.clear()
        assert_dtype_of(spec, CPU, one, other)
        assert len(calls) >= count  # the refused sample is asked for once, on the host
        assert len(calls) <= 4


def test_error_of_a_device_is_not_a_dtype() -> None:
    def elsewhere(xp: Any, a: Any) -> Any:
        if xp is not np:
            raise RuntimeError("no median of nothing")
        return a

    assert not failure(assert_dtype_of, spec_of(elsewhere), Device("sim"), OTHER, BASE)


def test_race_on_a_device_is_found() -> None:
    def racing(xp: Any, a: Any) -> Any:
        if xp is not np:
            raise RaceError("two writes")
        return a

    with pytest.raises(RaceError, match="two writes"):
        assert_dtype_of(spec_of(racing), Device("sim"), OTHER, BASE)


# ------------------------------------------------------------------------------------------------ errors


def raising(error: Exception) -> Any:
    def fn(xp: Any, a: Any) -> Any:
        if negative(a):
            raise error
        return a

    return fn


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        pytest.param(lambda xp, a: a.reshape(2), "ValueError", id="a value"),
        pytest.param(lambda xp, a: a[5], "IndexError", id="an index"),
        pytest.param(lambda xp, a: 1 // a.ndim // 0, "ZeroDivisionError", id="arithmetic"),
        pytest.param(lambda xp, a: a + "a", None, id="a type"),
        pytest.param(lambda xp, a: a, None, id="none"),
        pytest.param(raising(ValueError("no")), None, id="a value on purpose"),
        pytest.param(raising(IndexError("no")), None, id="an index on purpose"),
        pytest.param(lambda xp, a: 1 / a[:1] * 0 + xp.sqrt(a), None, id="warnings"),
    ],
)
def test_errors_of_libraries_break_a_call(fn: Any, kind: str | None) -> None:
    spec = spec_of(lambda xp, a: fn(xp, a) if a.size == 3 else a)
    with np.errstate(all="raise"):
        found = breaking(spec, sample_of(-1, -2, 0))

    assert (type(found).__name__ if found is not None else None) == kind


def caught(call: Any) -> BaseException:
    try:
        call()
    except (AssertionError, TypeError, ValueError) as error:
        return error
    pytest.fail("no error")


def fails_in_numpy() -> None:
    np.zeros(2).reshape(3)


def fails_on_purpose() -> None:
    raise ValueError("on purpose")


def fails_in_one_line(length: int = 1) -> None:
    if length < 3: raise ValueError("too few")  # noqa: E701  # fmt: skip


def asserts(length: int = 1) -> None:
    assert length > 2, "too few"


def fails_where_numpy_is_called() -> None:
    raise ValueError(np.zeros(2).reshape(3))


def raises_after_numpy() -> None:
    try:
        fails_in_numpy()
    except ValueError:
        raise TypeError("instead") from None


@pytest.mark.parametrize(
    ("call", "on_purpose"),
    [
        (fails_in_numpy, False),
        (fails_on_purpose, True),
        (fails_in_one_line, True),
        (asserts, True),
        (fails_where_numpy_is_called, False),
        (raises_after_numpy, True),
    ],
)
def test_innermost_statement_tells_an_error_on_purpose(call: Any, on_purpose: bool) -> None:
    assert is_raised_on_purpose(caught(call)) is on_purpose
    assert is_raised_on_purpose(caught(lambda: call())) is on_purpose


def test_error_that_nobody_raised_is_not_on_purpose() -> None:
    assert not is_raised_on_purpose(ValueError("no"))
