"""Write the derivative of a body by one of its parameters as another body.

This is forward-mode differentiation: each floating-point variable has a second variable, its tangent, which follows it
through branches, loops and calls. The result is the tangent of the body's result, times a parameter ``grad``. It is an
ordinary text, so it runs wherever the body runs, and can itself be differentiated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from cuassay.errors import GradientError
from cuassay.jit.body import TEMPLATE, Body, Function, declared_type
from cuassay.jit.mathematics import FUNCTIONS
from cuassay.jit.text import AUTO

__all__ = ["tangent"]

_FLOATING = frozenset((TEMPLATE, AUTO, "float32", "float64"))
_C_NAMES = {"float32": "float", "float64": "double"}

#: The derivatives of functions of one argument ``{a}``. ``{T}`` is a cast to the template's type, if there is one,
#: because a double constant would promote the whole expression to double.
_ONE: dict[str, str] = {
    "acos": "-1 / sqrt(1 - {a} * {a})", "acosh": "1 / sqrt({a} * {a} - 1)", "asin": "1 / sqrt(1 - {a} * {a})",
    "asinh": "1 / sqrt({a} * {a} + 1)", "atan": "1 / (1 + {a} * {a})", "atanh": "1 / (1 - {a} * {a})",
    "cbrt": "1 / (3 * cbrt({a}) * cbrt({a}))", "conj": "1", "cos": "-sin({a})", "cosh": "sinh({a})",
    "erf": "{T}1.1283791670955126 * exp(-{a} * {a})", "exp": "exp({a})", "exp2": "{T}0.6931471805599453 * exp2({a})",
    "expm1": "exp({a})", "fabs": "(({a} > 0) - ({a} < 0))", "abs": "(({a} > 0) - ({a} < 0))", "log": "1 / {a}",
    "log10": "{T}0.4342944819032518 / {a}", "log1p": "1 / (1 + {a})", "log2": "{T}1.4426950408889634 / {a}",
    "real": "1", "rsqrt": "-{T}0.5 * rsqrt({a}) / {a}", "sin": "cos({a})", "sinh": "cosh({a})",
    "sqrt": "{T}0.5 / sqrt({a})", "tan": "(1 + tan({a}) * tan({a}))", "tanh": "(1 - tanh({a}) * tanh({a}))",
}  # fmt: skip

#: The derivatives of functions of several arguments, by each argument.
_SEVERAL: dict[str, tuple[str, ...]] = {
    "atan2": ("{b} / ({a} * {a} + {b} * {b})", "-{a} / ({a} * {a} + {b} * {b})"),
    "copysign": ("((signbit({a}) == signbit({b})) * 2 - 1)", ""),
    "fdim": ("({a} > {b})", "-1 * ({a} > {b})"),
    "fma": ("{b}", "{a}", "1"),
    "fmax": ("({a} >= {b})", "({a} < {b})"),
    "fmin": ("({a} <= {b})", "({a} > {b})"),
    "fmod": ("1", "-trunc({a} / {b})"),
    "hypot": ("{a} / hypot({a}, {b})", "{b} / hypot({a}, {b})"),
    "max": ("({a} >= {b})", "({a} < {b})"),
    "min": ("({a} <= {b})", "({a} > {b})"),
    "pow": ("({b} == 0 ? 0 : {b} * pow({a}, {b} - 1))", "({a} == 0 ? 0 : pow({a}, {b}) * log({a}))"),
}

#: Functions that are constant almost everywhere.
_STEPS = frozenset(
    ("arg", "ceil", "floor", "imag", "nearbyint", "rint", "round", "trunc", "isfinite", "isinf", "isnan", "signbit")
)


def tangent(body: Body, parameter: str, scalars: int) -> str:
    """Return the text of the derivative by `parameter`.

    Parameters
    ----------
    body : Body
        The body to differentiate.
    parameter : str
        The name of one of its arrays.
    scalars : int
        How many of its last parameters are numbers. The gradient of the result is inserted before them.

    Raises
    ------
    GradientError
        If the body cannot be differentiated: several results, assignments inside expressions.
    """
    if len(body.outputs) > 1:
        raise _refused(body, "it has several results; write one function for each")
    return _Writer(body, parameter, scalars).text()


def _refused(body: Body, why: str) -> GradientError:
    return GradientError(f"{body.entry.name} has no derivative: {why}")


def _generator() -> Any:
    """Return pycparser's generator, which converts a tree to text."""
    from pycparser import c_generator

    return c_generator.CGenerator()


