"""Collect the numbers in a function's code, in the variables that it closes over, and in functions that it uses.

The code itself can be collected as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["codes_of", "content_of", "named_numbers", "nested_codes", "unwrapped"]


def named_numbers(spec: OpSpec, sample: Sample) -> list[float]:
    """The numbers named by the function or its reference, their defaults included, and by the sample's options.

    0, 1 and -1 are left out, because nearly every function contains them.
    """
    found = [number for one in (spec.fn, spec.reference) for used in _functions(one) for number in _numbers(used)]
    fixed = [one for one in (spec.fn, spec.reference) if isinstance(one, partial)]
    given = [value for one in fixed for value in (*one.args, *one.keywords.values())]
    for value in (*given, *sample.kwargs.values()):
        found.extend(_numbers_in(value))
    return sorted({number for number in found if number not in (0, 1, -1)})


def codes_of(function: Any) -> Iterator[CodeType]:
    """The code of a Python function, of functions nested in it, and of functions of the same module that it uses."""
    for used in _functions(function):
        yield from nested_codes(used.__code__)


def unwrapped(function: Any) -> Any:
    """The function that a `functools.partial` calls; anything else is returned as it is."""
    return function.func if isinstance(function, partial) else function


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions nested in it."""
    inner = [code]
    while inner:
        yield (one := inner.pop())
        inner.extend(constant for constant in one.co_consts if isinstance(constant, CodeType))


def _functions(function: Any) -> Iterator[FunctionType]:
    """A Python function, and the functions of the same module that it uses, directly or through others."""
    waiting, seen = [unwrapped(function)], set[FunctionType]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, FunctionType) and one not in seen:
            seen.add(one)
            yield one
            used = [value for value in map(unwrapped, _variables(one)) if isinstance(value, FunctionType)]
            waiting.extend(value for value in used if value.__module__ == one.__module__)


def _variables(function: FunctionType) -> list[Any]:
    """The values of the variables that a function closes over, and of the global ones that its code names."""
    names = function.__code__.co_names
    return [
        *(content_of(cell) for cell in function.__closure__ or ()),
        *(function.__globals__.get(name) for name in names),
    ]


def _numbers(function: FunctionType) -> Iterator[float]:
    """The numbers among a function's defaults, in its code, and in the variables that it uses."""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    constants = (constant for code in nested_codes(function.__code__) for constant in code.co_consts)
    for value in (*defaults, *constants, *_variables(function)):
        yield from _numbers_in(value)


def _numbers_in(value: Any) -> Iterator[float]:
    """The number itself, or the numbers of a tuple."""
    for one in value if isinstance(value, tuple) else (value,):
        if type(one) in (int, float) and abs(one) < 2**62:
            yield one


def content_of(cell: CellType) -> Any:
    """The value of a closure variable; None if it is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
