"""Check a body for complex arrays: what C++ and NumPy do not compute with complex numbers is refused with its place.

The check follows the type of each expression through the functions of a body, without values. So a body is refused
before it runs, and with the same message on every device kind.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuassay.errors import DTypeError
from cuassay.jit.arithmetic import as_type, common_type, constant, promoted, real_dtype
from cuassay.jit.body import TEMPLATE, Body, Function, declared_type
from cuassay.jit.mathematics import CONSTANTS, FUNCTIONS, OF_COMPLEX
from cuassay.jit.text import AUTO, COMPLEX_OF

__all__ = ["check", "chosen_type", "deduced"]

DType = np.dtype[Any]

_BOOL, _INT32 = np.dtype(np.bool_), np.dtype(np.int32)
_ORDERED = frozenset({"<", "<=", ">", ">="})
_OF_INTEGERS = frozenset({"%", "&", "|", "^", "<<", ">>"})
_ORDER = "compare real(x), or abs(x) for magnitudes"


@functools.lru_cache(maxsize=256)
def check(body: Body, template: DType, scalars: int) -> None:
    """Raise `CompileError` unless every construct of a body has a meaning for this template's type, a complex one.

    Parameters
    ----------
    body : Body
        The body.
    template : dtype
        complex64 or complex128.
    scalars : int
        How many of its last parameters are numbers. They may have real types.
    """
    entry = body.entry
    arrays = body.inputs[: len(body.inputs) - scalars]
    for one in entry.parameters:
        if one.type != TEMPLATE and (one.is_reference or one.name in arrays):
            raise body.refusal(
                entry.tree, f"the parameter {one.name} is {one.type} for a complex array", f"write {body.template}"
            )
    _Checker(body, template).check(entry)


def chosen_type(first: DType, second: DType) -> DType:
    """Return the type of ``condition ? first : second``: C's common type, or the complex type next to a real one."""
    if (first.kind == "c") != (second.kind == "c"):
        return first if first.kind == "c" else second
    return first if first == second else common_type(first, second)


def deduced(body: Body, called: Function, given: Sequence[DType], otherwise: DType) -> DType:
    """Deduce the template's dtype in a call from the arguments that have the template's type."""
    pairs = zip(called.parameters, given, strict=True)
    found = {dtype for parameter, dtype in pairs if parameter.type == TEMPLATE}
    if len(found) > 1:
        names = " and ".join(sorted(map(str, found)))
        raise DTypeError(
            f"a call of {called.name} has arguments of types {names} for {body.template}; "
            f"write {called.name}<{body.template}>(...)"
        )
    return found.pop() if found else otherwise


