"""Ops with several outputs: the named tuple that a call returns, and the checks of such a declaration."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.words import shown
from cuassay.errors import SchemaError
from cuassay.ops import registry

if TYPE_CHECKING:
    from cuassay.ops.schema import Param, Schema

__all__ = ["check_fields", "check_names", "each_dtype", "each_shape", "result_type"]

#: Fields of a `Schema` that have a meaning only for a single output.
_OF_ONE_OUTPUT = ("view_of", "accumulates", "out_dtype_from")


def result_type(name: str, outputs: Sequence[str]) -> Callable[..., Any]:
    """Make the named tuple type of op `name`, or of an op's functional form; instances are pickled by that name.

    Raises `SchemaError` if the name cannot be that of a class.
    """
    base = name.partition(".")[0]
    if keyword.iskeyword(base) or not base.isidentifier():
        raise SchemaError(
            f"{name!r} cannot name an op with several outputs, as it also names the tuple that a call gives; choose a "
            "name such as 'halves'"
        )
    make: Any = NamedTuple  # a type checker knows only classes that are written out
    made = make(base, [(output, Any) for output in outputs])
    made.__module__ = "cuassay.ops"
    made.__reduce__ = lambda found: (_restored, (name, *found))  # no module has the class under its name
    return cast("Callable[..., Any]", made)


def _restored(name: str, *found: Any) -> Any:
    """Rebuild a pickled result. Raises `SchemaError` if the op is not declared in this process."""
    base, _, form = name.partition(".")
    op = registry.op(base)
    return cast("Callable[..., Any]", (op.functional if form else op).schema.result_type)(*found)


def check_names(outputs: Sequence[str], params: Sequence[Param], text: str) -> None:
    """Check that each of several outputs has a unique name that is valid for a field of a named tuple."""
    for position, name in enumerate(outputs):
        if name in outputs[:position] or name in {param.name for param in params}:
            raise SchemaError(f"{text!r} has {name!r} twice; each output needs a name that nothing else has")
        if name.startswith("_") or keyword.iskeyword(name) or not name.isidentifier():
            raise SchemaError(f"{name!r} in {text!r} cannot name an output; write a name such as 'values'")
    if any(param.access == "both" for param in params):
        raise SchemaError(f"{text!r} writes a parameter and has several outputs; make it one of them")


def check_fields(schema: Schema) -> None:
    """Raise `SchemaError` if `schema` has a field for one output only, or ``result=`` lacks a dtype."""
    for field in _OF_ONE_OUTPUT:
        if given := getattr(schema, field):
            raise SchemaError(
                f"{schema.name} has several outputs and {field}={given!r}, which is for one; omit {field}="
            )
    for dtype in schema.dtypes:
        schema.result_dtype(as_dtype(dtype), {})


def each_dtype(schema: Schema, found: Any) -> Sequence[Any]:
    """Return `found`, the dtypes from ``result=``. Raises `SchemaError` unless there is one for each output."""
    if not _is_each(schema, found):
        _refuse(schema, "result=", "dtype", found)
    return cast("Sequence[Any]", found)


def each_shape(schema: Schema, found: Any) -> Sequence[tuple[int, ...]]:
    """Return `found`, the shapes from the shape rule. Raises `SchemaError` unless there is one for each output."""
    if not _is_each(schema, found) or not all(isinstance(shape, tuple) for shape in found):
        _refuse(schema, "shape rule", "shape", found)
    return cast("Sequence[tuple[int, ...]]", found)


def _is_each(schema: Schema, found: Any) -> bool:
    return isinstance(found, tuple | list) and len(found) == len(schema.outputs)


def _refuse(schema: Schema, rule: str, what: str, found: Any) -> NoReturn:
    raise SchemaError(
        f"{schema.name}'s {rule} must give a {what} for each of {', '.join(schema.outputs)}; got {shown(found)}; "
        f"return a tuple of {len(schema.outputs)} {what}s"
    )
