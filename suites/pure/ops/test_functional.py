"""The functional form of an op that writes its arguments: its schema, its results, what it refuses, who sees it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import empty, from_host, ops
from cuassay.autograd import grad
from cuassay.errors import ArgumentError, DeviceError, DTypeError, SchemaError, ShapeError
from cuassay.ops import Call, Formula, Meta, interpose, registry, rules
from cuassay.testing import OpSpec
from cuassay.testing.samples import Sample

ONES = np.ones(3, np.float32)
added = ops.foreach_add_.functional
updated = ops.update_scale_.functional


def numbers() -> list[Any]:
    """A loss scale, its inverse, the tracker and the flag."""
    return [np.float32(4).reshape(()), np.float32(0.25).reshape(()), np.zeros((), np.int32), np.ones((), np.float32)]


def test_the_schema_reads_all_and_gives_what_the_op_writes() -> None:
    assert repr(added) == "Op('foreach_add_.functional(a: arrays, b?: arrays, *, alpha=1) -> a')"
    assert updated.schema.outputs == ("scale", "inv_scale", "growth_tracker", "found_inf")
    assert not updated.schema.written
    assert updated.dtypes("cpu") == ops.update_scale_.dtypes("cpu")


def test_it_is_made_once_and_is_not_listed() -> None:
    assert ops.foreach_add_.functional is added
    assert added.functional is added
    assert ops.add.functional is ops.add
    assert added not in registry.ops()
    assert not registry.is_declared(added.name)


def test_several_results_have_names_and_are_copied_and_pickled() -> None:
    found = updated(*numbers())
    again = copy.copy(found)  # by the function that restores a pickled one

    assert found._fields == updated.schema.outputs
    assert [float(one) for one in found] == [2.0, 0.5, 0.0, 0.0]
    assert (type(again), again) == (type(found), found)


def test_what_is_omitted_is_none() -> None:
    found = ops.global_norm_.functional([ONES], np.zeros((), np.float32))

    assert found.norm == pytest.approx(3**0.5)
    assert found.found_inf is None


def test_an_array_may_be_strided_and_be_given_twice() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    column = rows[:, 1]

    first, second = added([column, column], 1.0)

    assert first.tolist() == second.tolist() == [2.0, 6.0, 10.0]
    assert rows.ravel().tolist() == list(range(12))


def test_a_plan_copies_again() -> None:
    a = ONES.copy()
    plan = added.prepare([a], 1.0)
    assert plan.run()[0].tolist() == [2.0] * 3
    a[...] = 5

    assert plan.run()[0].tolist() == [6.0] * 3
    assert a.tolist() == [5.0] * 3


def test_meta_describes_each_result() -> None:
    assert added.meta([((2, 3), "float32"), ONES], 1.0) == [Meta((2, 3), ONES.dtype), Meta((3,), ONES.dtype)]
    assert updated.meta(*numbers()).growth_tracker == Meta((), np.dtype("int32"))


def test_arrays_without_memory_have_results_and_take_out() -> None:
    a, out = [empty((2, 3), "float32", "meta")], [empty((2, 3), "float32", "meta")]

    assert [(one.shape, one.dtype) for one in added(a, 1.0)] == [((2, 3), np.float32)]
    assert added(a, 1.0, out=out) is out


def test_an_interposer_sees_one_call() -> None:
    seen: list[Call] = []

    def watch(call: Call, proceed: Callable[[Call], Any]) -> Any:
        seen.append(call)
        return proceed(call)

    with interpose(watch):
        (found,) = added([ONES], 1.0)

    assert ([call.op for call in seen], found.tolist()) == ([added], [2.0] * 3)


def test_explain_shows_the_copies_and_the_op() -> None:
    lines = str(ops.explain(lambda: added([ONES], 1.0))).splitlines()

    assert [line.split("(")[0] for line in lines[:3]] == ["foreach_add_.functional", "  copy", "  foreach_add_"]


TWICE = np.zeros(3, np.float32)
FIXED = np.zeros(3, np.float32)
FIXED.flags.writeable = False


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: added(ONES, 1.0), ArgumentError, "a must be a list of arrays"),
        (lambda: added([ONES], "one"), ArgumentError, "b is not an array|give a list of arrays, a real number"),
        (lambda: added([ONES], [ONES[:2]]), ShapeError, r"b\[0\] must have the shape of a\[0\]"),
        (lambda: added([ONES], 1.0, out=ONES.copy()), ArgumentError, "out for a must be a list of 1; got"),
        (lambda: added([ONES], 1.0, out=[]), ArgumentError, "out for a must be a list of 1; got"),
        (lambda: added([ONES], 1.0, out=[np.ones(2, np.float32)]), ShapeError, r"out for a\[0\] must have shape"),
        (lambda: added([ONES], 1.0, out=[np.ones(3)]), DTypeError, r"out for a\[0\] must be float32; got float64"),
        (lambda: added([ONES], 1.0, out=[from_host(ONES, "sim")]), DeviceError, r"out for a\[0\] must be on cpu:0"),
        (lambda: added([ONES], 1.0, out=[ONES]), ArgumentError, r"out for a\[0\] shares memory with a\[0\]"),
        (lambda: added([ONES] * 2, 1.0, out=[TWICE] * 2), ArgumentError, "out has two arrays in one memory"),
        (lambda: added([ONES] * 2, 1.0, out=[TWICE, FIXED]), ArgumentError, r"writes a\[1\], which is read-only"),
        (lambda: updated(*numbers(), out=numbers()[:3]), ArgumentError, "gives scale, .*; give a tuple with one of"),
        (lambda: ops.global_norm_.functional([ONES], out=(TWICE, None)), ArgumentError, "out for norm must be None"),
        (lambda: ops.foreach_zero_.inplace([ONES]), SchemaError, "writes its arguments itself; call it, or foreach_ze"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()

    assert ONES.tolist() == [1.0] * 3
    assert not TWICE.any()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops, kernels and rules that a test declares are gone after it."""
    for module, table in ((registry, "_ops"), (registry, "_implementations"), (rules, "_derivatives")):
        monkeypatch.setattr(module, table, dict(getattr(module, table)))


