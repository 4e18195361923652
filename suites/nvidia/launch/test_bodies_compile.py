"""The kernel around a body compiles for every architecture, without a GPU, and keeps its values in registers."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay.devices.cuda.launch import source
from cuassay.devices.cuda.ops.body_text import OPTIONS, kernel_text, reduction_text
from cuassay.errors import CompileError, LibraryNotFoundError
from cuassay.jit.body import Body, read
from cuassay.jit.mathematics import FUNCTIONS, OF_COMPLEX
from cuassay.jit.tangent import tangent

HEAD = "template <typename T> "

SCALED = HEAD + "T scaled(T x, T y, T alpha) { return x + alpha * y; }"
LOOP = (
    HEAD
    + "T twice(T x) { return 2 * x; }\n"
    + HEAD
    + "T f(T x, T y) { while (x < y) { x = twice(x); if (x > 9) return y; } return x; }"
)
TWO = HEAD + "void both(T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }"
COMPLEX = HEAD + "T f(T x, T y, T alpha) { T z = x * y + alpha; if (x == y) z /= y; return -z - T(0, 1) * real(x); }"
EXP = HEAD + "T both(T x, T y, T alpha) { return std::exp(-alpha * x) + std::exp(2.0) * exp(y); }"
#: Names that a header of ours could have taken.
NAMED = HEAD + "T OF_ONE(T INTEGER, T y, T alpha) { T OF_TWO = INTEGER; return OF_TWO * y + alpha; }"
FORMS = {
    "names in capitals": (NAMED, ("float32", "float32"), "float32", 1, 4),
    "dense": (SCALED, ("float32", "float32"), "float32", 1, 4),
    "dense in 16 bits": (SCALED, ("bfloat16", "bfloat16"), "bfloat16", 1, 8),
    "exponentials in 16 bits": (EXP, ("bfloat16", "float16"), "bfloat16", 1, 8),
    "strided": (SCALED, ("float16", "float16"), "float16", 1, 0),
    "dtypes that differ": (SCALED, ("bfloat16", "int64"), "float64", 1, 2),
    "a number": (SCALED, ("float32", ""), "float32", 1, 4),
    "truth values": (SCALED, ("bool", "bool"), "bool", 1, 16),
    "a loop": (LOOP, ("float64", "float64"), "float64", 0, 2),
    "a loop of integers": (LOOP, ("uint8", "int16"), "int16", 0, 8),
    "two outputs": (TWO, ("float32", "float32"), "float32", 0, 4),
    "two strided outputs": (TWO, ("int32", "int32"), "int32", 0, 0),
    "complex numbers": (COMPLEX, ("complex64", "complex64"), "complex64", 1, 2),
    "wide complex numbers": (COMPLEX, ("complex128", "complex64"), "complex128", 1, 1),
    "strided complex numbers": (COMPLEX, ("complex64", "bfloat16"), "complex64", 1, 0),
    "a number and complex ones": (COMPLEX, ("complex64", ""), "complex64", 1, 2),
    "two complex outputs": (TWO, ("complex64", "complex64"), "complex64", 0, 2),
}  # fmt: skip


def compiled(body: Body, operands: tuple[str, ...], out: str, scalars: int, pack: int, arch: str) -> source.Compiled:
    try:
        source.header_directory()
    except LibraryNotFoundError as error:
        pytest.skip(str(error))
    text = kernel_text(body, operands, out, scalars, pack)
    return source.compile_source(text, name_expressions=["run"], arch=arch, options=OPTIONS)


@pytest.mark.parametrize("arch", source.ARCHITECTURES)
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_kernel_compiles_and_does_not_spill(form: str, arch: str) -> None:
    code, *rest = FORMS[form]
    found = compiled(read(code), *rest, arch)

    used = found.resources[found.names["run"]]
    assert (used.stack, used.spill_loads, used.spill_stores) == (0, 0, 0)
    assert used.registers <= 56


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_function_of_cmath_is_known_to_nvrtc(dtype: str) -> None:
    lines = "".join(
        f"r += {name}({', '.join(['x', 'y', 'x'][: one.arguments])}); "
        + (
            ""
            if name == "rsqrt" or name.endswith("f")
            else f"r += std::{name}({', '.join(['x', 'y', 'x'][: one.arguments])}); "
        )
        for name, one in FUNCTIONS.items()
    )
    code = f"{HEAD}T all(T x, T y) {{ T r = 0; {lines} return r + INFINITY + NAN + M_PI + FLT_MAX + INT_MAX; }}"

    assert compiled(read(code), (dtype, dtype), dtype, 0, 1, "sm_90").cubin


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "bfloat16"])
def test_each_function_of_cmath_takes_integers(dtype: str) -> None:
    lines = "".join(
        f"r += {name}({', '.join(['n', 'x', 'n'][: one.arguments])}); "
        for name, one in FUNCTIONS.items()
        if name not in ("fma", "max", "min") or dtype == "int32"  # C++ takes no two types in these
    )
    code = f"{HEAD}T all(T x) {{ const int n = 2; double r = x; {lines} return r; }}"

    assert compiled(read(code), (dtype,), dtype, 0, 1, "sm_90").cubin


@pytest.mark.parametrize("arch", source.ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_each_function_of_complex_numbers_compiles(dtype: str, arch: str) -> None:
    lines = "".join(
        f"r += {space}{name}({', '.join(['x', 'y'][: FUNCTIONS[name].arguments])}); "
        for name in sorted(OF_COMPLEX)
        for space in ("", "std::")
    )
    mixed = (
        "r = 2 * r - x / 0.5f; r *= 2.0 * y; r -= pow(x, 2) + pow(2.0f, x); return r == 0 ? T(abs(-1), real(3)) : r;"
    )

    assert compiled(read(f"{HEAD}T all(T x, T y) {{ T r = 0; {lines} {mixed} }}"), (dtype, dtype), dtype, 0, 1, arch)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_derivative_of_each_construct_compiles(dtype: str) -> None:
    lines = "".join(
        f"r += {name}({', '.join(['x', 'y', 'x'][: one.arguments])}); "
        for name, one in FUNCTIONS.items()
        if not name.startswith(("is", "signbit"))
    )
    helpers = f"{HEAD}T twice(T a) {{ auto b = a * a; return b + a; }} "
    loop = "for (int i = 0; i < 3; ++i) { if (r > 9) return twice(r); r *= twice<T>(x); }"
    end = "return r > y ? r / y : (T)(r - x);"
    body = read(f"{helpers}{HEAD}T all(T x, T y, T alpha) {{ T r = alpha; {lines} {loop} {end} }}")

    derived = read(tangent(body, "x", 1))

    assert compiled(derived, (dtype, dtype, dtype), dtype, 1, 1, "sm_90").cubin


@pytest.mark.parametrize("arch", source.ARCHITECTURES)
@pytest.mark.parametrize(
    ("operands", "out"),
    [(("float32", "float32"), "float32"), (("bfloat16", "bfloat16"), "bfloat16"), (("int8", "int64"), "int64")],
)
def test_the_kernels_of_a_reduction_compile(operands: tuple[str, ...], out: str, arch: str) -> None:
    code = (
        f"{HEAD}T map(T x, T y, T alpha) {{ return x + alpha * y; }} {HEAD}T combine(T a, T b) {{ return a + b; }} "
        f"{HEAD}T finish(T total) {{ return total / 2; }}"
    )
    body = read(code)
    body = replace(body, entry=body.functions["map"])
    try:
        source.header_directory()
    except LibraryNotFoundError as error:
        pytest.skip(str(error))

    text = reduction_text(body, operands, out, 1)
    found = source.compile_source(text, name_expressions=["run", "last"], arch=arch, options=OPTIONS)

    for name in ("run", "last"):
        used = found.resources[found.names[name]]
        assert (used.stack, used.spill_loads, used.spill_stores) == (0, 0, 0)
        assert used.registers <= 56


def test_what_nvrtc_refuses_is_shown_with_its_line() -> None:
    body = read(HEAD + "T f(T x) {\n  const T y = 1;\n  y = x;\n  return y;\n}")

    with pytest.raises(CompileError, match="y = x;"):
        compiled(body, ("float32",), "float32", 0, 4, "sm_90")
