"""Bodies of complex arrays on every device, against NumPy's own results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay import Device, devices, from_host, jit, to_host
from cuassay.cuda import jiterator
from cuassay.errors import CompileError

HEAD = "template <typename T> "
DTYPES = ("complex64", "complex128")
RELATIVE = {"complex64": 2e-6, "complex128": 4e-15}

MIXED = jit.elementwise(HEAD + "T mixed(T a, T b, T alpha) { return alpha * a * b + a / b - 1; }", alpha=2.0)


@pytest.fixture(params=DTYPES)
def dtype(request: Any, device: Device) -> str:
    """A complex dtype that the device computes with."""
    if not devices.capabilities(device).answer(f"elementwise:{request.param}"):
        pytest.skip(f"no elementwise operations in {request.param}")
    name: str = request.param
    return name


@pytest.fixture
def put(device: Device) -> Callable[..., Any]:
    """An array on the device."""
    return lambda values: from_host(np.asarray(values), device)


def drawn(dtype: str, shape: Any = 1031, scale: float = 1.0) -> Any:
    """Complex numbers of all directions, and more of them than whole packs."""
    chance = np.random.default_rng(11)
    return (scale * (chance.normal(size=shape) + 1j * chance.normal(size=shape))).astype(dtype)


def close(found: Any, wanted: Any, dtype: str, factor: float = 1.0) -> None:
    """Compare with NumPy's result by the magnitude of the difference."""
    found = to_host(found)
    assert found.dtype == dtype
    assert np.all(np.abs(found - wanted) <= factor * RELATIVE[dtype] * np.maximum(np.abs(wanted), 1))


def test_arithmetic(put: Any, dtype: str) -> None:
    a, b = drawn(dtype), drawn(dtype)[::-1] + dtype_of(dtype)(3)

    close(MIXED(put(a), put(b)), 2 * a * b + a / b - 1, dtype, 4)
    close(MIXED(put(a), put(b), alpha=0.5), a * b / 2 + a / b - 1, dtype, 4)


def dtype_of(name: str) -> Any:
    """The scalar type of a dtype."""
    return np.dtype(name).type


def test_broadcast_and_strided_arrays(put: Any, dtype: str, device: Device) -> None:
    a, b = drawn(dtype, (6, 5)), drawn(dtype, (6, 1)) + dtype_of(dtype)(3)

    close(MIXED(put(a), put(b)), 2 * a * b + a / b - 1, dtype, 4)
    if devices.capabilities(device).answer("views"):
        close(MIXED(put(a)[::2, ::-1], put(b)[::2]), (2 * a * b + a / b - 1)[::2, ::-1], dtype, 4)


@pytest.mark.parametrize("other", ["bool", "int16", "float16", "bfloat16", "float32"])
def test_real_arrays_meet_complex_ones(put: Any, dtype: str, other: str, device: Device) -> None:
    if not devices.capabilities(device).answer(f"elementwise:{other}"):
        pytest.skip(f"no elementwise operations in {other}")
    import ml_dtypes

    a, b = drawn(dtype, 33), (np.arange(33) % 2 + 1).astype(getattr(ml_dtypes, other, other))

    close(MIXED(put(a), put(b)), 2 * a * b.astype(dtype) + a / b.astype(dtype) - 1, dtype, 4)


def test_python_numbers_in_place_of_an_array(put: Any, dtype: str) -> None:
    a = drawn(dtype, 33)

    close(MIXED(put(a), 2), 4 * a + a / 2 - 1, dtype, 4)
    close(MIXED(put(a), 1j), 2j * a + a / 1j - 1, dtype, 4)
    if dtype == "complex64":
        close(MIXED(put(a.real), 1j), 2j * a.real + a.real / 1j - 1, dtype, 4)


def test_several_outputs_and_in_place(put: Any, dtype: str) -> None:
    parts = jiterator._create_multi_output_jit_fn(
        HEAD
        + "void parts(T a, T& conjugate, T& square) { conjugate = std::conj(a); square = std::real(conjugate * a); }",
        2,
    )
    a = drawn(dtype, 33)

    conjugate, square = parts(put(a))
    close(conjugate, a.conj(), dtype)
    close(square, np.abs(a) ** 2, dtype, 4)
    x = put(a)
    assert MIXED(x, x, out=x) is x
    close(x, 2 * a * a, dtype, 4)


