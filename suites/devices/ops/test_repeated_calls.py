"""Calls that come again, which a kind of device may serve past dispatch: with its results, and its errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, devices, from_host, namespace, ops, to_host, use_deterministic_algorithms
from cuassay.amp import autocast
from cuassay.errors import ArgumentError, CuassayError, DTypeError, ShapeError
from cuassay.ops import registry
from cuassay.testing import devices as on
from cuassay.testing import requires

#: Calls of one form: after some of them a kind may serve it otherwise.
CALLS = 14

Array = Any


@dataclass(frozen=True)
class Form:
    """An op with arguments of these shapes (numbers are themselves), dtype and scalars; and how operands lie."""

    op: str
    operands: tuple[Any, ...]
    dtype: str = "float32"
    scalars: dict[str, Any] = field(default_factory=dict)
    view: Callable[[Array], Array] | None = None

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, one)) if isinstance(one, tuple) else repr(one) for one in self.operands)
        scalars = "".join(f"-{name}={value}" for name, value in self.scalars.items())
        return f"{self.op}-{shapes}-{self.dtype}{scalars}{'-view' if self.view else ''}"

    def arguments(self, seed: int, device: Device) -> tuple[Any, ...]:
        """New arrays, and the numbers."""
        draw = np.random.default_rng(seed)
        made = [
            from_host(draw.integers(-9, 9, one).astype(self.dtype), device) if isinstance(one, tuple) else one
            for one in self.operands
        ]
        return tuple(one if self.view is None or isinstance(one, int | float) else self.view(one) for one in made)


FORMS = (
    Form("add", ((33, 20), (33, 20))),
    Form("add", ((33, 20), (33, 20)), "bfloat16"),
    Form("add", ((33, 20), (20,))),
    Form("mul", ((33, 20), (33, 1)), "int64"),
    Form("add", ((33, 20), 2.5)),
    Form("add", ((33, 20), 3), "int32"),
    Form("mul", ((33, 20), True), "float16"),
    Form("add", ((20, 20), (20, 20)), view=lambda a: a.T),
    Form("add", ((33, 20), (33, 20)), view=lambda a: a[:, ::2]),
    Form("add", ((64, 20), (64, 20)), view=lambda a: a.reshape(-1)[1:]),
    Form("exp", ((7, 5),), view=lambda a: a.T),
    Form("relu", ((70_001,),)),
    Form("gelu", ((33, 20),)),
    Form("gelu", ((33, 20),), "bfloat16", {"approximate": "tanh"}),
    Form("cast", ((33, 20),), scalars={"dtype": "float16"}),
    Form("softmax", ((33, 20),)),
    Form("softmax", ((33, 20),), scalars={"axis": 0}),
    Form("softmax", ((3, 3000),), "bfloat16"),
    Form("layer_norm", ((33, 20), (20,), (20,)), scalars={"eps": 1e-5}),
    Form("softmax_backward", ((33, 20), (33, 20))),
    Form("layer_norm_backward", ((33, 20), (33, 20), (20,)), scalars={"eps": 1e-5}),
    Form("sum", ((33, 20),)),
    Form("sum", ((33, 20),), "int32", {"axis": 0, "keepdims": True}),
    Form("sum", ((3, 70_001),), scalars={"axis": -1}),
    Form("amax", ((33, 20),), scalars={"axis": (0, 1)}),
    Form("mm", ((16, 24), (24, 32))),
    Form("mm", ((24, 24), (24, 24)), "bfloat16", view=lambda a: a.T),
    Form("matmul", ((3, 16, 24), (3, 24, 32)), "float16"),
    Form("linear", ((16, 24), (32, 24), (32,))),
)


@pytest.fixture(params=FORMS, ids=str)
def form(request: pytest.FixtureRequest) -> Form:
    """One form of call."""
    found: Form = request.param
    return found


def bits(array: Array) -> bytes:
    return to_host(array).tobytes()


@pytest.mark.parametrize("is_given", [False, True], ids=["new output", "given output"])
def test_calls_that_come_again_have_the_bits_of_the_first(device: Device, form: Form, is_given: bool) -> None:
    op = registry.op(form.op)
    for seed in range(CALLS):
        arguments = form.arguments(seed, device)
        expected = op.dispatch(arguments, None, form.scalars)
        out = namespace(device).zeros_like(expected) if is_given else None

        result = op(*arguments, out=out, **form.scalars)

        assert out is None or result is out
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert bits(result) == bits(expected)


def test_the_same_arrays_again_and_again(device: Device, form: Form) -> None:
    """What they hold is read at each call."""
    op, arguments = registry.op(form.op), form.arguments(0, device)
    out = op.dispatch(arguments, None, form.scalars)
    for seed in range(CALLS):
        for array, other in zip(arguments, form.arguments(seed, device), strict=True):
            if hasattr(array, "dtype"):
                ops.copy(other, out=array)
        expected = bits(op.dispatch(arguments, None, form.scalars))

        op(*arguments, out=out, **form.scalars)

        assert bits(out) == expected


@pytest.mark.parametrize("form", [one for one in FORMS if one.op in ("add", "gelu", "relu")], ids=str)
def test_in_place(device: Device, form: Form) -> None:
    if any(isinstance(one, tuple) and one != form.operands[0] for one in form.operands):
        form = Form(form.op, (form.operands[0],) * 2, form.dtype)
    op = registry.op(form.op)
    for seed in range(CALLS):
        arguments = form.arguments(seed, device)
        expected = bits(op.dispatch(arguments, None, form.scalars))

        assert op(*arguments, out=arguments[0], **form.scalars) is arguments[0]
        assert bits(arguments[0]) == expected


def test_an_operand_given_twice(device: Device) -> None:
    for seed in range(CALLS):
        a, b = Form("add", ((33, 20),) * 2).arguments(seed, device)

        assert bits(ops.add(a, a, out=b)) == bits(ops.add.dispatch((a, a), None, {}))
        assert bits(ops.add(a, b)) == bits(ops.add.dispatch((a, b), None, {}))


#: Calls of two arrays that are alike. No other test makes calls of these shapes, so the first one here has one array
#: twice, and what is remembered of a form is remembered of that call.
ALIKE = (
    Form("softmax_backward", ((31, 20), (31, 20)), scalars={"axis": -1}),
    Form("softmax_backward", ((31, 2000), (31, 2000)), "bfloat16", {"axis": -1}),
    Form("layer_norm_backward", ((31, 20), (31, 20), (20,)), scalars={"eps": 1e-5}),
    Form("add", ((31, 20), (31, 20))),
    Form("add", ((31, 31), (31, 31)), view=lambda a: a.T),
    Form("mul", ((31, 20), (31, 20)), view=lambda a: a[:, ::2]),
    Form("sub", ((62, 20), (62, 20)), view=lambda a: a.reshape(-1)[1:]),
    Form("mm", ((28, 28), (28, 28))),
)


@pytest.mark.parametrize("form", ALIKE, ids=str)
def test_other_operands_after_calls_that_gave_one_twice(device: Device, form: Form) -> None:
    op = registry.op(form.op)
    for seed in range(CALLS):
        a, _, *rest = form.arguments(seed, device)
        op(a, a, *rest, **form.scalars)
    for seed in range(CALLS):
        arguments = form.arguments(seed, device)

        result = op(*arguments, **form.scalars)

        assert bits(result) == bits(op.dispatch(arguments, None, form.scalars))


def test_zeros_keep_their_sign_and_numbers_their_type(device: Device) -> None:
    a = from_host(np.full(8, -0.0, np.float32), device)
    counts = from_host(np.arange(8, dtype=np.int32), device)
    for _ in range(CALLS):
        assert np.signbit(to_host(ops.add(a, -0.0))).all()
        assert not np.signbit(to_host(ops.add(a, 0.0))).any()
        assert [ops.add(counts, one).dtype.name for one in (1, 1.0, True)] == ["int32", "float64", "int32"]


@pytest.mark.parametrize("second", [1.0, True], ids=str)
def test_a_number_of_another_type_is_another_call(device: Device, second: float) -> None:
    counts = from_host(np.arange(24, dtype=np.int32), device)
    expected = ops.add(counts, second).dtype
    for _ in range(CALLS):
        assert ops.add(counts, 1).dtype == np.int32

    assert ops.add(counts, second).dtype == expected


def warmed(device: Device) -> tuple[Array, Array, Array]:
    """Arrays, with calls of `add` and `mm` on them that have come again."""
    a, b, out = (from_host(np.full((16, 16), value, np.float32), device) for value in (1, 2, 0))
    for _ in range(CALLS):
        ops.add(a, b, out=out)
        ops.add(a, 2.0, out=out)
        ops.mm(a, b, out=out)
    return a, b, out


REFUSED: dict[str, tuple[Callable[[Array, Array, Array], Any], type[CuassayError]]] = {
    "shape": (lambda a, b, out: ops.add(a, b, out=out[:3]), ShapeError),
    "dtype": (lambda a, b, out: ops.add(a, 2.0, out=out.astype("float64")), DTypeError),
    "operands": (lambda a, b, out: ops.add(a, b[:3], out=out), ShapeError),
    "inner extents": (lambda a, b, out: ops.mm(a, b[:3], out=out), ShapeError),
    "overlap": (lambda a, b, out: ops.add(a.reshape(-1)[:128], 2.0, out=a.reshape(-1)[64:192]), ArgumentError),
    "overlap of a product": (lambda a, b, out: ops.mm(a, b, out=a), ArgumentError),
    "unknown scalar": (lambda a, b, out: ops.add(a, b, out=out, alpha=2), ArgumentError),
    "one operand": (lambda a, b, out: ops.add(a, out=out), ArgumentError),
    "three operands": (lambda a, b, out: ops.mm(a, b, a, out=out), ArgumentError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_dispatch_refuses_is_refused_after_calls_that_were_right(device: Device, case: str) -> None:
    call, error = REFUSED[case]
    arrays = warmed(device)

    for _ in range(3):
        with pytest.raises(error):
            call(*arrays)


def test_arrays_given_by_name(device: Device) -> None:
    a, b, out = warmed(device)
    for _ in range(CALLS):
        ops.add(a, b=b, out=out)
        assert (to_host(out) == 3).all()
        assert (to_host(ops.mm(a=a, b=b)) == 32).all()


@on("sim:*", "cuda:*")
def test_calls_go_to_whichever_stream_is_current(device: Device) -> None:
    a, b, out = warmed(device)
    backend = devices.backend(device.kind)
    backend.synchronize(device.index)
    for seed in range(4):
        stream = backend.new_stream(device.index)
        with backend.use_stream(stream):
            backend.spin(device.index, 100_000)
            ops.copy(from_host(np.full((16, 16), seed, np.float32), device), out=a)
            ops.add(a, 2.0, out=out)
            ops.mm(a, b, out=out)
            assert (to_host(out) == 32 * seed).all()


@requires("graphs")
def test_calls_that_have_come_again_are_captured(device: Device) -> None:
    a, b, out = warmed(device)
    sums = from_host(np.zeros((16, 16), np.float32), device)
    graph = devices.backend(device.kind).new_capture(device.index)
    with cuda.graph(graph):
        ops.mm(a, b, out=out)
        ops.add(sums, out, out=sums)
        ops.add(sums, 2.0, out=sums)
    for _ in range(3):
        graph.replay()
    graph.reset()

    assert (to_host(sums) == 3 * 34).all()


def test_autocast_sees_calls_that_have_come_again(device: Device) -> None:
    a, b, _ = warmed(device)
    for _ in range(3):
        with autocast(device.kind, "bfloat16"):
            assert ops.mm(a, b).dtype.name == "bfloat16"
        assert ops.mm(a, b).dtype.name == "float32"


def test_explain_sees_calls_that_have_come_again(device: Device) -> None:
    a, b, out = warmed(device)

    assert str(ops.explain(lambda: ops.add(a, b, out=out))).startswith("add(")


def test_an_implementation_in_anothers_place_serves_calls_that_have_come_again(device: Device) -> None:
    a, b, out = warmed(device)
    seen: list[str] = []

    def spied(kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*arrays: Array, out: Array, **scalars: Any) -> None:
            seen.append("add")
            kernel(*arrays, out=out, **scalars)

        return run

    with registry.substituted("add", kind="cpu" if device.kind == "sim" else device.kind, wrap=spied):
        for _ in range(CALLS):
            ops.add(a, b, out=out)
            ops.add(a, 2.0, out=out)

    assert len(seen) == 2 * CALLS


def test_deterministic_mode_changes_nothing_for_ops_that_are(device: Device) -> None:
    a, b, out = warmed(device)
    before = bits(ops.mm(a, b, out=out))
    use_deterministic_algorithms(True)
    try:
        assert bits(ops.mm(a, b, out=out)) == before
    finally:
        use_deterministic_algorithms(False)


@on("cpu", "cuda:*")
def test_threads_do_not_share_what_was_made_ready(device: Device) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        a, out = (from_host(np.full((16, 16), value, np.float32), device) for value in (number, 0))
        for _ in range(100):
            ops.add(a, 1.0, out=out)
            ops.mm(a, a, out=out)
        if not (to_host(out) == 16 * number**2).all():
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
