"""Right functions of many kinds: each passes the checks that once refused it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fault_sets import run_check

from cuassay.testing import ErrorInput, OpSpec, Sample, Tolerance
from cuassay.testing.generated.checks import CHECKS

#: The function that declares each right function, by the function's name, and the checks that refused it.
RIGHT: dict[str, tuple[tuple[str, ...], Callable[[], OpSpec]]] = {}


def right(*checks: str) -> Callable[[Callable[[], OpSpec]], Callable[[], OpSpec]]:
    def register(declare: Callable[[], OpSpec]) -> Callable[[], OpSpec]:
        RIGHT[declare.__name__] = checks, declare
        return declare

    return register


# ------------------------------------------------------------------------------------------------ layouts and shapes


@right("layouts", "second_call")
def arrays_by_name_alone() -> OpSpec:
    return OpSpec(
        fn=lambda xp, *, left, right: left @ right,
        name="arrays_by_name_alone",
        dtypes=("float32",),
        samples=lambda make: [Sample((), {"left": make((3, 4)), "right": make((4, 5))})],
        reference=lambda *, left, right: left @ right,
    )


@right("sizes", "second_call")
def sums_of_labelled_rows() -> OpSpec:
    """Labels are sorted integers from 0 to the number of classes, and as many as there are rows."""

    def fn(xp: Any, rows: Any, labels: Any, *, classes: int) -> Any:
        if labels.shape[0] and int(labels.max()) >= classes:
            raise ValueError(f"a label is {int(labels.max())} and must be less than {classes}")
        return (xp.arange(classes)[:, None] == labels[None, :]).astype(rows.dtype) @ rows

    def reference(rows: Any, labels: Any, *, classes: int) -> Any:
        return np.array([rows[labels == one].sum(axis=0) for one in range(classes)])

    return OpSpec(
        fn=fn,
        name="sums_of_labelled_rows",
        dtypes=("float32",),
        samples=lambda make: [Sample((make((6, 5)), np.array([0, 0, 1, 2, 3, 6])), {"classes": 7})],
        reference=reference,
    )


@right("errors")
def factor_in_place() -> OpSpec:
    """Finds a pivot that is not positive when part of the matrix has been overwritten."""

    def fn(xp: Any, a: Any) -> Any:
        for at in range(a.shape[0]):
            if not float(a[at, at]) > 0:
                raise ValueError(f"the pivot {at} is not positive")
            a[at, at] = a[at, at] ** 0.5
            a[at + 1 :, at] = a[at + 1 :, at] / a[at, at]
            a[at + 1 :, at + 1 :] -= a[at + 1 :, at, None] * a[None, at + 1 :, at]
        return a

    return OpSpec(
        fn=fn,
        name="factor_in_place",
        dtypes=("float64",),
        samples=lambda make: [np.diag([4.0, 9.0, 16.0]) + 1.0],
        reference=lambda a: fn(np, a.copy()),
        error_inputs=lambda make: [
            ErrorInput(sample=np.array([[4.0, 4.0], [4.0, 1.0]]), error=ValueError, match="pivot")
        ],
        without={"inputs_unchanged": "in place", "aliasing": "in place"},
    )


@right("broadcast_views")
def vector_times_matrix() -> OpSpec:
    """The shapes happen to broadcast, and the reference takes rows of any length: neither is meant."""

    def reference(a: Any, b: Any) -> Any:
        found = np.zeros(len(a))
        for row, factor in zip(b, a, strict=True):
            found[: len(row)] += factor * row
        return found

    return OpSpec(
        fn=lambda xp, a, b: a @ b,
        name="vector_times_matrix",
        dtypes=("float32",),
        samples=lambda make: [(make(8), make((8, 8)))],
        reference=reference,
    )


# ------------------------------------------------------------------------------------------------ options


@right("second_call")
def largest_of_each_row() -> OpSpec:
    """With `k=0` it would be the whole row: nobody asks for that."""
    return _with_options(
        "largest_of_each_row",
        lambda xp, a, *, k: xp.sort(a, axis=-1)[..., -k:],
        lambda a, *, k: np.sort(a, axis=-1)[..., a.shape[-1] - k :],
        ({"k": 2}, {"k": 4}),
    )


@right("second_call")
def trimmed_mean() -> OpSpec:
    return _with_options(
        "trimmed_mean",
        lambda xp, a, *, cut: xp.sort(a, axis=-1)[..., cut:-cut].mean(axis=-1),
        lambda a, *, cut: np.sort(a, axis=-1)[..., cut : a.shape[-1] - cut].mean(axis=-1),
        ({"cut": 1}, {"cut": 2}),
    )


@right("second_call")
def maximum_of_the_last() -> OpSpec:
    return _with_options(
        "maximum_of_the_last",
        lambda xp, a, *, count: a[..., -count:].max(axis=-1),
        lambda a, *, count: a[..., a.shape[-1] - count :].max(axis=-1, initial=-np.inf),
        ({"count": 2}, {"count": 4}),
    )


@right("second_call")
def leading_part_along_an_axis() -> OpSpec:
    """`count` is limited by the extent of its axis: another axis may be shorter."""

    def fn(xp: Any, a: Any, *, axis: int, count: int) -> Any:
        if count > a.shape[axis]:
            raise ValueError(f"count is {count}, and the extent is {a.shape[axis]}")
        return xp.take(a, xp.arange(count), axis=axis)

    return _with_options(
        "leading_part_along_an_axis",
        fn,
        lambda a, *, axis, count: np.moveaxis(np.moveaxis(a, axis, 0)[:count], 0, axis),
        ({"axis": 0, "count": 7}, {"axis": 0, "count": 4}),
    )


def _with_options(name: str, fn: Any, reference: Any, options: tuple[dict[str, Any], ...]) -> OpSpec:
    """A function of one matrix, with a sample for each set of options."""
    return OpSpec(
        fn=fn,
        name=name,
        dtypes=("float32",),
        samples=lambda make: [Sample((make((7, 6)),), one) for one in options],
        reference=reference,
    )


# ------------------------------------------------------------------------------------------------ not finite


@right("infinities")
def causal_attention() -> OpSpec:
    """A row of weights with zeros multiplies all values, as each fused kernel does: zero times infinity is NaN."""

    def fn(xp: Any, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.T / q.shape[-1] ** 0.5
        rows, columns = xp.arange(q.shape[0]), xp.arange(k.shape[0])
        scores = xp.where(columns[None, :] > rows[:, None], -float("inf"), scores)
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ v

    def reference(q: Any, k: Any, v: Any) -> Any:
        rows = [attend(q[at], k[: at + 1], v[: at + 1]) for at in range(len(q))]
        return np.array(rows).reshape(len(q), v.shape[1])

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = k @ q / q.shape[-1] ** 0.5
        weights = np.exp(scores - scores.max())
        return weights / weights.sum() @ v

    return OpSpec(
        fn=fn,
        name="causal_attention",
        dtypes=("float32",),
        samples=lambda make: [(make((5, 8)), make((5, 8)), make((5, 8)))],
        reference=reference,
    )


@right("infinities")
def rows_by_one_hot_product() -> OpSpec:
    def fn(xp: Any, table: Any, index: Any) -> Any:
        return (index[:, None] == xp.arange(table.shape[0])[None, :]).astype(table.dtype) @ table

    return OpSpec(
        fn=fn,
        name="rows_by_one_hot_product",
        dtypes=("float32",),
        samples=lambda make: [(make((6, 4)), np.array([5, 0, 3]))],
        reference=lambda table, index: table[index],
    )


@right("infinities")
def low_frequencies() -> OpSpec:
    """A transform spreads a NaN over all frequencies, whichever of them are kept."""
    return OpSpec(
        fn=lambda xp, a: xp.fft.irfft(xp.fft.rfft(a)[..., :3], 8),
        name="low_frequencies",
        dtypes=("float64",),
        samples=lambda make: [make((4, 8))],
        reference=lambda a: np.fft.irfft(np.fft.rfft(a)[..., :3], 8),
    )


@right("stress")
def sums_with_an_array_without_axes() -> OpSpec:
    """A NaN is also put into the array without axes, which has no rows."""
    return OpSpec(
        fn=lambda xp, a, b: xp.where(xp.isnan(a), a, a + b),
        name="sums_with_an_array_without_axes",
        dtypes=("float32",),
        samples=lambda make: [(make((5, 9)), make(()))],
        reference=lambda a, b: np.where(np.isnan(a), a, a + b),
    )


@right("stress")
def counts_above_an_array_without_axes() -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, b: (a > b).sum(axis=-1),
        name="counts_above_an_array_without_axes",
        dtypes=("float32",),
        result_dtype="int64",
        samples=lambda make: [(make((5, 9)), make(()))],
        reference=lambda a, b: (a > b).sum(axis=-1),
    )


# ------------------------------------------------------------------------------------------------ integers


@right("stress")
def lower_case() -> OpSpec:
    """Right for ASCII, which is what its sample is written in."""
    text = np.frombuffer(b"The Quick brown Fox, 1984", np.uint8)
    return OpSpec(
        fn=lambda xp, a: xp.where((a >= 65) & (a <= 90), a + 32, a).astype(a.dtype),
        name="lower_case",
        dtypes=("uint8",),
        samples=lambda make: [text],
        reference=lambda a: np.array([ord(chr(one).lower()) for one in a.flat]).reshape(a.shape),
    )


@right("stress")
def signed_nibbles() -> OpSpec:
    """Numbers of four bits, written down: others are invalid."""
    return OpSpec(
        fn=lambda xp, a: xp.where(a < 8, a, a - 16).astype("int8"),
        name="signed_nibbles",
        dtypes=("uint8",),
        result_dtype="int8",
        samples=lambda make: [np.array([1, 15, 7, 0, 3, 9, 12, 4], np.uint8)],
        reference=lambda a: ((a.astype(np.int64) & 15) ^ 8) - 8,
    )


@right("stress")
def halves_of_counters() -> OpSpec:
    """The reference goes through float64, and so tells nothing of integers that float64 does not hold."""
    return OpSpec(
        fn=lambda xp, a: a // 2,
        name="halves_of_counters",
        dtypes=("uint64",),
        samples=lambda make: [make(40)],
        reference=lambda a: np.floor(a / 2).astype(np.uint64),
    )


# ------------------------------------------------------------------------------------------------ tiny numbers


@right("units")
def of_unit_length() -> OpSpec:
    """Multiplies by a reciprocal, which is infinite for the largest of subnormal numbers."""

    def fn(xp: Any, a: Any) -> Any:
        return a * (1 / xp.abs(a).max(axis=-1, keepdims=True))

    return OpSpec(
        fn=fn,
        name="of_unit_length",
        dtypes=("float32",),
        samples=lambda make: [make((4, 9))],
        reference=lambda a: a / np.abs(a).max(axis=-1, keepdims=True),
    )


@right("units")
def bins_of_a_range() -> OpSpec:
    """The width of a bin is a reciprocal of the range: infinite where all numbers are subnormal."""

    def fn(xp: Any, a: Any) -> Any:
        low, high = a.min(), a.max()
        return xp.minimum(((a - low) * (8 / (high - low))).astype("int64"), 7)

    return OpSpec(
        fn=fn,
        name="bins_of_a_range",
        dtypes=("float32",),
        result_dtype="int64",
        samples=lambda make: [make(41)],
        reference=lambda a: np.minimum(np.floor(8 * ((a - a.min()) / (a.max() - a.min()))).astype(np.int64), 7),
    )


# ------------------------------------------------------------------------------------------------ declared tolerances


@right("stress", "zeros", "units", "halves")
def product_in_tf32() -> OpSpec:
    """Each input has ten bits of mantissa, as in the tensor cores of a GPU."""

    def cut(array: Any) -> Any:
        return (array.view("int32") & ~0x1FFF).view("float32")

    return OpSpec(
        fn=lambda xp, a, b: cut(a) @ cut(b),
        name="product_in_tf32",
        dtypes=("float32",),
        samples=lambda make: [(make((17, 33)), make((33, 9)))],
        reference=lambda a, b: a @ b,
        tolerance=Tolerance(ulps=2**14, growth="sqrt"),
        magnitude=lambda a, b: np.abs(a) @ np.abs(b),
        terms=lambda a, b: a.shape[-1],
    )


@right("stress", "zeros", "units")
def fast_exponential() -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: (xp.exp(a) * (1 + 2e-5)).astype(a.dtype),
        name="fast_exponential",
        dtypes=("float32",),
        samples=lambda make: [make((17, 33))],
        reference=np.exp,
        tolerance=Tolerance(ulps=1000),
    )


@right("full_range")
def gelu_in_float32() -> OpSpec:
    """The reference has a NumPy scalar of float64, which widens it whatever it is given."""

    def fn(xp: Any, a: Any) -> Any:
        x = a.astype("float32")
        return (0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))).astype(a.dtype)

    return OpSpec(
        fn=fn,
        name="gelu_in_float32",
        dtypes=("float32",),
        reference=lambda a: 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))),
    )


# ------------------------------------------------------------------------------------------------ lists


@right("mixed_lists")
def norm_of_all_in_float32() -> OpSpec:
    """The dtype of the result is declared: it is not that of the widest array."""
    return OpSpec(
        fn=lambda xp, arrays: sum((a.astype("float32") ** 2).sum() for a in arrays) ** 0.5,
        name="norm_of_all_in_float32",
        dtypes=("float16", "float32"),
        result_dtype="float32",
        samples=lambda make: [([make(7), make((2, 3))],)],
        reference=lambda arrays: np.sqrt(sum((a.astype(np.float64) ** 2).sum() for a in arrays)),
    )


# ------------------------------------------------------------------------------------------------ references that err


@right("stress", "combined")
def reference_that_wraps_around() -> OpSpec:
    """The reference adds up in int32, which the declared numbers reach only if all are at the ends of their range."""
    return OpSpec(
        fn=lambda xp, a, b: (a.astype("int64") * b).sum(),
        name="reference_that_wraps_around",
        dtypes=("int32",),
        result_dtype="int64",
        samples=lambda make: [(make(1000, low=-2000, high=2000), make(1000, low=-2000, high=2000))],
        reference=np.dot,
    )


@right("sizes")
def reference_that_rounds_a_share_down() -> OpSpec:
    """``int(100 * 0.29)`` is 28 in the reference; the function counts exactly."""

    def kept(values: Any, cut: int) -> Any:
        return values[..., cut : values.shape[-1] - cut]

    def fn(xp: Any, a: Any, *, share: float) -> Any:
        return kept(xp.sort(a, axis=-1), round(share * 100) * a.shape[-1] // 100).mean(axis=-1)

    return OpSpec(
        fn=fn,
        name="reference_that_rounds_a_share_down",
        dtypes=("float64",),
        samples=lambda make: [Sample((make(40),), {"share": 0.05}), Sample((make((5, 30)),), {"share": 0.4})],
        reference=lambda a, *, share: kept(np.sort(a, axis=-1), int(a.shape[-1] * share)).mean(axis=-1),
    )


@right("stress", "zeros", "sizes", "combined")
def every_uint64() -> OpSpec:
    """Its samples ask for the whole range of uint64, of which int64 holds half."""

    def mixed(a: Any, b: Any) -> Any:
        return a ^ (b >> b.dtype.type(33))

    return OpSpec(
        fn=lambda xp, a, b: mixed(a, b),
        name="every_uint64",
        dtypes=("uint64",),
        samples=lambda make: [(make(40, low=0, high=most), make(40, low=0, high=most)) for most in (2**64 - 1, 9)],
        reference=mixed,
    )


@right("stress")
def one_of_every_uint64() -> OpSpec:
    def mixed(a: Any) -> Any:
        return a ^ (a >> a.dtype.type(33))

    return OpSpec(
        fn=lambda xp, a: mixed(a),
        name="one_of_every_uint64",
        dtypes=("uint64",),
        samples=lambda make: [make(40, low=0, high=2**64 - 1), make(40, low=2**64 - 9, high=2**64 - 1)],
        reference=mixed,
    )


def doubled(name: str, samples: Callable[[Any], list[Any]], dtype: str = "float32") -> OpSpec:
    return OpSpec(fn=lambda xp, a: a * 2, name=name, dtypes=(dtype,), samples=samples, reference=lambda a: a * 2)


@right("units", "stress", "halves")
def numbers_without_an_axis_in_float16() -> OpSpec:
    return doubled("numbers_without_an_axis_in_float16", lambda make: [make(()), make(1)], "float16")


@right("sizes")
def rows_of_which_some_are_empty() -> OpSpec:
    return doubled("rows_of_which_some_are_empty", lambda make: [make((3, 0)), make((3, 4))])


@right("accumulation")
def sums_with_a_list() -> OpSpec:
    """As many arrays as arguments, but one of them is in a list."""

    def fn(_: Any, several: Any, a: Any) -> Any:
        return sum((one.sum() for one in several), a * 2)

    return OpSpec(
        fn=fn,
        name="sums_with_a_list",
        dtypes=("float16",),
        samples=lambda make: [([make(3)], make(3))],
        reference=lambda several, a: fn(np, several, a),
    )


@right("accumulation")
def sums_of_an_array_by_name() -> OpSpec:
    """As many arrays as positional arguments, but the array is given by name."""
    return OpSpec(
        fn=lambda xp, count, *, a: a[:count].sum(),
        name="sums_of_an_array_by_name",
        dtypes=("float16",),
        samples=lambda make: [Sample((3,), {"a": make(7)})],
        reference=lambda count, *, a: a[:count].sum(),
    )


# ------------------------------------------------------------------------------------------------ asserting references


def drawn_shapes(make: Any) -> list[Any]:
    return [make((4, 5)), make((6, 7)), make((12, 3, 5))]


def doubled_if(name: str, is_meant: Callable[[Any], Any], samples: Callable[[Any], list[Any]] = drawn_shapes) -> OpSpec:
    """Doubles numbers; its reference rejects others by an assert, so that the error is an `AssertionError`."""

    def reference(a: Any) -> Any:
        assert is_meant(a), "not meant"
        return a * 2

    return OpSpec(
        fn=lambda xp, a: a * 2,
        name=name,
        dtypes=("float32",),
        samples=samples,
        reference=reference,
    )


@right("stress")
def reference_asserts_numbers() -> OpSpec:
    return doubled_if("reference_asserts_numbers", lambda a: not np.isnan(a).any())


@right("stress")
def reference_asserts_small_numbers() -> OpSpec:
    return doubled_if("reference_asserts_small_numbers", lambda a: np.abs(a).max(initial=0.0) < 1e3)


@right("stress", "sizes", "broadcast_views")
def reference_asserts_different_numbers() -> OpSpec:
    return doubled_if("reference_asserts_different_numbers", lambda a: np.unique(a).size == a.size)


@right("sizes")
def reference_asserts_even_rows() -> OpSpec:
    return doubled_if("reference_asserts_even_rows", lambda a: a.shape[0] % 2 == 0)


@right("sizes")
def reference_asserts_long_rows() -> OpSpec:
    return doubled_if("reference_asserts_long_rows", lambda a: 2 < a.shape[-1] < 20)


@right("threads")
def reference_asserts_ascending_numbers() -> OpSpec:
    def is_ascending(a: Any) -> bool:
        return bool((np.diff(a) >= 0).all())

    return doubled_if("reference_asserts_ascending_numbers", is_ascending, lambda make: [np.arange(20, dtype="f4")])


# ------------------------------------------------------------------------------------------------


def mean_of_three(refuse: Callable[[Any], None], name: str) -> OpSpec:
    """The means of three neighbours. The function refuses shorter rows, for which the reference gives nothing."""

    def mean(a: Any) -> Any:
        return (a[..., :-2] + a[..., 1:-1] + a[..., 2:]) / 3

    def fn(xp: Any, a: Any) -> Any:
        refuse(a)
        return mean(a)

    return OpSpec(
        fn=fn,
        name=name,
        dtypes=("float32",),
        samples=lambda make: [make((4, 9)), make(12)],
        reference=lambda a: mean(a) if a.shape[-1] > 2 else a[..., :0],
    )


@right("sizes", "combined")
def mean_that_raises_what_torch_raises() -> OpSpec:
    def refuse(a: Any) -> None:
        if a.shape[-1] < 3:
            raise RuntimeError(f"a row has {a.shape[-1]} numbers and must have three at least")

    return mean_of_three(refuse, "mean_that_raises_what_torch_raises")


@right("sizes", "combined")
def mean_that_asserts_its_length() -> OpSpec:
    def refuse(a: Any) -> None:
        assert a.shape[-1] > 2, f"a row has {a.shape[-1]} numbers"

    return mean_of_three(refuse, "mean_that_asserts_its_length")


@pytest.mark.parametrize("kind", ["cpu", "sim"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_not_refused(name: str, kind: str) -> None:
    checks, declare = RIGHT[name]
    for check in ("values", *checks):
        spec = declare()
        run_check(check, kind, spec.dtypes[0] if CHECKS[check].per_dtype else "", spec)


def test_a_logarithm_without_its_digits_is_found() -> None:
    def declare(fn: Any) -> OpSpec:
        return OpSpec(
            fn=fn,
            name="log_of_one_more",
            dtypes=("float32",),
            samples=lambda make: [make((4, 50), low=1e-6, high=1.0)],
            reference=np.log1p,
        )

    run_check("units", "cpu", "float32", declare(lambda xp, a: xp.log1p(a)))
    with pytest.raises(AssertionError):
        run_check("units", "cpu", "float32", declare(lambda xp, a: xp.log(1 + a)))
