"""Puts a mutant into a program that runs: functions that exist already get the code of the changed file.

What a change at module or class level does, of a decorator or of a default, was done when the file was imported. Such a
change cannot be put in afterwards.
"""

from __future__ import annotations

import gc
import inspect
import linecache
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

__all__ = ["changed_code", "functions_by_file", "put_in"]

_Pair = tuple[CodeType, CodeType]


def functions_by_file() -> Mapping[str, Sequence[FunctionType]]:
    """All functions that exist, by the file of their code."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType:
            found.setdefault(one.__code__.co_filename, []).append(one)
    return found


def put_in(path: Path, right: str, wrong: str, functions: Sequence[FunctionType]) -> bool:
    """Give `functions`, all of the file at `path`, whose text was `right`, the code of `wrong`.

    Returns
    -------
    bool
        Whether they now do what they would do in a process that had loaded `wrong`. A file that was not loaded yet
        needs nothing.
    """
    linecache.clearcache()
    if not _is_loaded(path):
        return True
    pairs = changed_code(path, right, wrong)
    if pairs is None:
        return False
    codes = {_key(old): new for old, new in pairs}
    found = set()
    for function in functions:
        key = _key(function.__code__)
        if key in codes:
            function.__code__ = codes[key]
            found.add(key)
    # A function within another one is made again at each call of it.
    return all(key in found for key in codes if "<locals>" not in key[0])


def changed_code(path: Path, right: str, wrong: str) -> list[_Pair] | None:
    """The functions whose code differs and those around them, before and after; None where more differs."""
    old, new = (compile(text, str(path), "exec", dont_inherit=True) for text in (right, wrong))
    pairs: list[_Pair] = []
    try:
        _compare(old, new, pairs, within_function=False)
    except _NotInFunctionsError:
        return None
    met = Counter(_key(code) for code in _all_codes(old))
    is_clear = all(met[_key(code)] == 1 and code.co_freevars == other.co_freevars for code, other in pairs)
    return pairs if is_clear else None


class _NotInFunctionsError(Exception):
    """The change is not within functions."""


def _compare(old: CodeType, new: CodeType, pairs: list[_Pair], *, within_function: bool) -> bool:
    """Whether they differ; functions that do are added to `pairs`."""
    olds, news = _codes_in(old), _codes_in(new)
    if [code.co_name for code in olds] != [code.co_name for code in news]:
        raise _NotInFunctionsError
    is_function = bool(old.co_flags & inspect.CO_OPTIMIZED)
    below = [_compare(*pair, pairs, within_function=is_function) for pair in zip(olds, news, strict=True)]
    differs = _own(old) != _own(new)
    is_comprehension = old.co_name in _COMPREHENSIONS
    if differs and not (within_function if is_comprehension else is_function):
        raise _NotInFunctionsError
    if is_function and not is_comprehension and (differs or any(below)):
        pairs.append((old, new))
    return differs or any(below)


#: Code that the code around it makes and runs at once.
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def _codes_in(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    for inner in _codes_in(code):
        yield inner
        yield from _all_codes(inner)


def _own(code: CodeType) -> tuple[object, ...]:
    """What a code object does, without its place in the file and without the code in it."""
    constants = [(type(const), repr(const)) for const in code.co_consts if not isinstance(const, CodeType)]
    signature = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, constants, signature, names, code.co_exceptiontable


def _is_loaded(path: Path) -> bool:
    """Whether a module was made of this file."""
    return any(getattr(module, "__file__", None) == str(path) for module in list(sys.modules.values()))


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
