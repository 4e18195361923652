"""Functions that break, or give another shape or dtype, for calls that no sample declares; right twins pass.

Each class was found by mutants of right functions that every check let pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import ErrorInput, OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS

Function = Callable[..., Any]


def run(check: str, fn: Function, dtype: str = "float32", **declared: Any) -> None:
    spec = OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared)
    CHECKS[check](spec, "cpu:0", *((np.dtype(dtype),) if CHECKS[check].per_dtype else ()))


# ------------------------------------------------------------------------------------------------ numbers


def counts(last: int) -> Function:
    """Counts of eight bins from -2 to 2, both ends included; `last` is the bin of a number at the upper end."""

    def fn(xp: Any, a: Any) -> Any:
        values = a[(a >= -2.0) & (a <= 2.0)]
        places = xp.minimum(xp.floor((values + 2.0) * 2.0).astype("int64"), last)
        return xp.bincount(places, minlength=8)

    return fn


def test_a_shape_that_changes_with_a_number_of_the_code_is_found() -> None:
    declared: Any = {
        "samples": lambda make: [make(60)],
        "reference": lambda a: np.histogram(a, 8, (-2.0, 2.0))[0],
        "result_dtype": "int64",
    }
    run("combined", counts(7), **declared)
    with pytest.raises(AssertionError, match=r"the shape of the result changes with the numbers: \(9,\)"):
        run("combined", counts(8), **declared)


def looked_up(last: int, *, refuses: bool = False) -> Function:
    """The squares of tenths, from a table, for numbers from 0 to 1."""

    def fn(xp: Any, a: Any) -> Any:
        if refuses and (a >= 1).any():
            raise ValueError("numbers must be less than 1")
        places = xp.minimum(xp.floor(a.astype("float64") * 10), last).astype("int64")
        return xp.take(xp.arange(11 if refuses else 10).astype("float32") ** 2, places)

    return fn


def test_an_index_beyond_a_table_at_the_end_of_a_range_is_found() -> None:
    declared: Any = {
        "samples": lambda make: [make(30, low=0, high=1)],
        "reference": lambda a: np.minimum(np.floor(a * 10), 9) ** 2,
    }
    run("zeros", looked_up(9), **declared)
    run("zeros", looked_up(10, refuses=True), **declared)
    with pytest.raises(AssertionError, match="right for the sample's own numbers, breaks for others: IndexError"):
        run("zeros", looked_up(10), **declared)


# ------------------------------------------------------------------------------------------------ sizes


def packed(bits: int) -> Function:
    """Eight flags to a byte; the last byte is filled up unless `bits` says otherwise."""

    def fn(xp: Any, a: Any) -> Any:
        size = -(-a.shape[-1] // 8)
        if size * bits != a.shape[-1]:
            a = xp.concatenate([a, xp.zeros((*a.shape[:-1], size * 8 - a.shape[-1]), dtype=a.dtype)], axis=-1)
        weights = xp.asarray([128, 64, 32, 16, 8, 4, 2, 1], dtype="int64")
        return (a.reshape((*a.shape[:-1], size, 8)).astype("int64") * weights).sum(axis=-1).astype("uint8")

    return fn


def test_a_call_that_breaks_on_a_short_axis_is_found() -> None:
    declared: Any = {
        "samples": lambda make: [make((3, 21), low=0, high=1)],
        "reference": lambda a: np.packbits(a, axis=-1),
        "result_dtype": "uint8",
    }
    run("sizes", packed(8), "uint8", **declared)
    with pytest.raises(AssertionError, match="a call with a short axis breaks: ValueError: cannot reshape"):
        run("sizes", packed(1), "uint8", **declared)


def ranks(least: int) -> Function:
    """The rank of each number among all, over the highest rank."""

    def fn(xp: Any, a: Any) -> Any:
        out = xp.zeros(a.size, dtype="float32")
        with np.errstate(all="ignore"):
            out[xp.argsort(a.reshape(-1), kind="stable")] = np.arange(a.size) / np.maximum(a.size - 1, least)
        return out.reshape(a.shape)

    return fn


def test_arrays_of_one_element_are_tried() -> None:
    def reference(a: Any) -> Any:
        return np.argsort(np.argsort(a, axis=None, kind="stable")).reshape(a.shape) / max(a.size - 1, 1)

    declared: Any = {"samples": lambda make: [make((5, 9))], "reference": reference, "result_dtype": "float32"}
    run("sizes", ranks(1), **declared)
    with pytest.raises(AssertionError, match="got nan, expected 0"):
        run("sizes", ranks(0), **declared)


def places(dtype: str) -> Function:
    """The place of each number among the different ones."""

    def fn(xp: Any, a: Any) -> Any:
        if not a.size:
            return xp.zeros(a.shape, dtype=dtype)
        return xp.searchsorted(xp.unique(a), a.reshape(-1)).reshape(a.shape).astype("int64")

    return fn


@pytest.mark.parametrize("check", ["zero_size", "sizes"])
def test_a_result_of_nothing_that_is_made_without_a_dtype_is_found(check: str) -> None:
    declared: Any = {
        "samples": lambda make: [make(30), make((4, 7)), Sample((make(0),), kind="empty")],
        "reference": lambda a: np.unique(a, return_inverse=True)[1].reshape(a.shape),
    }
    run(check, places("int64"), "int32", **declared)
    with pytest.raises(AssertionError, match="the result is float64, and int64 for ordinary inputs"):
        run(check, places("float64"), "int32", **declared)


# ------------------------------------------------------------------------------------------------ dtypes


def loss(cast: bool, *, is_exact: bool = False) -> Function:
    """Numbers less those at the label's place of a row; integers next to them may widen the result."""

    def fn(xp: Any, a: Any, labels: Any) -> Any:
        wide = a.astype("float64")
        picked = xp.take_along_axis(wide, labels.astype("int64")[:, None], axis=-1)
        return (wide - picked).astype(a.dtype) if cast else a * labels[:, None] if is_exact else wide - picked

    return fn


