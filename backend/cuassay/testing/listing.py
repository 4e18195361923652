"""List the collected tests as JSON lines, and run only a given list; a fleet uses this to divide the tests.

Only ``cuassay fleet`` loads this plugin, by ``-p cuassay.testing.listing``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cuassay.testing.marks import EXCLUSIVE

__all__ = [
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options for the two files."""
    group = parser.getgroup("cuassay")
    group.addoption("--cuassay-list", metavar="FILE", help="write the collected tests to FILE, and run none")
    group.addoption("--cuassay-only", metavar="FILE", help="run only the tests whose ids are the lines of FILE")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the list, in order."""
    if (path := config.getoption("cuassay_only")) is None:
        return
    wanted = frozenset(Path(path).read_text(encoding="utf-8").splitlines())
    others = [item for item in items if item.nodeid not in wanted]
    items[:] = [item for item in items if item.nodeid in wanted]
    if others:
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the list: first the root of the session, then the tests."""
    if (path := session.config.getoption("cuassay_list")) is None:
        return
    here = session.config.invocation_params.dir
    inifile = session.config.inipath
    head = {
        "rootdir": os.path.relpath(session.config.rootpath, here),
        "inifile": None if inifile is None else os.path.relpath(inifile, here),
    }
    rows = [head, *(_row(item, here) for item in session.items)]
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    session.items.clear()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Succeed although no test ran, if a list was written; only the summary of a failed session is read."""
    config = session.config
    if "hypothesis" not in sys.modules:  # its summary hook would import all of Hypothesis, which takes 0.4 s
        plugin = config.pluginmanager.get_plugin("hypothesispytest")
        caller = config.pluginmanager.subset_hook_caller("pytest_terminal_summary", [plugin] if plugin else [])
        config.hook.pytest_terminal_summary = caller  # type: ignore[attr-defined]
    if session.config.getoption("cuassay_list") and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def _row(item: pytest.Item, here: Path) -> dict[str, object]:
    is_inside = item.path.is_relative_to(item.config.rootpath)
    row: dict[str, object] = {"nodeid": item.nodeid}
    if is_inside:
        row["file"] = os.path.relpath(item.path, here)
    if item.get_closest_marker(EXCLUSIVE) is not None:
        row["alone"] = True
    if "benchmark" in getattr(item, "fixturenames", ()):
        row["benchmark"] = True
    return row
