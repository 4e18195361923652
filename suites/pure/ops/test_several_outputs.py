"""An op with several outputs: a named tuple, ``out=``, plans, meta, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
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
        (outs(w=((3,), "float64")), ShapeError, r"must have shape \(2,\); got \(3,\)"),
        (outs(info=((), "int64")), DTypeError, "must be int32; got int64"),
        (outs("sim"), DeviceError, "must be on cpu:0"),
        ((SHARED[0], SHARED, np.empty((), np.int32)), ArgumentError, "has w and v in one memory"),
        ((np.empty(2), A, np.empty((), np.int32)), ArgumentError, "shares memory with a"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(out: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ops.eigh(A, out=out)


def test_an_out_that_is_read_only_is_refused() -> None:
    given = outs()
    given[1].flags.writeable = False

    with pytest.raises(ArgumentError, match="eigh's out is read-only"):
        ops.eigh(A, out=given)


def test_a_dtype_of_each_output_follows_from_the_promotion() -> None:
    found = ops.lstsq(np.eye(3, dtype=np.complex64), np.ones((3, 1)))

    assert [one.dtype for one in found] == ["complex128", "float64", "int32", "float64", "int32"]


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
