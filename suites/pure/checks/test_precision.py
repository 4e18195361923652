"""Checks of intermediate precision: which results are too wide, and which sums and products are rounded on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.precision import (
    _CANCELLING,
    _IN_TURN,
    _PART,
    _TERMS,
    _cancelling,
    _fits,
    _grows,
    _is_bilinear,
    _is_proportional,
    _long_sums,
    _with_narrow_integers,
    _with_one_in,
)
from cuassay.testing.samples import HostArray
from cuassay.testing.tolerance import Tolerance

CPU, FLOAT32, HALF = Device("cpu"), np.dtype("float32"), np.dtype("float16")


def spec_of(fn: Callable[..., Any], reference: Callable[..., Any] | None = None, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make((3, 5))], **fields}
    return OpSpec(fn=fn, name="given", reference=reference, **fields)


# ------------------------------------------------------------------------------------------------ wider results


@pytest.mark.parametrize("wide", ["float64", "complex128"])
def test_result_wider_than_its_inputs_is_found(wide: str) -> None:
    spec = spec_of(lambda xp, a: (a * 2).astype(wide), lambda a: a * 2)

    with pytest.raises(AssertionError, match=rf"the result is {wide}, wider than its inputs \(float32\)"):
        CHECKS["wider_result"](spec, CPU, FLOAT32)


@pytest.mark.parametrize("dtypes", [("float32",), ("float64",), ("complex128",)], ids=lambda dtypes: dtypes[0])
def test_result_of_the_width_of_its_inputs_passes(dtypes: tuple[str, ...]) -> None:
    CHECKS["wider_result"](spec_of(lambda xp, a: a * 2, dtypes=dtypes), CPU, np.dtype(dtypes[0]))


def test_declared_result_dtype_may_be_wider() -> None:
    assert not CHECKS["wider_result"].applies(spec_of(lambda xp, a: a.astype("float64"), result_dtype="float64"))


def labelled(most: int) -> dict[str, Any]:
    return {"samples": lambda make: [(make((3, 5)), make((3, 5), low=most, high=most, dtype="int64"))]}


def test_labels_are_given_in_16_bits_which_do_not_widen_a_result() -> None:
    CHECKS["wider_result"](spec_of(lambda xp, a, labels: a * labels, **labelled(7)), CPU, FLOAT32)

    wrong = spec_of(lambda xp, a, labels: a * labels.astype("int64"), **labelled(7))
    with pytest.raises(AssertionError, match="the result is float64") as caught:
        CHECKS["wider_result"](wrong, CPU, FLOAT32)
    assert "integers in int16" in "\n".join([str(caught.value), *caught.value.__notes__])


def test_integers_that_need_more_than_16_bits_may_widen_the_result() -> None:
    CHECKS["wider_result"](spec_of(lambda xp, a, labels: a * labels, **labelled(2**15)), CPU, FLOAT32)


def test_function_that_rejects_narrow_labels_is_not_called_with_them() -> None:
    def picky(xp: Any, a: Any, labels: Any) -> Any:
        if labels.dtype.itemsize < 8:
            raise TypeError("labels are int64")
        return a.astype("float64")

    CHECKS["wider_result"](spec_of(picky, lambda a, labels: a, **labelled(7)), CPU, FLOAT32)


@pytest.mark.parametrize(
    ("numbers", "dtype", "narrow"),
    [
        ([-(2**15), 2**15 - 1], "int64", "int16"),
        ([-(2**15), 2**15 - 1], "int32", "int16"),
        ([-(2**15) - 1, 0], "int64", "int64"),
        ([0, 2**15], "uint32", "uint32"),
        ([0, 2**15 - 1], "uint16", "uint16"),
        ([0, 1], "int8", "int8"),
        ([], "int64", "int64"),
        ([0, 1], "float32", "float32"),
        ([0, 1], "bool", "bool"),
    ],
    ids=str,
)
def test_integers_are_given_in_16_bits_if_they_fit(numbers: list[int], dtype: str, narrow: str) -> None:
    given = HostArray(np.array(numbers).astype(dtype))
    sample = _with_narrow_integers(Sample((given, 2.0), {"weight": given}, label="drawn"))

    assert [sample.args[0].dtype.name, sample.kwargs["weight"].dtype.name] == [narrow] * 2
    assert sample.args[0].values.tolist() == given.values.tolist()
    assert sample.label == ("drawn" if narrow == dtype else "drawn, integers in int16")


@pytest.mark.parametrize(
    ("fn", "reference", "message"),
    [
        (lambda xp, a: a * 2, lambda a: a * 2, None),
        (lambda xp, a: (a * 2).astype("float32"), lambda a: a * 2, "the result is float32, although inputs and the"),
        (lambda xp, a: (a * 2).astype("float64"), lambda a: a * 2, "the result is float64, although inputs and the"),
        (lambda xp, a: a / 2, lambda a: a / 2, None),
        (lambda xp, a: (a * 2).astype("float32"), None, None),
        (lambda xp, a: 2.0, lambda a: 2, None),
    ],
    ids=["integers", "float32", "float64", "floats asked for", "own reference", "a number"],
)
def test_result_of_integers_is_of_integers_where_the_references_is(fn: Any, reference: Any, message: str) -> None:
    spec = spec_of(fn, reference, dtypes=("int32",))
    if message is None:
        CHECKS["wider_result"](spec, CPU, np.dtype("int32"))
    else:
        with pytest.raises(AssertionError, match=message) as caught:
            CHECKS["wider_result"](spec, CPU, np.dtype("int32"))
        assert "0: shape 3x5" in "\n".join([str(caught.value), *caught.value.__notes__])


# ------------------------------------------------------------------------------------------------ full precision


def through_float32(xp: Any, a: Any) -> Any:
    return (a.astype("float32") * 3).astype(a.dtype)


def cut(xp: Any, a: Any) -> Any:
    """Rounded to float32, with one result that is not finite."""
    result = through_float32(xp, a)
    result.reshape(-1)[0] = np.inf
    return result


def double(xp: Any, a: Any) -> Any:
    return a * 3


@pytest.mark.parametrize(
    ("fn", "extent", "is_found"),
    [
        (through_float32, 8, True),
        (through_float32, 7, False),
        (cut, 9, True),
        (cut, 8, False),
        (double, 9, False),
        (lambda xp, a: xp.floor(a), 9, False),
        (lambda xp, a: (a * 3).astype("float32"), 9, False),
        (lambda xp, a: through_float32(xp, a) + (a == a[0]) * 1e-9, 9, False),
    ],
    ids=["8", "7", "8 finite", "7 finite", "right", "few digits", "a float32 result", "all but one"],
)
def test_eight_results_that_are_all_float32_numbers_are_found(fn: Any, extent: int, is_found: bool) -> None:
    spec = spec_of(fn, lambda a: a * 3, dtypes=("float64",), samples=lambda make: [make(extent)])
    if is_found:
        with pytest.raises(AssertionError, match="each result in float64 is exactly a float32 number"):
            CHECKS["full_precision"](spec, CPU)
    else:
        CHECKS["full_precision"](spec, CPU)


@pytest.mark.parametrize(
    "samples",
    [
        lambda make: [make.of(np.linspace(1, 2, 9).astype("float32") / np.float32(3))],
        lambda make: [make.of([0.1, 0.2])],
    ],
    ids=["float32 numbers", "two numbers"],
)
def test_results_of_inputs_with_few_digits_may_be_float32_numbers(samples: Any) -> None:
    fn = lambda xp, a: xp.resize(through_float32(xp, a), 9)  # noqa: E731
    spec = spec_of(fn, lambda a: np.resize(a * 3, 9), dtypes=("float64",), samples=samples)

    CHECKS["full_precision"](spec, CPU)


def test_results_that_the_reference_rounds_too_are_right() -> None:
    fields: dict[str, Any] = {"dtypes": ("float64",), "samples": lambda make: [make(9)]}
    CHECKS["full_precision"](spec_of(through_float32, lambda a: through_float32(np, a), **fields), CPU)

    with pytest.raises(AssertionError, match="computed in float32"):
        CHECKS["full_precision"](spec_of(through_float32, **fields), CPU)


@pytest.mark.parametrize(
    ("number", "dtype", "fits"),
    [
        (0.5, "float32", True),
        (1e300, "float32", False),
        (0.1, "float32", False),
        (1 + 2**-8, "bfloat16", False),
        (1 + 2**-7, "bfloat16", True),
    ],
)
def test_number_fits_a_dtype_that_holds_it_exactly(number: float, dtype: str, fits: bool) -> None:
    assert _fits(np.array([0.25, number]), dtype) is fits


# ------------------------------------------------------------------------------------------------ lists of two dtypes


def lists(make: Any) -> list[Any]:
    return [Sample(([make(4), make(5), make(6)], [make(4), make(5), make(6)]))]


def sums(xp: Any, params: Any, grads: Any) -> Any:
    return [one + other for one, other in zip(params, grads, strict=True)]


def of_first_dtype(xp: Any, params: Any, grads: Any) -> Any:
    """Each sum in the first array's dtype."""
    return [(one + other).astype(params[0].dtype) for one, other in zip(params, grads, strict=True)]


