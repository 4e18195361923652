"""Matrix products on every kind: precision modes, epilogues, layouts, what a call says of its way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, precision, to_host
from cuassay.arrays.rounding import round_tf32
from cuassay.core.precision import MODES
from cuassay.ops import registry
from cuassay.testing import OpSpec, requires
from cuassay.testing.generated import CHECKS
from cuassay.testing.guards import computed_precision, products_as_asked
from cuassay.testing.own_specs import own_specs
from cuassay.testing.samples import Samples

FLOAT32_PRODUCTS = [spec for spec in own_specs() if spec.op_class == "matmul" and "float32" in spec.dtypes]

ROUNDING_MODES = ("tf32", "bf16", "fp16")
SPLIT_MODES = ("tf32x3", "bf16x6", "bf16x9")

#: Rows, inner extent and columns from which a device may compute a mode by other means than a small product.
LARGE = (1024, 1024, 1024)


def operands(shape: tuple[int, int, int] = (64, 256, 48), *, scale: float = 1.0) -> tuple[Any, Any]:
    make = Samples(7, "float32", "blas")
    m, k, n = shape
    return make((m, k), low=-scale, high=scale).values, make((k, n), low=-1, high=1).values


def error(result: Any, a: Any, b: Any) -> float:
    """Relative to float64, in the Frobenius norm."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(to_host(result) - exact) / np.linalg.norm(exact))


# ------------------------------------------------------------------------------------------------ precision


@pytest.mark.parametrize("mode", ["ieee", *ROUNDING_MODES])
def test_a_mode_rounds_what_it_says_and_no_more(device: Device, mode: Any) -> None:
    a, b = operands()

    result = ops.mm(from_host(a, device), from_host(b, device), precision=mode)

    found = computed_precision(a, b, to_host(result))
    assert found in ({mode, "tf32"} if mode in ("bf16", "fp16") else {mode})  # a library may do better than asked


@pytest.mark.parametrize("mode", SPLIT_MODES)
@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18])
def test_a_split_mode_is_as_good_as_float32(device: Device, mode: Any, scale: float) -> None:
    a, b = operands(scale=scale)
    there = from_host(a, device), from_host(b, device)

    native, split = error(ops.mm(*there), a, b), error(ops.mm(*there, precision=mode), a, b)

    assert split <= 2 * native


@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18])
def test_two_bfloat16_parts_hold_16_bits(device: Device, scale: float) -> None:
    a, b = operands(LARGE, scale=scale)

    result = ops.mm(from_host(a, device), from_host(b, device), precision="bf16x3")

    assert error(result, a, b) <= 5e-5


