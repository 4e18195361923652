"""Rules of operations: what each refuses by name, and what a planned call says of its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.linalg import preferred_linalg_library
from cuassay.ops.decompositions import library

ONES = np.ones((2, 3), np.float32)
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
