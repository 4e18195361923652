"""What has no derivative is an error that names the op, the line and what to do; sim finds races of gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import autograd, devices, from_host, jit, ops, to_host
from cuassay.autograd import grad, gradcheck, stop_gradient, vjp
from cuassay.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    MissingNameError,
    RaceError,
    SchemaError,
    ShapeError,
)
from cuassay.ops import Formula, registry, rules, shapes
from cuassay.ops.derivatives import DERIVATIVES
from cuassay.testing.own_specs import own_specs

SIM = devices.backend("sim")


@pytest.fixture
def x() -> Any:
    return from_host(np.array([0.5, 1.0, 2.0]), "sim:0")


def overwritten(x: Any) -> Any:
    buffer = from_host(np.ones(3), "sim:0")
    product = x * buffer
    ops.copy(from_host(np.zeros(3), "sim:0"), out=buffer)
    return ops.sum(product)


def written_over_an_operand(x: Any) -> Any:
    buffer = from_host(np.ones(3), "sim:0")
    return ops.sum(ops.mul(x, buffer, out=buffer))


def grouped(matrix: Any) -> Any:
    product = ops.grouped_mm(from_host(np.ones((2, 1)), "sim:0"), matrix.reshape(1, 1, 3), offs=[2])
    return product * product


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.exp(x), r"numpy.exp of a traced array, at test_gradient_errors.py:\d+, .* call an op of"),
        (lambda x: np.concatenate([x, x]), "numpy.concatenate of a traced array"),
        (lambda x: np.asarray(x), "numpy.asarray of a traced array"),
        (lambda x: float(ops.sum(x)), r"float of a traced array, .*stop_gradient"),
        (lambda x: 1 if x > 1 else 0, r"x > y .write x >= y .* or cuassay.ops.logical_not.x <= y.. of a traced"),
        (lambda x: 1 if ops.sum(x) else 0, "bool of a traced array"),
        (lambda x: x.__setitem__(0, 1.0), r"x\[\.\.\.\] = value .write cuassay.ops.where. of a traced array"),
        (lambda x: x == 1.0, "write cuassay.ops.equal"),
        (lambda x: x.__cupy_override_elementwise_kernel__(None, x), "a function of CuPy of a traced array"),
        (lambda x: to_host(x), "is a traced array of a function that is differentiated"),
        (lambda x: x[[0, 1]], "takes whole numbers, slices, None and ...; got"),
        (lambda x: ops.foreach_norm([x]), r"foreach_norm, called at .*: it takes a list; of each array write"),
        (lambda x: ops.foreach_zero_([x]), "foreach_zero_, called at .*, would write a.0., a traced array, in place"),
        (written_over_an_operand, r"mul, called at .*, would write out over its b, which its derivative"),
        (lambda x: ops.relu.inplace(x), "relu, called at .*, would write out, a traced array, in place"),
        (overwritten, r"copy, called at .*:\d+, would write out over an array that the derivative of mul, called at"),
        (lambda x: ops.sum(grad(lambda y: ops.sum(grouped(y)))(x)), "grouped_mm has no second derivative by its"),
        (lambda x: ops.det(x.reshape(1, 3).T * x), "det, called at .*: call cuassay.linalg.det, which has"),
        (lambda x: ops.inv(x), "inv, called at .*: it has several outputs; call the function of its name in"),
        (lambda x: ops.inv(np.eye(3), out=(x, x)), "inv, called at .*, would write out, a traced array, in place"),
    ],
)  # fmt: skip
def test_what_has_no_derivative_says_where_and_what_to_do(x: Any, function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(GradientError, match=message):
        grad(function)(x)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("sum", r"call cuassay.ops.sum\(x\)"), ("cumsum_", "call an op of cuassay.ops instead")],
)
def test_a_method_that_a_traced_array_lacks_is_named_with_the_op(x: Any, name: str, advice: str) -> None:
    with pytest.raises(MissingNameError, match=f"has no attribute '{name}'; {advice}"):
        grad(lambda x: getattr(x, name)())(x)


def test_a_body_with_several_results_says_that_it_has_no_derivative(x: Any) -> None:
    body = jit.elementwise("template <typename T> void both(T x, T& a, T& b) { a = x; b = x; }")
    with pytest.raises(GradientError, match="both has no derivative, because its body has 2 results"):
        grad(lambda x: ops.sum(body(x)[0]))(x)


def test_a_traced_array_that_has_left_its_function_is_refused(x: Any) -> None:
    kept = []
    grad(lambda x: kept.append(x) or ops.sum(x))(x)

    with pytest.raises(GradientError, match="exp's a is a traced array"):
        ops.exp(kept[0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: grad(lambda x: x)(x), ShapeError, r"shape \(3,\) and float64; .* return ops.sum"),
        (lambda x: grad(lambda x: 1.0)(x), GradientError, "gave 1.0; a gradient is that of an array"),
        (lambda x: grad(ops.sum)(from_host(np.arange(3), "sim:0")), DTypeError, "by an array of int64 is not defined"),
        (lambda x: grad(ops.sum, 1)(x), ArgumentError, "argnums names argument 1 of a call with 1"),
        (lambda x: grad(ops.sum)("x"), ArgumentError, "holds 'x', which is not an array"),
        (lambda x: vjp(ops.exp, x)[1](x[:2]), ShapeError, r"of shapes \(3,\); got"),
        (lambda x: gradcheck(ops.exp, x), ArgumentError, "takes a sequence of arguments"),
        (lambda x: gradcheck(ops.exp, (1.0,)), ArgumentError, "got none among the arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    x: Any, call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(x)


def test_an_array_that_no_formula_reads_may_be_written(x: Any) -> None:
    buffer = from_host(np.ones(3), "sim:0")

    def function(x: Any) -> Any:
        total = x + buffer
        ops.copy(from_host(np.zeros(3), "sim:0"), out=buffer)
        return ops.sum(total)

    assert to_host(grad(function)(x)).tolist() == [1.0, 1.0, 1.0]


def test_gradients_used_on_a_stream_that_does_not_wait_are_a_race(x: Any) -> None:
    side, main = SIM.new_stream(0), SIM.current_stream(0)
    side.wait_stream(main)
    with SIM.use_stream(side):
        found = grad(lambda x: ops.sum(x * x))(x)

    with pytest.raises(RaceError):
        ops.mul(found, 2.0)

    main.wait_stream(side)
    assert to_host(ops.mul(found, 2.0)).tolist() == [2.0, 4.0, 8.0]


def test_the_backward_pass_waits_where_streams_meet(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    side, main = SIM.new_stream(0), SIM.current_stream(0)

    def function(x: Any) -> Any:
        side.wait_stream(main)
        with SIM.use_stream(side):
            left = ops.exp(x)
        main.wait_stream(side)
        return ops.sum(left * x)

    value, pull = vjp(function, x)
    monkeypatch.setattr(type(side), "wait_stream", lambda self, stream: None)
    with pytest.raises(RaceError):
        pull(value)
    monkeypatch.undo()
    SIM.synchronize(0)

    assert to_host(pull(value)[0]).shape == (3,)


def test_a_wrong_derivative_is_found_by_its_element() -> None:
    former = rules.derivative_of("tanh")
    rules.register(ops.tanh.schema, {"a": lambda grad, forward: ops.mul(grad, forward.out)})
    try:
        with pytest.raises(GradientError, match=r"argument 0 is wrong at \(0,\): got 0.52\d*, differences .* 0.89"):
            gradcheck(ops.tanh, (np.array([0.5]),))
    finally:
        rules.register(ops.tanh.schema, former)


@pytest.mark.parametrize(
    ("derivative", "message"),
    [
        ({"b": lambda grad, forward: grad}, "names 'b'; it is a mapping from its arrays, a"),
        ({"a": 2.0}, "is 2.0; write a function"),
        ({"a": Formula(lambda grad, forward: grad, ("scale",))}, "reads scale; it may read a and out"),
        (lambda grad, forward: grad, "is a mapping from its arrays, a, to formulas"),
    ],
)
def test_a_derivative_that_does_not_fit_its_op_is_refused(derivative: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        rules.register(ops.exp.schema, derivative)


def test_every_declared_op_has_a_derivative_or_a_reason() -> None:
    known = {op.name for op in registry.ops() if op.name in ops.catalog.__all__}

    assert set(DERIVATIVES) == known
    assert all(not isinstance(one, str) or len(one) > 20 for one in DERIVATIVES.values())


def test_every_op_with_a_formula_is_tested_for_it() -> None:
    tested = {spec.name for spec in own_specs() if spec.supports_grad}
    formulas = {name for name, one in DERIVATIVES.items() if not isinstance(one, str) and one}
    written = {"foreach_add_", "foreach_mul_", "foreach_lerp_", "foreach_copy_"}

    assert tested == formulas - written  # those are tested in suites/devices/ops/test_functional_forms.py


def test_every_public_name_says_what_it_does() -> None:
    assert all(getattr(autograd, name).__doc__ for name in autograd.__all__)


def test_the_rule_of_an_op_of_ones_own_is_used(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, table in ((registry, "_ops"), (registry, "_implementations"), (rules, "_derivatives")):
        monkeypatch.setattr(module, table, dict(getattr(module, table)))
    cube = ops.declare(
        "cube(a) -> out",
        shape=shapes.same("a"),
        dtypes=("float64",),
        op_class="elementwise",
        derivative={"a": lambda grad, forward: ops.mul(grad, ops.mul(ops.mul(forward.a, forward.a), 3.0))},
    )
    ops.implement("cube", kind="cpu", dtypes=("float64",))(lambda a, *, out: np.power(a, 3, out=out))

    gradcheck(cube, (x,))


def test_an_op_of_ones_own_without_a_rule_says_how_to_declare_one(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, table in ((registry, "_ops"), (registry, "_implementations"), (rules, "_derivatives")):
        monkeypatch.setattr(module, table, dict(getattr(module, table)))
    halved = ops.declare("halved(a) -> out", shape=shapes.same("a"), dtypes=("float64",), op_class="elementwise")

    with pytest.raises(
        GradientError,
        match=r"halved, called at test_gradient_errors.py:\d+, has no derivative: no rule is written for it; declare",
    ):
        grad(lambda x: ops.sum(halved(x)))(x)


def test_a_formula_that_reads_an_unknown_name_is_told_what_there_is(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, table in ((registry, "_ops"), (registry, "_implementations"), (rules, "_derivatives")):
        monkeypatch.setattr(module, table, dict(getattr(module, table)))
    rule = {"a": lambda grad, forward: ops.mul(grad, forward.b)}
    same = ops.declare(
        "same(a) -> out", shape=shapes.same("a"), dtypes=("float64",), op_class="elementwise", derivative=rule
    )
    ops.implement("same", kind="cpu", dtypes=("float64",))(lambda a, *, out: np.copyto(out, a))

    with pytest.raises(AttributeError, match="the call has no 'b'; it has a, out"):
        grad(lambda x: ops.sum(same(x)))(x)


def test_an_error_names_the_line_of_the_call_in_a_function_that_another_one_calls() -> None:
    lines: list[int] = []

    def inner(x: Any) -> Any:
        lines.append(sys._getframe().f_lineno + 1)
        return ops.mul(x, x)

    def outer(x: Any) -> Any:
        y = inner(x)
        ops.copy(np.zeros(3), out=stop_gradient(x))
        return ops.sum(y)

    with pytest.raises(GradientError, match="would write out over an array") as caught:
        grad(outer)(np.ones(3))
    assert f"the derivative of mul, called at test_gradient_errors.py:{lines[0]}," in str(caught.value)
