"""An op with several outputs: a named tuple, ``out=``, plans, meta, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

from cuassay import empty, from_host, ops, to_host
from cuassay.errors import ArgumentError, DeviceError, DTypeError, SchemaError, ShapeError
from cuassay.ops import Call, Meta, interpose, registry
from cuassay.ops.catalog import declare
from cuassay.ops.decompositions import LAPACK

A = np.array([[3.0, 1.0], [1.0, 3.0]])

KINDS = ("cpu", "sim")


def outs(kind: str = "cpu", **changed: Any) -> tuple[Any, ...]:
    """What `eigh` of `A` can be written to."""
    shapes = {"w": ((2,), "float64"), "v": ((2, 2), "float64"), "info": ((), "int32")} | changed
    return tuple(empty(shape, dtype, kind) for shape, dtype in shapes.values())


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_names_and_places(kind: str) -> None:
    found = ops.eigh(from_host(A, kind))
    w, v, info = found

    assert type(found).__name__ == "eigh"
    assert found._fields == ops.eigh.schema.outputs == ("w", "v", "info")
    assert (found.w is w, found.v is v, found.info is info) == (True, True, True)
    np.testing.assert_allclose(to_host(w), [2.0, 4.0])
    np.testing.assert_allclose(to_host(v) * to_host(w) @ to_host(v).T, A, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_out_is_written_and_given_back(kind: str) -> None:
    given = outs(kind)
    found = ops.eigh(from_host(A, kind), out=given)

    assert all(one is other for one, other in zip(found, given, strict=True))
    np.testing.assert_allclose(to_host(given[0]), [2.0, 4.0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_writes_its_outputs_again(kind: str) -> None:
    a = from_host(A, kind)
    plan = ops.eigh.prepare(a)
    a[...] = 2 * a
    found = plan.run()

    assert found is plan.out
    np.testing.assert_allclose(to_host(found.w), [4.0, 8.0])


def test_meta_describes_each() -> None:
    assert ops.svd.meta(((5, 4, 3), "complex64")) == (
        Meta((5, 4, 3), np.dtype("complex64")),
        Meta((5, 3), np.dtype("float32")),
        Meta((5, 3, 3), np.dtype("complex64")),
        Meta((5,), np.dtype("int32")),
    )
    assert ops.qr.meta(((4, 3), "float64")).q == Meta((4, 3), np.dtype("float64"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_interposer_sees_one_call_and_gives_its_result(kind: str) -> None:
    seen: list[Call] = []

    def watch(call: Call, proceed: Callable[[Call], Any]) -> Any:
        seen.append(call)
        return proceed(call)

    with interpose(watch):
        found = ops.qr(from_host(A, kind))

    assert [call.op.name for call in seen] == ["qr"]
    assert found._fields == ("q", "r")


SHARED = np.empty((2, 2))


@pytest.mark.parametrize(
    ("out", "error", "match"),
    [
        (np.empty(2), ArgumentError, "eigh has the outputs w, v, info; got out=.*; give a tuple of 3 arrays"),
        (outs()[:2], ArgumentError, "give a tuple of 3 arrays"),
        (outs(w=((3,), "float64")), ShapeError, r"out\[0\] \(w\) must have shape \(2,\); got \(3,\); omit out="),
        (outs(info=((), "int64")), DTypeError, r"out\[2\] \(info\) must be int32; got int64"),
        (outs("sim"), DeviceError, r"out\[0\] \(w\) must be on cpu:0"),
        ((SHARED[0], SHARED, np.empty((), np.int32)), ArgumentError, "has w and v in one memory"),
        ((np.empty(2), A, np.empty((), np.int32)), ArgumentError, r"out\[1\] \(v\) shares memory with a"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(out: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ops.eigh(A, out=out)


def test_an_out_that_is_read_only_is_refused() -> None:
    given = outs()
    given[1].flags.writeable = False

    with pytest.raises(ArgumentError, match=r"eigh's out\[1\] \(v\) is read-only; got \(2, 2\) float64; give"):
        ops.eigh(A, out=given)


def test_a_dtype_of_each_output_follows_from_the_promotion() -> None:
    found = ops.lstsq(np.eye(3, dtype=np.complex64), np.ones((3, 1)))

    assert [one.dtype for one in found] == ["complex128", "float64", "int32", "float64", "int32"]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops and kernels that a test declares are gone after it."""
    monkeypatch.setattr(registry, "_ops", dict(registry._ops))
    monkeypatch.setattr(registry, "_implementations", dict(registry._implementations))


def halves(**changed: Any) -> Any:
    """An elementwise op: the numbers below 0, and those above."""
    fields = {
        "shape": lambda bound: (bound["a"].shape,) * 2, "dtypes": LAPACK[:2], "op_class": "elementwise",
        "result": lambda dtype: (dtype, dtype),
    } | changed  # fmt: skip
    return declare("halves(a) -> low, high", **fields)


def split(a: Any, low: Any, high: Any) -> None:
    np.minimum(a, 0, out=low)
    np.maximum(a, 0, out=high)


