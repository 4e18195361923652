"""Mutants of Python code, from its syntax tree: the faults that people ship in array code and in code around streams.

Each operator is a function from a node to replacements for it. A replacement is written over the node's own text, so
that the rest of the file, its comments included, stays as it is.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from cuassay.mutation.cuda import cuda_edits, looks_like_cuda
from cuassay.mutation.mutant import Edit, Mutant, mutants_of

__all__ = ["OPERATORS", "python_mutants"]

Replacements = Iterator[tuple[ast.AST, str]]
Operator = Callable[[ast.AST], Replacements]

#: Name to operator, in the order in which mutants of one node are made.
OPERATORS: dict[str, Operator] = {}

_COMPARED: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip

_CALCULATED: Mapping[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "//", ast.Pow: "*",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip

#: Dtypes and what a careless author takes in their place: half the bits.
_NARROWER: Mapping[str, str] = {
    "float64": "float32", "float32": "float16", "int64": "int32", "int32": "int16", "uint64": "uint32",
    "uint32": "uint16", "complex128": "complex64",
}  # fmt: skip

#: Calls that give their first argument, or the object they belong to, almost unchanged.
_WRAPPERS = frozenset(
    "abs absolute ascontiguousarray asfortranarray astype clip contiguous copy conj flip nan_to_num negative "
    "ravel round sorted sqrt squeeze transpose".split()
)

#: Functions of which one argument may pass for the result.
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


def python_mutants(path: str, text: str, functions: Sequence[tuple[int, int]] | None = None) -> list[Mutant]:
    """The mutants of a Python file.

    Parameters
    ----------
    path : str
        The file's name, for the mutants.
    text : str
        What it holds.
    functions : sequence of (int, int), optional
        First and last lines of what may be changed; by default all of the file.

    Raises
    ------
    SyntaxError
        The text is not Python.
    """
    tree = ast.parse(text)
    offsets = _line_offsets(text)
    edits = (
        replace(edit, function=edit.function or place.name, scope=place.lines)
        for place, node in _nodes(tree)
        if functions is None or any(first <= getattr(node, "lineno", 0) <= last for first, last in functions)
        for edit in _edits_of(node, text, offsets)
        if _is_python(edit.apply(text))
    )
    return mutants_of(path, text, edits)


def _edits_of(node: ast.AST, text: str, offsets: Sequence[int]) -> Iterator[Edit]:
    for name, function in OPERATORS.items():
        for target, replacement in function(node):
            start, end = _span(target, offsets, text)
            if text[start:end] != replacement:
                yield Edit(name, start, end, replacement)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and looks_like_cuda(node.value):
        yield from _in_kernel_text(node.value, text, *_span(node, offsets, text))


def _in_kernel_text(kernel: str, text: str, start: int, end: int) -> Iterator[Edit]:
    """CUDA C++ in a string literal: the same characters in the file, where nothing in them is escaped."""
    begin = text.find(kernel, start, end)
    if begin >= 0:
        for edit in cuda_edits(kernel):
            yield replace(edit, start=begin + edit.start, end=begin + edit.end)


class _Place(NamedTuple):
    """The function that a node is in: its dotted name and its lines."""

    name: str
    lines: tuple[int, int]


def _nodes(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST]]:
    """Each node that runs, with the function it is in; annotations and docstrings do not run."""

    def walk(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, ast.AST]]:
        skipped = {id(part) for part in _inert(node)}
        for child in ast.iter_child_nodes(node):
            if id(child) not in skipped:
                inner = _inside(child, place)
                yield inner, child
                yield from walk(child, inner)

    return walk(tree, _Place("", (0, 0)))


def _inside(node: ast.AST, place: _Place) -> _Place:
    """Where the parts of `node` stand."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return place
    name = f"{place.name}.{node.name}" if place.name else node.name
    lines = place.lines if isinstance(node, ast.ClassDef) else (node.lineno, node.end_lineno or node.lineno)
    return _Place(name, lines)


def _inert(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of `node` that say something to readers and tools only."""
    for field in ("annotation", "returns", "type_params"):
        part = getattr(node, field, None)
        yield from part if isinstance(part, list) else [part] if isinstance(part, ast.AST) else []
    body = getattr(node, "body", None)
    if isinstance(body, list):
        yield from (part for part in body if _is_inert_statement(part))
    if isinstance(node, ast.ClassDef):  # frozen=, slots=: a program that runs without them runs as well with them
        yield from (
            part for part in node.decorator_list if isinstance(part, ast.Call) and _called(part)[0] == "dataclass"
        )
    if isinstance(node, ast.Call):
        yield from (keyword for keyword in node.keywords if _is_only_a_guard(node, keyword))


def _is_only_a_guard(call: ast.Call, keyword: ast.keyword) -> bool:
    """``zip(..., strict=True)``: it changes nothing while the lengths agree, which other tests hold."""
    return keyword.arg == "strict" and _called(call)[0] == "zip"


def _is_inert_statement(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
        return True
    if isinstance(node, ast.Assign | ast.AugAssign) and _is_for_readers(node):
        return True
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text and not looks_like_cuda(str(node.value.value))  # type: ignore[attr-defined]


def _is_for_readers(node: ast.Assign | ast.AugAssign) -> bool:
    """``__all__``, and a type with a name of its own, such as ``Shape = tuple[int, ...]``."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    is_type = isinstance(node.value, ast.Subscript) and any(_TYPE_NAME.fullmatch(name) for name in names)
    return is_type or "__all__" in names


_TYPE_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*")


def _line_offsets(text: str) -> list[int]:
    """Where each line begins, in characters; the tree counts columns in bytes of UTF-8."""
    offsets, at = [0], 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        offsets.append(at)
    return offsets


def _span(node: ast.AST, offsets: Sequence[int], text: str) -> tuple[int, int]:
    def position(line: int, column: int) -> int:
        begin = offsets[line - 1]
        return begin + len(text[begin : offsets[line]].encode()[:column].decode(errors="ignore"))

    return (
        position(node.lineno, node.col_offset),  # type: ignore[attr-defined]
        position(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
    )


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what looks like a mistake: it is meant to be one
        try:
            compile(text, "mutant", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


# ------------------------------------------------------------------------------------------------ operators


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
    name, owner = _called(node)
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
            if keyword.arg is not None and not _is_only_a_guard(node, keyword):
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
    elif isinstance(node, ast.Call) and _called(node)[0] in {"get", "setdefault", "pop"} and node.args:
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
    """The element beside the right one; a slice that begins or ends one off."""
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                yield bound, f"({ast.unparse(bound)} + 1)"
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.BinOp):
        yield node.slice, f"({ast.unparse(node.slice)}) - 1"


def _called(node: ast.Call) -> tuple[str, ast.expr | None]:
    """The name of what is called, and the object it belongs to."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value
    return (node.func.id, None) if isinstance(node.func, ast.Name) else ("", None)


def _is_namespace(node: ast.expr) -> bool:
    """Whether ``node.copy(x)`` takes its array as an argument: modules and namespaces have short plain names."""
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
    return isinstance(value, ast.Call) and _called(value)[0] in _ORDERING


_LAST_DIGIT = re.compile(r"\d(?=\D*$)")


def next_digit(number: str) -> str:
    """A number's text with its last digit one higher, of the mantissa where it has an exponent: 0.5 becomes 0.6."""
    mantissa, mark, exponent = number.partition("e")
    changed = _LAST_DIGIT.sub(lambda digit: str((int(digit[0]) + 1) % 10), mantissa)
    return changed + mark + exponent
