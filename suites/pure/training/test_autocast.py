"""Autocast: which op computes in which dtype, on plain arrays of every kind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import devices, ops
from cuassay.amp import (
    Rule,
    autocast,
    clear_autocast_cache,
    custom_fwd,
    custom_rule,
    get_autocast_dtype,
    is_autocast_enabled,
    rule_of,
)
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.errors import ArgumentError, CapabilityError, DeviceError, DTypeError, StateError
from cuassay.ops.interposers import interposers


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, as_dtype(dtype))


def name_of(array: object) -> str:
    return dtype_name(array.dtype)


CALLS = {
    "mm": lambda dtype: ops.mm(ones(2, 3, dtype=dtype), ones(3, 4, dtype=dtype)),
    "bmm": lambda dtype: ops.bmm(ones(2, 2, 3, dtype=dtype), ones(2, 3, 4, dtype=dtype)),
    "matmul": lambda dtype: ops.matmul(ones(2, 3, dtype=dtype), ones(3, 4, dtype=dtype)),
    "addmm": lambda dtype: ops.addmm(ones(2, 4, dtype=dtype), ones(2, 3, dtype=dtype), ones(3, 4, dtype=dtype)),
    "linear": lambda dtype: ops.linear(ones(2, 3, dtype=dtype), ones(4, 3, dtype=dtype), ones(4, dtype=dtype)),
    "exp": lambda dtype: ops.exp(ones(3, dtype=dtype)),
    "softmax": lambda dtype: ops.softmax(ones(3, dtype=dtype)),
    "sum": lambda dtype: ops.sum(ones(3, dtype=dtype)),
    "layer_norm": lambda dtype: ops.layer_norm(ones(2, 3, dtype=dtype), ones(3, dtype=dtype), ones(3, dtype=dtype)),
    "add": lambda dtype: ops.add(ones(3, dtype=dtype), ones(3, dtype=dtype)),
    "relu": lambda dtype: ops.relu(ones(3, dtype=dtype)),
}
LOWER = ("mm", "bmm", "matmul", "addmm", "linear")
FLOAT32 = ("exp", "softmax", "sum", "layer_norm")
LEFT_ALONE = ("add", "relu")


@pytest.mark.parametrize("given", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", LOWER)
def test_products_compute_in_the_lower_dtype(op: str, given: str) -> None:
    with autocast("cpu", "float16"):
        assert name_of(CALLS[op](given)) == "float16"


@pytest.mark.parametrize("given", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", FLOAT32)
def test_what_overflows_or_adds_up_computes_in_float32(op: str, given: str) -> None:
    with autocast("cpu"):
        assert name_of(CALLS[op](given)) == "float32"


@pytest.mark.parametrize("given", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", LEFT_ALONE)
def test_other_ops_run_in_the_dtype_they_get(op: str, given: str) -> None:
    with autocast("cpu"):
        assert name_of(CALLS[op](given)) == given


@pytest.mark.parametrize("op", [*LOWER, *FLOAT32])
def test_float64_is_never_touched(op: str) -> None:
    with autocast("cpu"):
        assert name_of(CALLS[op]("float64")) == "float64"


def test_a_bias_of_another_float_is_cast_too() -> None:
    with autocast("cpu", "bfloat16"):
        out = ops.linear(ones(2, 3, dtype="bfloat16"), ones(4, 3), ones(4, dtype="float16"))

    assert name_of(out) == "bfloat16"


def test_the_value_is_that_of_the_cast_operands() -> None:
    a = np.array([[1 + 2**-9]], np.float32)

    with autocast("cpu", "bfloat16"):
        assert float(ops.mm(a, a)[0, 0]) == 1.0


def test_a_call_with_out_is_left_alone() -> None:
    out = np.empty((2, 4), np.float32)

    with autocast("cpu"):
        assert ops.mm(ones(2, 3), ones(3, 4), out=out) is out

    assert out.tolist() == [[3.0] * 4] * 2


def test_the_inner_region_holds_and_the_outer_one_comes_back() -> None:
    with autocast("cpu", "bfloat16"):
        with autocast("cpu", enabled=False):
            assert name_of(CALLS["mm"]("float32")) == "float32"
            with autocast("cpu", "float16"):
                assert name_of(CALLS["mm"]("float32")) == "float16"
            assert not is_autocast_enabled("cpu")
        assert name_of(CALLS["mm"]("float32")) == "bfloat16"
    assert name_of(CALLS["mm"]("float32")) == "float32"


def test_a_region_speaks_of_one_kind() -> None:
    with autocast("sim"):
        assert name_of(CALLS["mm"]("float32")) == "float32"
        moved = devices.from_host(ones(2, 2), "sim")
        assert name_of(ops.mm(moved, moved)) == "float16"


def test_regions_of_two_kinds_hold_at_once() -> None:
    with autocast("sim"), autocast("cpu"):
        assert is_autocast_enabled("sim")
        assert is_autocast_enabled("cpu")


def test_behind_the_last_region_calls_pass_through_nothing() -> None:
    with autocast("cpu"), autocast("sim"):
        pass

    assert not interposers.stack


def test_it_is_a_decorator_too() -> None:
    @autocast("cpu")
    def step() -> Any:
        return CALLS["mm"]("float32")

    assert [name_of(step()), name_of(step())] == ["bfloat16"] * 2


def test_one_object_nests_in_itself() -> None:
    region = autocast("cpu")

    with region, region:
        assert is_autocast_enabled("cpu")
    assert not is_autocast_enabled("cpu")


def test_an_exception_leaves_the_region() -> None:
    with pytest.raises(ZeroDivisionError), autocast("cpu"):
        raise ZeroDivisionError

    assert name_of(CALLS["mm"]("float32")) == "float32"


def test_one_object_in_two_threads_leaves_each_as_it_was() -> None:
    region = autocast("cpu", "float16")
    inside, leave = threading.Event(), threading.Event()
    found = []

    def other() -> None:
        with region:
            inside.set()
            leave.wait()
        found.append((is_autocast_enabled("cpu"), interposers.stack))

    thread = threading.Thread(target=other)
    with autocast("cpu", "bfloat16"):
        with region:
            thread.start()
            inside.wait()
        assert get_autocast_dtype("cpu") == "bfloat16"
        assert name_of(CALLS["mm"]("float32")) == "bfloat16"
        leave.set()
        thread.join()

    assert found == [(False, ())]


def test_regions_left_out_of_order_leave_nothing_behind() -> None:
    first, second = autocast("cpu", "float16"), autocast("cpu", "bfloat16")
    first.__enter__()
    second.__enter__()

    first.__exit__(None, None, None)
    assert get_autocast_dtype("cpu") == "bfloat16"
    assert is_autocast_enabled("cpu")

    second.__exit__(None, None, None)
    assert not is_autocast_enabled("cpu")
    assert interposers.stack == ()


def test_leaving_what_was_not_entered_is_refused() -> None:
    with pytest.raises(StateError, match="is not open in this thread"):
        autocast("cpu").__exit__(None, None, None)


def test_a_device_stands_for_its_kind() -> None:
    with autocast("cpu:0", "float16"):
        assert is_autocast_enabled("cpu:0")
        assert get_autocast_dtype("cpu:0") == "float16"
        taken = custom_fwd(lambda a: name_of(a), device_type="cpu:0", cast_inputs="float64")(ones(2))
    assert taken == "float64"
    assert get_autocast_dtype("cpu:0") == "bfloat16"


@pytest.mark.parametrize(
    "ask",
    [is_autocast_enabled, get_autocast_dtype, lambda kind: custom_fwd(device_type=kind)],
    ids=["on", "dtype", "fwd"],
)
def test_a_kind_nobody_knows_is_refused(ask: Callable[..., Any]) -> None:
    with pytest.raises(DeviceError, match="knows no kind of device 'nosuch'"):
        ask("nosuch")


def test_another_thread_is_not_in_the_region() -> None:
    found = []

    def look() -> None:
        found.extend([name_of(CALLS["mm"]("float32")), is_autocast_enabled("cpu")])

    with autocast("cpu"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    assert found == ["float32", False]


@pytest.mark.parametrize(("kind", "dtype"), [("cpu", "bfloat16"), ("sim", "float16"), ("cuda", "float16")])
def test_each_kind_has_its_default(kind: str, dtype: str) -> None:
    assert get_autocast_dtype(kind) == dtype
    assert autocast(kind).dtype == dtype


def test_a_weight_is_cast_once_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, casts = ones(3, 4), count_casts(monkeypatch)

    with autocast("cpu", weights=[weight]):
        ops.mm(ones(2, 3), weight)
        ops.mm(ones(2, 3), weight)
    assert casts.count(id(weight)) == 1

    with autocast("cpu", weights=[weight]):
        ops.mm(ones(2, 3), weight)
    assert casts.count(id(weight)) == 2


def test_a_weight_of_the_outer_region_is_kept_in_the_inner_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, casts = ones(3, 4), count_casts(monkeypatch)

    with autocast("cpu", weights=[weight]), autocast("cpu"):
        ops.mm(ones(2, 3), weight)
        ops.mm(ones(2, 3), weight)

    assert casts.count(id(weight)) == 1


def test_the_end_of_an_inner_region_forgets_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, casts = ones(3, 4), count_casts(monkeypatch)

    with autocast("cpu", weights=[weight]):
        ops.mm(ones(2, 3), weight)
        with autocast("cpu"):
            pass
        ops.mm(ones(2, 3), weight)

    assert casts.count(id(weight)) == 1


def test_a_weight_is_cast_for_each_rule() -> None:
    weight = ones(3, 3).astype("float16")

    with autocast("cpu", "bfloat16", weights=[weight]):
        lowered = ops.mm(ones(3, 3), weight)
        raised = ops.exp(weight)

    assert [name_of(lowered), name_of(raised)] == ["bfloat16", "float32"]


def test_a_weight_is_cast_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = ones(3, 4)

    with autocast("cpu", "bfloat16", weights=[weight]):
        first = ops.mm(ones(2, 3), weight)
        with autocast("cpu", "float16"):
            second = ops.mm(ones(2, 3), weight)

    assert [name_of(first), name_of(second)] == ["bfloat16", "float16"]


def test_a_cache_that_is_off_is_off_in_inner_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, casts = ones(3, 4), count_casts(monkeypatch)

    with autocast("cpu", cache_enabled=False), autocast("cpu", weights=[weight]):
        ops.mm(ones(2, 3), weight)
        ops.mm(ones(2, 3), weight)

    assert casts.count(id(weight)) == 2


@pytest.mark.parametrize("options", [{}, {"weights": True, "cache_enabled": False}], ids=["unnamed", "cache off"])
def test_nothing_else_is_kept(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    weight, casts = ones(3, 4), count_casts(monkeypatch)
    if "weights" in options:
        options = {**options, "weights": [weight]}

    with autocast("cpu", **options):
        ops.mm(ones(2, 3), weight)
        ops.mm(ones(2, 3), weight)

    assert casts.count(id(weight)) == 2


def test_a_written_weight_is_seen_after_the_cache_is_cleared() -> None:
    weight = ones(1, 1)

    with autocast("cpu", weights=[weight]):
        ops.mm(ones(1, 1), weight)
        weight[...] = 2
        clear_autocast_cache()
        assert float(ops.mm(ones(1, 1), weight)[0, 0]) == 2.0


def test_a_replay_uses_the_weights_of_its_own_time(sim_backend: Any) -> None:
    weight, x = devices.from_host(ones(1, 1), "sim"), devices.from_host(ones(1, 1), "sim")

    with autocast("sim", weights=[weight]):
        ops.mm(x, weight)  # cast once, before the capture
        stream, capture = sim_backend.new_stream(0), sim_backend.new_capture(0)
        with sim_backend.use_stream(stream):
            sim_backend.synchronize(0)
            capture.begin()
            out = ops.mm(x, weight)
            capture.end()
            ops.copy(devices.from_host(3 * ones(1, 1), "sim"), out=weight)
            capture.replay()
    sim_backend.synchronize(0)

    assert devices.to_host(out).tolist() == [[3.0]]


def test_a_weight_cast_in_a_capture_is_not_read_outside_of_it(sim_backend: Any) -> None:
    weight, x = devices.from_host(3 * ones(1, 1), "sim"), devices.from_host(ones(1, 1), "sim")
    stream, capture = sim_backend.new_stream(0), sim_backend.new_capture(0)
    sim_backend.synchronize(0)

    with autocast("sim", weights=[weight]), sim_backend.use_stream(stream):
        capture.begin()
        ops.mm(x, weight)
        capture.end()
        out = ops.mm(x, weight)
        sim_backend.synchronize(0)

    assert devices.to_host(out).tolist() == [[3.0]]


@pytest.fixture
def sim_backend() -> Any:
    return devices.backend("sim")


def count_casts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    module, seen = sys.modules["cuassay.amp.autocast"], []
    cast = module.cast

    def counting(array: Any, *, dtype: str) -> Any:
        seen.append(id(array))
        return cast(array, dtype=dtype)

    monkeypatch.setattr(module, "cast", counting)
    return seen


@pytest.mark.parametrize(("op", "rule", "dtype"), [("relu", "float32", "float32"), ("exp", None, "float16")])
def test_an_op_can_be_given_a_rule(op: str, rule: str | None, dtype: str) -> None:
    former = rule_of(op)
    undo = custom_rule(op, rule)
    try:
        with autocast("cpu"):
            assert name_of(CALLS[op]("float16")) == dtype
    finally:
        undo()
    assert rule_of(op) is former


def test_the_widest_of_two_halves_is_float32() -> None:
    undo = custom_rule("add", Rule.WIDEST)
    try:
        with autocast("cpu"):
            assert name_of(ops.add(ones(2, dtype="float16"), ones(2, dtype="bfloat16"))) == "float32"
            assert name_of(ops.add(ones(2, dtype="float16"), ones(2, dtype="float16"))) == "float16"
    finally:
        undo()


def test_a_refused_op_says_what_to_do() -> None:
    undo = custom_rule("exp", "refused")
    try:
        with autocast("cpu"), pytest.raises(CapabilityError, match=r"exp is not safe under autocast.*enabled=False"):
            CALLS["exp"]("float16")
        assert name_of(CALLS["exp"]("float16")) == "float16"
    finally:
        undo()


def test_a_function_gets_its_inputs_cast_and_runs_without_autocast() -> None:
    @custom_fwd(device_type="cpu", cast_inputs="float32")
    def product(a: Any, b: Any) -> Any:
        return ops.mm(a, b)

    half = ones(2, 2, dtype="float16")

    with autocast("cpu"):
        assert name_of(product(half, half)) == "float32"
        assert name_of(product(a=half, b=half)) == "float32"
    assert name_of(product(half, half)) == "float16"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: autocast("warp"), DeviceError, "no kind of device 'warp'; give one of cpu"),
        (lambda: autocast("cpu", "float32"), ArgumentError, "lowers to"),
        (lambda: autocast("cpu", "int8"), ArgumentError, "lowers to"),
        (lambda: autocast("cpu", "half-ish"), DTypeError, "half-ish"),
        (lambda: custom_rule("frobnicate", "lower"), ArgumentError, "no op is named 'frobnicate'"),
        (lambda: custom_rule("relu", "smaller"), ArgumentError, "'lower', 'float32', 'widest', 'refused'"),
    ],
    ids=["kind", "wide", "integer", "no dtype", "no op", "no rule"],
)
def test_bad_input_is_refused(make: Callable[..., Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()
