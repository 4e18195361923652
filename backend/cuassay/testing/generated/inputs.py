"""The inputs of a call: whether it left them as they were, and their names in messages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.testing.compare import assert_same_bits
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample, each

__all__ = ["assert_inputs_held", "input_name"]


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
    try:
        _, *found = inspect.signature(spec.fn).parameters.values() if spec.fn is not None else (None,)
    except (TypeError, ValueError):  # a function without a signature, or one that takes no array module by name
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in found if one.kind in kinds]
