"""Functions with a backward of their own, and checkpoints, on every kind: streams, captures, memory, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, current_precision, from_host, ops, precision, random, to_host
from cuassay.amp import autocast
from cuassay.autograd import Function, checkpoint, grad, gradcheck, jvp, value_and_grad, vjp
from cuassay.errors import GradientError, StateError
from cuassay.ops import interpose
from cuassay.testing import devices as on
from cuassay.testing import requires

pytestmark = requires("float64")

#: Elements of an array whose memory is counted, and its bytes.
COUNT, NBYTES = 2**15, 2**18


@pytest.fixture
def drawn(device: Device) -> Callable[..., Any]:
    """Makes arrays of numbers from 0.3 to 2, the same ones in each test."""
    generator = np.random.default_rng(0)
    return lambda *shape, dtype="float64": from_host(generator.uniform(0.3, 2, shape).astype(dtype), device)


class Cube(Function):
    """``x ** 3``; the forward pass multiplies by operators that no recorder sees."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ops.mul(grad, ops.mul(3.0, ops.mul(x, x)))


class Parts(Function):
    """The product and the quotient, times `factor`, and which of the two arrays is larger."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, factor: float) -> Any:
        product, quotient = ops.mul(a, b), ops.div(a, b)
        ctx.factor = factor
        ctx.save_for_backward(a, b, quotient)
        return {"product": ops.mul(product, factor), "quotient": quotient, "larger": ops.less_equal(b, a)}

    @staticmethod
    def backward(ctx: Any, product: Any, quotient: Any, larger: Any) -> Any:
        assert larger is None
        a, b, ratio = ctx.saved_tensors
        scaled = ops.mul(product, ctx.factor)
        by_a = ops.add(ops.mul(scaled, b), ops.div(quotient, b))
        return by_a, ops.sub(ops.mul(scaled, a), ops.div(ops.mul(quotient, ratio), b)), None


def test_a_function_has_the_gradients_that_it_writes(drawn: Callable[..., Any]) -> None:
    def function(a: Any, b: Any) -> Any:
        parts = Parts.apply(a * b, b, 3.0)
        return ops.exp(parts["product"]) + ops.where(parts["larger"], parts["quotient"], a)

    gradcheck(function, (drawn(3, 4), drawn(3, 4)))


def test_results_that_are_not_used_have_zeros_as_gradients(drawn: Callable[..., Any]) -> None:
    gradcheck(lambda a, b: Parts.apply(a, b, 2.0)["quotient"], (drawn(3), drawn(3)))


class Split(Function):
    """The array twice, the second time as a constant."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        first, second = ops.mul(x, 1.0), ops.mul(x, 1.0)
        ctx.mark_non_differentiable(second)
        ctx.set_materialize_grads(False)
        return first, second

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        assert second is None
        return first


def test_no_gradient_passes_through_what_is_marked(drawn: Callable[..., Any]) -> None:
    def function(x: Any) -> Any:
        first, second = Split.apply(x)
        assert type(second) is type(array)
        return ops.sum(first * second)

    found = grad(function)(array := drawn(3))

    assert to_host(found).tolist() == to_host(array).tolist()


def test_plain_arguments_make_a_plain_value(drawn: Callable[..., Any]) -> None:
    a = drawn(3)

    assert type(Cube.apply(a)) is type(a)
    assert to_host(grad(lambda x: ops.sum(x * Cube.apply(a)))(drawn(3))).tolist() == to_host(Cube.apply(a)).tolist()


def test_a_function_has_a_second_derivative(drawn: Callable[..., Any]) -> None:
    def slope(a: Any, b: Any) -> Any:
        return grad(lambda a: ops.sum(Parts.apply(Cube.apply(a), b, 2.0)["product"]))(a)

    gradcheck(slope, (drawn(3), drawn(3)))


def test_one_array_given_twice_is_two_arguments_to_the_second_derivative(drawn: Callable[..., Any]) -> None:
    x = drawn(3)
    apply = Scaled.apply

    found = grad(lambda a: ops.sum(grad(lambda b: ops.sum(apply(b, x)))(a)))(x)

    assert to_host(found) == pytest.approx(2 * to_host(x))