@pytest.mark.parametrize("mode", ["ieee", "bf16x3", *SPLIT_MODES])
def test_infinities_and_nan_are_those_of_float32(device: Device, mode: Any) -> None:
    a, b = operands((4, 33, 5))
    a[0, 3], a[1, 5], b[7, 2] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = a @ b

        result = to_host(ops.mm(from_host(a, device), from_host(b, device), precision=mode))

    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(result[np.isinf(expected)], expected[np.isinf(expected)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spec", FLOAT32_PRODUCTS, ids=lambda spec: spec.name)
def test_every_product_holds_in_every_mode(device: Device, spec: OpSpec, mode: Any) -> None:
    with precision(mode):
        CHECKS["values"](spec, device, np.dtype(np.float32))


def test_a_call_overrides_the_context(device: Device) -> None:
    a, b = operands()
    there = from_host(a, device), from_host(b, device)

    with precision("tf32"):
        inside, overridden = ops.matmul(*there), ops.matmul(*there, precision="ieee")

    assert computed_precision(a, b, to_host(inside)) == "tf32"
    assert computed_precision(a, b, to_host(overridden)) == "ieee"


@pytest.mark.parametrize(
    ("modes", "columns"), [(("ieee", "tf32", "ieee"), 80), (("tf32", "ieee", "tf32"), 96)], ids=["ieee", "tf32"]
)
def test_each_call_of_the_same_arrays_has_the_mode_of_its_context(device: Device, modes: Any, columns: int) -> None:
    """Each case has a shape of its own, for which a device has made nothing ready."""
    a, b = operands((48, 256, columns))
    there, found = (from_host(a, device), from_host(b, device)), []

    for mode in modes:
        with precision(mode):
            found.append(to_host(ops.mm(*there)))

    assert tuple(computed_precision(a, b, result) for result in found) == modes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_a_mode_is_for_float32_alone(device: Device, dtype: str) -> None:
    make = Samples(3, dtype)
    a, b = make((5, 33)).on(device), make((33, 7)).on(device)

    plain = to_host(ops.mm(a, b))
    with precision("bf16"):
        assert to_host(ops.mm(a, b)).tobytes() == plain.tobytes()


# ------------------------------------------------------------------------------------------------ the guard


@pytest.mark.parametrize("mode", MODES)
def test_the_guard_lets_pass_what_was_asked_for(device: Device, mode: Any) -> None:
    there = [from_host(x, device) for x in operands()]

    with products_as_asked():
        ops.mm(*there, precision=mode)


@pytest.mark.parametrize(
    ("asked", "leak"),
    [
        ("ieee", "tf32"),
        ("tf32x3", "tf32"),
        ("bf16x3", "tf32"),
        ("bf16x9", "tf32"),
        ("bf16x6", "bf16x3"),
        ("ieee", "bf16x3"),
    ],
)
def test_the_guard_finds_a_lower_precision_than_asked(device: Device, asked: Any, leak: Any) -> None:
    there = [from_host(x, device) for x in operands(LARGE)]

    def leaking(kernel: Any) -> Any:
        return lambda a, b, *, out, precision, **named: kernel(a, b, out=out, precision=leak, **named)

    kind = "cpu" if device.kind == "sim" else device.kind
    with registry.substituted("mm", kind=kind, wrap=leaking), products_as_asked():
        ops.mm(*there, precision=leak)
        with pytest.raises(AssertionError, match=rf"mm of .* asked for in '{asked}', computed in '{leak}'"):
            ops.mm(*there, precision=asked)


def wide_products(device: Device) -> dict[str, Any]:
    a, b = (from_host(x, device) for x in operands(LARGE))
    stacked = [from_host(x[None], device) for x in operands(LARGE)]
    row = from_host(np.linspace(-1, 1, b.shape[1], dtype=np.float32), device)
    return {
        "addmm": lambda **named: ops.addmm(row, a, b, alpha=0.5, beta=2.0, **named),
        "baddbmm": lambda **named: ops.baddbmm(row, *stacked, beta=0.0, **named),
        "linear": lambda **named: ops.linear(a, ops.copy(b.T), row, **named),
        "grouped_mm": lambda **named: ops.grouped_mm(a, stacked[1], offs=(len(a) - 1,), **named),
        "bmm": lambda **named: ops.bmm(*stacked, **named),
    }


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "linear", "grouped_mm", "bmm"])
def test_the_guard_knows_the_product_in_other_calls(device: Device, name: str) -> None:
    call = wide_products(device)[name]

    def leaking(kernel: Any) -> Any:
        return lambda *arrays, precision, **named: kernel(*arrays, precision="tf32", **named)

    kind = "cpu" if device.kind == "sim" else device.kind
    with products_as_asked():
        call(precision="ieee")
    with registry.substituted(name, kind=kind, wrap=leaking), products_as_asked():
        call(precision="tf32")
        with pytest.raises(AssertionError, match=rf"{name} of .* asked for in 'ieee', computed in 'tf32'"):
            call(precision="ieee")


def test_the_guard_passes_over_activations(device: Device) -> None:
    a, b = (from_host(x, device) for x in operands())
    row = from_host(np.ones(b.shape[1], np.float32), device)

    with products_as_asked():
        ops.addmm(row, a, b, activation="relu", precision="ieee")
        ops.addmm(row, a, b, alpha=0.0, precision="ieee")
        ops.linear(a, ops.copy(b.T), row, activation="gelu_tanh", precision="ieee")


def test_operands_that_tf32_holds_do_not_tell() -> None:
    a, b = map(round_tf32, operands())

    assert computed_precision(a, b, a @ b) == "ieee"


# ------------------------------------------------------------------------------------------------ the way of a call


