"""Bodies with complex numbers: NumPy's arithmetic, the functions of <complex>, and what is refused, with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay import jit
from cuassay.autograd import vjp
from cuassay.errors import ArgumentError, CompileError, DTypeError, GradientError

HEAD = "template <typename T> "
DTYPES = ("complex64", "complex128")

MEANINGS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "product": ("T f(T a, T b) { return a * b + a; }", lambda a, b: a * b + a),
    "quotient": ("T f(T a, T b) { return -a / b - +b; }", lambda a, b: -a / b - b),
    "whole numbers": ("T f(T a, T b) { return 2 * a + b / 4 - 1; }", lambda a, b: 2 * a + b / 4 - 1),
    "floats": ("T f(T a, T b) { return 0.5f * a + b * 0.25f; }", lambda a, b: a / 2 + b / 4),
    "assignments": ("T f(T a, T b) { T r = 0; r += a; r *= b; r -= 1; return r /= 2; }", lambda a, b: (a * b - 1) / 2),
    "equal": ("T f(T a, T b) { return a == b ? 1 : a != a ? 2 : 3; }", lambda a, b: np.full_like(a, 3)),
    "with a real number": ("T f(T a, T b) { return (a == 1 || 0 != b) + a; }", lambda a, b: 1 + a),
    "choice": ("T f(T a, T b) { return real(a) < imag(b) ? a : 0; }", lambda a, b: np.where(a.real < b.imag, a, 0)),
    "two parts": ("T f(T a, T b) { return T(0, 1) * a + T(real(b), 2); }", lambda a, b: 1j * a + b.real + 2j),
    "casts": ("T f(T a, T b) { return T(2) * a + static_cast<T>(1) + (T)b; }", lambda a, b: 2 * a + 1 + b),
    "parts": ("T f(T a, T b) { return std::real(a) + std::imag(b); }", lambda a, b: a.real + b.imag),
    "conjugate": ("T f(T a, T b) { return std::conj(a) * b; }", lambda a, b: a.conj() * b),
    "real result": ("double f(T a, T b) { return abs(a - b); }", lambda a, b: abs(a - b)),
    "helper": (
        f"T lesser(T a, T b) {{ return a < b ? a : b; }} {HEAD}T f(T a, T b) {{ return lesser(abs(a), abs(b)) * a; }}",
        lambda a, b: np.minimum(abs(a), abs(b)) * a,
    ),
    "loop": (
        "T f(T a, T b) { int n = 0; auto z = a; while (abs(z) < 4 && n < 9) { z = z * z + b; ++n; } return n; }",
        lambda a, b: _steps(a, b),
    ),
}  # fmt: skip


def _steps(a: Any, b: Any) -> Any:
    """How often z = z * z + b stays inside the circle of radius 4."""
    counts, z = np.zeros(a.shape), a
    for _ in range(9):
        inside = abs(z) < 4
        counts += inside
        z = np.where(inside, z * z + b, z)
    return counts


def drawn(dtype: str, count: int = 2) -> list[Any]:
    """Complex numbers of all directions."""
    chance = np.random.default_rng(7)
    return [(chance.normal(size=64) + 1j * chance.normal(size=64)).astype(dtype) for _ in range(count)]


def close(found: Any, wanted: Any, dtype: str) -> None:
    """Compare numbers that may differ by a few roundings."""
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "complex64" else 1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("code", "wanted"), MEANINGS.values(), ids=MEANINGS)
def test_a_body_means_what_numpy_computes(code: str, wanted: Callable[[Any, Any], Any], dtype: str) -> None:
    a, b = drawn(dtype)

    close(jit.elementwise(HEAD + code)(a, b), wanted(a, b), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", "cos cosh exp log log10 sin sinh sqrt tan tanh abs real imag conj".split())
@pytest.mark.parametrize("space", ["", "std::"])
def test_each_function_is_numpys(name: str, space: str, dtype: str) -> None:
    (a,) = drawn(dtype, 1)

    close(jit.elementwise(f"{HEAD}T f(T a) {{ return {space}{name}(a); }}")(a), getattr(np, name)(a), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_and_angles(dtype: str) -> None:
    a, b = drawn(dtype)

    close(jit.elementwise(HEAD + "T f(T a, T b) { return pow(a, b); }")(a, b), a**b, dtype)
    close(jit.elementwise(HEAD + "T f(T a, T b) { return std::pow(a, 3) + pow(2, b); }")(a, b), a**3 + 2**b, dtype)
    close(jit.elementwise(HEAD + "T f(T a) { return std::arg(a); }")(a), np.angle(a), dtype)


def test_a_double_takes_a_complex_number_to_double_as_it_takes_a_float() -> None:
    third = np.asarray([1 / 3 + 1j / 3], np.complex64)
    wide, narrow = (
        jit.elementwise(f"{HEAD}T f(T a) {{ return (a * 3.0{suffix} - 1.0{suffix}) * 1e8{suffix}; }}")(third)
        for suffix in ("", "f")
    )

    assert wide[0] == np.complex64((third[0].astype(np.complex128) * 3 - 1) * 1e8)
    assert narrow[0] == (third[0] * np.float32(3) - np.float32(1)) * np.float32(1e8)


REFUSED = {
    "order": ("T f(T a) {\n  return a < 1 ? a : 0;\n}", 2, 10, "the operator < of a complex number; compare real(x)"),
    "assigned order": ("T f(T a) { bool b = 1 >= a; return b; }", 1, 43, "the operator >= of a complex number"),
    "rest": ("T f(T a) { return a % 2; }", 1, 41, "it is for integers"),
    "assigned rest": ("T f(T a) { a %= 2; return a; }", 1, 34, "the operator % of a complex number"),
    "inverse": ("T f(T a) { return ~a; }", 1, 42, "write conj(x)"),
    "not": ("T f(T a) { return !a; }", 1, 42, "write x == 0"),
    "step": ("T f(T a) { a++; return a; }", 1, 34, "write x += 1"),
    "condition": ("T f(T a) { if (a) return a; return 0; }", 1, 38, "write x != 0"),
    "loop": ("T f(T a) { for (; a - 1;) a = 1; return a; }", 1, 41, "write x != 0"),
    "and": ("T f(T a) { return a != 0 && a ? a : 0; }", 1, 51, "write x != 0"),
    "floor": ("T f(T a) { return floor(a); }", 1, 41, "floor of a complex number; write floor of real(x)"),
    "suffix": ("T f(T a) { return expf(a); }", 1, 41, "expf of a complex number"),
    "largest": ("T f(T a) { return std::max(a, a); }", 1, 46, "compare real(x), or abs(x)"),
    "explicit": ("T f(T a) { return exp<T>(a); }", 1, 41, "write exp(x)"),
    "cast": ("T f(T a) { return (int)a; }", 1, 41, "a complex number as int32; write real(x)"),
    "real variable": ("T f(T a) { double b = a; return b; }", 1, 45, "a complex number as float64"),
    "real assignment": ("T f(T a) { float b = 1; b *= a; return b; }", 1, 52, "a complex number as float32"),
    "real argument": (f"T g(double b) {{ return b; }} {HEAD}T f(T a) {{ return g<T>(a); }}", 1, 96, "as float64"),
    "real function": ("float f(T a) { return a; }", 1, 45, "a complex number as float32"),
    "part of a part": ("T f(T a) { return T(a, 0); }", 1, 43, "a complex number as float"),
    "two widths": ("T f(T a) { return abs(a) < 1 ? a : 2.0 * a; }", 1, 41, "a choice of complex64 or complex128"),
    "parameter": ("T f(T a, int n) { return a * n; }", 1, 39, "the parameter n is int32 for a complex array; write T"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "line", "column", "said"), REFUSED.values(), ids=REFUSED)
def test_what_complex_numbers_do_not_have_is_refused_with_its_place(
    code: str, line: int, column: int, said: str
) -> None:
    fn = jit.elementwise(HEAD + code)

    with pytest.raises(CompileError, match=re.escape(said)) as caught:
        fn(*drawn("complex64", len(fn.body.inputs)))

    assert str(caught.value).startswith(f"line {line}, column {column} of the body: ")


@pytest.mark.parametrize(
    ("code", "line", "column", "said"),
    [
        ("T f(T a) { return a.real(); }", 1, 41, "a method; write a function: real(x)"),
        ("T f(T a) { return a.x; }", 1, 41, "real(x) and imag(x)"),
        ("T f(T a) { return T(1, 2, 3); }", 1, 41, "T of 3 values; write T(real, imaginary)"),
    ],
)
def test_members_and_three_parts_are_refused_when_they_are_read(code: str, line: int, column: int, said: str) -> None:
    with pytest.raises(CompileError, match=re.escape(said)) as caught:
        jit.elementwise(HEAD + code)

    assert str(caught.value).startswith(f"line {line}, column {column} of the body: ")


def test_a_body_that_is_refused_for_complex_arrays_computes_real_ones() -> None:
    fn = jit.elementwise(HEAD + "T positive(T a) { return a > 0 ? a : 0; }")

    with pytest.raises(CompileError, match="the operator >"):
        fn(np.ones(2, np.complex64))
    assert fn(np.asarray([-1.0, 2.0])).tolist() == [0, 2]


def test_functions_of_complex_numbers_take_real_ones() -> None:
    fn = jit.elementwise(HEAD + "T f(T x) { return 100 * real(x) + 10 * imag(x) + conj(x) + arg(x); }")

    assert fn(np.asarray([2.0, -1.0])).tolist() == [202, -101 + np.pi]
    with pytest.raises(DTypeError, match="two values make a complex number, not one of float64"):
        jit.elementwise(HEAD + "T f(T x) { return T(x, 1); }")(np.ones(2))


def test_scalars_are_real() -> None:
    code = "T f(T a, T alpha, bool is_added, int n) { return is_added ? a + alpha * n : a; }"
    fn = jit.elementwise(HEAD + code, alpha=0.5, is_added=True, n=2)
    (a,) = drawn("complex64", 1)

    np.testing.assert_array_equal(fn(a), a + 1)
    np.testing.assert_array_equal(fn(a, is_added=False), a)
    with pytest.raises(ArgumentError, match=r"alpha of .* must be a real number; got 1j"):
        fn(a, alpha=1j)


def test_real_outputs_of_complex_arrays_are_refused() -> None:
    fn = jit.elementwise(HEAD + "void both(T a, T& first, T& second) { first = a; second = conj(a); }")
    (a,) = drawn("complex64", 1)

    with pytest.raises(DTypeError, match="second must be complex, as the arrays; got float32"):
        fn(a, out=(a.copy(), a.real.copy()))


def test_derivatives_are_refused() -> None:
    fn = jit.elementwise(HEAD + "T squared_sum(T a, T b) { return a * a + b; }")
    a, b = drawn("complex128")

    with pytest.raises(DTypeError, match="a derivative by an array of complex128 is not defined"):
        vjp(fn, a, b)
    with pytest.raises(GradientError, match=r"squared_sum.* makes complex128, which has no derivative"):
        vjp(lambda a: fn(a, b), a.real.copy())
