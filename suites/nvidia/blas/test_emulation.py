"""Float32 products of the split modes on tensor cores: errors, also native ones', layouts, infinities, planted faults.

Small products are computed natively; here all are computed by parts, so that every tail is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from cuassay import cuda, devices, ops, precision
from cuassay.devices.cuda.launch import launch, source
from cuassay.errors import LibraryNotFoundError

MODES: tuple[Any, ...] = ("tf32x3", "bf16x3", "bf16x6", "bf16x9")
FILE = "emulated_gemm.cu"

#: Relative to |a| |b|, element by element: what is always allowed.
FLOOR = {"bf16x3": 2.0**-16}
FLOAT32_FLOOR = 2.0**-22


@pytest.fixture
def all_served(on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product by parts; needs a device of compute capability 9.0."""
    if cuda.get_device_capability() != (9, 0):
        pytest.skip("no device of compute capability 9.0")
    from cuassay.devices.cuda.blas import controls, emulation

    monkeypatch.setattr(emulation, "_NATIVE_S", 1.0)
    controls.renew()
    yield
    controls.renew()


def there(x: Any) -> Any:
    return devices.from_host(x, "cuda")


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def ill_scaled(m: int, k: int, n: int) -> tuple[Any, Any]:
    """Rows, columns and terms scaled by powers of two from 2**-40 to 2**40."""
    rng = np.random.default_rng(m + k + n)
    rows, terms, columns = (np.exp2(rng.integers(-40, 41, extent)) for extent in (m, k, n))
    a, b = numbers(m, k) * rows[:, None] * terms, numbers(k, n, seed=1) / terms[:, None] * columns
    return a.astype(np.float32), b.astype(np.float32)


def componentwise(result: Any, a: Any, b: Any) -> float:
    """The largest error of an element, relative to |a| |b|."""
    wide = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(devices.to_host(result) - np.matmul(*wide))
    return float(np.max(error / np.matmul(*map(np.abs, wide))))


def floor(mode: Any, terms: int) -> float:
    """What is always allowed: sums of many chunks of 64 are rounded as many times."""
    return FLOOR.get(mode, FLOAT32_FLOOR) * max(1, (terms / 64) ** 0.5 / 2)


def check_errors(a: Any, b: Any, mode: Any) -> None:
    of_a, of_b = there(a), there(b)

    native = componentwise(ops.matmul(of_a, of_b, precision="ieee"), a, b)
    found = componentwise(ops.matmul(of_a, of_b, precision=mode), a, b)

    assert found <= max(1.5 * native, floor(mode, a.shape[-1]))


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("mode", MODES)
def test_the_way_says_that_parts_are_multiplied(all_served: None, mode: Any) -> None:
    a = there(numbers(64, 64))

    assert "multiply_parts<" in str(ops.explain(lambda: ops.mm(a, a, precision=mode)))


def test_a_small_product_is_native(all_served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay.devices.cuda.blas import emulation

    monkeypatch.setattr(emulation, "_NATIVE_S", 0.0)
    a = there(numbers(64, 64))

    assert "multiply_parts" not in str(ops.explain(lambda: ops.mm(a, a, precision="bf16x6")))
    assert (ops.mm(a, a, precision="bf16x6") == ops.mm(a, a)).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 3, 5), (127, 65, 129), (128, 64, 128), (129, 63, 257), (300, 500, 200), (1700, 70, 1600)]
)
def test_errors_at_every_tail(all_served: None, shape: tuple[int, int, int], mode: Any) -> None:
    m, k, n = shape

    check_errors(numbers(m, k), numbers(k, n, seed=1), mode)


def check_long_sums(mode: Any) -> None:
    check_errors(np.abs(numbers(200, 20_000)), np.abs(numbers(20_000, 150, seed=1)), mode)


@pytest.mark.parametrize("mode", MODES)
def test_errors_of_many_terms_of_one_sign(all_served: None, mode: Any) -> None:
    check_long_sums(mode)