class _Writer:
    """Writes the functions of one derivative."""

    def __init__(self, body: Body, parameter: str, scalars: int) -> None:
        self._body, self._parameter, self._scalars = body, parameter, scalars
        self._generator = _generator()
        self._generator.visit_FuncCall = self._call_text
        words = set(re.findall(r"\w+", body.code))
        suffixes = ("_t" + "t" * more for more in count())
        self._suffix = next(one for one in suffixes if not any(word.endswith(one) for word in words))
        self._grad = next(one for one in ("grad" + "_" * more for more in count()) if one not in words)
        self._floats: set[str] = set()
        self._is_entry, self._constant = False, ""

    def text(self) -> str:
        """Return all functions, the derivative last."""
        helpers = [one for one in self._body.functions.values() if one is not self._body.entry]
        written = [part for one in helpers for part in (self._primal(one), self._of_helper(one))]
        return "\n".join([*written, self._of_entry(self._body.entry)])

    # -------------------------------------------------------------------------------------------- functions

    def _type(self, name: str) -> str:
        found = next((c for c, dtype in _by_dtype().items() if dtype == name), name)
        return self._body.template if name == TEMPLATE else "auto" if name == AUTO else _C_NAMES.get(name, found)

    def _cast_in(self, function: Function) -> str:
        has_template = any(one.type == TEMPLATE for one in function.parameters)
        return f"({self._body.template})" if has_template else ""

    def _headed(self, returns: str, name: str, parameters: Sequence[str], block: str) -> str:
        text = f"{self._type(returns)} {name}({', '.join(parameters)}) {block}"
        uses = re.search(rf"\b{re.escape(self._body.template)}\b", text)
        return f"template <typename {self._body.template}> {text}" if uses else text

    def _primal(self, function: Function) -> str:
        parameters = [f"{self._type(one.type)} {one.name}" for one in function.parameters]
        return self._headed(function.returns, function.name, parameters, self._shown(function.tree))

    def _of_helper(self, function: Function) -> str:
        self._floats = {one.name for one in function.parameters if one.type in _FLOATING}
        self._is_entry, self._constant = False, self._cast_in(function)
        parameters = []
        for one in function.parameters:
            parameters.append(f"{self._type(one.type)} {one.name}")
            if one.name in self._floats:
                parameters.append(f"{self._type(one.type)} {one.name}{self._suffix}")
        block = "{\n" + self._statements(function.tree.block_items or ()) + "}"
        return self._headed(function.returns, f"{function.name}{self._suffix}", parameters, block)

    def _of_entry(self, function: Function) -> str:
        """Write the derivative of the entry. The tangent of the parameter starts at 1, and all others at 0."""
        self._floats = {one.name for one in function.parameters if one.type in _FLOATING}
        self._is_entry, self._constant = True, self._cast_in(function)
        inputs = [one for one in function.parameters if not one.is_reference]
        parameters = [f"{self._type(one.type)} {one.name}" for one in inputs]
        lines = [
            f"{self._type(one.type)} {one.name}{self._suffix} = {int(one.name == self._parameter)};\n"
            for one in function.parameters
            if one.name in self._floats
        ]
        written = [one for one in function.parameters if one.is_reference]
        lines = [*(f"{self._type(one.type)} {one.name};\n" for one in written), *lines]
        body = self._statements(function.tree.block_items or ())
        end = f"return {self._grad} * {written[0].name}{self._suffix};\n" if written else ""
        block = "{\n" + "".join(lines) + body + end + "}"
        arrays = len(parameters) - self._scalars
        parameters.insert(arrays, f"{self._body.template} {self._grad}")
        return self._headed(TEMPLATE, f"{function.name}_by_{self._parameter}", parameters, block)

    # -------------------------------------------------------------------------------------------- statements

    def _statements(self, nodes: Sequence[Any]) -> str:
        return "".join(self._statement(node) for node in nodes)

    def _statement(self, node: Any) -> str:
        if node is None:
            return ";\n"
        write = getattr(self, f"_write_{type(node).__name__}", None)
        if write is not None:
            found: str = write(node)
            return found
        return f"{self._once(node)};\n"  # a call or an increment whose value is not used

    def _write_Compound(self, node: Any) -> str:
        outer = set(self._floats)
        inside = self._statements(node.block_items or ())
        self._floats = outer
        return "{\n" + inside + "}\n"

    def _write_EmptyStatement(self, node: Any) -> str:
        return ";\n"

    def _write_Break(self, node: Any) -> str:
        return "break;\n"

    def _write_Continue(self, node: Any) -> str:
        return "continue;\n"

    def _write_DeclList(self, node: Any) -> str:
        return self._statements(node.decls)

    def _write_Decl(self, node: Any) -> str:
        found = str(declared_type(node, self._body.template))
        value = None if node.init is None else self._once(node.init)
        head = f"{self._type(found)} {node.name}" + ("" if value is None else f" = {value}")
        self._floats.discard(node.name)
        if found not in _FLOATING:
            return f"{head};\n"
        slope = "0" if node.init is None else self._slope(node.init) or "0"
        self._floats.add(node.name)
        if found == AUTO:
            return f"auto {node.name}{self._suffix} = false ? {value} : {slope};\n{head};\n"
        return f"{self._type(found)} {node.name}{self._suffix} = {slope};\n{head};\n"

    def _write_Assignment(self, node: Any) -> str:
        name, primal = node.lvalue.name, f"{self._shown(node.lvalue)} {node.op} {self._once(node.rvalue)};\n"
        if name not in self._floats:
            return primal
        slope = self._slope(node.rvalue)
        if node.op != "=":
            slope = self._product_rule(node.op[:-1], name, f"{name}{self._suffix}", self._shown(node.rvalue), slope)
        return f"{name}{self._suffix} = {slope or '0'};\n{primal}"

    def _write_If(self, node: Any) -> str:
        otherwise = f"else {{\n{self._statement(node.iffalse)}}}\n" if node.iffalse is not None else ""
        return f"if ({self._once(node.cond)}) {{\n{self._statement(node.iftrue)}}}\n{otherwise}"

    def _write_While(self, node: Any) -> str:
        return f"while ({self._once(node.cond)}) {{\n{self._statement(node.stmt)}}}\n"

    def _write_DoWhile(self, node: Any) -> str:
        return f"do {{\n{self._statement(node.stmt)}}} while ({self._once(node.cond)});\n"

    def _write_For(self, node: Any) -> str:
        """Write a loop. Its step must not need a tangent: a ``continue`` would skip one written in the block."""
        outer = set(self._floats)
        start = self._statement(node.init)
        step = "" if node.next is None else self._once(node.next)
        cond = "" if node.cond is None else self._once(node.cond)
        inside = self._statement(node.stmt)
        self._floats = outer
        return f"{{\n{start}for (; {cond}; {step}) {{\n{inside}}}\n}}\n"

    def _write_Return(self, node: Any) -> str:
        if node.expr is None:
            return f"return {self._grad} * {self._reference()}{self._suffix};\n"
        slope = self._slope(node.expr)
        if not self._is_entry:
            return f"return {slope or '0'};\n"
        return f"return {self._grad} * ({slope});\n" if slope else f"return {self._grad} * 0;\n"

    def _reference(self) -> str:
        return self._body.outputs[0]

    # -------------------------------------------------------------------------------------------- expressions

    def _shown(self, node: Any) -> str:
        text: str = self._generator.visit(node)
        return text.replace(AUTO, "auto")

    def _call_text(self, node: Any) -> str:
        """Write a call with its explicit template type, which C has no syntax for."""
        arguments = self._generator.visit(node.args) if node.args else ""
        return f"{self._called(node)}({arguments})"

    def _called(self, node: Any, suffix: str = "") -> str:
        named = self._body.explicit.get(node.name.coord.column)
        return f"{node.name.name}{suffix}" + ("" if named is None else f"<{self._type(named)}>")

    def _once(self, node: Any) -> str:
        """Write an expression. Raises if it contains an assignment, whose tangent would be lost."""
        self._check(node, _assigns)
        return self._shown(node)

    def _check(self, node: Any, is_wrong: Callable[[_Writer, Any], bool]) -> None:
        if is_wrong(self, node):
            raise _refused(self._body, f"{self._shown(node)!r} assigns inside an expression; write it as a statement")
        for _, child in node.children():
            self._check(child, is_wrong)

    def _slope(self, node: Any) -> str:
        """Return the tangent of an expression; empty if it is 0."""
        self._check(node, _has_effect)
        found: str = getattr(self, f"_slope_{type(node).__name__}", lambda node: "")(node)
        return found

    def _slope_ID(self, node: Any) -> str:
        return f"{node.name}{self._suffix}" if node.name in self._floats else ""

    def _slope_Cast(self, node: Any) -> str:
        found, inner = str(declared_type(node.to_type, self._body.template)), self._slope(node.expr)
        return f"({self._type(found)})({inner})" if inner and found in _FLOATING else ""

    def _slope_UnaryOp(self, node: Any) -> str:
        inner = self._slope(node.expr)
        return f"{node.op}({inner})" if inner and node.op in "+-" else ""

    def _slope_TernaryOp(self, node: Any) -> str:
        first, second = self._slope(node.iftrue), self._slope(node.iffalse)
        return f"(({self._shown(node.cond)}) ? {first or '0'} : {second or '0'})" if first or second else ""

    def _slope_BinaryOp(self, node: Any) -> str:
        left, right = self._slope(node.left), self._slope(node.right)
        return self._product_rule(node.op, self._shown(node.left), left, self._shown(node.right), right)

    def _product_rule(self, op: str, a: str, a_slope: str, b: str, b_slope: str) -> str:
        if op in "+-":
            return f"({a_slope or '0'} {op} {b_slope or '0'})" if a_slope or b_slope else ""
        if op == "*":
            parts = [f"{a_slope} * ({b})" if a_slope else "", f"({a}) * {b_slope}" if b_slope else ""]
            return f"({' + '.join(filter(None, parts))})" if any(parts) else ""
        if op == "/" and b_slope:
            return f"(({a_slope or '0'} - ({a}) / ({b}) * {b_slope}) / ({b}))"
        return f"({a_slope} / ({b}))" if op == "/" and a_slope else ""

    def _slope_FuncCall(self, node: Any) -> str:
        arguments = list(node.args.exprs) if node.args else []
        slopes = [self._slope(one) for one in arguments]
        if not any(slopes):
            return ""
        called = self._body.functions.get(node.name.name)
        return (
            self._of_known(node, arguments, slopes) if called is None else self._of_own(node, called, arguments, slopes)
        )

    def _of_own(self, node: Any, called: Function, arguments: Sequence[Any], slopes: Sequence[str]) -> str:
        if called.returns not in _FLOATING:
            return ""
        named = self._body.explicit.get(node.name.coord.column)
        given = []
        for parameter, argument, slope in zip(called.parameters, arguments, slopes, strict=True):
            given.append(self._shown(argument))
            if parameter.type in _FLOATING:
                kind = self._type(named if named is not None and parameter.type == TEMPLATE else parameter.type)
                given.append(f"({kind})({slope or '0'})")
        return f"{self._called(node, self._suffix)}({', '.join(given)})"

    def _of_known(self, node: Any, arguments: Sequence[Any], slopes: Sequence[str]) -> str:
        name = node.name.name
        base = name if name in _ONE or name in _SEVERAL or name in _STEPS else name.removesuffix("f")
        if base in _STEPS:
            return ""
        forms = (_ONE[base],) if base in _ONE else _SEVERAL.get(base)
        if forms is None or name not in FUNCTIONS:
            raise _refused(self._body, f"the derivative of {name} is not written")
        shown = {"T": self._constant}
        shown |= {letter: f"({self._shown(one)})" for letter, one in zip("abc", arguments, strict=False)}
        parts = [
            f"({form.format(**shown)}) * {slope}" for form, slope in zip(forms, slopes, strict=True) if slope and form
        ]
        return f"({' + '.join(parts)})" if parts else ""


def _by_dtype() -> dict[str, str]:
    """Return the C names of the fixed-width integer types and bool, with their dtypes."""
    names = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    return {"bool": "bool", **{f"{name}_t": name for name in names}}


def _assigns(writer: _Writer, node: Any) -> bool:
    return type(node).__name__ == "Assignment" and node.lvalue.name in writer._floats  # noqa: SLF001


def _has_effect(writer: _Writer, node: Any) -> bool:
    steps = type(node).__name__ == "UnaryOp" and node.op in ("++", "--", "p++", "p--")
    return steps or type(node).__name__ == "Assignment"
