"""Find tests that passed without checking anything, because no assertion was evaluated while they ran.

The test runs under `sys.settrace`. It has checked something as soon as an assertion is evaluated in a file that pytest
rewrites, or in the test's own folder or below it. A call of one of the functions of `CHECKERS`, such as
`numpy.testing.assert_allclose` or the end of ``with pytest.raises(...)``, counts too. An assertion that is not reached,
in a loop over nothing or behind a false condition, does not count.

Checks in a subprocess or in compiled code are not seen. An assertion in a fixture does not count for the test. An
assertion on the same line as its loop or condition counts as evaluated.
"""

from __future__ import annotations

import dis
import os
import re
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import unwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from cuassay.testing.parametrize import ConformanceClass

__all__ = ["CHECKERS", "Unchecked", "refuse_tracer"]

#: Functions outside the tests that check: patterns for their modules and for their names.
CHECKERS = (
    (re.compile(r"(^|\.)_?(testing|test_utils?|unittest|chex)(\.|$)"), re.compile(r"_?assert")),
    (re.compile(r"unittest\.case$"), re.compile(r"__exit__$")),  # assertRaises
    (re.compile(r"_pytest\.(raises|recwarn|python_api)$"), re.compile(r"__exit__$")),
    (re.compile(r"_pytest\.pytester"), re.compile(r"_match_lines|_no_match_line|assert_outcomes")),
)

#: Fixtures of measurements, which are not expected to check anything.
_MEASURES = frozenset({"benchmark", "device_benchmark"})

#: A name in the globals of modules whose assertions pytest has rewritten.
_REWRITTEN = "@pytest_ar"


class Unchecked:
    """A plugin that marks reports of tests that passed and checked nothing, in the process that runs the tests."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def __repr__(self) -> str:
        return f"Unchecked({len(self._found)} tests)"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Trace the call of a test function."""
        if not isinstance(item, pytest.Function) or not _is_to_check(item):
            return (yield)
        watch = _Watch(_folders(item))
        with watch.watching():
            result = yield
        if not watch.has_checked:
            self._found.add(item.nodeid)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Attach the finding to the report of the call, for the process that prints."""
        report: pytest.TestReport = yield
        if report.when == "call" and item.nodeid in self._found:
            self._found.discard(item.nodeid)
            report.__dict__["cuassay_unchecked"] = True
        return report


def refuse_tracer() -> None:
    """Raise `pytest.UsageError` if another tool traces this process, because only one can."""
    if sys.gettrace() is not None:
        raise pytest.UsageError(
            f"--cuassay-fail-unchecked traces the tests, and {sys.gettrace()!r} traces this process already; leave out "
            "the debugger or the measurement of coverage, or give this option a run of its own"
        )


def _is_to_check(item: pytest.Function) -> bool:
    """Whether the test is expected to check: neither a measurement nor a generated test, which raises by itself."""
    return _MEASURES.isdisjoint(item.fixturenames) and item.getparent(ConformanceClass) is None


def _folders(item: pytest.Function) -> tuple[str, ...]:
    """The folders whose assertions count as the test's own."""
    code = getattr(unwrap(item.obj), "__code__", None)
    files = (str(item.path), *([code.co_filename] if code is not None else []))
    return tuple(f"{Path(file).parent}{os.sep}" for file in dict.fromkeys(files))


class _Watch:
    """A trace function, and whether it has seen a check."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        self.has_checked = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Trace this thread and the threads that it starts."""
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        """Trace the lines of a function that contains an assertion of the test."""
        if self.has_checked:
            return None
        code, module = frame.f_code, frame.f_globals
        if _is_checker(str(module.get("__name__")), code.co_name):
            self.has_checked = True
        elif _REWRITTEN in module or code.co_filename.startswith(self._folders):
            lines = _assertions(code)
            self.has_checked = code.co_firstlineno in lines
            return self._step if lines else None
        return None

    def _step(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and frame.f_lineno in _assertions(frame.f_code):
            self.has_checked = True
        return None if self.has_checked else self._step


@cache
def _is_checker(module: str, function: str) -> bool:
    return any(modules.search(module) and functions.match(function) for modules, functions in CHECKERS)


@cache
def _assertions(code: CodeType) -> frozenset[int]:
    """The lines that run when an assertion of `code` is evaluated.

    For an ``assert`` statement these are its own lines. For ``if ...: raise AssertionError``, where only a failure
    reaches the raise, it is the first line of the function.
    """
    instructions = [(one, one.positions) for one in dis.get_instructions(code)]
    branches = {at.lineno for one, at in instructions if at is not None and "POP_JUMP" in one.opname}
    found: set[int] = set()
    for one, at in instructions:
        if at is None or at.lineno is None or not _is_assertion_error(one):
            continue
        lines = range(at.lineno, (at.end_lineno or at.lineno) + 1)
        is_statement = one.opname != "LOAD_GLOBAL" or not branches.isdisjoint(lines)
        found.update(lines if is_statement else {code.co_firstlineno})
    return frozenset(found)


def _is_assertion_error(one: dis.Instruction) -> bool:
    if one.opname == "LOAD_ASSERTION_ERROR":
        return True
    return one.opname in ("LOAD_GLOBAL", "LOAD_COMMON_CONSTANT") and "AssertionError" in one.argrepr
