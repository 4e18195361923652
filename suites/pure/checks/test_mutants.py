"""Mutants of Python and CUDA C++: which changes are made, where, and under which name."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import from_host, to_host
from cuassay.mutation.cuda import CUDA_OPERATORS, cuda_mutants, kernels_in, looks_like_cuda, struct_at, tokens_of
from cuassay.mutation.mutant import Edit, mutants_of
from cuassay.mutation.operators import OPERATORS, next_digit
from cuassay.mutation.python import python_mutants, stock_mutants
from cuassay.mutation.stock import STOCK


def changed(text: str, operator: str) -> set[str]:
    """The lines that the mutants of `operator` have in place of others."""
    return {
        line[1:].strip()
        for mutant in python_mutants("a.py", text)
        if mutant.edit.operator == operator
        for line in mutant.diff(text).splitlines()
        if line.startswith("+")
    }


def changed_cuda(body: str, operator: str) -> set[str]:
    text = f"__global__ void k(float *a, int n) {{\n    {body}\n}}\n"
    return {
        line[1:].strip()
        for mutant in cuda_mutants("k.cu", text)
        if mutant.edit.operator == operator
        for line in mutant.diff(text).splitlines()
        if line.startswith("+")
    }


PYTHON_CASES = [
    ("comparison", "x = a < b", {"x = a <= b"}),
    ("comparison", "x = a is None", {"x = a is not None"}),
    ("condition", "if ready(a):\n    f()", {"if not (ready(a)):"}),
    ("condition", "x = a and b and c", {"x = (b and c)", "x = (a and c)", "x = (a and b)"}),
    ("condition", "x = [a for a in b if a]", {"x = [a for a in b if True]"}),
    ("arithmetic", "x = a + b", {"x = (a - b)"}),
    ("arithmetic", "x -= b", {"x += b"}),
    ("term dropped", "x = a + b", {"x = (a)", "x = (b)"}),
    ("term dropped", "x = a - b", {"x = (a)"}),
    ("term dropped", "x = -a", {"x = (a)"}),
    ("term dropped", "x += a", {"x = a"}),
    ("constant", "x = 3", {"x = 4"}),
    ("constant", "x = f(1)", {"x = f(2)", "x = f(0)"}),
    ("constant", "x = 1e-6", {"x = 2e-06"}),
    ("constant", "x = f(keepdims=True)", {"x = f(keepdims=False)"}),
    ("narrower dtype", "x = xp.zeros(3, 'float64')", {"x = xp.zeros(3, 'float32')"}),
    ("narrower dtype", "x = a.astype(np.int64)", {"x = a.astype(np.int32)"}),
    ("call dropped", "x = a.copy()", {"x = (a)"}),
    ("call dropped", "x = xp.abs(a)", {"x = (a)"}),
    ("call dropped", "x = xp.where(m, a, b)", {"x = (a)", "x = (b)"}),
    ("call dropped", "x = xp.maximum(a, b)", {"x = (a)", "x = (b)"}),
    ("call dropped", "x = xp.isnan(a)", {"x = False"}),
    ("argument dropped", "x = f(a, axis=0, keepdims=k)", {"x = f(a, keepdims=k)", "x = f(a, axis=0)"}),
    ("cache key", "x = cache[shape, dtype]", {"x = cache[(dtype,)]", "x = cache[(shape,)]"}),
    ("cache key", "key = (shape, dtype)", {"key = (dtype,)", "key = (shape,)"}),
    ("statement dropped", "stream.wait_event(event)", {"pass"}),
    ("statement dropped", "self.x = a", {"pass"}),
    ("statement dropped", "raise ValueError(a)", {"pass"}),
    ("context dropped", "with lock:\n    f()", {"with __import__('contextlib').nullcontext():"}),
    ("order", "if a:\n    event.record()\n    launch()", {"launch()", "event.record()"}),
    ("neighbour", "x = a[i]", {"x = a[(i) - 1]"}),
    ("neighbour", "x = a[i:j]", {"x = a[(i + 1):j]", "x = a[i:(j + 1)]"}),
]


@pytest.mark.parametrize(("operator", "text", "expected"), PYTHON_CASES, ids=[f"{o}: {t}" for o, t, _ in PYTHON_CASES])
def test_python_operator_makes_exactly_these_changes(operator: str, text: str, expected: set[str]) -> None:
    assert changed(text, operator) == expected


def test_every_python_operator_has_a_case() -> None:
    assert {operator for operator, *_ in PYTHON_CASES} == set(OPERATORS)


CUDA_CASES = [
    ("comparison", "if (i < n) a[i] = 0;", {"if (i <= n) a[i] = 0;"}),
    ("comparison", "x = p && q;", {"x = p || q;"}),
    ("arithmetic", "x = p + q;", {"x = p - q;"}),
    ("arithmetic", "sum += a[i];", {"sum -= a[i];", "sum = a[i];"}),
    ("term dropped", "x = row * stride + column;", {"x = row + column;", "x = row * stride;"}),
    ("constant", "x = 0.5f * n;", {"x = 0.6f * n;"}),
    ("constant", "x = 0x1fu;", {"x = 0x20u;"}),
    ("constant", "x = 31;", {"x = 32;"}),
    ("barrier dropped", "__syncthreads();", {";"}),
    ("barrier dropped", "block.sync();", {";"}),
    ("condition", "if (i < n) f();", {"if (true) f();", "if (false) f();"}),
    ("narrower type", "long long i = 0;", {"int i = 0;"}),
    ("narrower type", "double sum = q;", {"float sum = q;"}),
    ("name", "x = fmaxf(p, q);", {"x = fminf(p, q);"}),
    ("name", "i = threadIdx.x;", {"i = blockIdx.x;"}),
    ("name", "x = isnan(p);", {"x = !(p);"}),
    ("neighbour", "x = a[i];", {"x = a[i + 1];"}),
    ("atomic dropped", "atomicAdd(&a[f(i, 2)], x);", {"(*(& a [ f ( i , 2 ) ]) += x);"}),
]


@pytest.mark.parametrize(("operator", "body", "expected"), CUDA_CASES, ids=[f"{o}: {t}" for o, t, _ in CUDA_CASES])
def test_cuda_operator_makes_exactly_these_changes(operator: str, body: str, expected: set[str]) -> None:
    assert changed_cuda(body, operator) == expected


def test_every_cuda_operator_has_a_case() -> None:
    assert {operator for operator, *_ in CUDA_CASES} == set(CUDA_OPERATORS)


@pytest.mark.parametrize(
    "body",
    ["// if (i < n) return;", "/* x = p + q; */", 'printf("p + q < 3");', "#define W (4 + 4)", "std::vector<int> v;"],
)
def test_comments_strings_macros_and_templates_are_left_alone(body: str) -> None:
    assert not changed_cuda(f"\n{body}\n", "arithmetic")
    assert not changed_cuda(f"\n{body}\n", "comparison")


def test_tokens_are_where_they_say() -> None:
    text = 'int x = 0x1f; // no\n#define A 1\nfloat y = 1.5e-3f * "s" ;'
    assert all(text[token.start : token.end] == token.text for token in tokens_of(text))
    assert [token.text for token in tokens_of(text)] == "int x = 0x1f ; float y = 1.5e-3f * ;".split()


def test_statements_that_change_places_are_both_shown() -> None:
    text = "def f(s):\n    s.run('a')\n    s.synchronize()\n"
    (mutant,) = [one for one in python_mutants("a.py", text) if one.edit.operator == "order"]

    assert mutant.diff(text).splitlines() == [
        "-    s.run('a')", "-    s.synchronize()", "+    s.synchronize()", "+    s.run('a')",
    ]  # fmt: skip


def test_a_kernel_in_a_string_of_python_is_changed_in_place() -> None:
    text = 'K = r"""\n__global__ void k(float *a, int n) {\n  if (n < 3) a[0] = 1;\n}\n"""\n'
    mutants = [mutant for mutant in python_mutants("a.py", text) if mutant.function == "k"]
    assert "-  if (n < 3) a[0] = 1;\n+  if (n <= 3) a[0] = 1;" in [mutant.diff(text) for mutant in mutants]
    assert all(ast.parse(mutant.edit.apply(text)) for mutant in mutants)


def test_docstrings_annotations_imports_and_names_to_export_are_left_alone() -> None:
    text = (
        '"""A + B."""\nfrom __future__ import annotations\n__all__ = ["float64"]\n'
        'def f(a: tuple[int, 3]) -> Literal["float64"]:\n    """1 + 2."""\n'
    )
    assert python_mutants("a.py", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Shape = tuple[int, ...]\n",
        "_Node = _Launch | _Record | list[int] | None\n",
        "__all__ += more.__all__\n",
        "@dataclass(frozen=True, slots=True)\nclass Size: ...\n",
        "for a, b in zip(left, right, strict=True): ...\n",
        "if __name__ == '__main__':\n    main()\n",
    ],
)
def test_what_only_readers_and_guards_see_is_left_alone(text: str) -> None:
    assert python_mutants("a.py", text) == []


@pytest.mark.parametrize("text", ["PLAIN = NUMBERS | {1}\n", "Wanted = Kinds.A | Kinds.B\n", "Most = Left & Right\n"])
def test_an_expression_that_is_not_a_union_of_types_is_changed(text: str) -> None:
    assert python_mutants("a.py", text) != []


def test_a_name_in_capitals_is_no_type() -> None:
    assert [mutant.edit.replacement for mutant in python_mutants("a.py", "LAST = SIZES[n]\n")] == ["(n) - 1"]


def test_every_mutant_is_python_and_differs() -> None:
    text = "def f(a, b=(1, 2)):\n    '''ü'''\n    ä = a + b[0] if a < 3 else -a\n    return max(ä, 0.5) ** 2\n"
    mutants = python_mutants("a.py", text)
    texts = [mutant.edit.apply(text) for mutant in mutants]
    assert len(set(texts)) == len(texts) > 10
    assert text not in texts
    for mutated in texts:
        ast.parse(mutated)


def test_only_the_named_lines_are_changed() -> None:
    text = "def f(a):\n    return a + 1\n\n\ndef g(a):\n    return a + 1\n"
    assert {mutant.function for mutant in python_mutants("a.py", text, [(5, 6)])} == {"g"}


def test_nested_functions_are_named_with_dots() -> None:
    text = "class A:\n    def f(self):\n        def g():\n            return 1 + a\n        return g\n"
    (mutant, *_) = python_mutants("a.py", text)
    assert mutant.function == "A.f.g"
    assert mutant.edit.scope == (3, 4)
    assert mutant.line == 4


def test_identity_survives_changes_elsewhere_and_tells_equal_lines_apart() -> None:
    first = python_mutants("a.py", "def f(a):\n    return a < 1\n")
    later = python_mutants("a.py", "import os\n\n\ndef f(a):\n    return a < 1\n")
    assert [mutant.identity for mutant in first] == [mutant.identity for mutant in later]
    twice = python_mutants("a.py", "def f(a):\n    if a < 1:\n        a = b\n    if a < 1:\n        a = b\n")
    assert len({mutant.identity for mutant in twice}) == len(twice)


def test_two_edits_that_give_one_text_count_once() -> None:
    edits = [Edit("a", 0, 1, "y"), Edit("b", 0, 1, "y"), Edit("c", 0, 1, "x")]
    assert [mutant.edit.operator for mutant in mutants_of("a.py", "x", edits)] == ["a"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [("0.5", "0.6"), ("1e-06", "2e-06"), ("9.0", "9.1"), ("0.9", "0.0"), ("1.25e+20", "1.26e+20")],
)
def test_the_last_digit_of_the_mantissa_changes(number: str, expected: str) -> None:
    assert next_digit(number) == expected


def test_kernels_are_told_from_other_functions() -> None:
    text = """
    __device__ int one() { return 1; }
    struct Two { __device__ int of(int a) { return a; } };
    template <typename T> __global__ void __launch_bounds__(256, 2) three(T *a) { if (a) { one(); } }
    extern "C" __global__ void four(float a) {}
    """
    assert kernels_in(text) == ["three", "four"]


def test_a_text_with_a_kernel_is_known() -> None:
    assert looks_like_cuda('extern "C" __global__ void f() {}')
    assert not looks_like_cuda("global f")


def test_kernels_are_judged_by_the_tests_that_launch_them(tmp_path: Path) -> None:
    """Of a kernel those of its own instantiations in turn; of a header those of every kernel that includes it."""
    pytest.importorskip("coverage", reason="coverage.py is not installed")
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.project import covering, find_mutants

    (tmp_path / "a.cuh").write_text("__device__ int one(int a) { return a + 1; }")
    (tmp_path / "b.cuh").write_text('#include "a.cuh"\n')
    (tmp_path / "b.cu").write_text('#include "b.cuh"\ntemplate <class T> __global__ void k(T *a) { a[0] = one(2); }')
    (tmp_path / "c.cu").write_text("__global__ void other(int *a) { a[0] = 2; }")
    durations = {"slow": 3.0, "fast": 1.0, "of_b": 2.0, "of_c": 1.0, "bad": 0.1}
    launches = {"k<float>": ["slow", "fast", "bad"], "k<int>": ["of_b", "slow"], "other": ["of_c"]}
    baseline = Baseline(durations=durations, failed=["bad"], launches=launches)
    files = ["a.cuh", "b.cuh", "b.cu", "c.cu"]

    def judges(source: str) -> list[str]:
        return covering(find_mutants(tmp_path, [source], baseline)[0], tmp_path, files, baseline)

    assert judges("b.cu::k") == ["fast", "of_b", "slow"]
    assert judges("a.cuh") == ["fast", "of_b", "slow"]
    assert judges("c.cu") == ["of_c"]


def test_a_struct_is_judged_first_by_the_kernels_that_name_it(tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="coverage.py is not installed")
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.project import covering, find_mutants

    (tmp_path / "a.cu").write_text(
        "struct Gelu { __device__ float of(float a) { return a + a; } };\n"
        "template <class F> __global__ void k(float *a) { a[0] = F::of(a[0]); }\n"
    )
    launches = {"k<Relu>": ["relu"], "k<GeluTanh>": ["tanh"], "k<Gelu, float, 4>": ["gelu"], "other<Gelu>": ["foreign"]}
    durations = {"relu": 0.1, "tanh": 0.2, "gelu": 3.0, "foreign": 0.1}
    baseline = Baseline(durations=durations, launches=launches)

    def judges(function: str) -> list[str]:
        return covering(find_mutants(tmp_path, [f"a.cu::{function}"], baseline)[0], tmp_path, ["a.cu"], baseline)

    assert judges("of") == ["gelu", "relu", "tanh"]
    assert judges("k") == ["relu", "tanh", "gelu"]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("struct Gelu", "Gelu"),
        ("template <class T, int N> struct alignas(8) Pack", "Pack"),
        ("template <int N> struct Rounding<false, N>", "Rounding"),
        ("struct Wide final : Narrow<float>", "Wide"),
        ("struct Outer { struct Inner", "Inner"),
        ("namespace ours", ""),
        ("template <class F> __global__ void k(F f)", ""),
        ("struct Given f(struct Got a)", ""),
    ],
)
def test_the_struct_of_a_place_is_found(head: str, name: str) -> None:
    text = f"struct Before {{ int a; }}; {head} {{ int f() {{ HERE; }} }};"
    assert struct_at(text, text.index("HERE")) == name


def test_the_fastest_case_of_each_test_function_comes_first(tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="coverage.py is not installed")
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.project import covering, find_mutants

    (tmp_path / "pool.py").write_text("def give(number):\n    return number + 1\n")
    durations = {"t.py::a[1]": 0.1, "t.py::a[2]": 0.2, "t.py::a[3]": 0.3, "t.py::b[1]": 2.0, "t.py::c": 1.0, "bad": 0.1}
    baseline = Baseline(durations=durations, failed=["bad"], lines={"pool.py": {2: list(durations)}})

    tests = covering(find_mutants(tmp_path, ["pool.py"], baseline)[0], tmp_path, ["pool.py"], baseline)

    assert tests == ["t.py::a[1]", "t.py::c", "t.py::b[1]", "t.py::a[2]", "t.py::a[3]"]


def test_tests_in_a_file_of_the_same_name_take_turns_with_the_others(tmp_path: Path) -> None:
    """At most some hundred tests run for a mutant, and any number may run its lines."""
    pytest.importorskip("coverage", reason="coverage.py is not installed")
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.project import covering, find_mutants

    (tmp_path / "pool.py").write_text("def give(number):\n    return number + 1\n")
    durations = {"t.py::a": 0.1, "t.py::b": 0.2, "t.py::c": 0.3, "pure/test_pool.py::d": 2.0, "test_pools.py::e": 0.4}
    baseline = Baseline(durations=durations, lines={"pool.py": {2: list(durations)}})

    tests = covering(find_mutants(tmp_path, ["pool.py"], baseline)[0], tmp_path, ["pool.py"], baseline)

    assert tests == ["pure/test_pool.py::d", "t.py::a", "t.py::b", "t.py::c", "test_pools.py::e"]


SCALED = """
import functools

def plain(a):
    return a

class Holder:
    @functools.lru_cache
    def other(self):
        return 1

    @staticmethod
    def scaled(xp, a, *, by=2.0):
        return a * by
"""


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("name", STOCK)
def test_a_stock_mutant_replaces_a_whole_function_on_every_device(name: str, device: str) -> None:
    mutants = {one.edit.operator: one for one in stock_mutants("a.py", SCALED, [(12, 14)])}
    space: dict[str, Any] = {}
    exec(mutants[f"stock: {name}"].edit.apply(SCALED), space)  # noqa: S102
    first, second = (from_host(np.arange(1, 9, dtype=np.float32) / n, device) for n in (3, 7))

    mutant = space["Holder"].scaled
    mutant(None, first)
    out = mutant(None, second, by=1.5)

    assert out.shape == (8,)
    assert not np.array_equal(to_host(out), to_host(second) * np.float32(1.5))
    assert space["plain"](3) == 3


def test_stock_mutants_are_made_of_the_named_functions_only() -> None:
    mutants = stock_mutants("a.py", SCALED, [(4, 5)])

    assert {one.function for one in mutants} == {"plain"}
    assert [one.edit.operator for one in mutants] == [f"stock: {name}" for name in STOCK]
