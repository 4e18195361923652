"""Apply a mutant to a running program: existing functions get the code of the changed file.

Changes at module or class level, in a decorator or in a default cannot be applied, because that code ran when the file
was imported.
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
    """Return all existing functions, by the file of their code."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType:
            found.setdefault(one.__code__.co_filename, []).append(one)
    return found


def put_in(path: Path, right: str, wrong: str, functions: Sequence[FunctionType]) -> bool:
    """Give the functions of a file the code of its changed text.

    Parameters
    ----------
    path : path
        The file.
    right, wrong : str
        The text that was loaded, and the changed text.
    functions : sequence of function
        All functions of the file.

    Returns
    -------
    bool
        Whether the functions now behave as in a process that had loaded `wrong`. True if the file was not loaded yet.
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
    # A nested function is created again at each call of the outer one.
    return all(key in found for key in codes if "<locals>" not in key[0])


def changed_code(path: Path, right: str, wrong: str) -> list[_Pair] | None:
    """Return the functions whose code differs and their enclosing functions, each before and after the change.

    Returns None if anything else differs.
    """
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
    """Raised if the change is not inside functions."""


def _compare(old: CodeType, new: CodeType, pairs: list[_Pair], *, within_function: bool) -> bool:
    """Return whether two code objects differ, and add the functions that do to `pairs`."""
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


#: Code objects that their enclosing code creates and runs at once.
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def _codes_in(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    for inner in _codes_in(code):
        yield inner
        yield from _all_codes(inner)


def _own(code: CodeType) -> tuple[object, ...]:
    """Return what a code object does, without its place in the file and without nested code."""
    constants = [(type(const), repr(const)) for const in code.co_consts if not isinstance(const, CodeType)]
    signature = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, constants, signature, names, code.co_exceptiontable


def _is_loaded(path: Path) -> bool:
    """Return whether a module was loaded from this file."""
    return any(getattr(module, "__file__", None) == str(path) for module in list(sys.modules.values()))


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
