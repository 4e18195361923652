"""The registry: what serves a call, what exists, and what is said when nothing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import devices, ops
from cuassay.errors import DeviceError, KernelNotFoundError, SchemaError
from cuassay.ops import registry

devices.backend("cpu"), devices.backend("sim")  # their kernels register when they load


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(SchemaError, match="'add' exists already"):
        ops.declare("add(a) -> out", shape=lambda bound: (), dtypes=("float32",), op_class="storage")


@pytest.mark.parametrize(
    ("name", "kind", "dtype", "message"),
    [
        ("adds", "cpu", "float32", "no op is named 'adds'; declare it with cuassay.ops.declare"),
        ("add", "cpu", "bool", "not defined for bool"),
        ("add", "cpu", "float32", "implemented twice"),
    ],
)
def test_a_kernel_that_cannot_be_registered_is_refused(name: str, kind: str, dtype: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        registry.implement(name, kind=kind, dtypes=(dtype,))(lambda *arrays, out: None)


def test_a_refused_registration_registers_nothing() -> None:
    with pytest.raises(SchemaError):
        registry.implement("add", kind="warp", dtypes=("float32", "bool"))(lambda *arrays, out: None)

    assert registry.dtypes(ops.add, "warp") == ()


def test_a_missing_kernel_says_what_exists() -> None:
    error = registry.not_found(ops.relu, "warp", np.dtype(np.float32))

    assert isinstance(error, KernelNotFoundError)
    assert "relu has no kernel for float32 on warp; warp has it for no dtype" in str(error)
    told = str(error)
    assert "of the loaded kinds, " in told
    assert "cpu, sim" in told


def test_a_fallback_supports_what_the_kind_behind_it_does() -> None:
    assert registry.dtypes(ops.add, "sim") == registry.dtypes(ops.add, "cpu") == ops.add.schema.dtypes


def test_a_composition_runs_where_its_parts_do(declare: Any) -> None:
    squared = declare(
        "test_square_plus(a, b) -> out", composite=lambda a, b: ops.add(ops.mul(a, a), b), parts=("mul", "add")
    )

    assert registry.find(squared, "cpu", np.dtype(np.float32)) is None
    assert registry.dtypes(squared, "cpu") == ("float32",)
    assert squared(np.full(2, 3.0, np.float32), np.ones(2, np.float32)).tolist() == [10.0, 10.0]
    on_sim = squared(devices.from_host(np.full(2, 3.0, np.float32), "sim"), devices.from_host(np.ones(2, "f4"), "sim"))
    assert devices.to_host(on_sim).tolist() == [10.0, 10.0]


def test_a_composition_needs_all_of_its_parts_and_is_named_where_one_lacks(declare: Any) -> None:
    declare("test_whole(a) -> out")
    both = declare(
        "test_both(a) -> out", composite=lambda a: registry.op("test_whole")(ops.add(a, a)), parts=("add", "test_whole")
    )

    assert registry.dtypes(both, "cpu") == ()
    with pytest.raises(KernelNotFoundError, match="test_both has no kernel for float32 on cpu"):
        both(np.ones(2, np.float32))


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(DeviceError, match="no device kind 'warp'"):
        registry.backend("warp")


@pytest.mark.parametrize("thing", [object, list, str, float])
def test_what_is_no_array_has_no_backend(thing: type) -> None:
    assert registry.backend_of(thing) is None


@pytest.mark.parametrize(("array_type", "kind"), [(np.ndarray, "cpu"), (np.float32, "cpu"), (np.memmap, "cpu")])
def test_an_array_type_finds_its_kind(array_type: type, kind: str) -> None:
    found = registry.backend_of(array_type)

    assert found is not None
    assert found.kind == kind


def test_a_substituted_kernel_serves_inside_the_block_only() -> None:
    a = np.ones(3, np.float32)

    def doubled(kernel: Any) -> Any:
        return lambda x, y, *, out: (kernel(x, y, out=out), np.multiply(out, 2, out=out))

    with registry.substituted("add", kind="cpu", wrap=doubled):
        inside = ops.add(a, a)

    assert (inside[0], ops.add(a, a)[0]) == (4, 2)


def test_a_call_resolved_before_a_kernel_was_replaced_is_resolved_again() -> None:
    a, seen = np.ones(3, np.float32), []

    def spied(kernel: Any) -> Any:
        return lambda x, y, *, out: (seen.append("spied"), kernel(x, y, out=out))

    ops.add(a, a)
    with registry.substituted("add", kind="cpu", wrap=spied):
        ops.add(a, a)
        ops.add(a, a)
    ops.add(a, a)

    assert seen == ["spied", "spied"]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Declares ops for one test, without a kernel."""
    for table in ("_ops", "_implementations", "_fallbacks", "_backends", "_kind_of_type"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    rule = {"shape": lambda bound: bound["a"].shape, "dtypes": ("float32",), "op_class": "elementwise"}
    yield lambda signature, **more: ops.declare(signature, **rule, **more)
    monkeypatch.undo()
    registry.register_backend(devices.backend("cpu"))  # what was resolved meanwhile is forgotten


def test_an_elementwise_op_of_ones_own_keeps_channels_last(declare: Any) -> None:
    same = declare("test_same(a) -> out")
    registry.implement("test_same", kind="cpu", dtypes=("float32",))(lambda a, *, out: np.copyto(out, a))
    images = np.ones((2, 4, 5, 3), np.float32).transpose(0, 3, 1, 2)

    assert same(images).strides == images.strides


@pytest.fixture
def halve(declare: Any) -> Any:
    return declare("test_halve(a) -> out")


def test_a_kernel_of_its_own_comes_before_the_fallback(halve: Any) -> None:
    array = devices.from_host(np.full(2, 3.0, np.float32), "sim")

    @registry.implement("test_halve", kind="sim", dtypes=("float32",))
    def halved(a: Any, *, out: Any) -> None:
        np.divide(a, 2, out=out)

    assert devices.to_host(halve(array)).tolist() == [1.5, 1.5]


def test_a_kernel_registered_after_a_refused_call_serves_the_next(halve: Any) -> None:
    a = np.ones(3, np.float32)
    with pytest.raises(KernelNotFoundError):
        halve(a)

    registry.implement("test_halve", kind="cpu", dtypes=("float32",))(lambda a, *, out: np.multiply(a, 0.5, out=out))

    assert halve(a).tolist() == [0.5] * 3


def test_a_fallback_registered_after_a_refused_call_serves_the_next(halve: Any) -> None:
    a = np.ones(3, np.float32)
    with pytest.raises(KernelNotFoundError):
        halve(a)

    registry.register_fallback("cpu", lambda op, bound, dtype, out: out.fill(7), like="sim")

    assert halve(a).tolist() == [7] * 3


def test_a_backend_registered_later_takes_over_its_arrays(halve: Any) -> None:
    a = np.ones(3, np.float32)
    registry.implement("test_halve", kind="cpu", dtypes=("float32",))(lambda a, *, out: out.fill(0))
    registry.implement("test_halve", kind="other", dtypes=("float32",))(lambda a, *, out: out.fill(9))
    halve(a)

    other = type("Other", (type(devices.backend("cpu")),), {"kind": "other"})()
    registry._backends.clear()
    registry.register_backend(other)

    assert halve(a).tolist() == [9] * 3


class Prepared:
    """A kernel that offers plans, and counts how often it is called without one."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, a: Any, *, out: Any) -> None:
        self.calls += 1
        np.multiply(a, 0.5, out=out)

    def prepare(self, op: Any, bound: Any, out: Any) -> Any:
        return lambda: np.multiply(bound["a"], 0.5, out=out)


def test_a_kernel_that_offers_plans_is_not_called_by_one(halve: Any) -> None:
    kernel = registry.implement("test_halve", kind="cpu", dtypes=("float32",))(Prepared())
    plan = halve.prepare(np.ones(3, np.float32))

    results = [plan.run().tolist(), halve(np.ones(3, np.float32)).tolist()]

    assert results == [[0.5] * 3] * 2
    assert kernel.calls == 1


def test_a_plan_made_where_a_kernel_is_replaced_runs_the_replacement(halve: Any) -> None:
    registry.implement("test_halve", kind="cpu", dtypes=("float32",))(Prepared())
    with registry.substituted("test_halve", kind="cpu", wrap=lambda kernel: lambda a, *, out: out.fill(3)):
        plan = halve.prepare(np.ones(3, np.float32))

    assert plan.run().tolist() == [3] * 3
