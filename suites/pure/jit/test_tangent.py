"""Derivatives of bodies: of each function of <cmath>, of branches, loops and calls, and what has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay import jit
from cuassay.autograd import gradcheck, vjp
from cuassay.errors import GradientError
from cuassay.jit.mathematics import FUNCTIONS
from cuassay.jit.tangent import tangent

HEAD = "template <typename T> "

#: Where functions are looked at that are not defined, or not smooth, from 0.2 to 0.9.
OTHER = {"acosh": (1.2, 2.0), "fmod": (1.2, 1.9)}
TESTS = ("isfinite", "isinf", "isnan", "signbit")
NAMES = [name for name in FUNCTIONS if name not in TESTS and not (name.endswith("f") and name[:-1] in FUNCTIONS)]

BODIES = {
    "early return": "T f(T x, T y) { if (x < y) return sin(x) * y; return x / y; }",
    "loop": "T f(T x, T y) { T z = x; for (int i = 0; i < 3; ++i) { z *= y; z -= z / x; z += cos(z); } return z; }",
    "while": "T f(T x, T y) { T z = 1; int n = 0; while (n++ < 4) { if (n == 2) continue; z = z * x + y; } return z; }",
    "do": "T f(T x, T y) { T z = x; do { z = z * z * y; } while (z > 0.01); return z; }",
    "break": "T f(T x, T y) { T z = x; for (;;) { z = z / 2; if (z < 0.3) break; z *= y; } return z * x; }",
    "choice": "T f(T x, T y) { return (x > y ? x * x : exp(y)) - (x > 2 ? 1 : 0); }",
    "casts": "T f(T x, T y) { double z = x; return (T)(z * y) + static_cast<float>(0.5) * (int)(3 * y); }",
    "auto": "T f(T x, T y) { auto z = x * y; auto n = 3; { auto z = n; } return -z * n; }",
    "shadowed": "T f(T x, T y) { T z = x; { T z = y; z = z * 2; } return z * y; }",
    "hidden": "T f(T x, T y) { T z = x * y; { int z = 3; z += 1; } return z * z; }",
    "reference": "void f(T x, T y, T& out) { out = x * y; if (out > 0.4) { out *= out; return; } out = out + y; }",
    "names": "T f(T x_t, T grad) { T z = x_t * grad; return z * grad; }",
    "integers": "T f(T x, T y) { int n = 2; n += 1; T z = x * n; z += n % 2; return z * y; }",
}

CALLS = f"""
{HEAD}T square(T a) {{ return a * a; }}
{HEAD}T mixed(T a, int n, T b) {{ T sum = square(a); for (int i = 0; i < n; ++i) sum += b * sum; return sum; }}
{HEAD}T f(T x, T y) {{ return mixed<T>(x, 2, y) + square(x * y); }}
"""


def numbers(count: int, low: float = 0.2, high: float = 0.9) -> list[Any]:
    drawn = np.random.default_rng(5)
    return [drawn.uniform(low, high, (6,)) for _ in range(count)]


@pytest.mark.parametrize("name", NAMES)
def test_the_derivative_of_each_function(name: str) -> None:
    letters = ("a", "b", "c")[: FUNCTIONS[name].arguments]
    parameters = ", ".join(f"T {letter}" for letter in letters)
    body = jit.elementwise(f"{HEAD}T of_{name}({parameters}) {{ return {name}({', '.join(letters)}); }}")
    arrays = numbers(len(letters), *OTHER.get(name, (0.2, 0.9)))
    if name == "fmod":
        arrays[1] = arrays[1] / 4 + 0.3

    gradcheck(body, arrays)


@pytest.mark.parametrize("text", [*BODIES.values(), CALLS], ids=[*BODIES, "calls"])
def test_the_derivative_of_each_construct(text: str) -> None:
    gradcheck(jit.elementwise(text if text.startswith("\n") else HEAD + text), numbers(2))


def test_negative_numbers_have_derivatives_of_absolute_values_and_powers() -> None:
    body = jit.elementwise(HEAD + "T f(T x) { return fabs(x) * pow(x, 3) + copysign(x, -1.0); }")

    gradcheck(body, numbers(1, -0.9, -0.2))


def test_a_derivative_has_one_too() -> None:
    body = jit.elementwise(HEAD + "T cubic(T x, T alpha) { return x < 0.5 ? x * x * x : alpha * exp(x); }", alpha=2.0)

    def slope(x: Any) -> Any:
        _, pull = vjp(lambda x: body(x, alpha=3.0), x)
        return pull(np.ones(6))

    derived = jit.elementwise(tangent(body.body, "x", 1), alpha=2.0)
    (x,) = numbers(1)
    gradcheck(lambda x: derived(x, np.ones(6), alpha=3.0), (x,))
    assert np.allclose(slope(x), np.where(x < 0.5, 3 * x * x, 3 * np.exp(x)))


def test_a_float32_body_is_not_taken_to_double_by_a_constant() -> None:
    body = jit.elementwise(HEAD + "T f(T x) { return sqrt(x); }")

    assert "(T)0.5" in tangent(body.body, "x", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("void f(T x, T& a, T& b) { a = x; b = x; }", "several results", id="several"),
        pytest.param("T f(T x) { T y; T z = (y = x) * 2; return z; }", "assigns inside an expression", id="assignment"),
        pytest.param("T f(T x) { T y = x++ * 2; return y; }", "assigns inside an expression", id="step"),
        pytest.param(
            "T f(T x) { T y = 1; if ((y = x) > 0) return y; return x; }", "inside an expression", id="condition"
        ),
        pytest.param(
            "T f(T x) { T z = x; for (T i = x; i < 9; i += x) z += i; return z; }", "inside an", id="loop-step"
        ),
    ],
)
def test_a_body_without_derivative_says_why(text: str, message: str) -> None:
    with pytest.raises(GradientError, match=f"f has no derivative: .*{message}"):
        tangent(jit.elementwise(HEAD + text).body, "x", 0)


def test_a_body_without_derivative_still_computes() -> None:
    body = jit.elementwise(HEAD + "T stepped(T x) { T y = x++ * 2; return x + y; }")

    assert body(np.ones(2)).tolist() == [4, 4]
    with pytest.raises(GradientError, match="inside an expression"):
        vjp(body, np.ones(2))[1](np.ones(2))