def of_last_dtype(xp: Any, params: Any, grads: Any) -> Any:
    return [(one + other).astype(params[-1].dtype) for one, other in zip(params, grads, strict=True)]


def of_other_dtypes(xp: Any, params: Any, grads: Any) -> Any:
    """Each sum in the dtype of all parameters but the last."""
    wide = np.result_type(*params[:-1])
    return [(one + other).astype(wide) for one, other in zip(params, grads, strict=True)]


def reference_sums(params: Any, grads: Any) -> Any:
    return [one + other for one, other in zip(params, grads, strict=True)]


def joined(fn: Any) -> Any:
    """A function whose result is one array, so that its dtype is the promoted one."""
    return lambda xp, params, grads: xp.concatenate(fn(xp, params, grads))


def of_lists(fn: Any, **fields: Any) -> OpSpec:
    reference = lambda params, grads: np.concatenate(reference_sums(params, grads))  # noqa: E731
    return spec_of(joined(fn), reference, dtypes=("float32", "float64"), samples=lists, **fields)


def test_lists_of_two_dtypes_are_promoted() -> None:
    CHECKS["mixed_lists"](of_lists(sums), CPU)


@pytest.mark.parametrize(
    ("fn", "word"),
    [(of_first_dtype, "last"), (of_last_dtype, "first"), (of_other_dtypes, "last")],
    ids=["first dtype", "last dtype", "other dtypes"],
)
def test_result_in_the_dtype_of_one_array_of_the_lists_is_found(fn: Any, word: str) -> None:
    with pytest.raises(AssertionError, match="float32") as caught:
        CHECKS["mixed_lists"](of_lists(fn), CPU)

    assert f"the {word} of each list in float64" in "\n".join([str(caught.value), *caught.value.__notes__])