def implemented() -> Any:
    op = halves()
    registry.implement("halves", kind="cpu", dtypes=LAPACK[:2])(split)
    return op


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("place", [0, 1])
def test_an_output_of_an_elementwise_op_cannot_take_the_place_of_an_input(place: int) -> None:
    a = np.array([-1.0, 2.0])
    out = [np.empty(2), np.empty(2)]
    out[place] = a

    with pytest.raises(ArgumentError, match=rf"halves's out\[{place}\] .* shares memory with a"):
        implemented()(a, out=tuple(out))

    assert a.tolist() == [-1.0, 2.0]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("kind", [*KINDS, "meta"])
def test_an_elementwise_op_has_several_outputs_on_each_kind(kind: str) -> None:
    a = from_host(np.array([-1.0, 2.0]), kind)
    out = tuple(empty((2,), "float64", kind) for _ in range(2))
    op = implemented()
    found, again = op(a), op(a, out=out)

    assert all(one is other for one, other in zip(again, out, strict=True))
    assert [(one.shape, one.dtype) for one in found] == [((2,), "float64")] * 2
    if kind != "meta":
        assert [to_host(one).tolist() for one in (*found, *again)] == [[-1.0, 0.0], [0.0, 2.0]] * 2


def sent(value: Any) -> Any:
    """What another process would get: `value` pickled and restored."""
    receiver, sender = Pipe(duplex=False)
    with receiver, sender:
        sender.send(value)
        return receiver.recv()


@pytest.mark.parametrize("restored", [sent, copy.copy, copy.deepcopy])
def test_a_result_is_pickled_and_copied(restored: Callable[[Any], Any]) -> None:
    found = ops.qr(A)
    again = restored(found)

    assert type(again) is type(found)
    np.testing.assert_array_equal(again.q, found.q)
    np.testing.assert_array_equal(again.r, found.r)
    assert type(found).__module__ == "cuassay.ops"


def test_a_description_of_several_outputs_is_pickled() -> None:
    found = ops.qr.meta(A)

    assert sent(found) == found


@pytest.mark.usefixtures("own")
def test_a_result_of_an_op_of_ones_own_is_pickled() -> None:
    found = sent(implemented()(np.array([-1.0, 2.0])))

    assert (found._fields, found.low.tolist(), found.high.tolist()) == (("low", "high"), [-1.0, 0.0], [0.0, 2.0])


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"result": lambda dtype: dtype}, r"halves's result= must give a dtype for each of low, high; got dtype\('"),
        (
            {"result": lambda dtype: (dtype,)},
            "result= must give a dtype for each of low, high; .*; return a tuple of 2",
        ),
        ({"view_of": "a"}, "halves has several outputs and view_of='a'"),
        ({"accumulates": "a"}, "halves has several outputs and accumulates='a'"),
        ({"out_dtype_from": "a"}, "halves has several outputs and out_dtype_from='a'"),
    ],
)
def test_a_field_that_does_not_fit_several_outputs_is_refused_when_declared(changed: Any, match: str) -> None:
    with pytest.raises(SchemaError, match=match):
        halves(**changed)


@pytest.mark.usefixtures("own")
def test_a_declaration_without_result_is_refused() -> None:
    with pytest.raises(SchemaError, match="plain's result= must give a dtype for each of low, high"):
        declare("plain(a) -> low, high", shape=lambda bound: ((), ()), dtypes=LAPACK, op_class="storage")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["class", "1st"])
def test_a_name_that_a_named_tuple_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match=f"'{name}' cannot name an op with several outputs"):
        declare(
            f"{name}(a) -> low, high", shape=lambda bound: ((), ()), dtypes=LAPACK, op_class="storage",
            result=lambda dtype: (dtype, dtype),
        )  # fmt: skip


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("found", [(2, 2), ((2, 2),), ((2,), (2,), (2,))], ids=["one shape", "too few", "too many"])
def test_a_shape_rule_that_does_not_give_each_shape_is_refused(found: Any) -> None:
    op = halves(shape=lambda bound: found)
    match = "halves's shape rule must give a shape for each of low, high; got .*; return a tuple of 2"

    with pytest.raises(SchemaError, match=match):
        op.meta(A)
    with pytest.raises(SchemaError, match=match):
        op(A)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"composite": lambda a: (a, a)}, "has several outputs and a composite"),
        ({"derivative": {"a": lambda grad, forward: grad}}, "write a cuassay.autograd.Function"),
    ],
    ids=["composite", "derivative"],
)
def test_what_several_outputs_do_not_have_is_refused_when_declared(
    more: Any, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_ops", dict(registry._ops))
    name = f"halves_with_{next(iter(more))}"

    with pytest.raises(SchemaError, match=match):
        declare(
            f"{name}(a) -> low, high", shape=lambda bound: (bound["a"].shape,) * 2, dtypes=LAPACK,
            op_class="storage", result=lambda dtype: (dtype, dtype), **more,
        )  # fmt: skip
