"""What a body may say; any other text is refused with line, column and what to write."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay.errors import ArgumentError, CompileError, DTypeError
from cuassay.jit import elementwise
from cuassay.jit.body import read
from cuassay.jit.run import run

HEAD = "template <typename T> "


def value(code: str, *arguments: object, dtype: str = "float32") -> np.ndarray:
    (found,) = run(read(HEAD + code), dtype, [np.asarray(one, dtype) for one in arguments])
    return found


ONE = HEAD + "T one(T x) { return x; }\n"

REFUSED = {
    "an unknown name": (HEAD + "T f(T x) { return z; }", 1, 41, "nothing declares 'z'; declare it"),
    "an assigned name": (HEAD + "T f(T x) { y = x; return x; }", 1, 34, "nothing declares 'y'; declare it"),
    "no semicolon at the end": (HEAD + "T f(T x) { return x }", 1, 43, "perhaps a ';' is missing before it"),
    "no semicolon": (HEAD + "T f(T x) { T y = x return y; }", 1, 42, "perhaps a ';' is missing before it"),
    "no template": ("T f(T x) { return x; }", 1, 1, "write it as template <typename T>"),
    "template of a number": ("template <int N> int f(int x) { return x; }", 1, 1, "write template <typename T>"),
    "two templates": (HEAD + "T g(T x) { return x; }\ntemplate <class U> U f(U x) { return x; }", 2, 1, "name both T"),
    "cut off": (HEAD + "T f(T x) {\n  return x;\n", 2, 12, "a brace, a parenthesis or a semicolon is missing"),
    "no expression": (HEAD + "T f(T x) {\n  return x +;\n}", 2, 12, "'+' cannot stand here"),
    "name with a space": (HEAD + "T my _f(T x) { return x; }", 1, 28, "'_f' cannot stand here"),
    "operator in a name": (HEAD + "T my+f(T x) { return x; }", 1, 27, "'+' cannot stand here"),
    "array": (HEAD + "T f(T x) {\n  T a[3];\n  return x;\n}", 2, 6, "write one variable for each element"),
    "pointer": (HEAD + "T f(T* x) { return *x; }", 1, 28, "a pointer"),
    "text": (HEAD + 'T f(T x) { return "x"; }', 1, 41, "a body has no text"),
    "lambda": (HEAD + "T f(T x) { auto l = [](T y) { return y; }; return l(x); }", 1, 43, "write one variable"),
    "preprocessor": ("#define A 1\n" + HEAD + "T f(T x) { return x; }", 1, 1, "write the value itself"),
    "unknown function": (HEAD + "T f(T x) {\n  return besselj(x);\n}", 2, 10, "an unknown function 'besselj'"),
    "itself": (HEAD + "T f(T x) { return f(x); }", 1, 41, "an unknown function 'f'"),
    "number of arguments": (HEAD + "T f(T x) { return exp(x, x); }", 1, 41, "exp with 2 arguments; give 1"),
    "arguments of a helper": (ONE + HEAD + "T f(T x) { return one(x, x); }", 2, 41, "give 1"),
    "namespace": (HEAD + "T f(T x) { return thrust::exp(x); }", 1, 47, "only std::"),
    "another cast": (HEAD + "T f(T x) { return reinterpret_cast<T>(x); }", 1, 41, "write static_cast<T>"),
    "no type": (HEAD + "T f(T x) { complex<T> y = x; return y; }", 1, 41, "'<' cannot stand here"),
    "address": (HEAD + "T f(T x) { return *&x; }", 1, 43, "the operator *"),
    "goto": (HEAD + "T f(T x) { goto end; end: return x; }", 1, 34, "write a loop"),
    "second function of a name": (ONE + HEAD + "T one(T x) { return x; }", 2, 25, "another name"),
    "hexadecimal float": (HEAD + "T f(T x) { return x * 0x1p3f; }", 1, 45, "write a decimal number"),
    "global variable": (HEAD + "T f(T x) { return x; } int k;", 1, 50, "a body has functions alone"),
    "assignment to a value": (HEAD + "T f(T x) { (x + 1) = 2; return x; }", 1, 35, "name a variable on the left"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "line", "column", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_body_is_refused_where_it_stands(code: str, line: int, column: int, said: str) -> None:
    with pytest.raises(CompileError, match=re.escape(said)) as caught:
        read(code)

    assert str(caught.value).startswith(f"line {line}, column {column} of the body: ")
    shown, mark = str(caught.value).splitlines()[-2:]
    assert shown == "  " + code.splitlines()[line - 1]
    assert mark.index("^") == column + 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("void f(T x) { x = 1; }", "returns nothing and writes no reference"),
        ("T f(T x, T& y) { y = x; return x; }", "returns a value and writes references"),
        ("void g(T x, T& y) { y = x; } template <typename T> T f(T x) { return x; }", "g gives no value"),
    ],
)
def test_a_body_gives_a_value_or_writes_references(code: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        read(HEAD + code)


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("T f(T x) { T y; return y; }", ArgumentError, "reads 'y' before it has a value"),
        ("T f(T x) { T y; if (x > 1) y = x; return y; }", ArgumentError, "reads 'y' before it has a value"),
        ("T f(T x) { if (x > 1) return x; }", ArgumentError, "returns nothing on one of its paths"),
        ("T f(T x) { { T y = x; } return y; }", ArgumentError, "reads 'y', which nothing declares"),
        ("T f(T x) { auto y; return x; }", ArgumentError, "auto y has no value"),
        ("T f(T x) { return x % 2; }", DTypeError, "call fmod"),
        ("T f(T x) { x <<= 1; return x; }", DTypeError, "is for integers"),
        ("T f(T x) { return ~x; }", DTypeError, "is for integers"),
    ],
)
def test_what_no_element_can_be_computed_by_is_an_error(code: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        value(code, [0.0, 2.0])


def test_a_default_of_no_parameter_is_an_error_that_names_it() -> None:
    with pytest.raises(ArgumentError, match="defaulted reads no parameter beta; its parameters are x, alpha"):
        elementwise(HEAD + "T defaulted(T x, T alpha) { return x * alpha; }", beta=3)


def test_an_operation_shows_its_form_and_not_its_syntax_tree() -> None:
    one = elementwise(HEAD + "T shown_once(T x, T alpha) { return x * alpha; }", alpha=2.0)
    two = elementwise(HEAD + "void shown_twice(T x, T& a, T& b) { a = x; b = x; }")

    assert repr(one) == "Elementwise('shown_once(x, *, alpha=2.0) -> out')"
    assert repr(two) == "Elementwise('shown_twice(x, a!, b!) ->')"


def test_arguments_of_two_types_for_one_template_type_are_an_error() -> None:
    helper = "T g(T a, T b) { return a + b; } template <typename T> "

    with pytest.raises(DTypeError, match=re.escape("float32 and float64 for T; write g<T>(...)")):
        value(helper + "T f(T x) { return g(x, 1.0); }", [1.0])
    assert value(helper + "T f(T x) { return g<T>(x, 1.0); }", [1.0]) == [2.0]


@pytest.mark.parametrize(
    ("code", "given", "wanted"),
    [
        ("T f(T x) { return static_cast<int>(x); }", [1.7, -1.7], [1, -1]),
        ("T f(T x) { return (T)1 / T(2) + x; }", [0.0], [0.5]),
        ("T f(T x) { return 1 / 2 + x; }", [0.0], [0.0]),
        ("T f(T x) { return true ? x : 0; }", [3.0], [3.0]),
        ("T f(T x) { return std::max<T>(x, 2); }", [1.0, 3.0], [2.0, 3.0]),
        ("T f(T x) { int n = 0; while (n < x) ++n; return n; }", [0.0, 2.5, 7.0], [0, 3, 7]),
        ("T f(T x) { T s = 0; do s += x; while (s < 5); return s; }", [2.0, 9.0], [6, 9]),
        ("T f(T x) { T s = 0; for (int i = 0, j = 9; i < j; i++, j--) s += x; return s; }", [1.0], [5]),
        ("T f(T x) { for (;;) { if (x > 9) break; x += 4; } return x; }", [0.0, 30.0], [12, 30]),
        ("T f(T x) { T s = 0; for (int i = 0; i < 4; ++i) { if (i == x) continue; s += i; } return s; }", [2], [4]),
        ("T f(T x) { auto y = x * 2; { T x = 100; y += x; } return y + x; }", [1.0], [103]),
        ("T f(T x) { return x > 0 && 1 / x > 1 ? x : -1; }", [0.0, 0.5, 4.0], [-1, 0.5, -1]),
        ("T f(T x) { int k = 0; bool b = x > 0 || ++k; return k; }", [1.0, -1.0], [0, 1]),
        ("T f(T x) { int k = 5; int j = k++ + --k; return j; }", [0.0], [10]),
        ("T f(T x) { return round(x); }", [0.5, -0.5, 1.5, 0.49999997, np.inf], [1, -1, 2, 0, np.inf]),
        ("T f(T x) { return 1 / round(x); }", [-0.25, 0.25], [-np.inf, np.inf]),
        ("T f(T x) { return x != x ? INFINITY : x; }", [np.nan, 1.0], [np.inf, 1.0]),
        ("T f(T x) { return 010 + 0x1F + 3u; }", [0.0], [42]),
        ("T f(T x) { unsigned int i = 0; return i - 1 > 7 ? x : 0; }", [4.0], [4.0]),
        ("T f(T x) { /* a */ return x; // b\n}", [4.0], [4.0]),
    ],
)  # fmt: skip
def test_a_body_means_what_it_means_in_c(code: str, given: list[float], wanted: list[float]) -> None:
    np.testing.assert_array_equal(value(code, given), np.asarray(wanted, np.float32))


def test_float_arithmetic_keeps_the_width_of_its_literals() -> None:
    third = np.float32(1) / np.float32(3)

    assert value("T f(T x) { return x * 3.0f - 1.0f; }", third) == third * np.float32(3) - np.float32(1)
    assert value("T f(T x) { return x * 3.0 - 1.0; }", third) == np.float32(np.float64(third) * 3 - 1)


def test_integers_wrap_around_and_quotients_are_cut_off() -> None:
    assert value("T f(T x) { return x * x; }", 70000, dtype="int32") == np.int32(70000 * 70000 - 2**32)
    assert value("T f(T x) { return x / 2; }", -7, dtype="int32") == -3
    assert value("T f(T x) { return x % 3; }", -7, dtype="int32") == -1
    assert value("T f(T x) { return x + 1; }", 255, dtype="uint8") == 0
    assert value("T f(T x) { return 7 / x; }", 0, dtype="int32") == 0  # undefined in C++, and not an error here


def test_no_element_is_no_error() -> None:
    assert value("T f(T x) { T y = x; while (y < 3) y += 1; return y; }", []).shape == (0,)


def test_a_function_in_place_of_a_text_is_an_error_that_shows_a_text() -> None:
    with pytest.raises(ArgumentError, match="a body is the text of a function template; got <function"):
        elementwise(lambda x: x)  # type: ignore[arg-type]


def test_the_second_operation_of_a_name_gets_a_number() -> None:
    first, second, third = (elementwise(HEAD + f"T numbered(T x) {{ return x + {number}; }}") for number in range(3))

    assert [one.op.name for one in (first, second, third)] == ["numbered", "numbered_2", "numbered_3"]