class Scaled(Function):
    """``a * a * b``, differentiated by a alone."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a * a * b

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        a, b = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return ops.mul(grad, ops.mul(2.0, ops.mul(a, b))), None


def test_a_directional_derivative_goes_through_a_function(drawn: Callable[..., Any]) -> None:
    x, direction = drawn(3), drawn(3)

    _, tangent = jvp(Cube.apply, (x,), (direction,))

    assert to_host(tangent) == pytest.approx(3 * to_host(x) ** 2 * to_host(direction))


@requires("streams")
def test_a_backward_runs_on_the_stream_of_the_call(
    device: Device, backend: Any, side: Any, drawn: Callable[..., Any]
) -> None:
    x, seen = drawn(COUNT), []
    main = backend.current_stream(device.index)

    class Noted(Cube):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(backend.current_stream(device.index))
            return Cube.backward(ctx, grad)

    def function(x: Any) -> Any:
        before = ops.exp(x)
        side.wait_stream(main)
        with backend.use_stream(side):
            cubed = Noted.apply(before)
        main.wait_stream(side)
        return ops.sum(cubed * before)

    with backend.activate(device.index):
        found = to_host(grad(function)(x))

    assert seen == [side]
    assert found == pytest.approx(4 * np.exp(4 * to_host(x)))


@requires("streams")
def test_what_a_side_stream_reads_is_not_reused_before_it_is_joined(
    device: Device, backend: Any, side: Any, drawn: Callable[..., Any]
) -> None:
    x = drawn(COUNT)
    main = backend.current_stream(device.index)

    def function(x: Any) -> Any:
        shifted, other = x + 1.0, ops.exp(x)
        side.wait_stream(main)
        with backend.use_stream(side):
            squared = shifted * shifted  # alone in keeping `shifted`, whose memory is the main stream's
        main.wait_stream(side)
        total = ops.sum(squared + other)
        side.wait_stream(main)
        return total

    with backend.activate(device.index):
        found = to_host(grad(function)(x))

    assert found == pytest.approx(2 * (to_host(x) + 1) + np.exp(to_host(x)))


@requires("graphs")
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "checkpointed"])
def test_functions_are_captured_with_their_backward(
    device: Device, backend: Any, made: Callable[..., Any], drawn: Callable[..., Any], kept: bool
) -> None:
    x, fresh, out = drawn(64), drawn(64), drawn(64)
    worker = backend.new_stream(device.index)

    def part(x: Any) -> Any:
        return Parts.apply(Cube.apply(x), x, 2.0)["product"]

    def step() -> None:
        found = grad(lambda x: ops.sum(part(x) if kept else checkpoint(part, x)))(x)
        ops.copy(found, out=out)

    backend.synchronize(device.index)
    with backend.activate(device.index), backend.use_stream(worker):
        step()
        backend.synchronize(device.index)
        capture = made()
        capture.begin()
        step()
        capture.end()
        ops.copy(fresh, out=x)
        capture.replay()
        worker.synchronize()
    assert to_host(out) == pytest.approx(8 * to_host(fresh) ** 3)


# ------------------------------------------------------------------------------------------------ checkpoint


def layer(params: dict[str, Any], x: Any, rate: float) -> Any:
    return random.dropout(ops.tanh(ops.matmul(x, params["w"])) * x, rate)


def network(params: list[dict[str, Any]], x: Any, run: Callable[..., Any]) -> Any:
    for one in params:
        x = run(layer, one, x, 0.25)
    return ops.sum(x * x)


def plainly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def test_a_checkpoint_changes_no_value_and_no_gradient(device: Device, drawn: Callable[..., Any]) -> None:
    params, x = [{"w": drawn(8, 8)} for _ in range(3)], drawn(16, 8)
    generator = random.default_generator(device)
    found = []

    for run in (plainly, checkpoint):
        generator.manual_seed(5)
        value, (by_params, by_x) = value_and_grad(network, (0, 1))(params, x, run=run)
        found.append([value, by_x, *(one["w"] for one in by_params), generator.get_offset()])

    assert all(np.array_equal(to_host(a), to_host(b)) for a, b in zip(*(one[:-1] for one in found), strict=True))
    assert found[0][-1] == found[1][-1] > 0


def test_checkpoints_inside_checkpoints_repeat_the_same_numbers(device: Device, drawn: Callable[..., Any]) -> None:
    params, x = [{"w": drawn(8, 8)} for _ in range(2)], drawn(16, 8)
    generator = random.default_generator(device)

    def both(first: dict[str, Any], second: dict[str, Any], x: Any) -> Any:
        return checkpoint(layer, second, checkpoint(layer, first, x, 0.25), 0.5)

    generator.manual_seed(5)
    expected = grad(lambda p: ops.sum(layer(p[1], layer(p[0], x, 0.25), 0.5)))(params)
    generator.manual_seed(5)
    found = grad(lambda p: ops.sum(checkpoint(both, p[0], p[1], x)))(params)

    assert all(np.array_equal(to_host(a["w"]), to_host(b["w"])) for a, b in zip(found, expected, strict=True))


def test_a_checkpoint_has_a_second_derivative(drawn: Callable[..., Any]) -> None:
    w, x = drawn(4, 4), drawn(5, 4)

    gradcheck(lambda x: grad(lambda x: ops.sum(checkpoint(layer, {"w": w}, x, 0.0)))(x), (x,))


def test_a_result_of_a_checkpoint_may_be_left_unused(drawn: Callable[..., Any]) -> None:
    gradcheck(lambda x: checkpoint(lambda x: (ops.exp(x), ops.tanh(x)), x)[0], (drawn(3),))


def test_the_second_run_is_in_the_precision_and_autocast_of_the_first(
    device: Device, drawn: Callable[..., Any]
) -> None:
    x, seen = drawn(8, 8, dtype="float32"), []

    def part(x: Any) -> Any:
        product = ops.matmul(x, x)
        seen.append((product.dtype, current_precision()))
        return product

    with autocast(device.kind, "float16"), precision("bf16"):
        _, pull = vjp(lambda x: checkpoint(part, x), x)
    with autocast(device.kind, "bfloat16"):
        pull(from_host(np.ones((8, 8), np.float16), device))
    _, pull = vjp(lambda x: checkpoint(part, x), x)
    with autocast(device.kind, "float16"):
        pull(from_host(np.ones((8, 8), np.float32), device))

    assert seen[:2] == [(np.float16, "bf16")] * 2
    assert seen[2:] == [(np.float32, current_precision())] * 2


def test_a_function_that_draws_otherwise_the_second_time_is_refused(drawn: Callable[..., Any]) -> None:
    rates = iter([0.5, 0.0])

    def part(x: Any) -> Any:
        return random.dropout(x, 0.5) if next(rates) else x * 2.0

    with pytest.raises(StateError, match="drew random numbers 0 times, the first time 1"):
        grad(lambda x: ops.sum(checkpoint(part, x)))(drawn(8))


def test_a_checkpoint_says_which_array_is_not_its_argument(drawn: Callable[..., Any]) -> None:
    with pytest.raises(GradientError, match=r"came from exp, called at test_functions.py:\d+.; give it as an argument"):
        grad(lambda x: ops.sum(checkpoint(lambda: ops.exp(x))))(drawn(3))


# ------------------------------------------------------------------------------------------------ memory


def peak(backend: Any, device: Device, run: Callable[[], Any]) -> float:
    """Arrays of `NBYTES` that were alive after a call of an op, at most, besides those that were there before."""
    before, seen = backend.memory_in_use(device.index), []

    def sample(call: Any, proceed: Callable[[Any], Any]) -> Any:
        result = proceed(call)
        seen.append(backend.memory_in_use(device.index))
        return result

    with interpose(sample):
        run()
    most: int = max(seen)
    return (most - before) / NBYTES


@on("sim:*", "cuda:*")
def test_saved_arrays_are_freed_as_gradients_are_made(device: Device, backend: Any, drawn: Callable[..., Any]) -> None:
    weights, x = [drawn(COUNT) for _ in range(12)], drawn(COUNT)

    def chain(weights: list[Any]) -> Any:
        product = x
        for weight in weights:
            product = product * weight
        return ops.sum(product)

    with backend.activate(device.index):
        most = peak(backend, device, lambda: grad(chain)(weights))

    assert 12 <= most <= 12 + 4  # a gradient takes the place of what was saved for it


@on("sim:*", "cuda:*")
def test_a_checkpoint_keeps_its_arguments_alone(device: Device, backend: Any, drawn: Callable[..., Any]) -> None:
    x = drawn(COUNT)

    def part(x: Any) -> Any:
        for _ in range(8):
            x = ops.tanh(x)
        return x

    def chain(x: Any, run: Callable[..., Any]) -> Any:
        for _ in range(4):
            x = run(part, x)
        return ops.sum(x)

    with backend.activate(device.index):
        kept, again = (peak(backend, device, lambda run=run: grad(chain)(x, run=run)) for run in (plainly, checkpoint))

    assert kept >= 32
    assert again <= 4 + 8 + 2.5  # arguments, one part, a gradient and what it becomes