def test_sums_that_stay_in_the_tensor_cores_are_found(all_served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay.devices.cuda.blas import emulation

    monkeypatch.setitem(emulation.FORMS, "bf16x6", replace(emulation.FORMS["bf16x6"], chain=2**20))

    with pytest.raises(AssertionError):
        check_long_sums("bf16x6")


@pytest.mark.parametrize("mode", MODES)
def test_errors_of_ill_scaled_numbers(all_served: None, mode: Any) -> None:
    check_errors(*ill_scaled(300, 700, 200), mode)


@pytest.mark.parametrize("mode", MODES)
def test_numbers_near_zero_lose_only_what_bfloat16_cannot_hold(all_served: None, mode: Any) -> None:
    a = numbers(140, 90) * np.float32(2.0**-125)
    b = numbers(90, 130, seed=1)
    a[0, :4] = 2.0**-133, 2.0**-134, 2.0**-149, 0

    result = devices.to_host(ops.mm(there(a), there(b), precision=mode))

    wide = a.astype(np.float64), b.astype(np.float64)
    lost = 2.0**-134 * np.abs(wide[1]).sum(0)
    rounded = FLOOR.get(mode, FLOAT32_FLOOR) * (np.abs(wide[0]) @ np.abs(wide[1])) + 2.0**-148
    assert (np.abs(result - wide[0] @ wide[1]) <= lost + rounded).all()


# ------------------------------------------------------------------------------------------------ special numbers


def check_specials(mode: Any) -> None:
    a, b = numbers(150, 300), numbers(300, 140, seed=1)
    a[3, 5], a[40, 7], b[2, 9], b[200, 9], a[70, 130], b[130, 100] = np.inf, np.nan, -np.inf, np.inf, np.inf, 0
    b[5, :20] = 2.0 ** np.arange(20)  # whose further parts are 0
    with np.errstate(invalid="ignore"):
        expected = a @ b

    result = devices.to_host(ops.mm(there(a), there(b), precision=mode))

    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(result[np.isinf(expected)], expected[np.isinf(expected)])
    finite = np.isfinite(expected)
    wide = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error, size = np.abs(result - np.matmul(*wide)), np.matmul(*map(np.abs, wide))
    assert (error[finite] <= 4 * FLOOR.get(mode, FLOAT32_FLOOR) * size[finite]).all()  # a term outweighs all others


@pytest.mark.parametrize("mode", MODES)
def test_infinities_and_nan_are_those_of_float32(all_served: None, mode: Any) -> None:
    check_specials(mode)


def check_largest(mode: Any) -> None:
    a, b = np.zeros((130, 70), np.float32), np.zeros((70, 130), np.float32)
    a[0, 0], a[1, 65], b[0, 0], b[65, 1] = 3.4e38, -3.4e38, 1, 0.25  # bfloat16 would round 3.4e38 to infinity

    result = devices.to_host(ops.mm(there(a), there(b), precision=mode))

    np.testing.assert_allclose(np.diag(result)[:2], [a[0, 0], a[1, 65] / 4], rtol=FLOOR.get(mode, FLOAT32_FLOOR))


@pytest.mark.parametrize("mode", MODES)
def test_the_largest_numbers_stay_finite(all_served: None, mode: Any) -> None:
    check_largest(mode)


# ------------------------------------------------------------------------------------------------ layouts


#: Views of an array (batch, rows, columns), and of one whose columns are contiguous, made on the device.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "every other": lambda x: x[:, ::2, ::2],
    "backwards": lambda x: x[:, ::-1, ::-1],
    "odd pitch": lambda x: x[:, 1:, 3:],
    "columns": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "columns of odd pitch": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2)[:, 1:, 1:],
}


