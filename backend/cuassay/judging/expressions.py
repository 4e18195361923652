"""Integer arithmetic over shapes for launch plans: parsed as Python, evaluated here, never executed.

Names are the call's arrays and numbers: ``in0[1]`` is an extent; ``in0.size``, ``in0.ndim``, ``in0.itemsize`` and
``in0.nbytes`` are facts of an array; options and positional numbers are used by name. Allowed are ``+ - * // % << >>``,
comparisons, ``a if condition else b``, and ``min``, ``max`` and ``ceil_div``. Intermediate numbers have at most 64
bits.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["ArrayFacts", "Expression"]


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """The properties of an array that an expression may use."""

    shape: tuple[int, ...]
    itemsize: int

    @property
    def facts(self) -> dict[str, int]:
        """The numbers that are available by name."""
        size = prod(self.shape)
        return {"size": size, "ndim": len(self.shape), "itemsize": self.itemsize, "nbytes": size * self.itemsize}


#: The values of names.
Names = Mapping[str, Any]

_LONGEST = 200
_MOST_BITS = 63
_MOST_SHIFT = 62

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}

_COMPARED: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


#: The node types that an expression may contain, at any depth.
_ALLOWED = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Call),
    *_BINARY,
    *_COMPARED,
    *(ast.Compare, ast.USub, ast.Load),
)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceil_div": _ceil_div}


class Expression:
    """One expression of a launch plan.

    Parameters
    ----------
    text : int or str
        A whole number, or the expression.

    Raises
    ------
    ArgumentError
        If it is neither, or contains anything that the module's docstring does not list.
    """

    __slots__ = ("_tree", "text")

    def __init__(self, text: Any) -> None:
        if isinstance(text, bool) or not isinstance(text, int | str) or len(str(text)) > _LONGEST:
            raise ArgumentError(
                f"a launch plan has whole numbers and expressions of at most {_LONGEST} characters; got {shown(text)}"
            )
        self.text = str(text)
        try:
            self._tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise self._wrong(f"is not an expression ({error})") from error
        for node in ast.walk(self._tree):
            if not isinstance(node, _ALLOWED):
                raise self._wrong(f"has {type(node).__name__}, which is not arithmetic of whole numbers")

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def value(self, names: Names) -> int:
        """Return the value for one call.

        Raises
        ------
        ArgumentError
            If a name or an axis does not exist, a divisor is zero, or a number has more than 64 bits.
        """
        try:
            return self._number(self._tree, names)
        except (ZeroDivisionError, IndexError, ValueError, TypeError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise self._wrong(f"has no value ({error})") from error

    def _number(self, node: ast.expr, names: Names) -> int:
        computed = self._COMPUTED.get(type(node))
        if computed is None:
            raise self._wrong(f"needs a number where it has {ast.unparse(node)}")
        found = computed(self, node, names)
        if isinstance(found, bool) or not isinstance(found, int):
            raise self._wrong(f"needs whole numbers, and {ast.unparse(node)} is {shown(found)}")
        if found.bit_length() > _MOST_BITS:
            raise self._wrong("exceeds 64 bits")
        return found

    def _constant(self, node: Any, _: Names) -> Any:
        return node.value

    def _name(self, node: Any, names: Names) -> Any:
        if node.id not in names:
            raise self._wrong(f"names {node.id!r}; there are {', '.join(names) or 'no names'}")
        return names[node.id]

    def _array(self, node: ast.expr, names: Names) -> ArrayFacts:
        found = self._name(node, names) if isinstance(node, ast.Name) else None
        if not isinstance(found, ArrayFacts):
            raise self._wrong(f"takes {ast.unparse(node)} for an array")
        return found

    def _attribute(self, node: Any, names: Names) -> Any:
        facts = self._array(node.value, names).facts
        if node.attr not in facts:
            raise self._wrong(f"asks for {node.attr!r} of an array; there are {', '.join(facts)}")
        return facts[node.attr]

    def _extent(self, node: Any, names: Names) -> Any:
        return self._array(node.value, names).shape[self._number(node.slice, names)]

    def _binary(self, node: Any, names: Names) -> Any:
        left, right = self._number(node.left, names), self._number(node.right, names)
        if isinstance(node.op, ast.LShift | ast.RShift) and not 0 <= right <= _MOST_SHIFT:
            raise self._wrong(f"shifts by {right}")
        return _BINARY[type(node.op)](left, right)

    def _negative(self, node: Any, names: Names) -> Any:
        return -self._number(node.operand, names)

    def _choice(self, node: Any, names: Names) -> Any:
        return self._number(node.body if self._is_true(node.test, names) else node.orelse, names)

    def _is_true(self, node: ast.expr, names: Names) -> bool:
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            raise self._wrong(f"needs one comparison where it has {ast.unparse(node)}")
        compared = _COMPARED[type(node.ops[0])]
        return compared(self._number(node.left, names), self._number(node.comparators[0], names))

    def _call(self, node: Any, names: Names) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS or node.keywords or len(node.args) != 2:
            raise self._wrong(f"calls {ast.unparse(node)}; there are {', '.join(_FUNCTIONS)}, of two numbers")
        return _FUNCTIONS[name](*(self._number(one, names) for one in node.args))

    _COMPUTED: ClassVar[dict[type[ast.expr], Callable[[Expression, Any, Names], Any]]] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _extent,
        ast.BinOp: _binary,
        ast.UnaryOp: _negative,
        ast.IfExp: _choice,
        ast.Call: _call,
    }

    def _wrong(self, why: str) -> ArgumentError:
        return ArgumentError(
            f"the expression {self.text!r} of a launch plan {why}; write whole numbers, names such as in0[0] or "
            "out0.size, and + - * // % min max ceil_div"
        )