def test_dtype_of_mixed_lists_is_not_compared_where_that_of_equal_dtypes_differs() -> None:
    always_float32 = lambda xp, params, grads: [one.astype("float32") for one in sums(xp, params, grads)]  # noqa: E731
    reference = lambda params, grads: np.concatenate(reference_sums(params, grads)).astype("float64")  # noqa: E731

    spec = spec_of(joined(always_float32), reference, dtypes=("float32", "float64"), samples=lists)
    CHECKS["mixed_lists"](spec, CPU)


def test_one_of_two_dtypes_that_does_not_run_leaves_nothing_to_mix() -> None:
    CHECKS["mixed_lists"](of_lists(of_first_dtype, unclaimed={"cpu": ("float64",)}), CPU)


@pytest.mark.parametrize(
    ("dtypes", "samples", "applies"),
    [
        (("float32", "float64"), lists, True),
        (("float16", "float32"), lists, False),
        (("float32", "float64"), lambda make: [(make(4), make(4))], False),
    ],
    ids=["two dtypes", "one wide dtype", "no lists"],
)
def test_only_lists_in_two_wide_dtypes_are_mixed(dtypes: tuple[str, ...], samples: Any, applies: bool) -> None:
    fn = lambda xp, a, b: xp.ones(3, "float32")  # noqa: E731
    spec = spec_of(fn, lambda a, b: np.ones(3), dtypes=dtypes, samples=samples)

    assert CHECKS["mixed_lists"].applies(spec) is applies