class _Checker:
    """Follows the types of one function, for one template type."""

    def __init__(self, body: Body, template: DType) -> None:
        self._body, self._template = body, template
        self._types: dict[str, DType] = {}
        self._returns = ""

    def check(self, function: Function) -> None:
        self._types = {one.name: self._dtype(one.type) for one in function.parameters}
        self._returns = function.returns
        self._statement(function.tree)

    def _dtype(self, name: str) -> DType:
        return self._template if name == TEMPLATE else np.dtype(name)

    def _refuse(self, node: Any, what: str, advice: str) -> None:
        raise self._body.refusal(node, what, advice)

    def _fit(self, node: Any, given: DType, target: DType) -> None:
        """Check that a value may become one of the type `target`."""
        if given.kind == "c" and target.kind != "c":
            self._refuse(node, f"a complex number as {target}", "write real(x), or keep it in a variable of type auto")

    def _real(self, node: Any, what: str, advice: str) -> DType:
        """Return the type of an expression that must be real."""
        found = self._value(node)
        if found.kind == "c":
            self._refuse(node, f"{what} a complex number", advice)
        return found

    def _condition(self, node: Any) -> None:
        if node is not None:
            self._real(node, "a condition that is", "write x != 0")

    # -------------------------------------------------------------------------------------------- statements

    def _statement(self, node: Any) -> None:
        if node is None:
            return
        check = getattr(self, f"_check_{type(node).__name__}", self._value)
        check(node)

    def _check_Compound(self, node: Any) -> None:
        outer = dict(self._types)
        for item in node.block_items or ():
            self._statement(item)
        self._types = outer

    def _check_DeclList(self, node: Any) -> None:
        for declaration in node.decls:
            self._statement(declaration)

    def _check_Decl(self, node: Any) -> None:
        found = str(declared_type(node, self._body.template))
        given = None if node.init is None else self._value(node.init)
        if found == AUTO:
            self._types[node.name] = _INT32 if given is None else given  # without a value, `run` refuses it
            return
        self._types[node.name] = self._dtype(found)
        if given is not None:
            self._fit(node.init, given, self._types[node.name])

    def _check_If(self, node: Any) -> None:
        self._condition(node.cond)
        self._statement(node.iftrue)
        self._statement(node.iffalse)

    def _check_For(self, node: Any) -> None:
        outer = dict(self._types)
        self._statement(node.init)
        self._check_While(node)
        self._statement(node.next)
        self._types = outer

    def _check_While(self, node: Any) -> None:
        self._condition(node.cond)
        self._statement(node.stmt)

    _check_DoWhile = _check_While

    def _check_Return(self, node: Any) -> None:
        if node.expr is not None and self._returns != "void":
            self._fit(node.expr, self._value(node.expr), self._dtype(self._returns))

    def _check_nothing(self, node: Any) -> None:
        """A statement without a value."""

    _check_EmptyStatement = _check_Break = _check_Continue = _check_nothing

    # -------------------------------------------------------------------------------------------- values

    def _value(self, node: Any) -> DType:
        """Return the type of an expression."""
        found: DType = getattr(self, f"_value_{type(node).__name__}")(node)
        return found

    def _value_Constant(self, node: Any) -> DType:
        return constant(node.value, node.type).dtype

    def _value_ID(self, node: Any) -> DType:
        if node.name in self._types:
            return self._types[node.name]
        return np.asarray(CONSTANTS.get(node.name, True)).dtype  # `run` and NVRTC refuse an unknown name

    def _value_Cast(self, node: Any) -> DType:
        target = self._dtype(str(declared_type(node.to_type, self._body.template)))
        self._fit(node, self._value(node.expr), target)
        return target

    def _value_UnaryOp(self, node: Any) -> DType:
        op = node.op.strip("p")
        if op in ("+", "-"):
            return promoted(self._value(node.expr))
        advice = {"!": "write x == 0", "~": "write conj(x)"}.get(op, f"write x {op[0]}= 1")
        found = self._real(node.expr, f"the operator {op} of", advice)
        return _BOOL if op == "!" else promoted(found)

    def _value_BinaryOp(self, node: Any) -> DType:
        if node.op in ("&&", "||"):
            self._condition(node.left)
            self._condition(node.right)
            return _BOOL
        left, right = self._value(node.left), self._value(node.right)
        self._check_operator(node, node.op, left, right)
        if node.op in _ORDERED or node.op in ("==", "!="):
            return _BOOL
        return promoted(left) if node.op in ("<<", ">>") else common_type(left, right)

    def _check_operator(self, node: Any, op: str, *operands: DType) -> None:
        if (op in _ORDERED or op in _OF_INTEGERS) and any(one.kind == "c" for one in operands):
            advice = _ORDER if op in _ORDERED else "it is for integers"
            self._refuse(node, f"the operator {op} of a complex number", advice)

    def _value_TernaryOp(self, node: Any) -> DType:
        self._condition(node.cond)
        first, second = self._value(node.iftrue), self._value(node.iffalse)
        if first.kind == second.kind == "c" and first != second:
            advice = f"write {self._body.template}(x) for both, or literals such as 2.0f"
            self._refuse(node, f"a choice of {first} or {second}", advice)
        return chosen_type(first, second)

    def _value_Assignment(self, node: Any) -> DType:
        given = self._value(node.rvalue)
        target = self._types.get(node.lvalue.name, given)
        self._check_operator(node, node.op[:-1], target, given)
        self._fit(node.rvalue, given, target)
        return target

    def _value_ExprList(self, node: Any) -> DType:
        *_, last = [self._value(part) for part in node.exprs]
        return last

    def _value_FuncCall(self, node: Any) -> DType:
        parts = node.args.exprs if node.args else ()
        given = [self._value(part) for part in parts]
        named = self._body.explicit.get(node.name.coord.column)
        explicit = None if named is None else self._dtype(named)
        name, called = node.name.name, self._body.functions.get(node.name.name)
        if name == COMPLEX_OF:
            for part, dtype in zip(parts, given, strict=True):
                self._fit(part, dtype, real_dtype(self._template))
            return self._template
        if called is None:
            return self._known(node, name, given, explicit)
        template = explicit or deduced(self._body, called, given, self._template)
        for parameter, part, dtype in zip(called.parameters, parts, given, strict=True):
            self._fit(part, dtype, template if parameter.type == TEMPLATE else np.dtype(parameter.type))
        _Checker(self._body, template).check(called)
        return template if called.returns == TEMPLATE else np.dtype(called.returns)

    def _known(self, node: Any, name: str, given: Sequence[DType], explicit: DType | None) -> DType:
        """Return the type of a mathematical function's result, by calling it."""
        is_complex = any(one.kind == "c" for one in (*given, *([] if explicit is None else [explicit])))
        if is_complex and name not in OF_COMPLEX:
            advice = _ORDER if name in ("max", "min", "fmax", "fmin") else f"write {name} of real(x)"
            self._refuse(node, f"{name} of a complex number", advice)
        if is_complex and explicit is not None:
            self._refuse(node, f"{name}<...> of a complex number", f"write {name}(x)")
        with np.errstate(all="ignore"):
            values = [np.zeros((), one) if explicit is None else as_type(np.zeros((), one), explicit) for one in given]
            return FUNCTIONS[name].call(*values).dtype
