"""Launch plans of the kernel tier: arithmetic over shapes and nothing else, each refusal in words."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.errors import ArgumentError
from cuassay.judging.expressions import ArrayFacts, Expression
from cuassay.judging.plan import parse_plan

NAMES = {"in0": ArrayFacts((6, 10, 5), 4), "out0": ArrayFacts((6,), 8), "axis": 1, "k": -3}

VALUES = {
    "7": 7,
    "in0[0]": 6,
    "in0[-1]": 5,
    "in0[axis]": 10,
    "in0.size": 300,
    "in0.nbytes + out0.itemsize": 1208,
    "in0.ndim": 3,
    "(in0.size + 255) // 256": 2,
    "ceil_div(in0.size, 256)": 2,
    "min(in0[0], 4) * max(in0[1], 20)": 80,
    "-k % 2": 1,
    "1 << 10 >> 2": 256,
    "in0[2] if in0[0] < in0[1] else 0": 5,
}


@pytest.mark.parametrize("text", VALUES)
def test_expression_has_its_value(text: str) -> None:
    assert Expression(text).value(NAMES) == VALUES[text]


def test_whole_number_is_an_expression() -> None:
    assert Expression(256).value({}) == 256


REFUSED = {
    "__import__('os').system('true')": "calls|Attribute|not arithmetic|for an array",
    "in0.shape": "there are size, ndim, itemsize, nbytes",
    "in0.__class__": "there are size",
    "in0": "needs whole numbers",
    "in0[3]": "has no value",
    "in0[0:1]": "has Slice",
    "[1, 2]": "has List",
    "lambda: 1": "has Lambda",
    "x + 1": "names 'x'; there are in0, out0, axis, k",
    "axis[0]": "takes axis for an array",
    "1 // 0": "has no value",
    "1.5": "needs whole numbers",
    "'a' * 9": "needs whole numbers",
    "True + 1": "needs whole numbers",
    "2 ** 9": "has Pow",
    "(1 << 62) * 2": "exceeds 64 bits",
    "1 << 63": "shifts by 63",
    "1 << k": "shifts by -3",
    "min(1)": "of two numbers",
    "1 < 2": "needs a number",
    "1 if 2 else 3": "needs one comparison",
    "1 +": "is not an expression",
    "(" * 150: "is not an expression",
    "1" * 201: "at most 200 characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match=REFUSED[text]):
        Expression(text).value(NAMES)


@pytest.mark.parametrize("text", [None, True, 1.5, [], {}])
def test_other_types_are_refused(text: Any) -> None:
    with pytest.raises(ArgumentError, match="whole numbers and expressions"):
        Expression(text)


@given(st.text("in0[]().size+-*/%<> 19,axkminceil_dv", max_size=40))
def test_any_text_gives_a_number_or_is_refused(text: str) -> None:
    with contextlib.suppress(ArgumentError):
        assert Expression(text).value(NAMES).bit_length() < 64


PLAN: dict[str, Any] = {
    "outputs": [{"shape": ["in0[0]", 2], "dtype": "in0"}],
    "scratch": ["4 * in0.size"],
    "options": ["--use_fast_math", "-DTILE=32"],
    "launches": [
        {
            "kernel": "sums<{in0}, 4>",
            "grid": ["in0[0]", 1],
            "block": 256,
            "arguments": ["in0", "out0", "scratch0", {"int64": "in0[1]"}, {"float32": "eps"}, {"float64": 0.5}],
        }
    ],
}


def test_plan_is_read() -> None:
    plan = parse_plan(json.dumps(PLAN))

    (step,) = plan.launches
    assert step.kernel_for({"in0": "bfloat16"}) == "sums<__nv_bfloat16, 4>"
    assert [one.value(NAMES) for one in (*step.grid, *step.block, step.shared)] == [6, 1, 256, 0]
    assert step.arguments[0] == "in0"
    assert [what[0] for what in step.arguments[3:]] == ["int64", "float32", "float64"]
    assert plan.options == ("--use_fast_math", "-DTILE=32")


def changed(**fields: Any) -> str:
    return json.dumps({**PLAN, **fields})


def launch(**fields: Any) -> str:
    return changed(launches=[{**PLAN["launches"][0], **fields}])


BAD = {
    "not JSON": ("{", "is not JSON"),
    "a list": ("[]", r"launch\.json has outputs, launches"),
    "no launches": (changed(launches=[]), "launches is a list of 1 to 64"),
    "another field": (changed(host="system('true')"), "'host'"),
    "output": (changed(outputs=[{"shape": [1]}]), "an output has shape, dtype"),
    "dtype": (changed(outputs=[{"shape": [1], "dtype": "float31"}]), "'float31'"),
    "folder for headers": (changed(options=["-I/etc"]), "the compiler is not told '-I/etc'"),
    "file before": (changed(options=["--pre-include=/etc/passwd"]), "the compiler is not told"),
    "two options in one": (changed(options=["-DA=1 --pre-include=x"]), "the compiler is not told"),
    "kernel's name": (launch(kernel="f(); system"), "as C\\+\\+ spells it"),
    "four dimensions": (launch(grid=[1, 1, 1, 1]), "grid has one to three numbers"),
    "argument": (launch(arguments=["argv"]), "an argument is an array"),
    "argument of two": (launch(arguments=[{"int32": 1, "int64": 2}]), "an argument is an array"),
    "pointer": (launch(arguments=[{"void*": 0}]), "an argument is an array"),
    "expression": (launch(shared="open('x')"), "has no value|calls"),
}


@pytest.mark.parametrize(("text", "why"), BAD.values(), ids=BAD)
def test_bad_plan_is_refused(text: str, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        parse_plan(text).launches[0].shared.value(NAMES)


def test_kernel_of_an_array_that_is_not_there_is_refused() -> None:
    step = parse_plan(launch(kernel="f<{in7}>")).launches[0]

    with pytest.raises(ArgumentError, match="names 'in7'; there are in0"):
        step.kernel_for({"in0": "float32"})
