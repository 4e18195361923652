"""The inputs of a call: whether it left them as they were, their names in messages, and a function's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.testing.compare import assert_same_bits
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample, each

__all__ = ["assert_inputs_held", "input_name", "parameters_of"]


def assert_inputs_held(spec: OpSpec, sample: Sample, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Assert that the arguments made from `sample` still have the same bits, and its lists the same members."""
    before, after = list(each(*sample.host())), list(each(args, kwargs))
    if len(before) != len(after):
        raise AssertionError(
            f"the call was given {len(before)} arrays and numbers, and leaves {len(after)} in its lists"
        )
    for given, array, name in zip(before, after, _names(spec, sample), strict=True):
        if isinstance(given, np.ndarray):
            try:
                assert_same_bits(array, given)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
        elif type(given) in (bool, int, float, str) and repr(given) != repr(array):
            raise AssertionError(f"{name} was {given!r}, and is {array!r} after the call; sort or change a copy")


def _names(spec: OpSpec, sample: Sample) -> Iterator[str]:
    """The names of a call's arguments, in the order of `each`; those of a list's members end with their place."""
    given: list[tuple[int | str, Any]] = [*enumerate(sample.args), *sample.kwargs.items()]
    for key, value in given:
        name = input_name(spec, key)
        yield from (f"{name}[{place}]" for place in range(len(value))) if isinstance(value, list) else (name,)


def input_name(spec: OpSpec, key: int | str) -> str:
    """What messages call an argument: its position and, if the signature shows it, the parameter; or its keyword."""
    names = _parameters(spec) if isinstance(key, int) else []
    return f"input {key} ({names[key]})" if isinstance(key, int) and key < len(names) else f"input {key}"


def _parameters(spec: OpSpec) -> list[str]:
    """The names of the parameters that take arguments by position, up to one that takes any number of them."""
    if spec.op is not None:
        return [param.name for param in spec.op.schema.params]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters_of(spec.fn)[1:] if one.kind in kinds]


def parameters_of(function: Callable[..., Any] | None) -> list[inspect.Parameter]:
    """The parameters of a function; empty if there is no function, or if its signature cannot be read."""
    try:
        return list(inspect.signature(function).parameters.values()) if function is not None else []
    except (TypeError, ValueError):
        return []