def test_a_devices_library_may_refuse_nothing() -> None:
    """NumPy's median of nothing is NaN; CuPy raises an error."""

    def fn(xp: Any, a: Any) -> Any:
        if xp is not np and not a.size:
            raise ValueError("kth(=-1) out of bounds 0")
        return xp.mean(a, axis=-1)

    spec = OpSpec(
        fn=fn, name="f", dtypes=("float32",), samples=lambda make: [make((5, 9))], reference=lambda a: a.mean(-1)
    )

    CHECKS["sizes"](spec, "sim:0")


@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_a_result_wider_than_the_floats_next_to_labels_is_found(dtype: str) -> None:
    declared: Any = {"samples": lambda make: [(make((6, 9)), make(6, dtype=dtype, low=0, high=8))]}
    run("wider_result", loss(cast=True), **declared)
    run("wider_result", loss(cast=False, is_exact=True), **declared)  # NumPy gives float64 for float32 times int64
    with pytest.raises(AssertionError, match="the result is float64, wider than its inputs"):
        run("wider_result", loss(cast=False), **declared)


def bits_that_differ(dtype: str) -> Function:
    def fn(xp: Any, a: Any, b: Any) -> Any:
        total = xp.zeros(a.shape, dtype=dtype)
        for place in range(8):
            total = total + ((a ^ b) >> place & 1)
        return total

    return fn


def test_a_floating_point_result_of_integers_is_found_if_the_reference_gives_integers() -> None:
    def reference(a: Any, b: Any) -> Any:
        return np.unpackbits((a ^ b)[..., None], axis=-1).sum(axis=-1, dtype="int64")

    declared: Any = {"samples": lambda make: [(make(30), make(30))]}
    run("wider_result", bits_that_differ("int64"), "uint8", reference=reference, **declared)
    run("wider_result", bits_that_differ("float64"), "uint8", reference=lambda a, b: reference(a, b) * 1.0, **declared)
    with pytest.raises(AssertionError, match="the result is float64, although inputs and the reference's result"):
        run("wider_result", bits_that_differ("float64"), "uint8", reference=reference, **declared)


# ------------------------------------------------------------------------------------------------ bounds


def remainder(least: int) -> Function:
    def fn(xp: Any, a: Any, period: int = 1000) -> Any:
        if period < least:
            raise ValueError(f"period is {period}; give {least} or more")
        return a % period

    return fn


def bad_periods(make: Any) -> list[ErrorInput]:
    return [ErrorInput(Sample((make(5),), {"period": 0}), ValueError, "period is 0")]


def test_a_bound_that_refuses_the_next_number_is_found() -> None:
    def reference(a: Any, period: int = 1000) -> Any:
        if period < 1:
            raise ValueError("no such period")
        return np.mod(a, period)

    declared: Any = {
        "samples": lambda make: [make(30, low=0, high=5000)],
        "reference": reference,
        "error_inputs": bad_periods,
    }
    run("errors", remainder(1), "int64", **declared)
    with pytest.raises(AssertionError, match="period=0 raises as declared, but period=1 is wrong"):
        run("errors", remainder(2), "int64", **declared)


def test_a_reference_that_might_never_end_is_not_asked_about_a_bad_input() -> None:
    def reference(a: Any, period: int = 1000) -> Any:
        out = a.copy()
        while (out >= period).any():
            if not period:
                pytest.fail("asked about a period of 0, for which it never ends")
            out = np.where(out >= period, out - period, out)
        return out

    declared: Any = {"samples": lambda make: [make(30, low=0, high=5000)], "error_inputs": bad_periods}
    run("errors", remainder(2), "int64", reference=reference, **declared)


