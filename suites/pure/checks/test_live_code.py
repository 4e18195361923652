"""A mutant that is put into a program that runs: what can be put in, and what only a new process can tell."""

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cuassay.mutation.live import changed_code, functions_by_file, put_in

TEXT = """\
from functools import wraps

LIMIT = 3


def kept(function):
    @wraps(function)
    def called(*args):
        return function(*args) + 0
    return called


@kept
def wrapped(number):
    return number + 1


class Pool:
    size = LIMIT + 1

    def __init__(self, size=2):
        self.items = [one + 1 for one in range(size)]

    @property
    def first(self):
        return self.items[0]

    @staticmethod
    def twice(number):
        return (lambda one: one * 2)(number)


halved = lambda number: number // 2
tripled, negative = (lambda a: a * 3), (lambda a: -a)
table = {key: key + 1 for key in range(3)}
"""

CASES: dict[str, tuple[str, str, Callable[[ModuleType], Any], Any]] = {
    "function behind a decorator": ("number + 1", "number - 1", lambda made: made.wrapped(5), 4),
    "function made by a call": ("function(*args) + 0", "function(*args) + 7", lambda made: made.kept(abs)(-1), 8),
    "comprehension in a method": ("[one + 1", "[one + 2", lambda made: made.Pool().items, [2, 3]),
    "property": ("self.items[0]", "self.items[1]", lambda made: made.Pool().first, 2),
    "lambda in a static method": ("one * 2", "one * 4", lambda made: made.Pool.twice(1), 4),
    "lambda": ("number // 2", "number // 3", lambda made: made.halved(9), 3),
    "lines that move": ("number + 1", "(number\n    + 2)", lambda made: made.wrapped(5), 7),
}

UNFIT = {
    "constant of a module": ("LIMIT = 3", "LIMIT = 4"),
    "constant of a class": ("LIMIT + 1", "LIMIT + 2"),
    "default": ("size=2", "size=3"),
    "decorator": ("@kept\n", ""),
    "comprehension of a module": ("key + 1", "key + 2"),
    "one of two lambdas in a line": ("a * 3", "a * 4"),
    "function more": ("negative = (lambda a: a * 3), (lambda a: -a)", "negative = abs, (lambda a: -a)"),
}


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "live_pool.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("live_pool", path)
    assert spec is not None
    assert spec.loader is not None
    gc.freeze()  # what was there before need not be looked through
    sys.modules["live_pool"] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made
    gc.unfreeze()
    del sys.modules["live_pool"]


def put(made: ModuleType, right: str, wrong: str) -> bool:
    path = str(made.__file__)
    assert TEXT.count(right) == 1
    return put_in(Path(path), TEXT, TEXT.replace(right, wrong), functions_by_file()[path])


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_function_gets_the_changed_code(loaded: ModuleType, name: str) -> None:
    right, wrong, ask, answer = CASES[name]
    assert ask(loaded) != answer
    assert put(loaded, right, wrong)
    assert ask(loaded) == answer


@pytest.mark.parametrize("name", UNFIT)
def test_what_ran_at_the_import_cannot_be_put_in(loaded: ModuleType, name: str) -> None:
    assert not put(loaded, *UNFIT[name])


def test_a_function_that_cannot_be_found_is_not_taken_for_changed(loaded: ModuleType) -> None:
    path = Path(str(loaded.__file__))
    assert not put_in(path, TEXT, TEXT.replace("number + 1", "number - 1"), [])


def test_a_file_that_is_not_loaded_needs_nothing(tmp_path: Path) -> None:
    assert put_in(tmp_path / "other.py", "LIMIT = 3", "LIMIT = 4", [])


def test_a_text_that_says_the_same_changes_no_code() -> None:
    assert changed_code(Path("a.py"), TEXT, TEXT.replace("LIMIT = 3\n", "LIMIT = 3  # a number\n\n\n")) == []
