"""Every public function against a table of bad values: only our errors, in three parts, and nothing is written.

The table and the rule stand in ``bad_values``, the good calls that are changed in ``bad_calls``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from bad_calls import (
    MODULES,
    NOT_CALLED,
    answer,
    files_land_elsewhere,  # noqa: F401  a fixture for every test here, as the two others
    functions,
    hangs_are_ended,  # noqa: F401
    offences,
    op_call,
    parameters,
    required,
    state_restored,  # noqa: F401
    told,
)
from bad_values import BAD

import cuassay
from cuassay import Device, devices, from_host, ops
from cuassay.errors import ArgumentError, DTypeError
from cuassay.ops import Op
from cuassay.ops.arguments import output_shape

pytestmark = pytest.mark.filterwarnings("ignore")


def _positions() -> Iterator[Any]:
    for path, function in functions():
        for name in parameters(function):
            yield pytest.param(function, name, id=f"{path}-{name}")


def _op_positions(form: str = "") -> Iterator[Any]:
    for op in ops.ops():
        for param in op.schema.params:
            if form in ("", param.form):
                yield pytest.param(op, param.name, id=f"{op.name}-{param.name}")
        if op.schema.outputs and not form:
            yield pytest.param(op, "out", id=f"{op.name}-out")


def _good(op: Op, device: Device) -> dict[str, Any]:
    found = op_call(op, device)
    if found is None:
        pytest.skip(f"{device} has no {op.name} of the sample's dtype")
    return found


@pytest.mark.parametrize(("function", "parameter"), list(_positions()))
def test_function_refuses_bad_value_and_writes_nothing(device: Device, function: Any, parameter: str) -> None:
    found = offences(function, lambda: required(function, device), parameter)

    assert not found, told(found)


@pytest.mark.parametrize(("op", "parameter"), list(_op_positions()))
def test_op_refuses_bad_value_and_writes_nothing(device: Device, op: Op, parameter: str) -> None:
    found = offences(op, lambda: _good(op, device), parameter)

    assert not found, told(found)


@pytest.mark.parametrize(("op", "parameter"), list(_op_positions("arrays")))
def test_bad_last_member_of_a_list_leaves_the_others_unwritten(device: Device, op: Op, parameter: str) -> None:
    found = {}
    for name, make in BAD.items():
        bound = _good(op, device)
        former = bound[parameter] if isinstance(bound[parameter], list | tuple) else []
        offence = answer(op, {**bound, parameter: [*former[:-1], make()]})
        if offence is not None:
            found[name] = offence

    assert not found, told(found)


# ------------------------------------------------------------------------------------------------ single faults


def test_read_only_member_is_found_before_any_is_written() -> None:
    a, b = np.ones(2), np.ones(2)
    b.setflags(write=False)

    with pytest.raises(ArgumentError, match=r"writes a\[1\], which is read-only"):
        ops.foreach_zero_([a, b])

    assert a.tolist() == [1.0, 1.0]


def test_one_array_in_place_of_a_list_is_refused(device: Device) -> None:
    a, b = (from_host(np.full((2, 3), value, np.float32), device) for value in (1, 2))

    with pytest.raises(ArgumentError, match=r"foreach_copy_'s a must be a list of arrays"):
        ops.foreach_copy_(a, [b, b])

    assert devices.to_host(a).tolist() == [[1.0] * 3] * 2


def test_plan_refuses_a_number_beyond_its_dtype(device: Device) -> None:
    a = from_host(np.ones(3, np.float32), device)

    with pytest.raises(ArgumentError, match="too large for add in float32"):
        ops.add.prepare(a, 10**400).run()


def test_plan_says_that_its_output_is_read_only() -> None:
    a, out = np.ones(3), np.ones(3)
    plan = ops.add.prepare(a, a, out=out)
    out.setflags(write=False)

    with pytest.raises(ArgumentError, match="add's out is read-only"):
        plan.run()


@pytest.mark.parametrize("name", ["decoupled", "maximize"])
def test_adam_with_an_array_for_a_switch_steps_nothing(device: Device, name: str) -> None:
    bound = {**_good(ops.fused_adam_, device), name: np.ones((2, 2), np.float32)}
    before = [devices.to_host(one).tobytes() for one in bound["params"]]

    with pytest.raises(ArgumentError, match=f"fused_adam_'s {name} is not a parameter for arrays"):
        ops.fused_adam_(**bound)

    assert [devices.to_host(one).tobytes() for one in bound["params"]] == before


def test_rebound_plan_refuses_a_number_beyond_its_dtype(device: Device) -> None:
    bound = _good(ops.foreach_mul_, device)
    plan = ops.foreach_mul_.prepare(bound["a"], 2.0)
    before = [devices.to_host(one).tobytes() for one in bound["a"]]

    with pytest.raises(ArgumentError):
        plan.rebind(b=10**400).run()

    assert [devices.to_host(one).tobytes() for one in bound["a"]] == before


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32"), "float32"], ids=repr)
def test_dtype_may_be_named_by_numpys_class(device: Device, dtype: Any) -> None:
    a = from_host(np.eye(2, dtype=np.float32), device)

    assert ops.mm(a, a, out_dtype=dtype).dtype == ops.cast(a, dtype=dtype).dtype == np.float32


def test_meta_of_something_else_than_an_array_is_refused() -> None:
    with pytest.raises(ArgumentError, match="meta takes arrays"):
        ops.add.meta("a", object())


@pytest.mark.parametrize("nest", [lambda one: one, lambda one: [one, one]], ids=["alone", "in a list"])
def test_from_host_refuses_a_masked_array_by_name(device: Device, nest: Any) -> None:
    with pytest.raises(ArgumentError, match=r"MaskedArray: its mask would be ignored; give array.filled"):
        from_host(nest(np.ma.masked_array([1.0, 2.0], mask=[0, 1])), device)


def test_fault_of_a_shape_rule_is_not_blamed_on_the_arguments() -> None:
    def faulty(bound: Any) -> tuple[int, ...]:
        return tuple(bound["misspelt"])

    with pytest.raises(KeyError, match="misspelt"):
        output_shape(replace(ops.add.schema, shape=faulty), {"a": np.ones(2), "b": np.ones(2)})


@pytest.mark.parametrize("value", ["yes", None, 2], ids=str)
def test_switch_that_is_neither_true_nor_false_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"check_errors must be True or False; got .*; give one of the two"):
        cuassay.linalg.inv(np.eye(2, dtype=np.float32), check_errors=value)


def test_scale_that_is_not_a_floating_number_is_refused(device: Device) -> None:
    bound = _good(ops.scaled_mm, device)
    bound["scale_a"] = from_host(np.ones((1, 1), np.int32), device)

    with pytest.raises(DTypeError, match="scaled_mm's scale_a must be one of"):
        ops.scaled_mm(**bound)


def test_every_function_that_is_not_called_is_public() -> None:
    public = {f"{module}.{name}" for module in MODULES for name in import_module(module).__all__}

    assert set(NOT_CALLED) <= public
