"""Make mutants of Python code from its syntax tree, by `operators`.

A replacement overwrites only the text of its node, so the rest of the file, including comments, is unchanged.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cuassay.mutation.cuda import cuda_edits, looks_like_cuda
from cuassay.mutation.mutant import Edit, Mutant, mutants_of
from cuassay.mutation.operators import OPERATORS, called, is_only_a_guard
from cuassay.mutation.stock import STOCK

__all__ = ["python_mutants", "stock_mutants"]


def python_mutants(path: str, text: str, functions: Sequence[tuple[int, int]] | None = None) -> list[Mutant]:
    """The mutants of a Python file.

    Parameters
    ----------
    path : str
        The name of the file, for the mutants.
    text : str
        The text of the file.
    functions : sequence of (int, int), optional
        The first and last lines of the code that may be changed; by default the whole file.

    Raises
    ------
    SyntaxError
        If the text is not Python.
    """
    tree = ast.parse(text)
    offsets = _line_offsets(text)
    edits = (
        replace(edit, function=edit.function or place.name, scope=place.lines, statement=place.statement)
        for place, node in _nodes(tree)
        if functions is None or any(first <= getattr(node, "lineno", 0) <= last for first, last in functions)
        for edit in _edits_of(node, text, offsets)
        if _is_python(edit.apply(text))
    )
    return mutants_of(path, text, edits)


def stock_mutants(path: str, text: str, functions: Sequence[tuple[int, int]]) -> list[Mutant]:
    """Return mutants that replace the results of whole functions, by `cuassay.mutation.stock`. A lambda has none.

    Parameters
    ----------
    path, text, functions
        As in `python_mutants`. Functions that begin at these first lines are replaced.
    """
    offsets, firsts = _line_offsets(text), {first for first, _ in functions}
    edits = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and _first_line(node) in firsts:
            start = offsets[node.lineno - 1]  # below other decorators
            scope = node.lineno, node.end_lineno or node.lineno
            for name in STOCK:
                line = f"{' ' * node.col_offset}@{_STOCK}.replaced({name!r})\n"
                edits.append(Edit(f"stock: {name}", start, start, line, function=node.name, scope=scope))
    return mutants_of(path, text, edits)


_STOCK = "__import__('cuassay.mutation.stock', fromlist=['replaced'])"


def _first_line(node: ast.FunctionDef) -> int:
    """Return the first line as code objects have it: that of the first decorator."""
    return min(node.lineno, *(one.lineno for one in node.decorator_list)) if node.decorator_list else node.lineno


def _edits_of(node: ast.AST, text: str, offsets: Sequence[int]) -> Iterator[Edit]:
    for name, function in OPERATORS.items():
        for target, replacement in function(node):
            start, end = _span(target, offsets, text)
            if text[start:end] != replacement:
                yield Edit(name, start, end, replacement)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and looks_like_cuda(node.value):
        yield from _in_kernel_text(node.value, text, *_span(node, offsets, text))


def _in_kernel_text(kernel: str, text: str, start: int, end: int) -> Iterator[Edit]:
    """Yield the edits of CUDA C++ in a string literal, if nothing in the literal is escaped."""
    begin = text.find(kernel, start, end)
    if begin >= 0:
        for edit in cuda_edits(kernel):
            yield replace(edit, start=begin + edit.start, end=begin + edit.end)


class _Place(NamedTuple):
    """The dotted name and the lines of the function that contains a node, and the lines of its statement."""

    name: str
    lines: tuple[int, int]
    statement: tuple[int, int]


def _nodes(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST]]:
    """Yield each node that runs, with its place. Annotations and docstrings do not run."""

    def walk(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, ast.AST]]:
        skipped = {id(part) for part in _inert(node)}
        for child in ast.iter_child_nodes(node):
            if id(child) not in skipped:
                inner = _inside(child, place)
                yield inner, child
                yield from walk(child, inner)

    return walk(tree, _Place("", (0, 0), (0, 0)))


def _inside(node: ast.AST, place: _Place) -> _Place:
    """Return the place of the parts of `node`."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return place._replace(statement=_head(node)) if isinstance(node, ast.stmt) else place
    name = f"{place.name}.{node.name}" if place.name else node.name
    lines = place.lines if isinstance(node, ast.ClassDef) else (node.lineno, node.end_lineno or node.lineno)
    return _Place(name, lines, (0, 0))


def _head(node: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement, without those of nested statements."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.lineno, node.end_lineno or node.lineno
    below = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return node.lineno, max(node.lineno, below - 1)


def _inert(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of `node` that only matter to readers and tools."""
    for field in ("annotation", "returns", "type_params"):
        part = getattr(node, field, None)
        yield from part if isinstance(part, list) else [part] if isinstance(part, ast.AST) else []
    body = getattr(node, "body", None)
    if isinstance(body, list):
        yield from (part for part in body if _is_inert_statement(part))
    if isinstance(node, ast.ClassDef):  # frozen= and slots= do not change what a correct program does
        yield from (
            part for part in node.decorator_list if isinstance(part, ast.Call) and called(part)[0] == "dataclass"
        )
    if isinstance(node, ast.Call):
        yield from (keyword for keyword in node.keywords if is_only_a_guard(node, keyword))


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
    """Return whether an assignment defines ``__all__`` or a type alias, such as ``Shape = tuple[int, ...]``."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    is_type = isinstance(node.value, ast.Subscript) or _is_union(node.value)
    return (is_type and any(_TYPE_NAME.fullmatch(name) for name in names)) or "__all__" in names


def _is_union(node: ast.expr) -> bool:
    """Return whether an expression is a union of types: type names, generic types and None, joined by ``|``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    return all(map(_is_type_or_union, (node.left, node.right)))


def _is_type_or_union(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _BUILTIN_TYPES or bool(_TYPE_NAME.fullmatch(node.id))
    is_none = isinstance(node, ast.Constant) and node.value is None
    return is_none or isinstance(node, ast.Subscript) or _is_union(node)


_TYPE_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*")
_BUILTIN_TYPES = frozenset({"bool", "bytes", "complex", "dict", "float", "int", "list", "set", "str", "tuple"})


def _line_offsets(text: str) -> list[int]:
    """Return where each line begins, in characters. The syntax tree counts columns in UTF-8 bytes instead."""
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
        warnings.simplefilter("ignore")  # a mutant may look like a mistake on purpose
        try:
            compile(text, "mutant", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True
