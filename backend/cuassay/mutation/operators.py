"""The mutation operators on Python code, after common faults in array code and in code with streams.

Each operator is a function from a node to replacements for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

__all__ = ["OPERATORS", "called", "is_only_a_guard", "next_digit"]

Replacements = Iterator[tuple[ast.AST, str]]
Operator = Callable[[ast.AST], Replacements]

#: From a name to an operator, in the order in which mutants of one node are made.
OPERATORS: dict[str, Operator] = {}

_COMPARED: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip

_CALCULATED: Mapping[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "//", ast.Pow: "*",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip

#: From a dtype to the one with half the bits that a careless author might use.
_NARROWER: Mapping[str, str] = {
    "float64": "float32", "float32": "float16", "int64": "int32", "int32": "int16", "uint64": "uint32",
    "uint32": "uint16", "complex128": "complex64",
}  # fmt: skip

#: Calls that return their first argument, or the object they belong to, almost unchanged.
_WRAPPERS = frozenset(
    "abs absolute ascontiguousarray asfortranarray astype clip contiguous copy conj flip nan_to_num negative "
    "ravel round sorted sqrt squeeze transpose".split()
)

#: Functions whose result may equal one of their arguments.
_CHOOSERS = frozenset("maximum minimum max min fmax fmin where".split())

#: Calls that order work or wait for it.
_ORDERING = frozenset(
    "record record_event record_stream synchronize wait wait_event wait_stream acquire release notify".split()
)


def operator(name: str) -> Callable[[Operator], Operator]:
    """Register an operator under the name that reports show."""

    def register(function: Operator) -> Operator:
        OPERATORS[name] = function
        return function

    return register


@operator("comparison")
def _comparison(node: ast.AST) -> Replacements:
    """A bound off by one, or a test turned round."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        turned = _COMPARED[type(node.ops[0])]
        yield node, f"{ast.unparse(node.left)} {turned} {ast.unparse(node.comparators[0])}"


@operator("condition")
def _condition(node: ast.AST) -> Replacements:
    """A condition negated, or one of its parts dropped."""
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare):
        yield node.test, f"not ({ast.unparse(node.test)})"
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            kept = [value for position, value in enumerate(node.values) if position != index]
            joined = kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
            yield node, f"({ast.unparse(joined)})"
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield test, "True"


@operator("arithmetic")
def _arithmetic(node: ast.AST) -> Replacements:
    """Another operator in the place of one."""
    if isinstance(node, ast.BinOp) and type(node.op) in _CALCULATED:
        yield node, f"({ast.unparse(node.left)} {_CALCULATED[type(node.op)]} {ast.unparse(node.right)})"
    if isinstance(node, ast.AugAssign) and type(node.op) in _CALCULATED:
        yield node, f"{ast.unparse(node.target)} {_CALCULATED[type(node.op)]}= {ast.unparse(node.value)}"


@operator("term dropped")
def _term(node: ast.AST) -> Replacements:
    """A summand, a factor, a sign or a correction left out."""
    if isinstance(node, ast.BinOp):
        yield node, f"({ast.unparse(node.left)})"
        if isinstance(node.op, ast.Add | ast.Mult | ast.MatMult | ast.BitAnd | ast.BitOr):
            yield node, f"({ast.unparse(node.right)})"
    if isinstance(node, ast.UnaryOp):
        yield node, f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.AugAssign):
        yield node, f"{ast.unparse(node.target)} = {ast.unparse(node.value)}"


@operator("constant")
def _constant(node: ast.AST) -> Replacements:
    """The last digit of a number, or a flag turned round."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int):
        yield node, str(node.value + 1)
        if node.value == 1:
            yield node, "0"
    elif isinstance(node.value, float):
        yield node, next_digit(repr(node.value))


@operator("narrower dtype")
def _dtype(node: ast.AST) -> Replacements:
    """An accumulator, an index or a result in half the bits."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _NARROWER:
        yield node, repr(_NARROWER[node.value])
    if isinstance(node, ast.Attribute) and node.attr in _NARROWER:
        yield node, f"{ast.unparse(node.value)}.{_NARROWER[node.attr]}"