@pytest.mark.parametrize("of_b", LAYOUTS)
@pytest.mark.parametrize("of_a", LAYOUTS)
def test_operands_of_any_layout(all_served: None, of_a: str, of_b: str) -> None:
    a, b = LAYOUTS[of_a](there(numbers(3, 290, 270))), LAYOUTS[of_b](there(numbers(3, 270, 290, seed=1)))
    depth = min(a.shape[-1], b.shape[-2])
    a, b = a[..., :depth], b[..., :depth, :]

    result = ops.matmul(a, b, precision="bf16x6")

    assert componentwise(result, a.get(), b.get()) <= FLOAT32_FLOOR


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 150, 70), (70, 140)),
        ((150, 70), (4, 70, 140)),
        ((2, 3, 150, 70), (3, 70, 140)),
        ((2, 1, 150, 70), (3, 70, 40)),
    ],
    ids=["shared b", "shared a", "two axes", "both broadcast"],
)
def test_stacks_broadcast(all_served: None, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = numbers(*left), numbers(*right, seed=1)

    assert componentwise(ops.matmul(there(a), there(b), precision="bf16x6"), a, b) <= FLOAT32_FLOOR


def test_a_large_stack_goes_in_groups(all_served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay.devices.cuda.blas import emulation

    monkeypatch.setattr(emulation, "_MOST_WORKSPACE", 2 * 2**20)
    check_errors(numbers(11, 200, 300), numbers(11, 300, 140, seed=1), "bf16x6")
    check_errors(numbers(200, 300), numbers(11, 300, 140, seed=1), "bf16x6")


@pytest.mark.parametrize("count", [1, 11], ids=["one for all", "one for each"])
def test_what_is_added_to_a_large_stack_goes_in_the_same_groups(
    all_served: None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuassay.devices.cuda.blas import emulation

    monkeypatch.setattr(emulation, "_MOST_WORKSPACE", 2 * 2**20)
    a, b, c = numbers(11, 200, 300), numbers(11, 300, 140, seed=1), numbers(count, 200, 140, seed=2)

    found = ops.baddbmm(there(c), there(a), there(b), precision="bf16x6").get()

    np.testing.assert_allclose(found, a.astype(np.float64) @ b + c, rtol=1e-5, atol=1e-4)


# ------------------------------------------------------------------------------------------------ epilogues


def check_epilogue(activation: Any, turned: bool) -> None:
    import cupy

    a, b, c = numbers(2, 150, 70), numbers(2, 70, 140, seed=1), numbers(2, 150, 140, seed=2)
    out = cupy.full((2, 140, 150), np.nan, np.float32).swapaxes(-1, -2) if turned else cupy.full(c.shape, np.nan, "f4")
    with precision("bf16x6"):
        ops.baddbmm(there(c), there(a), there(b), alpha=0.5, beta=-2.0, out=out)
        biased = ops.linear(there(a[0]), there(b[0].T), there(c[0, 0]), activation=activation)

    np.testing.assert_allclose(out.get(), 0.5 * (a @ b) - 2 * c, rtol=1e-5, atol=1e-4)
    expected = there(a[0] @ b[0] + c[0, 0])
    if activation is not None:
        expected = ops.relu(expected) if activation == "relu" else ops.gelu(expected, approximate="tanh")
    np.testing.assert_allclose(biased.get(), expected.get(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu_tanh"])
def test_epilogues(all_served: None, activation: Any, turned: bool) -> None:
    check_epilogue(activation, turned)


def check_relu_of_nan() -> None:
    a, b = numbers(130, 70), numbers(70, 140, seed=1)
    a[5, 5] = np.nan
    with precision("bf16x6"):
        result = ops.linear(there(a), there(np.ascontiguousarray(b.T)), there(b[0]), activation="relu").get()

    assert np.isnan(result[5]).all()
    assert not np.isnan(np.delete(result, 5, 0)).any()


def test_relu_keeps_nan(all_served: None) -> None:
    check_relu_of_nan()


# ------------------------------------------------------------------------------------------------ calls


@pytest.mark.parametrize("mode", MODES)
def test_equal_calls_give_equal_bits(all_served: None, mode: Any) -> None:
    a, b = there(numbers(700, 900)), there(numbers(900, 800, seed=1))

    first = ops.mm(a, b, precision=mode).get().tobytes()

    assert all(ops.mm(a, b, precision=mode).get().tobytes() == first for _ in range(5))


def test_a_plan_and_a_capture_compute_the_same(all_served: None) -> None:
    a, b = there(numbers(300, 200)), there(numbers(200, 260, seed=1))
    expected = ops.mm(a, b, precision="bf16x6").get()
    plan = ops.mm.prepare(a, b, precision="bf16x6")
    for _ in range(4):
        np.testing.assert_array_equal(plan.run().get(), expected)

    graph, out = cuda.CUDAGraph(), ops.mm(a, b)
    with cuda.graph(graph):
        ops.mm(a, b, precision="bf16x6", out=out)
    a *= 2
    graph.replay()

    np.testing.assert_array_equal(out.get(), 2 * expected)


# ------------------------------------------------------------------------------------------------ planted faults


@dataclass(frozen=True)
class Fault:
    """`right`, once in the kernels' text, becomes `wrong`; `check` must fail. None reads or writes outside an array."""

    what: str
    right: str
    wrong: str
    check: Callable[[], None]

    def __str__(self) -> str:
        return self.what.replace(" ", "-")

    def spoilt(self) -> str:
        return source.kernel_source(FILE).replace(self.right, self.wrong)


def check_tails() -> None:
    check_errors(numbers(300, 500), numbers(500, 200, seed=1), "bf16x6")


def check_stack() -> None:
    check_errors(numbers(2, 300, 100), numbers(2, 100, 200, seed=1), "bf16x6")


FAULTS = (
    Fault("not swizzled", "(piece ^ row % 8) * 16", "piece * 16", check_tails),
    Fault("a part for another", "a[] = {2, 0, 1, 1, 0, 0}", "a[] = {0, 0, 1, 1, 0, 0}", check_tails),
    Fault("a product left out", "for (int term = 0; term < PRODUCTS; ++term) add(term, keep || term);",
          "for (int term = 1; term < PRODUCTS; ++term) add(term, keep || term > 1);", check_tails),
    Fault("chain not restarted", "const int keep = chunk % CHAIN;", "const int keep = chunk;", check_tails),
    Fault("last chunk left out", "if (chunk + 1 == chunks || chunk % CHAIN", "if (chunk + 1 < chunks && chunk % CHAIN",
          check_tails),
    Fault("rows of the other warpgroup", "warp / 4 * PLANE_NBYTES / 2", "0 / 4 * PLANE_NBYTES / 2", check_tails),
    Fault("rows not stored", "i + 8 * PITCH", "i + 0 * PITCH", check_tails),
    Fault("the next terms not reached", "+ k * 32) / 16, keep || k)", "+ 0 * 32) / 16, keep || k)", check_tails),
    Fault("infinities not noticed", "special |= !isfinite(values[p][i]);", "", partial(check_specials, "bf16x6")),
    Fault("infinities of b kept", "drop_specials(held_b, threadIdx.x);", "", partial(check_specials, "bf16x3")),
    Fault("largest rounds to infinity", "&& isfinite(x) ?", "&& !isfinite(x) ?", partial(check_largest, "bf16x6")),
    Fault("first of a stack", "same_a ? 0 : place.batch", "0", check_stack),
    Fault("beta ignored", "x[i] += beta * third[", "x[i] += third[", partial(check_epilogue, None, False)),
    Fault("alpha ignored", "x[i] = alpha * found", "x[i] = found", partial(check_epilogue, None, False)),
    Fault("bias of the first column", "bias ? bias[column]", "bias ? bias[0]", partial(check_epilogue, None, False)),
    Fault("no gelu", "activation == 2", "activation == 3", partial(check_epilogue, "gelu_tanh", False)),
    Fault("relu swallows NaN", "isnan(x) || x > 0.0f", "x > 0.0f", check_relu_of_nan),
    Fault("rows of out not reached", "out + batch * out_layout.batch + row * out_layout.row",
          "out + batch * out_layout.batch", partial(check_epilogue, None, True)),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_has_one_place_and_compiles(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
    assert source.kernel_source(FILE).count(fault.right) == 1
    try:
        source.compile_source(fault.spoilt(), name_expressions=["split_parts<3>"], arch="sm_90a", file=FILE)
    except LibraryNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def planted(all_served: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault], None]]:
    """Compiles the spoilt text, until the test is over."""
    from cuassay.devices.cuda.blas import controls

    right = launch.compile_source

    def plant(fault: Fault) -> None:
        def compile_spoilt(text: str, *, file: str, **options: Any) -> source.Compiled:
            return right(fault.spoilt() if file == FILE else text, file=file, **options)

        monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(launch, "compile_source", compile_spoilt)
        launch.kernel.cache_clear()
        controls.renew()  # what is ready for a layout holds kernels

    yield plant
    launch.kernel.cache_clear()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found(fault: Fault, planted: Callable[[Fault], None]) -> None:
    fault.check()
    planted(fault)

    with pytest.raises(AssertionError):
        fault.check()
