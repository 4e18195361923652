"""A product as plain data, and which products share a choice: numbers alone, so that no device is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cuassay.devices.cuda.blas.problem import Operand, Problem, representative
from cuassay.errors import ArgumentError

OPERAND = Operand(rows=4, columns=3, leading=8, batch_stride=0, dtype="bfloat16")
PROBLEM = Problem(
    m=4, n=3, k=4, batch=1, transpose_a=True, transpose_b=False, a=OPERAND, b=OPERAND, c=OPERAND, d=OPERAND,
    compute="32F", epilogue="gelu_bias",
)  # fmt: skip


def test_a_problem_goes_through_json() -> None:
    assert Problem.from_plain(json.loads(json.dumps(PROBLEM.plain()))) == PROBLEM


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"m": "4"}, "field m of a problem should be int; got '4'"),
        ({"m": True}, "field m of a problem should be int; got True"),
        ({"transpose_a": 1}, "field transpose_a of a problem should be bool; got 1"),
        ({"alpha": "1"}, "field alpha of a problem should be"),
        ({"compute": "33F"}, "field compute of a problem should be one of 16F, 32F"),
        ({"epilogue": "softmax"}, "field epilogue of a problem should be one of none, bias"),
        ({"more": 1}, "a problem should have the fields m, n, k"),
        ({"a": {}}, "a should have the fields rows, columns"),
        ({"b": None}, "b should have the fields"),
        ({"c": {**PROBLEM.plain()["c"], "dtype": "bf16"}}, "field dtype of c should be one of float32"),
    ],
)
def test_what_is_no_problem_is_told_by_field(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        Problem.from_plain(PROBLEM.plain() | change)


@pytest.mark.parametrize(
    ("alpha", "beta", "kept"),
    [(1.0, 0.0, (1.0, 0.0)), (0.5, 0, (2.0, 0.0)), (-3, 1, (2.0, 1.0)), (1 + 0j, 0.5j, (1.0, 2.0)), (1, 7, (1.0, 2.0))],
)
def test_factors_of_other_values_share_a_choice(alpha: complex, beta: complex, kept: tuple[float, float]) -> None:
    found = representative(replace(PROBLEM, alpha=alpha, beta=beta))

    assert (found.alpha, found.beta) == kept
    assert all(type(factor) is float for factor in (found.alpha, found.beta))


@pytest.mark.parametrize("change", [{"n": 5}, {"alignment": 16}, {"compute": "16F"}, {"epilogue": "none"}])
def test_other_problems_do_not(change: dict[str, Any]) -> None:
    assert representative(replace(PROBLEM, **change)) != representative(PROBLEM)
