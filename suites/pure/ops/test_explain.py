"""The way of a call in words; ops that are not deterministic; outputs whose dtype a scalar names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import from_host, ops
from cuassay.core import determinism
from cuassay.errors import CapabilityError, DTypeError
from cuassay.ops import explain, registry
from cuassay.ops.explain import Step, note, within

ONES = np.ones(4, np.float32)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test declares, it declares for itself."""
    for table in ("_ops", "_implementations"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    yield
    registry.routes.clear()


def declared(signature: str, **more: Any) -> ops.Op:
    rule = {"shape": lambda bound: bound["a"].shape, "dtypes": ("float32",), "op_class": "elementwise"}
    return ops.declare(signature, **{**rule, **more})


def test_each_op_is_a_step_with_its_arguments_and_its_place() -> None:
    found = explain(lambda: ops.add(ONES, 2.0))

    assert str(found) == "add(a (4,) float32, b 2.0) on cpu:0"
    assert found.result.tolist() == [3.0] * 4


def test_a_call_as_an_interposer_sees_it_is_explained_too() -> None:
    found = explain(ops.Call(ops.exp, {"a": from_host(ONES, "sim")}))

    assert found.steps[0] == Step(0, "exp(a (4,) float32) on sim:0")


def test_a_call_explained_within_another_is_told_apart() -> None:
    inner = []

    def call() -> None:
        with within("outer"):
            inner.append(explain(lambda: note("inner")))
            ops.copy(ONES)
            note("last")

    outer = explain(call)

    assert str(inner[0]) == "inner"
    assert str(outer).splitlines() == ["outer", "  copy(a (4,) float32, memory_format 'preserve') on cpu:0", "  last"]


def test_steps_below_a_step_are_indented() -> None:
    def call() -> None:
        with within("linear"):
            with within("addmm"):
                note("gemm")
            note("add")

        note("last")

    assert str(explain(call)).splitlines() == ["linear", "  addmm", "    gemm", "  add", "last"]


def test_a_call_that_fails_leaves_nothing_behind() -> None:
    with pytest.raises(DTypeError):
        explain(lambda: ops.relu(np.ones(2, np.uint8)))

    note("nobody asks")
    assert explain(lambda: None).steps == []


@pytest.mark.usefixtures("tables")
def test_an_op_that_is_not_deterministic_is_refused_where_that_is_asked_for() -> None:
    scatter = declared("test_scatter(a) -> out", deterministic=False)

    @registry.implement("test_scatter", kind="cpu", dtypes=("float32",))
    def run(a: Any, *, out: Any) -> None:
        out[...] = a

    plan = scatter.prepare(ONES)
    assert scatter(ONES).tolist() == ONES.tolist()
    determinism.use_deterministic_algorithms(mode=True)
    try:
        for call in (lambda: scatter(ONES), lambda: scatter.prepare(ONES), plan.run):
            with pytest.raises(CapabilityError, match="test_scatter does not have a deterministic implementation"):
                call()
        assert ops.add(ONES, ONES).tolist() == [2.0] * 4
    finally:
        determinism.use_deterministic_algorithms(mode=False)


@pytest.mark.usefixtures("tables")
def test_a_scalar_may_name_the_outputs_dtype() -> None:
    cast = declared("test_cast(a, *, to=None) -> out", out_dtype_from="to")
    registry.implement("test_cast", kind="cpu", dtypes=("float32",))(
        lambda a, *, to, out: np.copyto(out, a, casting="same_kind")
    )

    assert [cast(ONES, to=to).dtype for to in (None, "float64", np.float32)] == [np.float32, np.float64, np.float32]
    assert cast.meta(ONES, to="float16").dtype == np.float16
    with pytest.raises(DTypeError, match="out must be float64"):
        cast(ONES, to="float64", out=np.empty(4, np.float32))
    with pytest.raises(DTypeError, match="'float12' is not a dtype"):
        cast(ONES, to="float12")
