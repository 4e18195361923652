"""A declared operation and one call of it, as callers, interposers and implementations see them.

How a call finds its kernel is decided in the higher module `dispatch`; whoever declares an op passes it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cuassay.errors import SchemaError
from cuassay.ops import functional, registry
from cuassay.ops.arguments import as_meta, output_shape
from cuassay.ops.interposers import interposers
from cuassay.ops.schema import Meta, Schema
from cuassay.ops.several_outputs import each_shape

if TYPE_CHECKING:
    from cuassay.ops.plan import Plan

__all__ = ["Call", "Op", "Shortcut", "promoted_operands"]

#: From a call's arrays, ``out`` and scalars to the result, or to `NotImplemented` if nothing was done.
Shortcut = Callable[[tuple[Any, ...], Any, Mapping[str, Any]], Any]

#: From an op and a call's arguments, ``out`` and scalars to the result.
Dispatch = Callable[["Op", Sequence[Any], Any, Mapping[str, Any]], Any]

#: From the same arguments to a plan.
Prepare = Callable[["Op", Sequence[Any], Any, Mapping[str, Any]], "Plan"]


class Op:
    """A declared operation: callable, with its schema, shape rule and plans.

    Parameters
    ----------
    schema : Schema
        The declaration.
    composite : callable, optional
        The same operation in terms of other ops, for kinds that have no kernel for it. For an op with `Schema.view_of`,
        the function that makes the view.
    parts : sequence of str
        Names of the ops that `composite` calls.
    dispatch, prepare : callable
        The functions of `cuassay.ops.dispatch`, a higher module. They map the op and a call's arguments, ``out`` and
        scalars to the result and to the plan.

    Attributes
    ----------
    shortcuts : dict
        Functions that serve plain calls directly, by the type of the first array; the first that can is used. Kinds add
        them.
    """

    def __init__(
        self,
        schema: Schema,
        composite: Callable[..., Any] | None = None,
        parts: Sequence[str] = (),
        *,
        dispatch: Dispatch,
        prepare: Prepare,
    ) -> None:
        if composite is not None and schema.result_type is not None:
            raise SchemaError(
                f"{schema.name} has several outputs and a composite; write a function that calls the ops, or a kernel"
            )
        self.schema = schema
        self.name = schema.name
        self.composite = composite
        self.parts = tuple(parts)
        self._dispatch = dispatch
        self._prepare = prepare
        self.shortcuts: dict[type, tuple[Shortcut, ...]] = {}
        self.__doc__ = schema.doc
        if not schema.functional_of:
            registry.register_op(self)

    def __repr__(self) -> str:
        return f"Op({self.schema.signature!r})"

    def __call__(self, *args: Any, out: Any = None, **scalars: Any) -> Any:
        """Run on the device of the arrays, in order of its current stream.

        Parameters
        ----------
        *args, **scalars
            As in the signature. In elementwise ops Python numbers may replace all arrays but one.
        out : array, optional
            Written instead of a new array; it must have the shape, dtype and device of the result. A tuple of arrays if
            the op has several outputs.

        Returns
        -------
        array
            A named tuple of arrays if the op has several outputs, and None if it has none.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If the arguments do not fit the schema.
        DeviceError
            If the arrays are on several devices.
        KernelNotFoundError
            If the device kind has no implementation.
        """
        shortcuts = self.shortcuts.get(args[0].__class__) if args else None
        if shortcuts is not None and not interposers.is_watched:
            for shortcut in shortcuts:
                served = shortcut(args, out, scalars)
                if served is not NotImplemented:
                    return served
        return self._dispatch(self, args, out, scalars)

    def run_packed(self, args: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """Do what a call does, with the arguments as they are at hand inside a call, which saves packing them again.

        `__call__` repeats the body, because another frame would cost each call 1 %.
        """
        shortcuts = self.shortcuts.get(args[0].__class__) if args else None
        if shortcuts is not None and not interposers.is_watched:
            for shortcut in shortcuts:
                served = shortcut(args, out, scalars)
                if served is not NotImplemented:
                    return served
        return self._dispatch(self, args, out, scalars)

    def run_bound(self, bound: Mapping[str, Any], out: Any) -> Any:
        """Run a call with its arguments by name and without interposers by a shortcut, or return NotImplemented."""
        if not self.shortcuts:
            return NotImplemented
        args = tuple(self.schema.pick_arrays(bound))
        for shortcut in self.shortcuts.get(args[0].__class__, ()):
            served = shortcut(args, out, {name: bound[name] for name in self.schema.scalar_names})
            if served is not NotImplemented:
                return served
        return NotImplemented

    def dispatch(self, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Any:
        """Run a call without shortcuts; benchmarks compare shortcuts with it."""
        return self._dispatch(self, args, out, scalars)

    def inplace(self, *args: Any, **scalars: Any) -> Any:
        """Call with the first array as ``out``. Raises `SchemaError` if that would overwrite unread values."""
        if self.schema.written:
            raise SchemaError(f"{self.name} writes its arguments itself; call it, or {self.name}.functional for copies")
        if not self.schema.in_place:
            raise SchemaError(f"{self.name} is not elementwise, so it has no in-place form; give out=")
        return self(*args, out=args[0] if args else None, **scalars)

    @cached_property
    def functional(self) -> Op:
        """The op that computes on copies of what this one writes, and returns them; this op if it writes nothing.

        A call returns the copy of the parameter that is written, a list of them if it is a list, and a named tuple
        if several parameters are written. ``out=`` takes the arrays to copy to, in that structure.

        Raises
        ------
        SchemaError
            If the op makes an array and also writes its parameters.
        """
        if not self.schema.written:
            return self
        schema = functional.schema_of(self.schema)
        return Op(schema, parts=(self.name,), dispatch=self._dispatch, prepare=self._prepare)

    def meta(self, *args: Any, **scalars: Any) -> Any:
        """Return shape and dtype of the result without memory; takes arrays, `Meta` or ``(shape, dtype)``.

        Returns
        -------
        Meta
            The op's named tuple of them if it has several outputs.

        Raises
        ------
        SchemaError
            If the op makes no array.
        ArgumentError, ShapeError, DTypeError
            As the call itself.
        """
        bound = self.schema.bind(args, scalars)
        described = {param.name: as_meta(param, bound[param.name]) for param in self.schema.arrays}
        bound.update(described)
        dtype = self.schema.registry_dtype(promoted_operands(self.schema, bound))
        if not self.schema.outputs:
            raise SchemaError(f"{self.name} makes no array, so it has no meta; it writes its parameters")
        shape = output_shape(self.schema, bound)
        if self.schema.functional_of:
            return functional.result(self.schema, bound)
        found = self.schema.result_dtype(dtype, bound)
        made = self.schema.result_type
        return Meta(shape, found) if made is None else made(*map(Meta, each_shape(self.schema, shape), found))

    def dtypes(self, kind: str) -> tuple[str, ...]:
        """Return the registry dtypes that run on `kind`, which must be loaded."""
        return registry.dtypes(self, kind)

    def prepare(self, *args: Any, out: Any = None, **scalars: Any) -> Plan:
        """Resolve everything that does not depend on values; the caller may run the plan many times.

        The plan holds the arrays given here. An implementation may keep descriptors, pointer tables and workspaces
        between runs: its own ``prepare`` attribute returns them, and they live in the plan.

        Parameters
        ----------
        args, scalars
            As for a call.
        out : array, optional
            Written by each run; a new array by default.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError, DeviceError, CapabilityError
            As in a call.
        """
        return self._prepare(self, args, out, scalars)


@dataclass(frozen=True, slots=True, init=False)
class Call:
    """One call as an interposer sees it: the op, its arguments by name, and ``out`` or None."""

    op: Op
    arguments: Mapping[str, Any]
    out: Any = None

    def __init__(self, op: Op, arguments: Mapping[str, Any], out: Any = None) -> None:
        _set_op(self, op)
        _set_arguments(self, arguments)
        _set_out(self, out)


# A frozen dataclass's own __init__ takes 1.6 times as long, and each watched call makes one or two calls.
_set_op, _set_arguments, _set_out = (vars(Call)[name].__set__ for name in ("op", "arguments", "out"))


def promoted_operands(schema: Schema, bound: Mapping[str, Any]) -> Sequence[Any]:
    """Return the operands whose promotion is the registry dtype."""
    wanted = schema.dtype_from or schema.array_names
    return [array for param in schema.arrays if param.name in wanted for array in param.values(bound[param.name])]
