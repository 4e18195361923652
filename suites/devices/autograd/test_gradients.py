"""Derivatives on every kind: functions of several ops, views, forms of arguments, autocast, streams, higher order."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, random, to_host
from cuassay.amp import GradScaler, autocast
from cuassay.autograd import Function, grad, gradcheck, jvp, stop_gradient, value_and_grad, vjp
from cuassay.errors import GradientError
from cuassay.ops import Call, interpose, registry
from cuassay.testing import requires
from cuassay.testing.own_specs import own_specs
from cuassay.testing.samples import Samples

pytestmark = requires("float64")

#: Declarations of the ops that multiply matrices in a chosen precision.
PRODUCTS = {
    spec.name: spec
    for spec in own_specs()
    if spec.supports_grad and spec.op is not None and "precision" in spec.declared.schema.scalar_names
}


@pytest.fixture
def drawn(device: Device) -> Callable[..., Any]:
    """Makes arrays of numbers from 0.3 to 2, the same ones in each test."""
    generator = np.random.default_rng(0)
    return lambda *shape, dtype="float64": from_host(generator.uniform(0.3, 2, shape).astype(dtype), device)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Frees only objects to which nothing refers, so that a cycle of references is noticed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def network(params: dict[str, Any], x: Any) -> Any:
    hidden = ops.layer_norm(ops.linear(x, params["w"], params["b"], activation="relu"), params["scale"], params["b"])
    weights = ops.softmax((hidden @ hidden.mT) / 2.0)
    mixed = ops.tanh(weights @ hidden)[:, ::2]
    return ops.sum(mixed * mixed - ops.log(ops.sigmoid(mixed.T.reshape(mixed.shape)) + 1.0))


def test_a_network_has_the_gradients_of_differences(drawn: Callable[..., Any]) -> None:
    params = {"w": drawn(6, 4), "b": drawn(6), "scale": drawn(6)}

    gradcheck(network, (params, drawn(5, 4)))


def test_gradients_have_the_form_of_their_argument(drawn: Callable[..., Any]) -> None:
    params = {"w": drawn(6, 4), "b": drawn(6), "scale": drawn(6)}

    value, (by_params, by_x) = value_and_grad(network, (0, 1))(params, drawn(5, 4))

    assert value.shape == ()
    assert {name: one.shape for name, one in by_params.items()} == {"w": (6, 4), "b": (6,), "scale": (6,)}
    assert by_x.shape == (5, 4)


def test_the_value_is_that_of_the_plain_function(drawn: Callable[..., Any]) -> None:
    params, x = {"w": drawn(6, 4), "b": drawn(6), "scale": drawn(6)}, drawn(5, 4)
    with_ops = ops.sum(ops.tanh(ops.linear(x, params["w"], params["b"])))

    value, _ = value_and_grad(lambda p: ops.sum(ops.tanh(ops.linear(x, p["w"], p["b"]))))(params)

    assert np.array_equal(to_host(value), to_host(with_ops))


def test_gradients_have_memory_of_their_own(drawn: Callable[..., Any]) -> None:
    first, second = grad(lambda a, b: ops.sum(a + b), (0, 1))(drawn(4), drawn(4))

    ops.foreach_zero_([first])

    assert to_host(second).tolist() == [1.0] * 4


def test_an_argument_that_is_not_used_has_a_gradient_of_zeros(drawn: Callable[..., Any]) -> None:
    used, unused = grad(lambda a, b: ops.sum(a), (0, 1))(drawn(3), drawn(2, 2))

    assert to_host(used).tolist() == [1.0] * 3
    assert to_host(unused).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_what_is_returned_with_the_value_is_plain(drawn: Callable[..., Any]) -> None:
    def function(a: Any) -> tuple[Any, Any]:
        squares = a * a
        return ops.sum(squares), {"squares": squares}

    (_, aux), found = value_and_grad(function, has_aux=True)(drawn(3))

    assert type(aux["squares"]) is type(found)
    assert to_host(aux["squares"]) == pytest.approx((to_host(found) / 2) ** 2)


def test_no_gradient_passes_where_it_is_stopped(drawn: Callable[..., Any]) -> None:
    a = drawn(3)

    found = grad(lambda a: ops.sum(a * stop_gradient(a)))(a)

    assert np.array_equal(to_host(found), to_host(a))


def test_a_complex_result_of_a_real_array_is_refused(device: Device) -> None:
    a, b = np.ones(3, np.float32), from_host(np.full(3, 1j, np.complex64), device)

    with pytest.raises(GradientError, match="mul makes complex64, which has no derivative; call stop_gradient first"):
        vjp(lambda a: ops.mul(a, b), from_host(a, device))


def test_a_plain_array_at_the_left_of_an_operator_is_seen(drawn: Callable[..., Any]) -> None:
    plain = drawn(3)

    gradcheck(lambda a: plain * a + (plain - a) / (plain + a), (drawn(3),))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a.mT,
        lambda a: a.swapaxes(0, 2),
        lambda a: a.transpose(2, 0, 1),
        lambda a: a.reshape(6, -1),
        lambda a: a.ravel(),
        lambda a: a[1],
        lambda a: a[1, 2, 3],
        lambda a: a[..., ::-2],
        lambda a: a[None, :, 1:],
    ],
    ids=["T", "mT", "swapaxes", "transpose", "reshape", "ravel", "row", "element", "reversed", "new_axis"],
)
def test_views_have_derivatives(drawn: Callable[..., Any], view: Callable[[Any], Any]) -> None:
    gradcheck(lambda a: ops.exp(view(a)), (drawn(2, 3, 4),))


def test_gradcheck_refuses_a_gradient_that_is_nan(drawn: Callable[..., Any]) -> None:
    def of_negative(a: Any) -> Any:
        return ops.where(ops.less(a, 0.0), a, ops.sqrt(a))  # at a negative number 0 times the derivative of its root

    with np.errstate(invalid="ignore"), pytest.raises(GradientError, match="got nan"):
        gradcheck(of_negative, (drawn(3) * 0.0 - 1.0,))


def test_powers_of_zero_have_finite_gradients(device: Device) -> None:
    """As in torch. Differences do not show it: powers of zero with a negative exponent are infinite."""
    base, exponent = from_host(np.zeros(3), device), from_host(np.arange(3.0), device)

    with np.errstate(divide="ignore", invalid="ignore"):
        by_base, by_exponent = grad(lambda a, b: ops.sum(ops.pow(a, b)), (0, 1))(base, exponent)

    assert to_host(by_base).tolist() == [0.0, 1.0, 0.0]
    assert to_host(by_exponent).tolist() == [0.0, 0.0, 0.0]


def test_the_derivative_of_a_derivative(drawn: Callable[..., Any]) -> None:
    def slope(a: Any) -> Any:
        return grad(lambda b: ops.sum(ops.layer_norm(ops.tanh(b) * b, b[0], b[1]) / (b + 1.0)))(a)

    gradcheck(slope, (drawn(3, 4),))


def test_a_traced_array_of_the_outer_derivative_is_a_constant_to_the_inner_one(drawn: Callable[..., Any]) -> None:
    def outer(a: Any) -> Any:
        return ops.sum(a * grad(lambda b: ops.sum(a * b * b))(a))  # 2 a * a * a

    found = grad(outer)(a := drawn(3))

    assert to_host(found) == pytest.approx(6 * to_host(a) ** 2)


def test_a_pull_may_be_called_again(drawn: Callable[..., Any]) -> None:
    a = drawn(3)
    value, pull = vjp(lambda a: (ops.exp(a), {"sum": ops.sum(a)}), a)

    (first,) = pull((value[0], value[1]))
    (again,) = pull((value[0], value[1]))

    assert np.array_equal(to_host(first), to_host(again))
    assert to_host(first) == pytest.approx(np.exp(2 * to_host(a)) + to_host(a).sum())


def test_a_pull_that_is_dropped_frees_its_arrays_at_once(drawn: Callable[..., Any], without_collector: None) -> None:
    made: list[weakref.ref[Any]] = []

    def function(x: Any) -> Any:
        y = ops.exp(x)
        made.append(weakref.ref(stop_gradient(y)))
        return ops.sum(ops.mul(y[::2], x[::2]))

    _, pull = vjp(function, drawn(6))
    pull(drawn())
    was_kept = made[0]() is not None
    del pull

    assert was_kept
    assert made[0]() is None


@pytest.mark.parametrize("parts", [1, 2])
def test_gradients_are_freed_before_the_next_custom_backward_runs(
    drawn: Callable[..., Any], without_collector: None, parts: int
) -> None:
    made: list[weakref.ref[Any]] = []
    was_kept: list[bool] = []

    class Later(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return ops.mul(x, 1.0)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            gradient = ops.mul(grad, 3.0)
            made.append(weakref.ref(gradient))
            return gradient

    class Earlier(Later):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            was_kept.extend(one() is not None for one in made)
            return grad

    def function(x: Any) -> Any:
        doubled = Earlier.apply(x)
        if parts == 1:
            return ops.sum(Later.apply(ops.mul(doubled, 2.0)))
        return ops.add(ops.sum(Later.apply(doubled)), ops.sum(Later.apply(doubled)))

    found = grad(function)(drawn(6))

    assert was_kept == [False] * parts
    assert to_host(found).tolist() == [6.0] * 6


def test_a_directional_derivative(drawn: Callable[..., Any]) -> None:
    a, b, direction = drawn(3, 4), drawn(4, 2), drawn(3, 4)
    zero = from_host(np.zeros((4, 2)), place(a))

    value, tangent = jvp(lambda a, b: ops.gelu(a @ b), (a, b), (direction, zero))

    step = 1e-6
    moved = [ops.gelu(ops.add(a, ops.mul(direction, sign * step)) @ b) for sign in (1.0, -1.0)]
    assert np.array_equal(to_host(value), to_host(ops.gelu(a @ b)))
    assert to_host(tangent) == pytest.approx((to_host(moved[0]) - to_host(moved[1])) / (2 * step), rel=1e-7)


def place(array: Any) -> Device:
    return registry.device_of(array, "an array")


def test_casts_of_autocast_are_differentiated(device: Device, drawn: Callable[..., Any]) -> None:
    x, w = drawn(8, 5, dtype="float32"), drawn(3, 5, dtype="float32")
    seen = []

    def loss(w: Any) -> Any:
        with autocast(device.kind, "float16"):
            product = ops.matmul(x, w.T)
        seen.append(product.dtype)
        return ops.sum(product)

    found = grad(loss)(w)

    assert seen == [np.float16]
    assert found.dtype == np.float32
    assert to_host(found) == pytest.approx(np.tile(to_host(x).sum(axis=0), (3, 1)), rel=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_loss_is_scaled_inside_the_function(device: Device, drawn: Callable[..., Any], dtype: str) -> None:
    scaler = GradScaler(device.kind, init_scale=4.0)
    x = drawn(8, dtype=dtype)

    found = grad(lambda x: scaler.scale(ops.sum(x * x)))(x)

    assert to_host(found).tolist() == (8 * to_host(x)).tolist()


def test_dropout_passes_gradients_where_it_kept(drawn: Callable[..., Any]) -> None:
    value, pull = vjp(lambda a: random.dropout(a, 0.5), a := drawn(64))

    (found,) = pull(from_ones(a))

    assert np.array_equal(to_host(found) * to_host(a), to_host(value))
    assert 0 < np.count_nonzero(to_host(found)) < 64


def from_ones(array: Any) -> Any:
    return from_host(np.ones(array.shape), place(array))


@requires("streams")
def test_gradients_of_two_streams_meet(device: Device, backend: Any, side: Any, drawn: Callable[..., Any]) -> None:
    a, b = drawn(64), drawn(64)
    main = backend.current_stream(device.index)

    def function(a: Any, b: Any) -> Any:
        product = a * b
        side.wait_stream(main)
        with backend.use_stream(side):
            left = ops.exp(product)
        right = ops.tanh(product)
        main.wait_stream(side)
        return ops.sum(left * right)

    with backend.activate(device.index):
        found = [to_host(one) for one in grad(function, (0, 1))(a, b)]
        expected = grad(lambda a, b: ops.sum(ops.exp(a * b) * ops.tanh(a * b)), (0, 1))(a, b)

    assert all(np.allclose(one, to_host(right), rtol=1e-13) for one, right in zip(found, expected, strict=True))


def test_results_of_one_shape_and_two_dtypes_keep_their_own(drawn: Callable[..., Any]) -> None:
    a, b = drawn(5, dtype="float32"), drawn(5)

    def function(a: Any, b: Any) -> Any:
        of_a, of_b = ops.exp(a), ops.exp(b)  # one right after the other
        return ops.add(ops.sum(of_a), ops.sum(ops.exp(of_b)))

    found = grad(function, (0, 1))(a, b)

    assert [str(one.dtype) for one in found] == ["float32", "float64"]
    assert to_host(found[1]) == pytest.approx(np.exp(to_host(b) + np.exp(to_host(b))), rel=1e-13)


@requires("streams")
def test_a_gradient_that_is_copied_is_kept_until_its_stream_is_joined(
    device: Device, backend: Any, side: Any, drawn: Callable[..., Any]
) -> None:
    a, weights = drawn(3, 4), drawn(4, 3)
    main = backend.current_stream(device.index)

    def function(a: Any) -> Any:
        side.wait_stream(main)
        with backend.use_stream(side):
            total = ops.sum(ops.exp(a.mT) * weights)  # the gradient by a is transposed, so a copy of it is returned
        main.wait_stream(side)
        return total

    found = grad(function)(a)

    assert to_host(found) == pytest.approx(np.exp(to_host(a)) * to_host(weights).T)


@requires("streams", "graphs")
def test_two_streams_are_captured_together(
    device: Device, backend: Any, side: Any, made: Callable[..., Any], drawn: Callable[..., Any]
) -> None:
    a, fresh, out = drawn(64), drawn(64), drawn(64)
    worker = backend.new_stream(device.index)

    def step() -> None:
        def function(a: Any) -> Any:
            side.wait_stream(worker)
            with backend.use_stream(side):
                left = ops.exp(a)
            right = ops.tanh(a)
            worker.wait_stream(side)
            return ops.sum(left * right)

        ops.copy(grad(function)(a), out=out)

    backend.synchronize(device.index)
    with backend.activate(device.index), backend.use_stream(worker):
        step()
        backend.synchronize(device.index)
        capture = made()
        capture.begin()
        step()
        capture.end()
        ops.copy(fresh, out=a)
        capture.replay()
        worker.synchronize()
    x = to_host(fresh)
    assert to_host(out) == pytest.approx(np.exp(x) * np.tanh(x) + np.exp(x) / np.cosh(x) ** 2)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_the_backward_pass_have_the_precision_of_the_call(device: Device, name: str) -> None:
    spec = PRODUCTS[name]
    args, options = next(one for one in spec.samples(Samples(3, "float32")) if one.kind == "values").on(device)
    places = [place for place, one in enumerate(args) if getattr(one, "dtype", None) == np.float32]

    def product(*chosen: Any) -> Any:
        given = dict(zip(places, chosen, strict=True))
        return spec.declared(*(given.get(place, one) for place, one in enumerate(args)), **options, precision="bf16x9")

    value, pull = vjp(product, *(args[place] for place in places))
    seen: list[str | None] = []

    def listen(call: Call, proceed: Callable[[Call], Any]) -> Any:
        if "precision" in call.arguments:
            seen.append(call.arguments["precision"])
        return proceed(call)

    with interpose(listen):
        pull(value)

    assert set(seen) == {"bf16x9"}
