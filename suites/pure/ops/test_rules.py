"""Rules of operations: what each refuses by name, and what a planned call says of its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay import empty, ops
from cuassay.core.generator import GeneratorState
from cuassay.errors import ArgumentError, DTypeError, SchemaError, ShapeError
from cuassay.linalg import preferred_linalg_library
from cuassay.ops import compositions, registry
from cuassay.ops.decompositions import library
from cuassay.ops.explain import described

ONES = np.ones((2, 3), np.float32)
ONE, CODES = np.ones(1, np.float32), np.zeros((16, 16), np.uint8)
FP8 = CODES.view(ml_dtypes.float8_e4m3fn)
STATE = GeneratorState(1, 0)
ADAM = (*([np.ones(3, np.float32)] for _ in range(4)), [], [], ONE)
ROWS, GROUPS = np.ones((4, 2), np.float32), np.ones((2, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        pytest.param(
            lambda: ops.foreach_norm([ONES], ord=1), ArgumentError, "ord must be 2 or infinity; got 1", id="ord"
        ),
        pytest.param(
            lambda: ops.foreach_add_([ONES.copy()], [ONES.astype(np.float64)]),
            DTypeError,
            "the lists must have one dtype; got .* float32, .* float64; cast one",
            id="dtypes-of-lists",
        ),
        pytest.param(
            lambda: ops.layer_norm(ONES, ONES[0, :2], ONES[0]),
            ShapeError,
            r"weight must have shape \(3,\), the last axis of a \(2, 3\); got \(2,\)",
            id="weight-of-a-norm",
        ),
        pytest.param(lambda: ops.grouped_mm(ROWS, GROUPS, offs=(3, 1)), ArgumentError, "ascending", id="falling-ends"),
        pytest.param(lambda: ops.grouped_mm(ROWS, GROUPS, offs=(1, 5)), ArgumentError, "up to 4", id="end-beyond"),
        pytest.param(lambda: ops.grouped_mm(ROWS, GROUPS, offs=(1,)), ArgumentError, "be 2 ascending", id="few-ends"),
        pytest.param(lambda: ops.grouped_mm(ROWS, GROUPS, offs=(1, "4")), ArgumentError, "whole", id="end-in-words"),
        pytest.param(
            lambda: ops.addmm(ONES, ONES[:, :2], ONES, activation="tanh"),
            ArgumentError,
            r"activation must be one of .*'relu'.*; got 'tanh'",
            id="activation",
        ),
        pytest.param(lambda: ops.sum(ONES, keepdims=2), ArgumentError, "must be True or False; got 2", id="flag"),
        pytest.param(
            lambda: ops.linear(ONES, ONES, ONES[0, :2], activation="tanh"),
            ArgumentError,
            r"activation must be one of .*'relu'.*; got 'tanh'",
            id="activation-of-a-layer",
        ),
        pytest.param(
            lambda: ops.bmm(GROUPS, GROUPS[:, :, :2].repeat(2, 1)[:, :3], out_dtype="int32"),
            DTypeError,
            "out_dtype must be one of .*float32.*; got 'int32'",
            id="dtype-of-a-product",
        ),
        pytest.param(
            lambda: ops.scaled_mm(CODES, CODES, ONE, ONE, None, format_a="float8_e4m3fn"),
            DTypeError,
            "scaled_mm's b is uint8 with format_b=None; give an array of",
            id="codes-without-a-format",
        ),
        pytest.param(
            lambda: ops.scaled_mm(FP8, FP8, ONE, ONE, None, format_b="float8_e5m2"),
            DTypeError,
            "scaled_mm's b is float8_e4m3fn with format_b='float8_e5m2'",
            id="format-that-is-another",
        ),
        pytest.param(
            lambda: ops.scaled_mm(FP8, FP8, ONE, np.ones((1, 2), np.float32), None),
            ShapeError,
            r"scales must have one element each, or shapes \(16, 1\) and \(1, 16\); got \(1,\) and \(1, 2\)",
            id="one-scale-and-two",
        ),
        pytest.param(
            lambda: ops.integers(np.zeros(3, np.int8), state=STATE, low=0, high=129),
            ArgumentError,
            "-128 <= low < high <= 128; got low 0, high 129",
            id="bound-beyond-the-dtype",
        ),
        pytest.param(
            lambda: ops.integers(np.zeros(3, np.int8), state=STATE, low=False, high=5),
            ArgumentError,
            "need whole numbers",
            id="bound-that-is-a-flag",
        ),
        pytest.param(
            lambda: ops.fused_adam_(*ADAM, 0.1, None, None, None, seed=1),
            DTypeError,
            "stochastic rounding .* is for bfloat16 params or states; got float32",
            id="seed-without-bfloat16",
        ),
        pytest.param(
            lambda: ops.fused_adam_(*ADAM, 0.1, None, None, None, seed=2**64),
            ArgumentError,
            "seed must be a whole number from 0",
            id="seed-beyond-64-bits",
        ),
        pytest.param(
            lambda: ops.dropout(ONES, state=STATE, p=1.5),
            ArgumentError,
            "p is a probability; got 1.5",
            id="probability",
        ),
        pytest.param(
            lambda: ops.amax(np.ones((0, 3), np.float32), axis=0), ShapeError, "maximum of no elements", id="no-rows"
        ),
        pytest.param(
            lambda: ops.index_add(ROWS, np.zeros((1, 2), np.int64), np.ones((1, 2, 2), np.float32)),
            ShapeError,
            r"index of one axis .* got index \(1, 2\)",
            id="index-of-two-axes",
        ),
        pytest.param(
            lambda: ops.slice(ONES, axis=0, start=0.5), ArgumentError, "start must be a whole number or None", id="half"
        ),
        pytest.param(
            lambda: ops.slow_conv2d(np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 0, 2), np.float32), None),
            ShapeError,
            r"a window of \(0, 2\)",
            id="window-of-no-rows",
        ),
        pytest.param(
            lambda: registry.op("adds"), SchemaError, "declared so far: abs, add, .*, softmax, ", id="names-in-order"
        ),
    ],
)
def test_a_bad_argument_is_named_with_its_rule(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("number", [False, 0, np.False_, np.int64(0)], ids=repr)
def test_a_flag_may_be_zero(number: Any) -> None:
    assert ops.sum(ONES, axis=0, keepdims=number).shape == (3,)


@pytest.mark.parametrize("number", [True, 1, np.True_, np.int64(1)], ids=repr)
def test_a_flag_may_be_one(number: Any) -> None:
    assert ops.sum(ONES, axis=0, keepdims=number).shape == (1, 3)


def test_a_planned_result_says_its_bytes() -> None:
    assert ops.add.meta(ONES, ONES).nbytes == 24


@pytest.mark.parametrize("order", [2, np.inf])
def test_both_orders_of_a_norm_are_computed(order: float) -> None:
    expected = np.linalg.norm(ONES.ravel(), order)

    assert np.allclose(ops.foreach_norm([ONES], ord=order), [expected])


def test_the_preferred_library_serves_arrays_of_the_host() -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed")
    former = preferred_linalg_library()
    try:
        preferred_linalg_library("numpy")
        assert library() == "numpy"
        preferred_linalg_library("scipy")
        assert library() == "scipy"
    finally:
        preferred_linalg_library(former)


def test_ops_alone_load_the_kind_of_a_first_array() -> None:
    code = "import numpy as np; from cuassay import ops; print(ops.add(np.ones(2, np.float32), np.ones(2, np.float32)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[2. 2.]\n"), done.stderr


def test_a_maximum_over_the_other_axis_of_an_empty_array_is_empty() -> None:
    assert ops.amax(np.ones((0, 3), np.float32), axis=1).shape == (0,)


@pytest.mark.parametrize(("a", "b", "shape"), [((3,), (3, 2), (2,)), ((2, 3), (3,), (2,)), ((3,), (3,), ())], ids=str)
def test_a_vector_in_a_product_gains_and_loses_an_axis(a: Any, b: Any, shape: Any) -> None:
    assert ops.matmul.meta(np.ones(a, np.float32), np.ones(b, np.float32)).shape == shape


def test_one_scale_may_have_two_axes() -> None:
    scales = [ONE.reshape(shape) for shape in ((), (1,), (1, 1))]
    found = [ops.scaled_mm(FP8, FP8, a, b, None, out_dtype="float32") for a in scales for b in scales]

    assert all((one == 0).all() for one in found)


def test_an_op_has_the_words_of_its_declaration() -> None:
    assert ops.dropout.__doc__ == ops.dropout.schema.doc
    assert "probability" in str(ops.dropout.__doc__)


def test_only_the_named_kernel_is_substituted() -> None:
    called: list[str] = []

    def spy(kernel: Any) -> Any:
        return lambda *args, **options: (called.append("add"), kernel(*args, **options))[1]

    with registry.substituted("add", kind="cpu", wrap=spy):
        ops.mul(ONES, ONES)
        assert called == []
        ops.add(ONES, ONES)
    ops.add(ONES, ONES)

    assert called == ["add"]


def test_an_explained_call_counts_a_list_of_one_array() -> None:
    assert described("norm", {"arrays": [ONES], "ord": 2}, "cpu") == "norm(arrays of 1 arrays, ord 2) on cpu"


def test_stochastic_rounding_may_have_the_seed_zero() -> None:
    params, *others = ([np.ones(3, ml_dtypes.bfloat16)] for _ in range(4))

    ops.fused_adam_(params, *others, [], [], ONE, 0.1, None, None, None, seed=0)

    assert params[0][0] != 1


def test_every_op_says_what_it_computes() -> None:
    ops_without = [op.name for op in registry.ops() if not op.__doc__]

    assert ops_without == []


@pytest.mark.parametrize("correction", [0, 1, 3])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_variance_of_parts_is_numpys(correction: int, keepdims: bool) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2

    found = compositions.var(a, axis=1, correction=correction, keepdims=keepdims)

    np.testing.assert_allclose(found, a.var(axis=1, ddof=correction, keepdims=keepdims), rtol=1e-6)


def test_lists_have_as_many_arrays_each() -> None:
    a = np.ones(2)

    with pytest.raises(ArgumentError, match="a has 2 arrays and b 1; give as many in each"):
        ops.foreach_add_([a, a.copy()], [a.copy()])


def test_a_slice_keeps_the_axes_behind_it() -> None:
    assert ops.slice(empty((4, 3, 2), "float32", "meta"), axis=0, start=1).shape == (3, 3, 2)
    assert ops.slice(empty((4, 3, 2), "float32", "meta"), axis=1, step=2).shape == (4, 2, 2)


@pytest.mark.parametrize("name", ["logsumexp", "var"])
def test_compositions_are_as_precise_as_their_dtype(name: str) -> None:
    a = np.linspace(-1, 1, 7)
    expected = {"logsumexp": np.log(np.exp(a).sum()), "var": a.var()}[name]

    found = getattr(compositions, name)(a, axis=-1, keepdims=False, **({"correction": 0} if name == "var" else {}))

    assert found.dtype == np.float64
    assert abs(float(found) - expected) < 1e-14


@pytest.mark.parametrize("name", ["solve", "inv", "cholesky", "qr", "svd", "eigh", "lstsq"])
def test_decompositions_are_declared_for_what_lapack_has(name: str) -> None:
    assert getattr(ops, name).schema.dtypes == ("float32", "float64", "complex64", "complex128")


def test_a_variance_of_fewer_elements_than_the_correction_is_not_negative() -> None:
    a = np.array([1.0, 3.0], np.float32)

    with np.errstate(divide="ignore"):
        assert compositions.var(a, axis=0, correction=3, keepdims=False) == np.inf


@pytest.mark.parametrize("shape", [(2, 0), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_a_composed_log_softmax_of_no_elements_is_empty(shape: tuple[int, ...], dtype: str | None) -> None:
    found = compositions.log_softmax(np.ones(shape, np.float32), axis=1, dtype=dtype)

    assert (found.shape, found.dtype) == (shape, np.dtype(dtype or "float32"))


def test_a_composed_log_softmax_is_the_logarithm_of_softmax() -> None:
    found = compositions.log_softmax(ONES, axis=1, dtype=None)

    np.testing.assert_allclose(found, np.full((2, 3), -np.log(3.0)), rtol=1e-6)
