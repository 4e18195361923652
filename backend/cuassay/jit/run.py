"""Run a body on NumPy arrays, all elements at once. A branch is a mask, and a loop runs while any element is in it.

This is the readable implementation, which defines what the kernels must compute. It is not optimized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.errors import ArgumentError, DTypeError
from cuassay.jit.arithmetic import BINARY, as_type, constant, promoted, truth
from cuassay.jit.body import TEMPLATE, Body, Function, declared_type
from cuassay.jit.complexes import chosen_type, deduced
from cuassay.jit.mathematics import CONSTANTS, FUNCTIONS, complex_of
from cuassay.jit.text import AUTO, COMPLEX_OF

__all__ = ["run"]

Value = NDArray[Any]

_FOR_INTEGERS = frozenset({"%", "&", "|", "^", "<<", ">>", "~"})


def run(body: Body, template: Any, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """Compute the body for each element.

    Parameters
    ----------
    body : Body
        The body.
    template : dtype
        The dtype of its template's type.
    arguments : sequence of ndarray
        One array for each parameter that is read. Shapes broadcast, and each is converted to its parameter's type.

    Returns
    -------
    tuple of ndarray
        The result, or the value of each reference, in the broadcast shape.

    Raises
    ------
    DTypeError
        If an integer operator is applied to floats.
    ArgumentError
        If a variable is read before it has a value, or a path does not return a value.
    """
    shape = np.broadcast_shapes(*(value.shape for value in arguments))
    with np.errstate(all="ignore"):
        given = iter(arguments)
        machine = _Machine(body, np.dtype(template))
        values = [None if one.is_reference else next(given) for one in body.entry.parameters]
        result, frame = machine.call(body.entry, values, np.ones(shape, np.bool_))
        found = [machine.read(frame, name, np.ones(shape, np.bool_)) for name in body.outputs] or [result]
    return tuple(np.broadcast_to(value, shape) for value in found)


@dataclass
class _Variable:
    """A variable for all elements. Its value is None until it is assigned."""

    dtype: np.dtype[Any]
    value: Value | None = None
    is_set: Value | None = None


@dataclass
class _Frame:
    """One call of a function: its variables, its results so far, and the elements that are still running."""

    function: Function
    running: Value
    variables: dict[str, _Variable] = field(default_factory=dict)
    result: Value | None = None
    #: For each enclosing loop, the elements that are inside, and those that skip the rest of this iteration.
    loops: list[_Loop] = field(default_factory=list)


@dataclass
class _Loop:
    inside: Value
    skipping: Value


class _Machine:
    """Runs the functions of a body for one template type."""

    def __init__(self, body: Body, template: np.dtype[Any]) -> None:
        self._body, self._template = body, template

    def _dtype(self, name: str) -> np.dtype[Any]:
        return self._template if name == TEMPLATE else np.dtype(name)

    def call(self, function: Function, values: Sequence[Value | None], running: Value) -> tuple[Value, _Frame]:
        """Call a function for the running elements. Returns the result, and the frame with its variables."""
        frame = _Frame(function, running)
        for parameter, value in zip(function.parameters, values, strict=True):
            variable = _Variable(self._dtype(parameter.type))
            if value is not None:
                variable.value = as_type(np.asarray(value), variable.dtype)
                variable.is_set = np.ones_like(running)
            frame.variables[parameter.name] = variable
        self._run(function.tree, frame, running)
        if function.returns == "void":
            return np.zeros((), np.bool_), frame
        if frame.running.any():
            raise ArgumentError(f"{function.name} returns nothing on one of its paths; return a value there too")
        return np.zeros((), self._dtype(function.returns)) if frame.result is None else frame.result, frame

    # -------------------------------------------------------------------------------------------- statements

    def _active(self, frame: _Frame, mask: Value) -> Value:
        """Return the elements of `mask` that have neither returned nor left an enclosing loop."""
        active = mask & frame.running
        for loop in frame.loops:
            active = active & loop.inside & ~loop.skipping
        return active

    def _run(self, node: Any, frame: _Frame, mask: Value) -> None:
        """Run a statement for the elements of `mask` that are still active."""
        active = self._active(frame, mask)
        if node is None or not active.any():
            return
        statement = getattr(self, f"_run_{type(node).__name__}", None)
        if statement is None:
            self._value(node, frame, active)
        else:
            statement(node, frame, active)

    def _run_EmptyStatement(self, node: Any, frame: _Frame, mask: Value) -> None:
        pass

    def _run_Compound(self, node: Any, frame: _Frame, mask: Value) -> None:
        outer = dict(frame.variables)
        for item in node.block_items or ():
            self._run(item, frame, mask)
        frame.variables = outer

    def _run_DeclList(self, node: Any, frame: _Frame, mask: Value) -> None:
        for declaration in node.decls:
            self._run(declaration, frame, mask)

    def _run_Decl(self, node: Any, frame: _Frame, mask: Value) -> None:
        found = declared_type(node, self._body.template)
        value = None if node.init is None else self._value(node.init, frame, mask)
        if found == AUTO:
            if value is None:
                raise ArgumentError(f"auto {node.name} has no value to take its type from; give it one")
            dtype = value.dtype
        else:
            dtype = self._dtype(str(found))
        frame.variables[node.name] = _Variable(dtype)
        if value is not None:
            self._assign(frame, node.name, value, mask)

    def _run_If(self, node: Any, frame: _Frame, mask: Value) -> None:
        holds = truth(self._value(node.cond, frame, mask))
        self._run(node.iftrue, frame, mask & holds)
        self._run(node.iffalse, frame, mask & ~holds)

    def _run_Return(self, node: Any, frame: _Frame, mask: Value) -> None:
        if node.expr is not None:
            value = self._value(node.expr, frame, mask)
            if frame.function.returns != "void":
                value = as_type(value, self._dtype(frame.function.returns))
                frame.result = value if frame.result is None else np.where(mask, value, frame.result)
        frame.running = frame.running & ~mask

    def _run_Break(self, node: Any, frame: _Frame, mask: Value) -> None:
        frame.loops[-1].inside = frame.loops[-1].inside & ~mask

    def _run_Continue(self, node: Any, frame: _Frame, mask: Value) -> None:
        frame.loops[-1].skipping = frame.loops[-1].skipping | mask

    def _run_For(self, node: Any, frame: _Frame, mask: Value) -> None:
        outer = dict(frame.variables)
        self._run(node.init, frame, mask)
        self._loop(node.cond, node.stmt, node.next, frame, mask)
        frame.variables = outer

    def _run_While(self, node: Any, frame: _Frame, mask: Value) -> None:
        self._loop(node.cond, node.stmt, None, frame, mask)

    def _run_DoWhile(self, node: Any, frame: _Frame, mask: Value) -> None:
        self._loop(node.cond, node.stmt, None, frame, mask, is_tested_first=False)

    def _loop(
        self, cond: Any, statement: Any, step: Any, frame: _Frame, mask: Value, *, is_tested_first: bool = True
    ) -> None:
        loop = _Loop(mask, np.zeros_like(mask))
        frame.loops.append(loop)
        try:
            if is_tested_first:
                self._test(cond, frame, loop)
            while self._active(frame, loop.inside).any():
                self._run(statement, frame, loop.inside)
                loop.skipping = np.zeros_like(mask)
                self._run(step, frame, loop.inside)
                self._test(cond, frame, loop)
        finally:
            frame.loops.pop()

    def _test(self, cond: Any, frame: _Frame, loop: _Loop) -> None:
        """Leave the loop for elements whose condition is false."""
        active = self._active(frame, loop.inside)
        if cond is not None and active.any():
            loop.inside = loop.inside & truth(self._value(cond, frame, active))

    # -------------------------------------------------------------------------------------------- values

    def _value(self, node: Any, frame: _Frame, mask: Value) -> Value:
        """Evaluate an expression for the elements of `mask`. The values of other elements are meaningless."""
        found: Value = getattr(self, f"_value_{type(node).__name__}")(node, frame, mask)
        return found

    def _value_Constant(self, node: Any, frame: _Frame, mask: Value) -> Value:
        return constant(node.value, node.type)

    def _value_ID(self, node: Any, frame: _Frame, mask: Value) -> Value:
        if node.name in frame.variables:
            return self.read(frame, node.name, mask)
        if node.name in ("true", "false"):
            return np.asarray(node.name == "true")
        if node.name in CONSTANTS:
            return np.asarray(CONSTANTS[node.name])
        raise ArgumentError(
            f"{frame.function.name} reads {node.name!r}, which nothing declares; declare it, or add a parameter"
        )

    def _value_Cast(self, node: Any, frame: _Frame, mask: Value) -> Value:
        found = str(declared_type(node.to_type, self._body.template))
        return as_type(self._value(node.expr, frame, mask), self._dtype(found))

    def _value_UnaryOp(self, node: Any, frame: _Frame, mask: Value) -> Value:
        if node.op in ("++", "--", "p++", "p--"):
            return self._step(node, frame, mask)
        value = self._value(node.expr, frame, mask)
        if node.op == "!":
            return np.asarray(~truth(value))
        self._require_integers(node, value)
        wide = value.astype(promoted(value.dtype), copy=False)
        return np.asarray({"-": np.negative, "+": np.positive, "~": np.invert}[node.op](wide))

    def _step(self, node: Any, frame: _Frame, mask: Value) -> Value:
        name = node.expr.name
        before = self.read(frame, name, mask)
        after = BINARY[node.op.strip("p")[0]](before, np.asarray(1, np.int32))
        self._assign(frame, name, after, mask)
        return before if node.op.startswith("p") else self.read(frame, name, mask)

    def _value_BinaryOp(self, node: Any, frame: _Frame, mask: Value) -> Value:
        left = self._value(node.left, frame, mask)
        if node.op in ("&&", "||"):
            first = truth(left)
            second = truth(self._value(node.right, frame, mask & (first if node.op == "&&" else ~first)))
            return np.asarray(first & second if node.op == "&&" else first | second)
        right = self._value(node.right, frame, mask)
        self._require_integers(node, left, right)
        return BINARY[node.op](left, right)

    @staticmethod
    def _require_integers(node: Any, *values: Value) -> None:
        if node.op in _FOR_INTEGERS and any(value.dtype.kind == "f" for value in values):
            raise DTypeError(f"the operator {node.op} is for integers; got {values[0].dtype}; cast, or call fmod for %")

    def _value_TernaryOp(self, node: Any, frame: _Frame, mask: Value) -> Value:
        holds = truth(self._value(node.cond, frame, mask))
        first = self._value(node.iftrue, frame, mask & holds)
        second = self._value(node.iffalse, frame, mask & ~holds)
        dtype = chosen_type(first.dtype, second.dtype)
        return np.where(holds, as_type(first, dtype), as_type(second, dtype))

    def _value_Assignment(self, node: Any, frame: _Frame, mask: Value) -> Value:
        value = self._value(node.rvalue, frame, mask)
        name = node.lvalue.name
        if node.op != "=":
            before = self.read(frame, name, mask)
            operator = node.op[:-1]
            if operator in _FOR_INTEGERS and "f" in before.dtype.kind + value.dtype.kind:
                raise DTypeError(
                    f"the operator {node.op} is for integers; got {before.dtype}; cast, or call fmod for %"
                )
            value = BINARY[operator](before, value)
        self._assign(frame, name, value, mask)
        return self.read(frame, name, mask)

    def _value_ExprList(self, node: Any, frame: _Frame, mask: Value) -> Value:
        *_, last = [self._value(part, frame, mask) for part in node.exprs]
        return last

    def _value_FuncCall(self, node: Any, frame: _Frame, mask: Value) -> Value:
        values = [self._value(part, frame, mask) for part in (node.args.exprs if node.args else ())]
        named = self._body.explicit.get(node.name.coord.column)
        dtype = None if named is None else self._dtype(named)
        called = self._body.functions.get(node.name.name)
        if called is None:
            values = values if dtype is None else [as_type(value, dtype) for value in values]
            return complex_of(*values) if node.name.name == COMPLEX_OF else FUNCTIONS[node.name.name].call(*values)
        dtype = dtype or deduced(self._body, called, [value.dtype for value in values], self._template)
        result, _ = _Machine(self._body, dtype).call(called, values, mask)
        return result

    # -------------------------------------------------------------------------------------------- variables

    @staticmethod
    def read(frame: _Frame, name: str, mask: Value) -> Value:
        """Return the value of a variable. Raises `ArgumentError` if it is not set for an element of `mask`."""
        variable = frame.variables.get(name)
        if variable is None:
            raise ArgumentError(f"{frame.function.name} uses {name!r}, which nothing declares; declare it")
        if not mask.any() and variable.value is None:  # no element reads it
            return np.zeros((), variable.dtype)
        if variable.value is None or variable.is_set is None or (mask & ~variable.is_set).any():
            raise ArgumentError(f"{frame.function.name} reads {name!r} before it has a value; give it one")
        return variable.value

    @staticmethod
    def _assign(frame: _Frame, name: str, value: Value, mask: Value) -> None:
        variable = frame.variables.get(name)
        if variable is None:
            raise ArgumentError(f"{frame.function.name} assigns {name!r}, which nothing declares; declare it")
        new = as_type(value, variable.dtype)
        if mask.all():
            variable.value, variable.is_set = np.asarray(new), mask
        else:
            old = np.zeros((), variable.dtype) if variable.value is None else variable.value
            variable.value = np.where(mask, new, old)
            variable.is_set = mask if variable.is_set is None else variable.is_set | mask
