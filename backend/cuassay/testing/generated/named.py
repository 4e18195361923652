"""Collect the numbers in a function's code, in the variables that it closes over, and in functions that it uses.

The code itself can be collected as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["codes_of", "content_of", "named_numbers"]


def named_numbers(spec: OpSpec, sample: Sample) -> list[float]:
    """The numbers named by the function or its reference, their defaults included, and by the sample's options.

    0, 1 and -1 are left out, because nearly every function contains them.
    """
    seen: set[FunctionType] = set()
    found = [*_numbers(spec.fn, seen), *_numbers(spec.reference, seen)]
    for value in sample.kwargs.values():
        found.extend(_numbers_in(value))
    return sorted({number for number in found if number not in (0, 1, -1)})


def _numbers(function: Any, seen: set[FunctionType]) -> Iterator[float]:
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _numbers_in(value)
    yield from _of_code(function.__code__)
    near = [content_of(cell) for cell in function.__closure__ or ()]
    near += [function.__globals__.get(name) for name in function.__code__.co_names]
    for value in near:
        yield from _numbers_in(value)
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from _numbers(value, seen)


def codes_of(function: Any, seen: set[FunctionType] | None = None) -> Iterator[CodeType]:
    """The code of a Python function, of functions nested in it, and of functions of the same module that it uses."""
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    inner = [function.__code__]
    while inner:
        yield (code := inner.pop())
        inner.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
    near = [content_of(cell) for cell in function.__closure__ or ()]
    near += [function.__globals__.get(name) for name in function.__code__.co_names]
    for value in near:
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from codes_of(value, seen)


def _of_code(code: CodeType) -> Iterator[float]:
    for constant in code.co_consts:
        yield from _of_code(constant) if isinstance(constant, CodeType) else _numbers_in(constant)


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
