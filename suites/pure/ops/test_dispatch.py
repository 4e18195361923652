"""One call from arguments to kernel: places, forms, interposers, plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuassay import from_host, ops, to_host
from cuassay.errors import ArgumentError, DeviceError, DTypeError, SchemaError, ShapeError
from cuassay.ops import Call, interpose, registry
from cuassay.random import GeneratorState

ONES = np.ones(4, np.float32)


def test_a_result_is_new_and_of_the_promoted_dtype() -> None:
    result = ops.add(ONES, np.ones(4, np.int64))

    assert (result.dtype, result.tolist()) == (np.float64, [2.0] * 4)


def test_a_numpy_scalar_is_an_array_and_not_weak() -> None:
    assert ops.add(ONES, np.float64(1)).dtype == np.float64
    assert ops.add(ONES, 1.0).dtype == np.float32
    assert ops.add(np.float64(1), 2.0) == 3.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.add(1, 2), ArgumentError, "at least one array"),
        (lambda: ops.add([1.0], ONES), ArgumentError, "a is not an array of any known device kind; got builtins.list"),
        (lambda: ops.exp([1, 2]), ArgumentError, r"make one of it: numpy.asarray\(.*cuassay.from_host\("),
        (lambda: ops.matmul(ONES, 2.0), ArgumentError, "b is not an array"),
        (lambda: ops.add(ONES, from_host(ONES, "sim")), DeviceError, "a is on cpu:0, b on sim:0"),
        (lambda: ops.add(from_host(ONES, "sim"), from_host(ONES, "sim:1")), DeviceError, "sim:0, b on sim:1"),
        (lambda: ops.add(ONES, ONES, out=from_host(ONES, "sim")), DeviceError, "out must be on cpu:0"),
        (lambda: from_host(ONES, "simm"), DeviceError, "no device kind 'simm' .did you mean 'sim'"),
        (lambda: ops.add(ONES, ONES, out=[1]), DeviceError, "out must be on cpu:0"),
        (lambda: ops.add(ONES, ONES, out=np.ones(5, np.float32)), ShapeError, r"shape \(4,\); got \(5,\)"),
        (lambda: ops.add(ONES, ONES, out=np.ones(4)), DTypeError, "out must be float32; got float64"),
        (lambda: ops.add(ONES, ONES, out=np.ones(4, np.int32)), DTypeError, "out must be float32; got int32"),
        (lambda: ops.add(*[from_host(ONES, "sim")] * 2, out=from_host(ONES, "sim:1")), DeviceError, "be on sim:0"),
        (lambda: ops.softmax.inplace(ONES), SchemaError, "softmax is not elementwise"),
        (lambda: ops.add.inplace(2.0, ONES), DeviceError, "out must be on cpu:0"),
        (lambda: ops.add.inplace(ONES[:1], ONES), ShapeError, r"out must have shape \(4,\)"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_served_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_arrays_on_two_devices_are_refused_also_where_their_dtypes_were_met_before() -> None:
    here, there = from_host(ONES, "sim:0"), from_host(ONES, "sim:1")
    ops.add(here, here)

    with pytest.raises(DeviceError, match="a is on sim:0, b on sim:1"):
        ops.add(here, there)


def test_a_list_of_no_arrays_is_refused_also_where_the_dtypes_of_the_first_were_met_before() -> None:
    ops.foreach_add_([ONES.copy()], [ONES])

    with pytest.raises(ArgumentError, match=r"b\[0\] is not an array of any known device kind; got builtins.list"):
        ops.foreach_add_([ONES.copy()], [[1.0] * 4])


def test_an_out_that_is_an_input_is_in_place() -> None:
    a = np.arange(4, dtype=np.float32)

    assert ops.add(a, a, out=a) is a
    assert a.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("view", [slice(1, None), slice(None, None, -1)], ids=["shifted", "reversed"])
def test_an_out_that_overlaps_an_input_otherwise_is_refused(view: slice) -> None:
    base = np.arange(5, dtype=np.float32)
    a = base[:-1] if view.step is None else base

    with pytest.raises(ArgumentError, match="shares memory with a"):
        ops.exp(a, out=base[view])


def test_a_reduction_into_its_own_input_is_refused() -> None:
    a = np.ones((4, 4), np.float32)

    with pytest.raises(ArgumentError, match="shares memory with a"):
        ops.softmax(a, out=a)


def test_what_is_dropped_may_be_dropped_in_place() -> None:
    a = np.ones(100, np.float32)

    assert ops.dropout.inplace(a, state=GeneratorState(1), p=0.5) is a
    assert set(a.tolist()) == {0.0, 2.0}


def test_the_operand_that_an_out_would_spoil_is_named() -> None:
    a, b = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)

    with pytest.raises(ArgumentError, match="out shares memory with b"):
        ops.matmul(a, b, out=b)


@pytest.mark.parametrize("target", ["cpu", "sim:0", "sim:1"])
@pytest.mark.parametrize("source", ["cpu", "sim:0"])
def test_a_copy_goes_to_any_device(source: str, target: str) -> None:
    copied = ops.copy(from_host(ONES, source), device=target)

    assert to_host(copied).tolist() == ONES.tolist()
    assert ops.copy(copied, device="cpu").tolist() == ONES.tolist()


def test_a_copy_into_an_out_elsewhere_writes_it() -> None:
    out = from_host(np.zeros(4, np.float32), "sim")

    assert ops.copy(ONES, out=out) is out
    assert to_host(out).tolist() == ONES.tolist()


def test_a_copy_to_two_places_is_refused() -> None:
    with pytest.raises(ArgumentError, match="got device sim:1 and an out on sim:0"):
        ops.copy(ONES, device="sim:1", out=from_host(ONES, "sim:0"))


# ------------------------------------------------------------------------------------------------ shortcuts


@pytest.fixture
def shortcut(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a shortcut of `add` for NumPy's arrays was asked; it serves only sums of an array with itself."""
    asked: list[tuple[Any, ...]] = []

    def serve(operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        asked.append((*operands, out))
        return "served" if operands[0] is operands[-1] else NotImplemented

    monkeypatch.setitem(ops.add.shortcuts, np.ndarray, (serve,))
    return asked


def test_a_shortcut_is_tried_first_and_may_decline(shortcut: list[tuple[Any, ...]]) -> None:
    a, out = ONES.copy(), ONES.copy()

    assert ops.add(a, a) == "served"
    assert ops.add(a, ONES, out=out) is out
    assert (out == 2).all()
    assert [len(call) for call in shortcut] == [3, 3]
    assert shortcut[1][2] is out


def test_a_shortcut_is_not_asked_for_other_types_nor_where_a_call_is_explained(shortcut: list[tuple[Any, ...]]) -> None:
    ops.add(1.0, ONES)
    ops.add(from_host(ONES, "sim"), 1.0)
    ops.explain(lambda: ops.add(ONES, ONES))

    assert shortcut == []


def test_a_shortcut_is_asked_for_the_call_that_the_last_interposer_passes_on(shortcut: list[tuple[Any, ...]]) -> None:
    seen: list[str] = []

    def doubled(call: Call, proceed: Callable[[Call], Any]) -> Any:
        seen.append(call.op.name)
        assert shortcut == []
        return proceed(Call(call.op, {"a": ONES + ONES, "b": call.arguments["b"]}, call.out))

    with interpose(doubled):
        result = ops.add(ONES, 1.0)

    assert seen == ["add"]
    assert [args[0].tolist() for args in shortcut] == [(ONES + ONES).tolist()]
    assert result.tolist() == (ONES + ONES + 1).tolist()


def test_a_call_is_watched_until_neither_an_interposer_nor_an_explanation_is_left() -> None:
    seen: list[str] = []

    def interposed() -> None:
        with interpose(_noting(seen, "it")):
            ops.add(ONES, ONES)
        ops.add(ONES, ONES)

    with interpose(_noting(seen, "outer")):
        ops.explain(interposed)
        ops.add(ONES, ONES)
    ops.explain(interposed)

    assert seen == ["outer:add", "it:add", "outer:add", "outer:add", "it:add"]


# ------------------------------------------------------------------------------------------------ interposers


def _noting(seen: list[str], name: str) -> Callable[..., Any]:
    def interposer(call: Call, proceed: Callable[[Call], Any]) -> Any:
        seen.append(f"{name}:{call.op.name}")
        return proceed(call)

    return interposer


def test_interposers_see_a_call_outermost_first() -> None:
    seen: list[str] = []
    with interpose(_noting(seen, "outer")), interpose(_noting(seen, "inner")):
        ops.add(ONES, ONES)

    ops.add(ONES, ONES)
    assert seen == ["outer:add", "inner:add"]


def test_an_interposer_may_change_the_call() -> None:
    def narrowed(call: Call, proceed: Callable[[Call], Any]) -> Any:
        arguments = {name: value.astype(np.float16) for name, value in call.arguments.items()}
        return proceed(Call(call.op, arguments, call.out))

    with interpose(narrowed):
        assert ops.add(ONES, ONES).dtype == np.float16


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ops.Op]:
    """An op without a kernel, declared for one test."""
    monkeypatch.setattr(registry, "_ops", dict(registry._ops))
    yield ops.declare(
        "test_square_plus(a, b) -> out",
        shape=lambda bound: bound["a"].shape,
        dtypes=("float32",),
        op_class="elementwise",
        composite=lambda a, b: ops.add(ops.mul(a, a), b),
        parts=("mul", "add"),
    )
    registry.routes.clear()