@operator("call dropped")
def _wrapper(node: ast.AST) -> Replacements:
    """A copy, a cast, a mask or a bound left out: what went in comes out."""
    if not isinstance(node, ast.Call):
        return
    name, owner = called(node)
    if name in _WRAPPERS:
        inside = owner if owner is not None and not _is_namespace(owner) else node.args[0] if node.args else None
        if inside is not None:
            yield node, f"({ast.unparse(inside)})"
    elif name in _CHOOSERS and len(node.args) > 1:
        for argument in node.args[1:] if name == "where" else node.args:
            yield node, f"({ast.unparse(argument)})"
    elif name in {"isnan", "isinf", "isfinite"} and node.args:
        yield node, f"({ast.unparse(node.args[0])} != {ast.unparse(node.args[0])})" if name != "isnan" else "False"


@operator("argument dropped")
def _argument(node: ast.AST) -> Replacements:
    """A keyword left to its default."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None and not is_only_a_guard(node, keyword):
                rest = [other for other in node.keywords if other is not keyword]
                yield node, ast.unparse(ast.Call(node.func, node.args, rest))


@operator("cache key")
def _key(node: ast.AST) -> Replacements:
    """A field left out of a key: what differs only there is taken for the same."""
    keys: list[ast.AST] = []
    if isinstance(node, ast.Subscript):
        keys = [node.slice]
    elif isinstance(node, ast.Assign) and any("key" in ast.unparse(target).lower() for target in node.targets):
        keys = [node.value]
    elif isinstance(node, ast.Call) and called(node)[0] in {"get", "setdefault", "pop"} and node.args:
        keys = [node.args[0]]
    for key in keys:
        if isinstance(key, ast.Tuple) and len(key.elts) > 1 and not any(isinstance(e, ast.Slice) for e in key.elts):
            for index in range(len(key.elts)):
                kept = [element for position, element in enumerate(key.elts) if position != index]
                yield key, f"({', '.join(map(ast.unparse, kept))},)"


@operator("statement dropped")
def _statement(node: ast.AST) -> Replacements:
    """A call, a write, a wait or a refusal left out."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    is_write = isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )
    if is_call or is_write or isinstance(node, ast.Raise | ast.Delete):
        yield node, "pass"


@operator("context dropped")
def _context(node: ast.AST) -> Replacements:
    """The body of a ``with`` without it: on the wrong stream, without a lock, in another precision."""
    if isinstance(node, ast.With) and not any(item.optional_vars for item in node.items):
        for item in node.items:
            yield item.context_expr, "__import__('contextlib').nullcontext()"


@operator("order")
def _order(node: ast.AST) -> Replacements:
    """An event recorded, or a wait made, one statement too early or too late."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    for first, second in pairwise(body):
        if (_orders(first) or _orders(second)) and first.col_offset == second.col_offset:
            both = ast.Module([second, first], [])
            indent = " " * first.col_offset
            place = ast.copy_location(ast.Pass(), first)
            place.end_lineno, place.end_col_offset = second.end_lineno, second.end_col_offset
            yield place, ast.unparse(both).replace("\n", f"\n{indent}")


@operator("neighbour")
def _neighbour(node: ast.AST) -> Replacements:
    """The element next to the right one; a slice that begins or ends one off."""
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                yield bound, f"({ast.unparse(bound)} + 1)"
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.BinOp):
        yield node.slice, f"({ast.unparse(node.slice)}) - 1"


def called(node: ast.Call) -> tuple[str, ast.expr | None]:
    """Return the name of the called function, and the object it belongs to, or None."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value
    return (node.func.id, None) if isinstance(node.func, ast.Name) else ("", None)


def is_only_a_guard(call: ast.Call, keyword: ast.keyword) -> bool:
    """Return whether a keyword is ``strict`` of ``zip``, which has no effect as long as the lengths agree."""
    return keyword.arg == "strict" and called(call)[0] == "zip"


def _is_namespace(node: ast.expr) -> bool:
    """Return whether `node` names a module or namespace, so that ``node.copy(x)`` takes its array as an argument."""
    return isinstance(node, ast.Name) and node.id in {
        "np",
        "numpy",
        "cp",
        "cupy",
        "xp",
        "torch",
        "ops",
        "math",
        "scipy",
    }


def _orders(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Call) and called(value)[0] in _ORDERING


_LAST_DIGIT = re.compile(r"\d(?=\D*$)")


def next_digit(number: str) -> str:
    """Return a number with the last digit of its mantissa one higher: 0.5 becomes 0.6."""
    mantissa, mark, exponent = number.partition("e")
    changed = _LAST_DIGIT.sub(lambda digit: str((int(digit[0]) + 1) % 10), mantissa)
    return changed + mark + exponent
