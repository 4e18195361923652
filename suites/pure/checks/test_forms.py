"""Checks of the ways to call an op or a function: with `out=`, in place, as functional form, as a plan, and `meta`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.errors import ArgumentError, RaceError, ShapeError
from cuassay.ops import Op, outputs, registry
from cuassay.testing import OpSpec
from cuassay.testing.generated import forms
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.generated.forms import (
    _accepts,
    _check_out_is_input,
    _is_of_rows,
    _of_first_shape,
    _takes_out,
    _write_out,
    empty_out,
)
from cuassay.testing.samples import MARGIN, HostArray, Sample

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def of_exp(shape: Any = (3, 5), **fields: Any) -> OpSpec:
    return OpSpec(op=ops.exp, dtypes=("float32",), samples=lambda make: [make(shape)], reference=np.exp, **fields)


def of_zeros() -> OpSpec:
    """An op that writes its arguments."""
    return OpSpec(
        op=ops.foreach_zero_, dtypes=("float32",), samples=lambda make: [([make(4), make((2, 3))],)],
        reference=lambda arrays: np.zeros(sum(one.size for one in arrays)),
    )  # fmt: skip


def of_sum() -> OpSpec:
    return OpSpec(op=ops.sum, dtypes=("float32",), samples=lambda make: [make((3, 5))], reference=np.sum)


def of_several() -> Any:
    """What these checks ask of an op with several outputs."""
    return SimpleNamespace(op=ops.qr, declared=ops.qr, fn=None, deterministic=True)


# ------------------------------------------------------------------------------------------------ which take out=


class Unsigned:
    """A callable whose signature cannot be read."""

    __signature__ = "none"

    def __call__(self, xp: Any, a: Any, out: Any = None) -> Any:
        return a


def with_out(xp: Any, a: Any, out: Any = None) -> Any:
    result = a * 2
    if out is None:
        return result
    out[...] = result
    return out


@pytest.mark.parametrize(
    ("fn", "takes"),
    [
        (with_out, True),
        (lambda xp, a, *, out=None: a, True),
        (lambda xp, a: a, False),
        (lambda xp, a, out: a, False),
        (lambda xp, a, out="same": a, False),
        (Unsigned(), False),
        (None, False),
    ],
    ids=["by place", "by name", "without", "required", "another default", "no signature", "an op"],
)
def test_function_takes_out_if_it_is_none_by_default(fn: Any, takes: bool) -> None:
    spec: Any = SimpleNamespace(fn=fn)

    assert _takes_out(spec) is takes


@pytest.mark.parametrize(
    ("make", "applies"),
    [
        (of_exp, {"out": True, "out_refused": True, "inplace": True, "functional": False}),
        (of_sum, {"out": True, "out_refused": True, "inplace": False, "functional": False}),
        (of_several, {"out": False, "out_refused": False, "inplace": False, "functional": False}),
        (of_zeros, {"out": False, "out_refused": False, "inplace": False, "functional": True}),
    ],
)
def test_form_is_checked_for_the_ops_that_have_it(make: Any, applies: dict[str, bool]) -> None:
    spec = make()

    assert {check: REGISTERED[check].applies(spec) for check in applies} == applies


def test_function_has_no_functional_form_and_no_in_place_form() -> None:
    spec = OpSpec(fn=with_out, name="given")

    assert [REGISTERED[check].applies(spec) for check in ("functional", "inplace", "plan", "meta")] == [False] * 4


def test_functional_form_of_a_random_op_is_not_compared_with_another_call() -> None:
    schema = replace(ops.foreach_zero_.schema, deterministic=False)
    spec: Any = SimpleNamespace(op=SimpleNamespace(schema=schema), deterministic=False)

    assert not REGISTERED["functional"].applies(spec)


# ------------------------------------------------------------------------------------------------ out= of functions


def ignoring(xp: Any, a: Any, out: Any = None) -> Any:
    return a * 2


def in_two_steps(xp: Any, a: Any, out: Any = None) -> Any:
    """Reads `a` again after it has written the first step."""
    out = np.empty_like(a) if out is None else out
    np.add(a, 1, out=out)
    return np.add(out, a, out=out)


def into_flat(xp: Any, a: Any, out: Any = None) -> Any:
    out = np.empty_like(a) if out is None else out
    out.reshape(-1)[...] = (a * 2).reshape(-1)
    return out


def into_contiguous(xp: Any, a: Any, out: Any = None) -> Any:
    if out is not None and not out.flags.c_contiguous:
        raise RuntimeError("out is contiguous")
    return into_flat(xp, a, out)


def less_the_sum(xp: Any, a: Any, out: Any = None) -> Any:
    """Each row less its sum, which is computed again for each column."""
    out = np.empty_like(a) if out is None else out
    for column in range(a.shape[-1]):
        out[..., column] = a[..., column] - a.sum(-1)
    return out


def apart(xp: Any, a: Any, out: Any = None) -> Any:
    if out is a:
        raise ValueError("out is not a")
    return less_the_sum(xp, a, out)


def of_columns(xp: Any, a: Any, out: Any = None) -> Any:
    out = np.empty_like(a) if out is None else out
    for row in range(a.shape[0]):
        out[row] = a[row] - a.sum(0)
    return out


def into_two(xp: Any, a: Any, out: Any = None) -> Any:
    """Two results, for which no single array can be `out`."""
    one, other = (np.empty_like(a), np.empty_like(a)) if out is None else out
    one[...] = other[...] = a * 2
    return one, other


def doubled(a: Any) -> Any:
    return a * 2


@pytest.mark.parametrize(
    ("fn", "reference", "message"),
    [
        (with_out, doubled, None),
        (ignoring, doubled, "out= was given, but does not hold the result after the call"),
        (in_two_steps, lambda a: 2 * a + 1, "wrong where input 0 is also out=: is it written before all inputs are"),
        (into_flat, doubled, "a strided out= was given and not refused, but does not hold the result"),
        (into_contiguous, doubled, None),
        (less_the_sum, lambda a: a - a.sum(-1, keepdims=True), "wrong where input 0 is also out="),
        (apart, lambda a: a - a.sum(-1, keepdims=True), None),
        (of_columns, lambda a: a - a.sum(0), None),
        (into_two, lambda a: (a * 2, a * 2), None),
    ],
    ids=["right", "ignored", "two steps", "flat", "contiguous only", "rows", "rows refused", "columns", "two"],
)
def test_out_of_a_function_holds_the_result(fn: Any, reference: Any, message: str | None) -> None:
    spec = OpSpec(fn=fn, name="given", dtypes=("float32",), samples=lambda make: [make((3, 5))], reference=reference)

    if message is None:
        CHECKS["out"](spec, CPU, FLOAT32)
    else:
        with pytest.raises(AssertionError, match=message):
            CHECKS["out"](spec, CPU, FLOAT32)


def test_second_input_may_be_out_too() -> None:
    def difference(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
        """Writes `a` first, which is right where `out` is `a` but not where it is `b`."""
        out = np.empty_like(a) if out is None else out
        out[...] = a
        out -= b
        return out

    spec = OpSpec(
        fn=difference, name="given", dtypes=("float32",), samples=lambda make: [(make((3, 5)), make((3, 5)))],
        reference=lambda a, b: a - b,
    )  # fmt: skip

    with pytest.raises(AssertionError, match="wrong where input 1 is also out="):
        CHECKS["out"](spec, CPU, FLOAT32)


def test_input_of_another_dtype_than_the_result_is_not_given_as_out() -> None:
    def wide(xp: Any, a: Any, out: Any = None) -> Any:
        result = a.astype("float64") * 2
        if out is None:
            return result
        if out.dtype != result.dtype:
            raise TypeError("out is float64")
        out[...] = result
        return out

    CHECKS["out"](OpSpec(fn=wide, name="given", dtypes=("float32",), result_dtype="float64"), CPU, FLOAT32)


def test_samples_own_out_is_left_alone() -> None:
    samples = lambda make: [Sample((make(4),), {"out": None})]  # noqa: E731
    spec = OpSpec(fn=ignoring, name="given", dtypes=("float32",), samples=samples, reference=lambda a, out=None: a * 2)

    CHECKS["out"](spec, CPU, FLOAT32)


@pytest.mark.parametrize(
    ("reference", "shape", "expected"),
    [
        (lambda a: a - a.sum(-1, keepdims=True), (3, 5), True),
        (lambda a: a.cumsum(-1), (2, 5), True),
        (lambda a: a * np.nan, (3, 5), True),
        (lambda a: a.cumsum(0), (3, 5), False),
        (lambda a: a - a[0], (3, 5), False),
        (lambda a: a - a[-1], (3, 5), False),
        (lambda a: a * 2, (1, 5), False),
        (lambda a: a * 2, (5,), False),
        (lambda a: a[:, :, None] * a[:1], (3, 3), False),
    ],
    ids=["rows", "two rows", "NaN", "columns", "the first", "the last", "one row", "one axis", "another shape"],
)
def test_rows_of_the_result_depend_on_the_same_rows_of_the_input(reference: Any, shape: Any, expected: bool) -> None:
    spec = OpSpec(fn=lambda xp, a: reference(a), name="given", samples=lambda make: [make(shape)], reference=reference)
    sample = next(spec.draw(1, "float64"))

    assert _is_of_rows(spec, sample, spec.expected(sample)) is expected


def test_rows_that_the_reference_rejects_are_not_of_rows() -> None:
    def whole(a: Any) -> Any:
        if a.shape[0] < 3:
            raise RuntimeError("three rows")
        return a * 2

    spec = OpSpec(fn=lambda xp, a: a * 2, name="given", samples=lambda make: [make((3, 5))], reference=whole)
    sample = next(spec.draw(1, "float64"))

    assert not _is_of_rows(spec, sample, spec.expected(sample))


# ------------------------------------------------------------------------------------------------ out= of ops


@pytest.mark.parametrize("layout", ["contiguous", "strided", "reversed"])
@pytest.mark.parametrize("place", [None, MARGIN - 1, -MARGIN], ids=["right", "before", "behind"])
def test_write_around_out_is_found(layout: str, place: int | None) -> None:
    """`out` is a view of an array with a margin at both ends."""

    def writing(xp: Any, a: Any, out: Any = None) -> Any:
        out = with_out(xp, a, out)
        if place is not None and out.base is not None:
            memory = out
            while memory.base is not None:
                memory = memory.base
            memory.reshape(-1)[place] += 1
        return out

    spec = OpSpec(fn=writing, name="given", samples=lambda make: [make(6)], reference=doubled)
    sample, out = Sample((HostArray(np.arange(6, dtype=np.float32)),)), HostArray(np.ones(6, np.float32), layout)

    if place is None:
        _write_out(spec, CPU, FLOAT32, sample, out)
    else:
        with pytest.raises(AssertionError, match="differ"):
            _write_out(spec, CPU, FLOAT32, sample, out)


def test_another_array_than_out_is_found() -> None:
    sample = Sample((HostArray(np.arange(6, dtype=np.float32)),))
    fn = lambda xp, a, out=None: with_out(xp, a, out).copy()  # noqa: E731
    spec = OpSpec(fn=fn, name="given", samples=lambda make: [make(6)], reference=doubled)

    with pytest.raises(AssertionError, match="out= was given, but another array came back"):
        _write_out(spec, CPU, FLOAT32, sample, HostArray(np.ones(6, np.float32)))


def test_out_of_the_schemas_shape_and_dtype_is_made_of_ones() -> None:
    spec = OpSpec(op=ops.logical_not, samples=lambda make: [make((2, 3))], reference=np.logical_not)
    out = empty_out(spec, Sample((np.ones((2, 3), np.float32),)), "strided")

    assert (out.shape, out.dtype, out.layout, out.values.all()) == ((2, 3), np.dtype(bool), "strided", True)


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., bool]], None]:
    """Allows what `check_out` rejects, if a function of the output, the shape and the error says so."""

    def patch(is_allowed: Callable[..., bool]) -> None:
        def lenient(*args: Any, shape: Any, **fields: Any) -> None:
            try:
                outputs.check_out(*args, shape=shape, **fields)
            except Exception as error:
                if not is_allowed(args[3], shape, error):
                    raise

        monkeypatch.setattr("cuassay.ops.dispatch.check_out", lenient)

    return patch


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("shape", [(3, 5), (1,), (2,), ()], ids=str)
def test_op_that_rejects_each_wrong_out_passes(shape: tuple[int, ...], device: str) -> None:
    CHECKS["out_refused"](of_exp(shape), device, FLOAT32)


def test_out_of_twice_as_many_elements_is_rejected(allow: Any) -> None:
    """Memory that is allocated in powers of two may hold twice as much as was asked for."""
    allow(lambda out, shape, error: isinstance(error, ShapeError) and out.size <= 2 * np.prod(shape, dtype=int))

    with pytest.raises(AssertionError, match=r"ShapeError"):
        CHECKS["out_refused"](of_exp(), CPU, FLOAT32)


@pytest.mark.parametrize("shape", [(3,), (3, 5)], ids=str)
def test_out_that_shares_all_but_one_element_with_an_input_is_rejected(shape: Any, allow: Any) -> None:
    allow(lambda out, shape, error: "shares memory" in str(error))

    with pytest.raises(AssertionError, match=r"ArgumentError \('shares memory'\) was not raised"):
        CHECKS["out_refused"](of_exp(shape), CPU, FLOAT32)


@pytest.mark.parametrize(
    ("op", "reference", "samples"),
    [
        (ops.sum, lambda a: a.sum(), lambda make: [make((3, 5))]),
        (ops.logical_not, np.isnan, lambda make: [make((3, 5))]),
        (ops.cat, lambda arrays: np.concatenate(arrays), lambda make: [([make(3), make(4)],)]),
    ],
    ids=["another shape", "another dtype", "a list"],
)
def test_input_unlike_the_result_is_not_laid_over_it(op: Any, reference: Any, samples: Any, allow: Any) -> None:
    allow(lambda out, shape, error: "shares memory" in str(error))

    CHECKS["out_refused"](OpSpec(op=op, dtypes=("float32",), samples=samples, reference=reference), CPU, FLOAT32)


# ------------------------------------------------------------------------------------------------ other forms


def test_in_place_form_that_returns_a_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS["inplace"](of_exp(), CPU, FLOAT32)

    monkeypatch.setattr(Op, "inplace", lambda self, *args, **fields: self(*args, out=args[0], **fields).copy())
    with pytest.raises(AssertionError, match="the in-place form returned another array than its first argument"):
        CHECKS["inplace"](of_exp(), CPU, FLOAT32)


def test_in_place_form_that_ignores_strides_is_found() -> None:
    def by_memory(kernel: Any) -> Any:
        def run(a: Any, *, out: Any) -> None:
            whole = np.empty(out.shape, out.dtype)
            kernel(a, out=whole)
            if a is out and not a.flags.c_contiguous:
                whole[...] = 0
            out[...] = whole

        return run

    with registry.substituted("exp", kind="cpu", wrap=by_memory), pytest.raises(AssertionError) as caught:
        CHECKS["inplace"](of_exp(), CPU, FLOAT32)
    assert "strided" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


def another_object(self: Op, result: Any, fields: dict[str, Any]) -> Any:
    return list(result) if isinstance(result, list) and "out" in fields else result


def other_numbers(self: Op, result: Any, fields: dict[str, Any]) -> Any:
    return [one + 1 for one in result] if self.schema.functional_of and "out" not in fields else result


def other_numbers_in_out(self: Op, result: Any, fields: dict[str, Any]) -> Any:
    for one in result if self.schema.functional_of and "out" in fields else ():
        one[...] = one + 1
    return result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_object, "the functional form was given out=, but returned another object"),
        (other_numbers, "differ"),
        (other_numbers_in_out, "differ"),
    ],
    ids=["another object", "other numbers", "other numbers in out"],
)
def test_functional_form_that_gives_another_result_is_found(
    change: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    CHECKS["functional"](of_zeros(), CPU, FLOAT32)
    right = Op.__call__

    def called(self: Op, *args: Any, **fields: Any) -> Any:
        return change(self, right(self, *args, **fields), fields)

    monkeypatch.setattr(Op, "__call__", called)
    with pytest.raises(AssertionError, match=message):
        CHECKS["functional"](of_zeros(), CPU, FLOAT32)


def test_functional_form_whose_meta_has_another_shape_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Op.meta

    def described(self: Op, *args: Any, **fields: Any) -> Any:
        return [replace(one, shape=(*one.shape, 1)) for one in right(self, *args, **fields)]

    monkeypatch.setattr(Op, "meta", described)
    with pytest.raises(AssertionError, match="meta says"):
        CHECKS["functional"](of_zeros(), CPU, FLOAT32)


def test_plan_that_keeps_its_first_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS["plan"](of_exp(), CPU, FLOAT32)
    right = Op.prepare

    def prepare(self: Op, *args: Any, **fields: Any) -> Any:
        result = right(self, *args, **fields).run().copy()
        return SimpleNamespace(run=lambda: result)

    monkeypatch.setattr(Op, "prepare", prepare)
    with pytest.raises(AssertionError, match="out of tolerance"):
        CHECKS["plan"](of_exp(), CPU, FLOAT32)


@pytest.mark.parametrize("change", [{"shape": (5, 3)}, {"dtype": np.dtype("float64")}], ids=["shape", "dtype"])
def test_meta_of_another_shape_or_dtype_is_found(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS["meta"](of_exp(), CPU, FLOAT32)
    right = Op.meta

    monkeypatch.setattr(Op, "meta", lambda self, *args, **fields: replace(right(self, *args, **fields), **change))
    with pytest.raises(AssertionError, match="meta says"):
        CHECKS["meta"](of_exp(), CPU, FLOAT32)


def test_wrong_argument_error_is_not_taken_for_the_rejection(allow: Any) -> None:
    def renamed(out: Any, shape: Any, error: Exception) -> bool:
        if isinstance(error, ArgumentError) and "shares memory" in str(error):
            raise ArgumentError("no")
        return False

    allow(renamed)
    with pytest.raises(AssertionError, match="ArgumentError does not say 'shares memory': no"):
        CHECKS["out_refused"](of_exp(), CPU, FLOAT32)


def test_meta_that_distinguishes_arrays_from_descriptions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Op.meta

    def meta(self: Op, *args: Any, **fields: Any) -> Any:
        found = right(self, *args, **fields)
        return found if hasattr(args[0], "shape") else replace(found, shape=())

    monkeypatch.setattr(Op, "meta", meta)
    with pytest.raises(AssertionError, match="meta says"):
        CHECKS["meta"](of_exp(), CPU, FLOAT32)


def test_op_that_moves_its_input_may_write_to_another_device() -> None:
    samples = lambda make: [make((3, 5))]  # noqa: E731
    spec = OpSpec(op=ops.copy, dtypes=("float32",), samples=samples, reference=lambda a: a)

    CHECKS["out_refused"](spec, "sim", FLOAT32)


@pytest.mark.parametrize("check", ["out", "inplace", "plan", "meta"])
def test_overflow_in_an_op_does_not_warn(check: str) -> None:
    samples = lambda make: [make.of([1e3, 1.0])]  # noqa: E731

    CHECKS[check](OpSpec(op=ops.exp, dtypes=("float32",), samples=samples, reference=np.exp), CPU, FLOAT32)


def test_overflow_in_a_function_does_not_warn() -> None:
    def exponential(xp: Any, a: Any, out: Any = None) -> Any:
        return xp.exp(a, out=out)

    samples = lambda make: [make.of([1e3, 1.0])]  # noqa: E731
    CHECKS["out"](OpSpec(fn=exponential, name="given", samples=samples, reference=np.exp), CPU, FLOAT32)


def test_largest_broadcast_call_whose_result_fits_the_first_array_is_run_in_place() -> None:
    def samples(make: Any) -> list[Sample]:
        shapes = [((2, 3), (3,)), ((4, 3), (3,)), ((3,), (50, 3)), ((3, 3), (3,))]
        broadcast = [Sample((make(one), make(other)), kind="broadcast") for one, other in shapes]
        return [Sample((make(3), make(3))), *broadcast]

    spec = OpSpec(op=ops.add, dtypes=("float32",), samples=samples, reference=np.add)

    assert [one.args[0].shape for one in _of_first_shape(spec, CPU, FLOAT32, "broadcast")] == [(4, 3)]
    assert list(_of_first_shape(spec, CPU, FLOAT32, "python")) == []


def test_three_calls_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    right = Op.prepare

    def prepare(self: Op, *args: Any, **fields: Any) -> Any:
        planned.append(args[0].shape)
        return right(self, *args, **fields)

    monkeypatch.setattr(Op, "prepare", prepare)
    samples = lambda make: [make(extent) for extent in range(2, 14)]  # noqa: E731
    CHECKS["plan"](OpSpec(op=ops.exp, dtypes=("float32",), samples=samples, reference=np.exp), CPU, FLOAT32)

    assert planned == [(8,), (11,), (13,)]


def accepting(error: Exception | None) -> Any:
    def fn(xp: Any, a: Any, out: Any = None) -> Any:
        if error is not None and a.size == 2:
            raise error
        return a

    return OpSpec(fn=fn, name="given", samples=lambda make: [make(3)])


@pytest.mark.parametrize(
    ("error", "accepts"), [(None, True), (ValueError("no"), False), (RuntimeError("no"), False)], ids=str
)
def test_function_accepts_a_layout_if_it_raises_nothing(error: Any, accepts: bool) -> None:
    assert _accepts(accepting(error), CPU, (np.ones(2),), {}) is accepts


def test_race_is_no_refusal_of_a_layout() -> None:
    with pytest.raises(RaceError, match="two writes"):
        _accepts(accepting(RaceError("two writes")), CPU, (np.ones(2),), {})


def test_function_with_out_is_called_on_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Any] = []

    @contextmanager
    def activate(self: Any, index: int) -> Iterator[None]:
        met.append(index)
        yield
        met.append("left")

    def apply(self: OpSpec, device: Device, args: Any, kwargs: Any) -> None:
        met.append(sorted(kwargs))
        if "out" in kwargs:
            kwargs["out"][...] = args[0] * 2

    spec = OpSpec(fn=with_out, name="given", samples=lambda make: [make(3)], reference=doubled)
    sample, plain = Sample((HostArray(np.ones(3, np.float32)),)), np.ones(3, np.float32)
    spec.expected(sample), spec.scale(sample, spec.expected(sample))
    monkeypatch.setattr(type(forms.devices.backend("cpu")), "activate", activate)
    monkeypatch.setattr(OpSpec, "apply", apply)
    monkeypatch.setattr(forms, "compare", lambda *given: met.append("compared"))
    monkeypatch.setattr(forms, "is_elementwise", lambda *given: True)

    assert _accepts(spec, CPU, (plain,), {})
    _check_out_is_input(spec, CPU, FLOAT32, sample, plain)

    assert met == [0, [], "left", 0, ["out"], "left", "compared"]
