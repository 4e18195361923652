"""The functional form of an op that writes its parameters: it computes on copies of them and returns the copies.

The form is an op of its own, derived from the schema, so that interposers and derivatives see one call that reads all
of its arrays. It has no kernels: dispatch makes the copies and calls the op on them. Its results are lists where the
parameters are lists, and None where an optional parameter was omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cuassay.core.words import shown
from cuassay.errors import ArgumentError, SchemaError
from cuassay.ops.schema import NUMBERS, Schema

__all__ = ["by_name", "each", "given", "over", "pairs", "result", "schema_of"]


def schema_of(schema: Schema) -> Schema:
    """Return the schema of the functional form of an op: it reads every parameter, and gives those that are written.

    Raises
    ------
    SchemaError
        If the op makes an array as well.
    """
    if schema.outputs:
        raise SchemaError(
            f"{schema.name} makes an array and also writes its parameters, so it has no functional form; declare "
            "what it writes as outputs"
        )
    return replace(
        schema,
        name=f"{schema.name}.functional",
        params=tuple(replace(param, access="read") for param in schema.params),
        outputs=tuple(param.name for param in schema.written),
        functional_of=schema.name,
    )


def result(schema: Schema, found: Mapping[str, Any]) -> Any:
    """Return what a call gives, from the outputs by name: the single one, or a named tuple."""
    values = [found[name] for name in schema.outputs]
    return values[0] if schema.result_type is None else schema.result_type(*values)


def by_name(schema: Schema, found: Any) -> dict[str, Any]:
    """Return the outputs by name; the inverse of `result`."""
    return dict(zip(schema.outputs, (found,) if len(schema.outputs) == 1 else found, strict=True))


def over(value: Any, make: Callable[[Any], Any]) -> Any:
    """Return `value` with each of its arrays replaced by ``make(array)``."""
    if isinstance(value, list | tuple):
        return [make(one) for one in value]
    return value if value is None or type(value) in NUMBERS else make(value)


def each(value: Any) -> Iterator[Any]:
    """Yield the arrays of a result, one by one."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from each(one)
    elif value is not None:
        yield value


def given(schema: Schema, bound: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """Return the caller's `out` by name, after checking that it has an array for each that is copied.

    Raises
    ------
    ArgumentError
        If it has another structure.
    """
    if len(schema.outputs) > 1 and (not isinstance(out, list | tuple) or len(out) != len(schema.outputs)):
        raise ArgumentError(
            f"{schema.name} gives {', '.join(schema.outputs)}; got out={shown(out)}; give a tuple with one of each"
        )
    found = by_name(schema, out)
    for name, one in found.items():
        if (wanted := _form(bound[name])) != _form(one):
            raise ArgumentError(f"{schema.name}'s out for {name} must be {wanted}; got {shown(one)}; omit out=")
    return found


def _form(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else "None" if value is None else "an array"


def pairs(schema: Schema, bound: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each array that is copied, with its name, and the array that it is copied to."""
    for param in schema.arrays:
        if param.name in found:
            targets = param.values(found[param.name])
            for (name, source), target in zip(param.members(bound[param.name]), targets, strict=True):
                yield name, source, target