def test_the_parts_of_a_composition_are_not_interposed_on_again(composed: ops.Op) -> None:
    seen: list[str] = []
    with interpose(_noting(seen, "x")):
        composed(ONES, ONES)

    assert seen == ["x:test_square_plus"]


def test_what_an_interposer_sets_for_the_call_itself_sees_none_of_its_parts(composed: ops.Op) -> None:
    seen: list[str] = []

    def setting(call: Call, proceed: Callable[[Call], Any]) -> Any:
        with interpose(_noting(seen, "late")):
            return proceed(call)

    with interpose(setting):
        composed(ONES, ONES)

    assert seen == []


def test_a_call_made_by_an_interposer_passes_the_inner_ones_only() -> None:
    seen: list[str] = []

    def outer(call: Call, proceed: Callable[[Call], Any]) -> Any:
        ops.exp(ONES)
        return proceed(call)

    with interpose(outer), interpose(_noting(seen, "inner")):
        ops.add(ONES, ONES)

    assert seen == ["inner:exp", "inner:add"]


def test_an_interposer_that_raises_is_gone_after_the_block() -> None:
    def failing(call: Call, proceed: Callable[[Call], Any]) -> Any:
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"), interpose(failing):
        ops.add(ONES, ONES)

    assert ops.add(ONES, ONES)[0] == 2


