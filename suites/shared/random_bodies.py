"""Bodies drawn at random, and a C++ compiler to tell what they mean.

``python ci/bodies.py 10000`` compares that many. They use arithmetic,
comparisons, casts, branches, loops and calls, for which NumPy and a compiler without contraction give the same bits.
Left out is what C++ leaves undefined: integer division by 0, floats converted to integers that do not hold them.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.jit.body import read
from cuassay.jit.run import run

__all__ = ["C_TYPES", "INPUTS", "Drawn", "compiled", "computed", "draw"]

C_TYPES = {
    "float32": "float", "float64": "double", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t",
}  # fmt: skip
_FLOATS = ("float32", "float64")
#: Elements of each input.
INPUTS = 257

_HEAD = """#include <cmath>
#include <cstdint>
using namespace std;
"""


@dataclass(frozen=True)
class Drawn:
    """A body, the dtype of its template, and its inputs."""

    code: str
    dtype: str
    inputs: tuple[np.ndarray[Any, Any], ...]


class _Writer:
    """Writes one body."""

    def __init__(self, dice: random.Random, dtype: str) -> None:
        self._dice = dice
        self._is_float = dtype in _FLOATS
        self._integers: list[str] = []
        self._values = ["x", "y"]
        self._depth = 0
        self._names = 0
        self._fixed: set[str] = set()

    def code(self) -> str:
        body = "\n".join(self._statement(1) for _ in range(self._dice.randint(2, 6)))
        helper = "template <typename T> T helper(T p, T q) { return p < q ? p * q : static_cast<T>(p - q); }\n"
        return (
            f"{helper}template <typename T> T drawn(T x, T y) {{\n  T r = x;\n  int k = 3;\n{self._begun()}{body}\n"
            f"  return {self._value(2)};\n}}\n"
        )

    def _begun(self) -> str:
        self._values.append("r")
        self._integers.append("k")
        return ""

    # -- expressions

    def _value(self, depth: int) -> str:
        """Of the template's type, or of one that it meets in arithmetic."""
        dice = self._dice
        if depth <= 0 or dice.random() < 0.2:
            return self._leaf()
        a, b = self._value(depth - 1), self._value(depth - 1)
        forms: list[Callable[[], str]] = [
            *[lambda: f"({a} {dice.choice('+-*')} {b})"] * 4,
            lambda: f"({self._condition(depth - 1)} ? {a} : {b})",
            lambda: f"static_cast<T>({a})" if self._is_float else f"T({a})",
            lambda: f"helper<T>({a}, {b})",
            lambda: self._special(a, b),
            lambda: f"(-{a})",
        ]
        return dice.choice(forms)()

    def _special(self, a: str, b: str) -> str:
        dice = self._dice
        if self._is_float:
            return dice.choice(
                [f"({a} / {b})", f"fabs((T){a})", f"std::fmax((T){a}, (T){b})", f"floor((T){a})", f"sqrt((T)({a}))",
                 f"trunc((T){a})", f"fmod((T){a}, (T){b})", f"copysign((T){a}, (T){b})", f"round((T)({a}))"]
            )  # fmt: skip
        return dice.choice(
            [f"({a} / (({b} & 7) + 1))", f"({a} % (({b} & 15) + 1))", f"({a} & {b})", f"({a} | {b})", f"({a} ^ {b})",
             f"(~{a})", f"(((uint32_t){a}) << {dice.randint(0, 7)})", f"(((uint32_t){a}) >> {dice.randint(0, 7)})"]
        )  # fmt: skip

    def _leaf(self) -> str:
        dice = self._dice
        if dice.random() < 0.3:
            return self._constant()
        return dice.choice(self._values + (self._integers if dice.random() < 0.4 else []))

    def _constant(self) -> str:
        dice = self._dice
        whole = dice.choice(["0", "1", "2", "7", "100", "3u", "5L", "0x1F", "010"])
        return dice.choice([whole, "0.5f", "1.25", "2.0f", "1e-3f", ".75"]) if self._is_float else whole

    def _integer(self, depth: int) -> str:
        """Of an integer type, whatever the template's is."""
        dice = self._dice
        if depth <= 0 or not self._integers:
            return dice.choice([*self._integers, "1", "2", "-3"])
        a, b = self._integer(depth - 1), self._integer(depth - 1)
        return dice.choice(
            [f"({a} + {b})", f"({a} * {b})", f"({a} - {b})", f"(int){self._condition(depth - 1)}", f"({a} % 5)"]
        )

    def _condition(self, depth: int) -> str:
        dice = self._dice
        a, b = self._value(depth - 1), self._value(depth - 1)
        plain = f"({a} {dice.choice(['<', '<=', '>', '>=', '==', '!='])} {b})"
        if depth <= 0 or dice.random() < 0.6:
            return plain
        other = self._condition(depth - 1)
        return dice.choice([f"({plain} && {other})", f"({plain} || {other})", f"(!{plain})", f"(!{other})"])

    # -- statements

    def _statement(self, indent: int) -> str:
        dice, pad = self._dice, "  " * indent
        simple = [self._declaration, self._assignment, self._assignment, self._integer_step, self._small_step]
        nested = [self._branch, self._branch, self._early_return, self._loop, self._loop]
        return pad + dice.choice(simple + nested if indent < 3 else simple)(indent)

    def _assignment(self, indent: int) -> str:
        target = self._dice.choice(["r", *(name for name in self._values if name not in self._fixed)])
        return f"{target} {self._dice.choice(['=', '+=', '-=', '*='])} {self._value(3)};"

    def _integer_step(self, indent: int) -> str:
        return f"k {self._dice.choice(['=', '+=', '^='])} {self._integer(2)};"

    def _small_step(self, indent: int) -> str:
        return f"{self._dice.choice(['k++', '--k', 'r = r', 'r = (k += 1, r)'])};"

    def _branch(self, indent: int) -> str:
        other = f" else {self._block(indent)}" if self._dice.random() < 0.5 else ""
        return f"if ({self._condition(2)}) {self._block(indent)}{other}"

    def _early_return(self, indent: int) -> str:
        return f"if ({self._condition(1)}) return {self._value(2)};"

    def _declaration(self, indent: int) -> str:
        name = self._new("v")
        kind = self._dice.choice(
            ["T", "auto", "const T"] + (["float", "double"] if self._is_float else ["long", "unsigned"])
        )
        text = f"{kind} {name} = {self._value(2)};"
        self._values.append(name)
        if kind.startswith("const"):
            self._fixed.add(name)
        return text

    def _new(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _block(self, indent: int) -> str:
        known = self._values[:], self._integers[:]
        lines = [self._statement(indent + 1) for _ in range(self._dice.randint(1, 2))]
        self._values, self._integers = known
        inside = "\n".join(lines)
        return f"{{\n{inside}\n{'  ' * indent}}}"

    def _loop(self, indent: int) -> str:
        dice, pad = self._dice, "  " * indent
        counter = self._new("i")
        known = self._values[:], self._integers[:]
        self._integers.append(counter)
        leave = dice.choice(["", f"if ({self._condition(1)}) break;", f"if ({self._condition(1)}) continue;"])
        lines = "\n".join(self._statement(indent + 1) for _ in range(dice.randint(1, 2)))
        self._values, self._integers = known
        many = dice.randint(1, 4)
        # `continue` in a while loop must not pass by what counts
        head, step = dice.choice(
            [
                (f"for (int {counter} = 0; {counter} < {many}; ++{counter})", ""),
                (f"int {counter} = 0;\n{pad}while ({counter} < {many})", f"{counter}++;"),
                (f"int {counter} = 0;\n{pad}do", f"{counter} += 1;"),
            ]
        )
        inside = f"{pad}  {step} {leave}\n{lines}"
        tail = f" while ({counter} < {many});" if head.endswith("do") else ""
        return f"{head} {{\n{inside}\n{pad}}}{tail}"


def draw(seed: int) -> Drawn:
    """The body of a seed."""
    dice = random.Random(seed)  # noqa: S311  nothing secret
    dtype = dice.choice(list(C_TYPES))
    code = _Writer(dice, dtype).code()
    chance = np.random.default_rng(seed)
    if dtype in _FLOATS:
        inputs = [np.round(chance.normal(0, 4, INPUTS), 2).astype(dtype) for _ in range(2)]
    else:
        low = 0 if dtype.startswith("u") else -100
        inputs = [chance.integers(low, 100, INPUTS).astype(dtype) for _ in range(2)]
    return Drawn(code, dtype, tuple(inputs))


def compiled(bodies: Sequence[Drawn], folder: Path) -> list[np.ndarray[Any, Any]]:
    """What g++ makes of them."""
    parts = [_HEAD]
    for place, one in enumerate(bodies):
        kind = C_TYPES[one.dtype]
        parts.append(
            f"namespace b{place} {{\n{one.code}}}\n"
            f'extern "C" void run{place}(const {kind}* x, const {kind}* y, {kind}* r, int n) '
            f"{{ for (int i = 0; i < n; ++i) r[i] = b{place}::drawn<{kind}>(x[i], y[i]); }}\n"
        )
    source, library = folder / "bodies.cpp", folder / "bodies.so"
    source.write_text("".join(parts))
    options = ("-O0", "-w", "-std=c++17", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC")
    subprocess.run(["g++", *options, str(source), "-o", str(library)], check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    return [_called(getattr(loaded, f"run{place}"), one) for place, one in enumerate(bodies)]


def _called(function: Any, one: Drawn) -> np.ndarray[Any, Any]:
    out = np.empty(INPUTS, one.dtype)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*one.inputs, out)]
    function(*pointers, ctypes.c_int(INPUTS))
    return out


def computed(one: Drawn) -> np.ndarray[Any, Any]:
    """What `cuassay.jit` makes of it on NumPy arrays."""
    (found,) = run(read(one.code), one.dtype, one.inputs)
    return np.asarray(found)