def test_linear_says_that_it_is_an_addmm_and_names_the_library(device: Device) -> None:
    make = Samples(1, "float32")
    arrays = make((8, 32)).on(device), make((16, 32)).on(device), make(16).on(device)

    steps = str(ops.explain(lambda: ops.linear(*arrays, activation="relu"))).splitlines()

    assert steps[0].startswith("linear(a (8, 32) float32")
    assert steps[1].strip() == "addmm(bias (16,), a (8, 32), weight.T (32, 16))"
    libraries = ("cuBLAS", "openblas", "mkl", "accelerate", "no BLAS known")
    assert any(library in step for library in libraries for step in steps)  # the last one where it fuses the activation


# ------------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("stack", "order"),
    [((2, 3), (0, 2, 1, 3)), ((2, 3), (1, 0, 2, 3)), ((4, 1), (0, 1, 2, 3)), ((2, 1, 3), (0, 1, 2, 3, 4))],
    ids=["heads inside rows", "axes exchanged", "an axis of one", "three axes"],
)
def test_stacks_of_any_order_multiply(device: Device, stack: Any, order: Any, dtype: str) -> None:
    make = Samples(5, dtype)
    host = make((*stack, 5, 7)).values.transpose(order)
    other = make((*host.shape[:-2], host.shape[-1], 4)).values
    base = from_host(np.ascontiguousarray(host.transpose(np.argsort(order))), device)

    result = ops.matmul(base.transpose(order), from_host(other, device))

    expected = host.astype(np.float32) @ other.astype(np.float32)
    np.testing.assert_allclose(to_host(result).astype(np.float32), expected, rtol=1e-2 if dtype == "bfloat16" else 1e-5)


@pytest.mark.parametrize("activation", [None, "relu", "gelu_tanh"])
def test_an_empty_inner_extent_leaves_the_bias(device: Device, activation: Any) -> None:
    make = Samples(2, "float32")
    bias = make(5).values
    arrays = make((3, 0)).on(device), make((5, 0)).on(device), from_host(bias, device)

    result = to_host(ops.linear(*arrays, activation=activation))

    alone = (
        bias
        if activation is None
        else to_host(ops.relu(bias) if activation == "relu" else ops.gelu(bias, approximate="tanh"))
    )
    np.testing.assert_allclose(result, np.broadcast_to(alone, (3, 5)), rtol=1e-4, atol=1e-6)


def test_where_beta_is_zero_nothing_of_c_comes_through(device: Device) -> None:
    make = Samples(2, "float32")
    a, b, c = make((3, 4)).on(device), make((4, 5)).on(device), make.full((3, 5), np.nan).on(device)

    np.testing.assert_array_equal(to_host(ops.addmm(c, a, b, beta=0.0)), to_host(ops.mm(a, b)))


@pytest.mark.parametrize("is_own", [False, True], ids=["new", "out is c"])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_a_product_of_nothing_is_what_is_added(device: Device, beta: float, is_own: bool) -> None:
    """With an inner extent of 0; what is added may be the output."""
    c, a, b = (from_host(np.full(shape, 3.0, np.float32), device) for shape in ((3, 4), (3, 0), (0, 4)))

    found = ops.addmm(c, a, b, beta=beta, out=c if is_own else None)

    assert to_host(found).tolist() == [[3.0 * beta] * 4] * 3


@requires("graphs")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_plan_runs_many_times_and_inside_a_capture(device: Device, dtype: str) -> None:
    from cuassay import devices

    backend = devices.backend(device.kind)
    make = Samples(11, dtype)
    with backend.activate(device.index):
        a, b = make((16, 32)).on(device), make((32, 24)).on(device)
        expected = to_host(ops.mm(a, b))
        stream = backend.new_stream(device.index)
        stream.wait_stream(backend.current_stream(device.index))
        with backend.use_stream(stream):
            plan = ops.mm.prepare(a, b)
            for _ in range(4):
                assert to_host(plan.run()).tobytes() == expected.tobytes()
            capture = backend.new_capture(device.index)
            try:
                capture.begin()
                plan.run()
                capture.end()
                ops.copy(make.full((16, 32), 0).on(device), out=a)
                capture.replay()
                assert not to_host(plan.out).astype(np.float32).any()
            finally:
                capture.reset()