def test_interposers_are_of_one_thread() -> None:
    seen: list[str] = []
    with interpose(_noting(seen, "x")):
        thread = threading.Thread(target=lambda: ops.add(ONES, ONES))
        thread.start()
        thread.join()

    assert seen == []


# ------------------------------------------------------------------------------------------------ plans


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_plan_computes_on_what_its_arrays_hold_now(device: str) -> None:
    a, b = from_host(ONES, device), from_host(ONES, device)
    plan = ops.add.prepare(a, b)

    ops.copy(from_host(ONES * 3, device), out=a)

    assert to_host(plan.run()).tolist() == [4.0] * 4
    assert repr(plan) == f"Plan(add, float32, {device}:0)"


def test_a_plan_writes_the_out_it_was_given() -> None:
    out = np.empty(4, np.float32)

    assert ops.add.prepare(ONES, ONES, out=out).run() is out


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_plan_across_kinds_moves_the_numbers(device: str) -> None:
    target = "sim" if device == "cpu" else "cpu"

    plan = ops.copy.prepare(from_host(ONES, device), device=target)

    assert to_host(plan.run()).tolist() == ONES.tolist()
    assert str(plan.device) == f"{target}:0"
    assert to_host(ops.add(plan.out, from_host(ONES, target))).tolist() == [2.0] * 4


def test_a_plan_that_keeps_nothing_is_prepared_again_with_new_arguments() -> None:
    plan = ops.add.prepare(ONES, ONES)

    again = plan.rebind(b=3 * ONES)

    assert again.run().tolist() == [4.0] * 4
    assert again.out is plan.out


def test_a_plan_that_was_rebound_knows_its_new_arguments() -> None:
    plan = replace(ops.add.prepare(ONES, ONES), renew=lambda changed: lambda: None)

    again = plan.rebind(a=2 * ONES).rebind(b=3 * ONES)

    assert {name: array.tolist() for name, array in again.bound.items()} == {"a": [2.0] * 4, "b": [3.0] * 4}


def test_a_number_on_the_device_is_no_array_of_an_empty_list() -> None:
    with pytest.raises(ArgumentError, match=r"foreach_mul_ needs at least one array in a; got an empty list"):
        ops.foreach_mul_([], np.ones(1, np.float32))