def scaling(signature: str = "scale_(a!, b) ->", **more: Any) -> Any:
    """An op that writes one array, not a list of them."""
    op = ops.declare(signature, shape=lambda bound: (), dtypes=("float64",), op_class="elementwise", **more)

    @ops.implement(op.name, kind="cpu", dtypes=("float64",))
    def _(a: Any, b: Any) -> None:
        a *= b

    return op


@pytest.mark.usefixtures("own")
def test_an_op_of_ones_own_has_the_form_and_its_derivative() -> None:
    op = scaling(derivative={"a": Formula(lambda g, f: ops.mul(g, f.b), ("b",))})
    a, b = np.array([1.0, 2.0]), np.array([3.0, 5.0])

    assert op.functional(a, b).tolist() == [3.0, 10.0]
    assert grad(lambda a: ops.sum(op.functional(a, b)))(a).tolist() == [3.0, 5.0]
    assert a.tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("own")
def test_a_spec_may_be_of_the_form() -> None:
    op = scaling()
    spec = OpSpec(op=op.functional, reference=lambda a, b: a * b, samples=lambda make: [Sample((make(3), make(3)))])
    (sample,) = spec.draw(0, "float64")

    np.testing.assert_array_equal(spec.run("cpu", *sample.on("cpu")), spec.expected(sample))


@pytest.mark.usefixtures("own")
def test_an_op_that_also_makes_an_array_has_no_functional_form() -> None:
    op = ops.declare("push_(a!, b) -> out", shape=lambda bound: (), dtypes=("float64",), op_class="storage")

    with pytest.raises(SchemaError, match="push_ makes an array and also writes its parameters"):
        op.functional  # noqa: B018


@pytest.mark.usefixtures("own")
def test_a_formula_of_several_written_parameters_is_refused() -> None:
    with pytest.raises(SchemaError, match="swap_ writes several parameters, and a formula gets the gradient of one"):
        scaling("swap_(a!, b!) ->", derivative={"a": lambda grad, forward: grad})