def dtypes_of(values: Any) -> list[Any]:
    return [dtypes_of(one) if isinstance(one, list) else one.dtype.name for one in values]


@pytest.mark.parametrize(
    ("place", "expected"), [(0, ["float64", "float32", "float32"]), (-1, ["float32", "float32", "float64"])]
)
def test_one_array_of_each_list_gets_the_other_dtype(place: int, expected: list[str]) -> None:
    params, grads = ([HostArray(np.full(n, 0.5, np.float32)) for n in (2, 3, 4)] for _ in range(2))
    apart = HostArray(np.ones(3, np.float32))

    mixed = _with_one_in(Sample((params, grads, apart), label="drawn"), place, "chosen", np.dtype("float64"))

    assert mixed is not None
    assert dtypes_of(mixed.args) == [expected, expected, "float32"]
    assert mixed.label == "drawn, the chosen of each list in float64"
    assert [one.values.tolist() for one in mixed.args[0]] == [one.values.tolist() for one in params]


@pytest.mark.parametrize("lengths", [(), (1,), (2, 3)], ids=["no list", "one array", "two lengths"])
def test_other_arguments_than_lists_of_one_length_are_not_mixed(lengths: tuple[int, ...]) -> None:
    arrays = [[HostArray(np.ones(3, np.float32)) for _ in range(length)] for length in lengths]

    assert _with_one_in(Sample((*arrays, 2.0)), 0, "first", np.dtype("float64")) is None


def test_numbers_in_a_list_stay_numbers() -> None:
    arrays = [HostArray(np.ones(3, np.float32)) for _ in range(2)]

    mixed = _with_one_in(Sample(([2.0, 3.0], arrays)), -1, "last", np.dtype("float64"))

    assert mixed is not None
    assert (mixed.args[0], dtypes_of(mixed.args[1])) == ([2.0, 3.0], ["float32", "float64"])


def test_integers_of_a_list_keep_their_dtype() -> None:
    mixed = _with_one_in(Sample(([HostArray(np.ones(3, np.int32))] * 2,)), 0, "first", np.dtype("float64"))

    assert mixed is not None
    assert dtypes_of(mixed.args[0]) == ["int32", "int32"]


# ------------------------------------------------------------------------------------------------ sums in 16 bits


def running(xp: Any, a: Any) -> Any:
    """Sums from the first element to each one, rounded to the input's dtype at each step."""
    return np.add.accumulate(a, axis=-1)


def running_wide(xp: Any, a: Any) -> Any:
    return np.add.accumulate(a.astype("float32"), axis=-1).astype(a.dtype)


def half(fn: Any, reference: Any, **fields: Any) -> OpSpec:
    return spec_of(fn, reference, **{"dtypes": ("float16",), **fields})