def resized(least: int) -> Function:
    """Pixel j of an axis is pixel floor(j * old / new) of the old one."""

    def fn(xp: Any, a: Any, size: tuple[int, int] = (8, 8)) -> Any:
        if min(size) < least:
            raise ValueError(f"size is {size}; give 1 or more pixels")
        for axis, new in zip((-2, -1), size, strict=True):
            a = xp.take(a, xp.arange(new) * a.shape[axis] // new, axis=axis)
        return a

    return fn


def test_the_number_next_to_a_bad_one_may_amplify_rounding() -> None:
    """The function rounds 1 + x before it takes the logarithm, and the reference does not."""

    def fn(xp: Any, a: Any, scale: int = 100_000) -> Any:
        if scale < 1:
            raise ValueError(f"scale is {scale}; give 1 or more")
        return xp.log(1.0 + a * (scale * 1e-5)) / (scale * 1e-5)

    def reference(a: Any, scale: int = 100_000) -> Any:
        if scale < 1:
            raise ValueError(f"scale is {scale}; give 1 or more")
        return np.log1p(a * (scale * 1e-5)) / (scale * 1e-5)

    run(
        "errors",
        fn,
        "float64",
        samples=lambda make: [make(30, low=0, high=1)],
        reference=reference,
        error_inputs=lambda make: [
            ErrorInput(Sample((make(30, low=0, high=1),), {"scale": 0}), ValueError, "scale is 0")
        ],
    )


def test_a_bound_of_one_number_of_a_tuple_is_found() -> None:
    def reference(a: Any, size: tuple[int, int] = (8, 8)) -> Any:
        if 0 in size:
            raise ValueError("no pixels")
        rows, columns = (np.arange(new) * old // new for old, new in zip(a.shape[-2:], size, strict=True))
        return a[..., rows[:, None], columns]

    declared: Any = {
        "samples": lambda make: [make((5, 9)), Sample((make((4, 7)),), {"size": (3, 14)})],
        "reference": reference,
        "error_inputs": lambda make: [ErrorInput(Sample((make((3, 4)),), {"size": (0, 4)}), ValueError, "size is")],
    }
    run("errors", resized(1), **declared)
    with pytest.raises(AssertionError, match=r"size=\(0, 4\) raises as declared, but size=\(1, 4\) is wrong"):
        run("errors", resized(2), **declared)


@pytest.mark.parametrize(
    "remainder_of", [np.mod, lambda a, period: [int(one) % period for one in a]], ids=["takes 0", "divides"]
)
def test_a_reference_without_a_bound_of_its_own_tells_nothing(remainder_of: Function) -> None:
    declared: Any = {"samples": lambda make: [make(30, low=0, high=5000)], "error_inputs": bad_periods}

    run("errors", remainder(2), "int64", reference=lambda a, period=1000: np.array(remainder_of(a, period)), **declared)


def largest(axis_of_bound: Callable[[int], int]) -> Function:
    def fn(xp: Any, a: Any, k: int = 1, axis: int = -1) -> Any:
        if not 1 <= k <= (most := a.shape[axis_of_bound(axis)]):
            raise ValueError(f"k is {k}; give 1 to {most}")
        return xp.moveaxis(xp.sort(xp.moveaxis(a, axis, -1), axis=-1)[..., ::-1][..., :k], -1, axis)

    return fn


def test_a_bound_that_is_another_axis_is_found_though_the_option_has_a_default() -> None:
    def reference(a: Any, k: int = 1, axis: int = -1) -> Any:
        if not 1 <= k <= a.shape[axis]:
            raise ValueError("no such k")
        return np.flip(np.sort(a, axis=axis), axis=axis).take(range(k), axis=axis)

    declared: Any = {
        "samples": lambda make: [
            make((2, 3, 4)),
            Sample((make((5, 6)),), {"k": 2, "axis": 0}),
            Sample((make((3, 4, 5)),), {"k": 3, "axis": 1}),
        ],
        "reference": reference,
        "error_inputs": lambda make: [ErrorInput(Sample((make((4, 3)),), {"k": 4}), ValueError, "k is 4; give 1 to 3")],
    }
    run("combined", largest(lambda axis: axis), **declared)
    with pytest.raises(AssertionError, match="is one of the two bounds off by one"):
        run("combined", largest(lambda axis: -1), **declared)


# ------------------------------------------------------------------------------------------------ NaN


def gap(looks_at: int) -> Function:
    """The largest distance between two empirical distributions; NaN if one of the first arrays holds a NaN."""

    def fn(xp: Any, *given: Any) -> Any:
        a, b = given
        both = xp.concatenate([a, b])
        below = [xp.searchsorted(xp.sort(one), both, side="right") / one.size for one in given]
        unknown = xp.stack([xp.isnan(one).any() for one in given[:looks_at]]).any()
        return xp.where(unknown, math.nan, xp.abs(below[0] - below[1]).max())

    return fn


def test_a_nan_in_the_second_of_two_arrays_is_tried_alone() -> None:
    def reference(a: Any, b: Any) -> Any:
        if np.isnan(a).any() or np.isnan(b).any():
            return np.array(math.nan)
        return np.array(max(abs((a <= one).mean() - (b <= one).mean()) for one in [*a, *b]))

    declared: Any = {
        "samples": lambda make: [(make(40), make(40)), (make(25), make(60, low=-1, high=4))],
        "reference": reference,
        "result_dtype": "float64",
    }
    run("stress", gap(2), **declared)
    with pytest.raises(AssertionError, match="a NaN is lost"):
        run("stress", gap(1), **declared)