#: Each function, and the factor of its arguments: where results are finite, also when a part of the formula is not.
FUNCTIONS = {
    "abs": 1, "conj": 1, "cos": 8, "cosh": 8, "exp": 8, "imag": 1, "log": 1, "log10": 1, "real": 1, "sin": 8, "sinh": 8,
    "sqrt": 1, "tan": 1, "tanh": 8,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function(put: Any, dtype: str, name: str) -> None:
    fn = jit.elementwise(f"{HEAD}T of_{name}(T a) {{ return std::{name}(a); }}")
    a = drawn(dtype, scale=FUNCTIONS[name])

    close(fn(put(a)), getattr(np, name)(a.astype(np.complex128)), dtype, 4)


def test_the_root_keeps_the_sign_of_a_zero(put: Any, dtype: str) -> None:
    fn = jit.elementwise(f"{HEAD}T signed_root(T a) {{ return std::sqrt(a); }}")
    a = np.array([complex(4, 0.0), complex(4, -0.0), complex(-4, 0.0), complex(-4, -0.0)], dtype)

    found = to_host(fn(put(a)))

    assert np.round(found.real).tolist() == [2, 2, 0, 0]
    assert np.round(found.imag).tolist() == [0, 0, 2, -2]
    assert np.signbit(found.imag).tolist() == [False, True, False, True]


@pytest.mark.parametrize("exponent", ["b", "3", "-2", "0.5f", "T(0, 1)"])
def test_powers(put: Any, dtype: str, exponent: str) -> None:
    fn = jit.elementwise(f"{HEAD}T power(T a, T b) {{ return pow(a, {exponent}); }}")
    a, b = drawn(dtype) + dtype_of(dtype)(3), drawn(dtype)[::-1]
    right = {"b": b, "T(0, 1)": 1j}.get(exponent) if exponent in ("b", "T(0, 1)") else float(exponent.rstrip("f"))

    close(fn(put(a), put(b)), a.astype(np.complex128) ** right, dtype, 20)


EDGES = {
    "exp": [np.log(3e38) + 1 + 1.57j, -1e4 + 1j, 1e-30 + 0j],
    "sinh": [90 + 1.57j, -90 + 0j, 1e-30 + 1e-30j],
    "cosh": [90 + 1.57j, -90 + 0j, 0j],
    "log": [3e38 + 3e38j, 1e-44 + 1e-44j, 0.6 + 0.8j, 1 + 1e-12j, -1 + 0j, 2 + 3j],
    "sqrt": [3e38 + 3e38j, 1e-44 + 0j, -4 + 0j, 0j, -4 - 1e-30j, 1e-40 - 1e-40j],
    "tanh": [50 + 1j, -50 + 0j, 1e-30 + 1e-30j, 1.5707964j],
    "abs": [3e38 + 1e38j, 1e-40 + 1e-40j, 0j],
}


@pytest.mark.parametrize("name", EDGES)
def test_numbers_near_the_ends_of_the_range_are_not_lost(put: Any, device: Device, name: str) -> None:
    if not devices.capabilities(device).answer("elementwise:complex64"):
        pytest.skip("no elementwise operations in complex64")
    a = np.asarray(EDGES[name], np.complex64)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(a.astype(np.complex128)).astype(np.complex64)

    found = to_host(jit.elementwise(f"{HEAD}T edge_of_{name}(T a) {{ return {name}(a); }}")(put(a)))

    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(found), part(wanted), rtol=1e-5, atol=3e-45)


def test_helpers_may_have_any_name(put: Any, dtype: str) -> None:
    names = ("equal", "product", "power", "grown", "turned")
    helpers = "".join(f"{HEAD}T {name}(T a, T b) {{ return a + b; }}\n" for name in names)
    calls = " + ".join(f"{name}(a, a)" for name in names)
    a = drawn(dtype, 33)

    close(jit.elementwise(f"{helpers}{HEAD}T named(T a) {{ return {calls}; }}")(put(a)), 10 * a, dtype, 4)


def test_what_complex_numbers_do_not_have_is_refused_on_each_device(put: Any, dtype: str) -> None:
    fn = jit.elementwise(HEAD + "T positive_part(T a) {\n  return a > 0 ? a : 0;\n}")

    with pytest.raises(CompileError, match=r"line 2, column 10 of the body: the operator > of a complex number"):
        fn(put(drawn(dtype, 3)))