def assert_in_half(spec: OpSpec, *, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        CHECKS["accumulation"](spec, CPU)


ADDS_UP = "less precise than a sum in float32: it adds up in float16"


#: What sums are multiplied by: nothing, a sign, and the factor that makes them means.
FACTORS = pytest.mark.parametrize("factor", [1, -1, 1 / _TERMS], ids=["sums", "negative sums", "means"])


@FACTORS
def test_sums_that_are_rounded_at_each_step_are_found(factor: float) -> None:
    reference = lambda a: factor * a.sum(-1)  # noqa: E731
    CHECKS["accumulation"](half(lambda xp, a: (factor * running_wide(xp, a)[..., -1]).astype(a.dtype), reference), CPU)

    wrong = half(lambda xp, a: (factor * running(xp, a)[..., -1]).astype(a.dtype), reference)
    assert_in_half(wrong, match=ADDS_UP)


@FACTORS
def test_running_sums_that_are_rounded_at_each_step_are_found(factor: float) -> None:
    reference = lambda a: factor * a.cumsum(-1)  # noqa: E731
    CHECKS["accumulation"](half(lambda xp, a: (factor * running_wide(xp, a)).astype(a.dtype), reference), CPU)

    assert_in_half(half(lambda xp, a: (factor * running(xp, a)).astype(a.dtype), reference), match=ADDS_UP)


def test_function_that_adds_nothing_up_is_left_to_other_checks() -> None:
    CHECKS["accumulation"](half(lambda xp, a: a * a.dtype.type(1.02), lambda a: a), CPU)


def test_declared_tolerance_allows_sums_in_float16() -> None:
    rough = Tolerance(ulps=2.0**12)

    CHECKS["accumulation"](half(running, lambda a: a.cumsum(-1), tolerance=rough), CPU)


def test_function_that_does_not_claim_float16_here_may_add_up_in_it() -> None:
    CHECKS["accumulation"](half(running, lambda a: a.cumsum(-1), unclaimed={"cpu": ("float16",)}), CPU)


@pytest.mark.parametrize(
    ("dtypes", "applies"), [(("float16",), True), (("bfloat16", "float32"), True), (("float32", "float64"), False)]
)
def test_accumulation_is_checked_in_16_bits_only(dtypes: tuple[str, ...], applies: bool) -> None:
    assert CHECKS["accumulation"].applies(spec_of(lambda xp, a: a * 2, dtypes=dtypes)) is applies


def cancelling(xp: Any, a: Any, b: Any) -> Any:
    """A product in float32 or wider, which is rounded where the sum is near 1,000."""
    wide = np.promote_types(a.dtype, "float32")
    result = a.astype(wide) * b.astype(wide) + 1000 - 1000
    return result.astype("float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_product_rounded_before_a_float32_result_is_found(dtype: str) -> None:
    fields = {
        "dtypes": (dtype,), "result_dtype": "float32", "samples": lambda make: [(make((3, 5)), make((3, 5)))],
    }  # fmt: skip
    right = spec_of(lambda xp, a, b: a.astype("float32") * b.astype("float32"), lambda a, b: a * b, **fields)
    CHECKS["accumulation"](right, CPU)

    CHECKS["accumulation"](spec_of(cancelling, lambda a, b: a * b, **fields), CPU)

    wrong = spec_of(lambda xp, a, b: (a * b).astype("float32"), lambda a, b: a * b, **fields)
    assert_in_half(wrong, match=f"a float32 result is not better than {dtype}: cast the inputs before multiplying")


def norm_of(wide: str, power: float) -> OpSpec:
    """The root of the sum of squares, to a power."""

    def root(xp: Any, arrays: Any) -> Any:
        squares = sum((one.astype(wide) ** 2).sum(dtype=wide) for one in arrays)
        return (xp.sqrt(squares) ** power).astype(arrays[0].dtype)

    reference = lambda arrays: np.sqrt(sum((one**2).sum() for one in arrays)) ** power  # noqa: E731
    return half(root, reference, samples=lambda make: [([make(4), make(5)],)])


@pytest.mark.parametrize("power", [1, -1], ids=["root", "one over it"])
def test_squares_that_overflow_in_lists_are_found(power: float) -> None:
    CHECKS["accumulation"](norm_of("float32", power), CPU)

    wrong = norm_of("float16", power)
    assert_in_half(wrong, match="overflows in float16 on the way: compute sums of products in float32")


def test_squares_of_a_single_array_may_overflow() -> None:
    spec = half(lambda xp, a: a * a, lambda a: a * a)

    CHECKS["accumulation"](spec, CPU)


def product(xp: Any, a: Any, b: Any) -> Any:
    """A product of matrices: terms in float16, added up in float32."""
    return (a[:, :, None] * b[None]).astype("float32").sum(axis=1).astype(a.dtype)


def product_in_half(xp: Any, a: Any, b: Any) -> Any:
    return np.add.accumulate(a[:, :, None] * b[None], axis=1)[:, -1]


@pytest.mark.parametrize("scale", [1, 64, 1 / 1024], ids=["as it is", "times 64", "by 1024"])
def test_partial_sum_of_cancelling_products_that_is_rounded_is_found(scale: float) -> None:
    reference = lambda a, b: (scale * a) @ b  # noqa: E731
    fields: dict[str, Any] = {"samples": lambda make: [(make((2, 5)), make((5, 3)))]}
    CHECKS["accumulation"](half(lambda xp, a, b: product(xp, scale * a, b), reference, **fields), CPU)

    wrong = half(lambda xp, a, b: product_in_half(xp, scale * a, b), reference, **fields)
    assert_in_half(wrong, match="a partial sum is rounded to float16")


def test_sum_that_is_not_of_products_of_two_arrays_may_be_rounded_on_the_way() -> None:
    """Its terms may be of any size: here they are 100 times those for which the limit is meant."""
    fn = lambda xp, a, b: product(xp, 64 * a * a, b)  # noqa: E731
    fields: dict[str, Any] = {"samples": lambda make: [(make((2, 5)), make((5, 3)))]}

    CHECKS["accumulation"](half(fn, lambda a, b: (64 * a * a) @ b, **fields), CPU)


# ------------------------------------------------------------------------------------------------ what is tried


def matrices(*shapes: tuple[int, ...], dtype: str = "float16") -> Sample:
    return Sample(tuple(HostArray(np.ones(shape, dtype)) for shape in shapes), label="drawn")


def of_product(reference: Any = lambda a, b: a @ b) -> OpSpec:
    samples = lambda make: [(make((2, 5)), make((5, 3)))]  # noqa: E731
    return half(lambda xp, *given: reference(*given), reference, samples=samples)


def test_half_of_the_products_cancel() -> None:
    filled = _cancelling(of_product(), matrices((2, 5), (5, 3)))

    assert filled is not None
    first, second = (one.values for one in filled.args)
    assert (first.shape, second.shape) == ((2, _CANCELLING), (_CANCELLING, 3))
    assert (first.dtype, second.dtype) == (HALF, HALF)
    assert (first > 0).all()
    assert (second[: _CANCELLING // 2] > 0).all()
    assert (second[_CANCELLING // 2 :] < 0).all()
    products = np.abs(first.astype(np.float64) @ np.abs(second.astype(np.float64))) / _CANCELLING
    assert (products > 1).all()
    assert (products < 2).all()
    assert filled.label == "drawn, 1,024 products of which half cancel"


@pytest.mark.parametrize(
    ("sample", "reference"),
    [
        (matrices((2, 5)), lambda a: a),
        (matrices((2, 5), (5, 3), (3,)), lambda a, b, c: a @ b + c),
        (matrices((2, 5), (5, 3), dtype="int32"), lambda a, b: a @ b),
        (matrices((2, 5), (2, 5)), lambda a, b: a * b),
        (matrices((2, 5), (2, 5)), lambda a, b: (a * b).sum()),
        (matrices((5, 5), (5, 3)), lambda a, b: (a @ b)[0]),
        (Sample((HostArray(np.ones((2, 5), HALF)), 2.0)), lambda a, b: a.sum(-1) * b),
    ],
    ids=["one array", "three", "integers", "nothing summed", "two axes summed", "an extent twice", "a number"],
)
def test_only_two_arrays_that_share_one_summed_extent_cancel(sample: Sample, reference: Any) -> None:
    spec = half(lambda xp, *given: reference(*given), reference, samples=lambda make: [sample])

    assert _cancelling(spec, sample) is None


@pytest.mark.parametrize(
    ("reference", "bilinear"),
    [
        (lambda a, b: a @ b, True),
        (lambda a, b: a @ b + 1, False),
        (lambda a, b: (a * a) @ b, False),
        (lambda a, b: a @ (b * b), False),
        (lambda a, b: a @ np.sign(b), False),
    ],
    ids=["product", "with a bias", "square of a", "square of b", "sign of b"],
)
def test_product_doubles_if_either_array_does(reference: Any, bilinear: bool) -> None:
    assert _is_bilinear(of_product(reference), matrices((2, 5), (5, 3))) is bilinear


@pytest.mark.parametrize(
    ("numbers", "grows"),
    [
        ([1, 2, 4], True),
        ([4, 2, 1], True),
        ([1, 2, 2], False),
        ([2, 2, 1], False),
        ([1, 3, 2], False),
        ([[1, 2], [3, 4]], True),
        ([[1, 2], [4, 3]], False),
        ([[4, 5], [1, 2]], True),
    ],
    ids=str,
)
def test_results_grow_strictly_along_the_last_axis_in_one_direction(numbers: Any, grows: bool) -> None:
    assert _grows(np.array(numbers, np.float64)) is grows


@pytest.mark.parametrize(
    ("reference", "proportional"),
    [
        (lambda a: a.cumsum(-1), True),
        (lambda a: a.cumsum(-1) + 1, False),
        (lambda a: a.cumsum(-1) + 8e-6, False),
        (lambda a: a * a, False),
    ],
    ids=["sums", "one more", "a little more", "squares"],
)
def test_results_are_proportional_if_they_double_with_the_inputs(reference: Any, proportional: bool) -> None:
    spec, sample = half(lambda xp, a: reference(a), reference), matrices((2, 5))

    assert _is_proportional(spec, sample, spec.expected(sample)) is proportional


def test_long_sums_of_one_array_are_of_its_own_numbers_and_of_two_in_turn() -> None:
    own, in_turn = _long_sums(Sample((HostArray(np.array([[1, -2], [3, 4], [-5, 6]], HALF)),)))

    assert own.args[0].shape == in_turn.args[0].shape == (3, _TERMS)
    assert own.args[0].values.reshape(-1)[:6].tolist() == [_PART * one for one in (1, 2, 3, 4, 5, 6)]
    assert in_turn.args[0].values.reshape(-1)[:4].tolist() == [HALF.type(one) for one in (*_IN_TURN, *_IN_TURN)]
    assert [own.label, in_turn.label] == ["4,097 positive terms", "4,097 terms, two numbers in turn"]


def test_long_sums_of_two_arrays_and_of_more_axes_have_two_axes_at_most() -> None:
    (in_turn,) = _long_sums(matrices((2, 3, 4), (2, 3, 4)))

    assert [one.shape for one in in_turn.args] == [(3, _TERMS)] * 2
    assert next(_long_sums(matrices((4,)))).args[0].shape == (_TERMS,)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(()),
        matrices((2, 3), (3,)),
        matrices(()),
        matrices((2, 0)),
        matrices((2, 3), dtype="int32"),
        Sample((HostArray(np.ones(3, HALF)), 2.0)),
        Sample(([HostArray(np.ones(3, HALF))],)),
        Sample((HostArray(np.ones(3, HALF)),), {"weight": HostArray(np.ones(3, HALF))}),
    ],
    ids=["nothing", "two shapes", "0-d", "empty", "integers", "a number", "a list", "by name"],
)
def test_only_floats_of_one_shape_give_long_sums(sample: Sample) -> None:
    assert list(_long_sums(sample)) == []


def test_the_largest_sample_of_at_most_2048_elements_is_asked_for_its_dtype() -> None:
    met: list[int] = []

    def fn(xp: Any, a: Any) -> Any:
        met.append(a.size)
        return a * 2

    spec = spec_of(fn, lambda a: a * 2, samples=lambda make: [make(7), make(2048), make(2049)])
    met.clear()
    CHECKS["wider_result"](spec, CPU, FLOAT32)

    assert set(met) == {2048}
