"""Turn invalid arguments of a call into errors of `cuassay.errors`.

Most checks run before anything is computed. Faults that only a kernel detects, such as a number beyond the dtype's
range, are derived from the error that the kernel raises, so that valid calls do not pay for a check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CuassayError
from cuassay.ops.outputs import is_read_only, read_only
from cuassay.ops.schema import NUMBERS, Meta, Param, Schema

__all__ = ["as_meta", "blame", "blame_shape", "check_lists", "flag", "output_shape"]


def check_lists(schema: Schema, bound: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` if a single array is given for a list of arrays: kernels would iterate over its rows."""
    for param in schema.lists:
        if not isinstance(bound[param.name], list | tuple):
            raise ArgumentError(
                f"{schema.name}'s {param.name} must be a list of arrays; got {shown(bound[param.name])}; "
                f"give [{param.name}]"
            )


def output_shape(schema: Schema, bound: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the shape of the output by the schema's rule, or a tuple of shapes for several outputs.

    Raises
    ------
    ArgumentError
        If the rule rejects the arguments, or cannot handle the type or value of an argument. Errors of other types
        are bugs in the rule and are not converted.
    """
    try:
        return schema.shape(bound)
    except (TypeError, ValueError) as error:
        blame_shape(schema, bound, error)


def blame_shape(schema: Schema, bound: Mapping[str, Any], error: Exception) -> NoReturn:
    """Raise an `ArgumentError` that explains `error` of the shape rule, or `error` itself if it is a `CuassayError`."""
    if isinstance(error, CuassayError):
        raise error
    given = ", ".join(f"{name}={shown(bound[name])}" for name in schema.scalar_names)
    raise ArgumentError(
        f"{schema.name} cannot use its arguments: {error}; got {given or 'arrays alone'}; its form is "
        f"{schema.signature}"
    ) from error


def blame(schema: Schema, bound: Mapping[str, Any], dtype: str, out: Any, error: Exception) -> NoReturn:
    """Raise the `ArgumentError` that explains `error` of a kernel, or `error` itself if no argument caused it."""
    blamed = _blamed(schema, bound, dtype, out, error)
    if blamed is None:
        raise error
    raise blamed from error


def _blamed(schema: Schema, bound: Mapping[str, Any], dtype: str, out: Any, error: Exception) -> ArgumentError | None:
    if isinstance(error, OverflowError):
        numbers = ", ".join(f"{name} {shown(value)}" for name, value in bound.items() if type(value) in NUMBERS)
        return ArgumentError(
            f"a number is too large for {schema.name} in {dtype}; got {numbers or 'no number by itself'}; "
            "give one that the dtype holds, or cast the arrays to a wider dtype"
        )
    if isinstance(error, CuassayError):
        return None
    outs = out if isinstance(out, tuple) else (out,)
    refused = (place for place, one in enumerate(outs) if one is not None and is_read_only(one))
    return next((read_only(schema, outs[place], place) for place in refused), None)


def flag(name: str, value: Any) -> bool:
    """Return `value`, the argument `name`, as a bool: True, False, a NumPy bool, 1 or 0. Raises `ArgumentError`."""
    if value is True or value is False:
        return bool(value)
    if isinstance(value, np.bool_) or as_whole(value) in (0, 1):
        return bool(value)
    raise ArgumentError(f"{name} must be True or False; got {shown(value)}; give one of the two")


def as_meta(param: Param, value: Any) -> Any:
    """Return an argument as a shape rule sees it: arrays and ``(shape, dtype)`` pairs, also in lists, become `Meta`."""
    if param.form == "arrays" and isinstance(value, list | tuple):
        return [_meta(one) for one in value]
    return _meta(value)


def _meta(value: Any) -> Any:
    if value is None or isinstance(value, Meta) or type(value) in NUMBERS:
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return Meta(value[0], as_dtype(value[1]))
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ArgumentError(f"meta takes arrays, Meta or (shape, dtype); got {shown(value)}; give one of these")
    return Meta(tuple(value.shape), as_dtype(value.dtype))
