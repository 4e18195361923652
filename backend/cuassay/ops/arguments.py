"""What is wrong with the arguments of a call, said as an error of ours.

Most is found before anything is computed. What only a kernel finds, such as a number beyond the dtype, is read off the
error it raises, so that the common call does not pay for the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CuassayError
from cuassay.ops.outputs import is_read_only, read_only
from cuassay.ops.schema import NUMBERS, Schema

__all__ = ["blamed", "check_lists", "flag", "shape_of"]


def check_lists(schema: Schema, bound: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` where one array stands for a list of arrays: kernels would walk its rows."""
    for param in schema.lists:
        if not isinstance(bound[param.name], list | tuple):
            raise ArgumentError(
                f"{schema.name}'s {param.name} must be a list of arrays; got {shown(bound[param.name])}; "
                f"give [{param.name}]"
            )


def shape_of(schema: Schema, bound: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of the output by the schema's rule.

    Raises
    ------
    ArgumentError
        If the rule refuses the arguments, or cannot work with the type or value of one. Errors of other kinds are
        faults of the rule, and pass as they are.
    """
    try:
        return schema.shape(bound)
    except CuassayError:
        raise
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{name}={shown(bound[name])}" for name in schema.scalar_names)
        raise ArgumentError(
            f"{schema.name} cannot use its arguments: {error}; got {given or 'arrays alone'}; its form is "
            f"{schema.signature}"
        ) from error


def blamed(schema: Schema, bound: Mapping[str, Any], dtype: str, out: Any, error: Exception) -> ArgumentError | None:
    """The error to raise where a kernel raised `error` because of an argument; None where it is the kernel's own."""
    if isinstance(error, OverflowError):
        numbers = ", ".join(f"{name} {shown(value)}" for name, value in bound.items() if type(value) in NUMBERS)
        return ArgumentError(
            f"a number is too large for {schema.name} in {dtype}; got {numbers or 'no number by itself'}; "
            "give one that the dtype holds, or cast the arrays to a wider dtype"
        )
    if not isinstance(error, CuassayError) and out is not None and is_read_only(out):
        return read_only(schema, out)
    return None


def flag(name: str, value: Any) -> bool:
    """`value`, an argument called `name`, as a bool: True, False, NumPy's, or 1 and 0. Raises `ArgumentError`."""
    if value is True or value is False:
        return bool(value)
    if isinstance(value, np.bool_) or as_whole(value) in (0, 1):
        return bool(value)
    raise ArgumentError(f"{name} must be True or False; got {shown(value)}; give one of the two")
