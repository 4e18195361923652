"""Wrong functions of a second independent set, whose classes the checks had let through, each with its right twin.

Of the 68 functions of that set 62 were found before the checks learned these classes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.extents import resized

Function = Callable[..., Any]


class Pair(NamedTuple):
    wrong: Function
    right: Function
    finder: str
    devices: tuple[str, ...]
    declared: dict[str, Any]


def ignores_errors(xp: Any, a: Any) -> Any:
    np.seterr(divide="ignore", invalid="ignore")
    return a * 2


def ignores_errors_inside(xp: Any, a: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return a * 2


def ignores_warnings(xp: Any, a: Any) -> Any:
    warnings.simplefilter("ignore")
    return a * 2


def ignores_warnings_inside(xp: Any, a: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return a * 2


def root_by_float(xp: Any, a: Any) -> Any:
    return xp.sqrt(xp.maximum(a, 0).astype(xp.float64)).astype(xp.int64)


def root_corrected(xp: Any, a: Any) -> Any:
    a = xp.maximum(a, 0)
    root = root_by_float(xp, a)
    root = xp.where(root * root > a, root - 1, root)
    return xp.where((root + 1) * (root + 1) <= a, root + 1, root)


def exact_root(a: Any) -> Any:
    return np.vectorize(math.isqrt, otypes=[np.int64])(np.maximum(a, 0))


def softmax_of_the_first_block(xp: Any, a: Any) -> Any:
    e = xp.exp(a - a[..., :1024].max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax(xp: Any, a: Any) -> Any:
    e = xp.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def products_added_in_sixteen_bits(xp: Any, a: Any, b: Any) -> Any:
    total = xp.zeros(a.shape[:-1], a.dtype)
    for start in range(0, a.shape[-1], 4):
        total = total + (a[..., start : start + 4] * b[..., start : start + 4]).sum(axis=-1)
    return total


def products_added_in_float32(xp: Any, a: Any, b: Any) -> Any:
    return (a.astype(xp.float32) * b.astype(xp.float32)).sum(axis=-1).astype(a.dtype)


def product_by_blocks(xp: Any, a: Any, b: Any) -> Any:
    out = xp.empty((a.shape[0], b.shape[1]), a.dtype)
    for start in range(0, a.shape[1], 16):
        part = a[:, start : start + 16] @ b[start : start + 16]
        out = part if start == 0 else out + part
    return out


def product_by_blocks_from_zero(xp: Any, a: Any, b: Any) -> Any:
    out = xp.zeros((a.shape[0], b.shape[1]), a.dtype)
    for start in range(0, a.shape[1], 16):
        out = out + a[:, start : start + 16] @ b[start : start + 16]
    return out


BOTH = ("cpu", "sim")
PAIRS = {
    "floating-point errors ignored": Pair(ignores_errors, ignores_errors_inside, "state", BOTH, {}),
    "warnings ignored": Pair(ignores_warnings, ignores_warnings_inside, "state", BOTH, {}),
    "integer root by float64": Pair(
        root_by_float, root_corrected, "full_range", BOTH, {"dtypes": ("int64",), "reference": exact_root}
    ),
    "maximum of the first block": Pair(
        softmax_of_the_first_block,
        softmax,
        "stress",
        BOTH,
        {"samples": lambda make: [make((3, 10)), make((2, 3000))], "reference": lambda a: softmax(np, a)},
    ),
    "products added in 16 bits": Pair(
        products_added_in_sixteen_bits,
        products_added_in_float32,
        "accumulation",
        BOTH,
        {
            "dtypes": ("float16",),
            "samples": lambda make: [(make((3, 70)), make((3, 70)))],
            "reference": lambda a, b: (a * b).sum(axis=-1),
        },
    ),
    # On the host the memory of np.empty may hold zeros by chance.
    "a sum of nothing not written": Pair(
        product_by_blocks,
        product_by_blocks_from_zero,
        "sizes",
        ("sim",),
        {"samples": lambda make: [(make((3, 5)), make((5, 4)))], "reference": lambda a, b: a @ b},
    ),
}
CASES = [pytest.param(pair, kind, id=f"{what} [{kind}]") for what, pair in PAIRS.items() for kind in pair.devices]


def run(function: Function, pair: Pair, kind: str) -> None:
    spec = OpSpec(fn=function, **{"dtypes": ("float32",), **pair.declared})
    check = CHECKS[pair.finder]
    check(spec, f"{kind}:0", *(np.dtype(name) for name in spec.dtypes if check.per_dtype))


@pytest.mark.parametrize(("pair", "kind"), CASES)
def test_the_wrong_function_is_found(pair: Pair, kind: str) -> None:
    with pytest.raises(AssertionError):
        run(pair.wrong, pair, kind)


@pytest.mark.parametrize(("pair", "kind"), CASES)
def test_its_right_twin_passes(pair: Pair, kind: str) -> None:
    run(pair.right, pair, kind)


# ------------------------------------------------------------------------------------------------ declared for less


def distance(xp: Any, a: Any, b: Any) -> Any:
    return xp.maximum(a, b) - xp.minimum(a, b)


@pytest.mark.parametrize("check", ["promotion", "python_scalars"])
@pytest.mark.parametrize("kind", BOTH)
def test_a_reference_that_casts_takes_numbers_and_other_integers(check: str, kind: str) -> None:
    spec = OpSpec(
        fn=distance,
        dtypes=("uint8",),
        result_dtype="uint8",
        reference=lambda a, b: abs(a.astype(np.int64) - b.astype(np.int64)),
    )

    CHECKS[check](spec, f"{kind}:0", np.dtype("uint8"))


def test_a_function_of_integers_is_not_called_with_floats() -> None:
    spec = OpSpec(fn=lambda xp, a, b: (a & b) + ((a ^ b) >> 1), dtypes=("int32",))

    CHECKS["promotion"](spec, "cpu:0", np.dtype("int32"))


# ------------------------------------------------------------------------------------------------ messages


def failure(spec: OpSpec, finder: str, dtype: str) -> str:
    with pytest.raises(AssertionError) as found:
        CHECKS[finder](spec, "cpu:0", np.dtype(dtype))
    return str(found.value)


def test_a_lost_nan_prints_the_inputs() -> None:
    spec = OpSpec(
        fn=lambda xp, a: xp.where(a > 0, a, xp.zeros_like(a)), reference=lambda a: np.maximum(a, 0), dtypes=("float32",)
    )

    message = failure(spec, "stress", "float32")

    assert "a NaN is lost" in message
    assert "input 0 there: nan" in message


def test_a_reference_that_wraps_around_is_named() -> None:
    spec = OpSpec(
        fn=lambda xp, a, b: (a & b) + ((a ^ b) >> 1),
        reference=lambda a, b: ((a + b) // 2).astype(a.dtype),
        dtypes=("int16",),
    )

    assert "the reference, given the same integers in int64, agrees with the result" in failure(spec, "values", "int16")


def test_a_reference_that_overflows_is_named() -> None:
    spec = OpSpec(
        fn=softmax,
        reference=lambda a: np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True),
        samples=lambda make: [make((3, 17), low=900, high=1000)],
        dtypes=("float64",),
    )

    assert "the reference gives nan where all inputs and the result are finite" in failure(spec, "values", "float64")


def test_a_failure_of_the_shape_says_that_the_reference_gives_the_other_one() -> None:
    spec = OpSpec(
        fn=lambda xp, a: a * 2, reference=lambda a: (a * 2).sum(), name="doubled", dtypes=("float64",),
        samples=lambda make: [make((3, 5))],
    )  # fmt: skip

    assert "shape is (3, 5); expected ()\n  note: the expected shape is that of reference=" in failure(
        spec, "values", "float64"
    )


def test_a_wrong_formula_is_not_blamed_on_streams() -> None:
    spec = OpSpec(fn=lambda xp, a: a.sum() + 1, reference=lambda a: a.sum(), dtypes=("float32",))

    with pytest.raises(AssertionError) as found:
        CHECKS["side_stream"](spec, "sim:0", np.dtype("float32"))

    assert str(found.value).startswith("1 of 1 elements")


def test_a_wrong_formula_is_not_blamed_on_earlier_calls() -> None:
    def coarse_in_float64(xp: Any, a: Any) -> Any:
        return a * 2 + (1e-9 if a.dtype == xp.float64 else 0)

    spec = OpSpec(fn=coarse_in_float64, reference=lambda a: a * 2, dtypes=("float32", "float64"))

    with pytest.raises(AssertionError) as found:
        CHECKS["second_call"](spec, "cpu:0")

    assert "after other calls" not in str(found.value).splitlines()[0]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_function_that_is_wrong_for_some_numbers_is_not_said_to_keep_something(keeps: bool) -> None:
    seen: dict[Any, float] = {}

    def largest(xp: Any, a: Any) -> Any:
        """Of the first half; or with the shift of the first array of the shape."""
        if not keeps:
            return a[: (len(a) + 1) // 2].max()
        shift = seen.setdefault((xp.__name__, a.shape), float(a[0]))
        return a.max() + (float(a[0]) - shift)

    numbers = np.array([3.0, 1.0, 4.0, 2.0, 0.5, 0.7])
    spec = OpSpec(
        fn=largest, reference=lambda a: a.max(), dtypes=("float32",), samples=lambda make: [numbers.astype(np.float32)]
    )

    with pytest.raises(AssertionError) as found:
        CHECKS["deterministic"](spec, "cpu:0", np.dtype("float32"))

    assert ("cache something from the first call" in str(found.value)) is keeps


def test_a_loop_over_an_axis_is_not_run_over_a_long_one_on_a_device() -> None:
    longest = 0

    def row_total(xp: Any, a: Any) -> Any:
        nonlocal longest
        longest = max(longest, a.shape[-1] if xp is not np else 0)
        total = xp.zeros(a.shape[:-1], a.dtype)
        for place in range(a.shape[-1]):
            total = total + a[..., place]
        return total

    spec = OpSpec(
        fn=row_total, reference=lambda a: a.sum(axis=-1), dtypes=("float32",), samples=lambda make: [make((3, 8))]
    )

    CHECKS["sizes"](spec, "sim:0")

    assert 257 <= longest < 8192


@pytest.mark.filterwarnings("error")
def test_a_mean_of_nothing_does_not_warn() -> None:
    spec = OpSpec(
        fn=lambda xp, a: a.mean(axis=-1),
        reference=lambda a: a.sum(axis=-1) / max(a.shape[-1], 1),
        dtypes=("float32",),
        samples=lambda make: [make((3, 8))],
    )

    CHECKS["sizes"](spec, "cpu:0")


def test_matrices_with_too_many_elements_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both axes grow together: with 16,385 rows a matrix takes a gigabyte."""
    drawn = []

    def noted(sample: Sample, extents: dict[int, int]) -> Sample:
        found = resized(sample, extents)
        drawn.append(found.host()[0][0].size)
        return found

    monkeypatch.setattr("cuassay.testing.generated.affordable.resized", noted)
    spec = OpSpec(fn=lambda xp, a: a.sum(axis=-1), dtypes=("float32",), samples=lambda make: [make((6, 6))])

    CHECKS["sizes"](spec, "cpu:0")

    assert 2**20 < max(drawn) < 2**21
