"""What tests of several groups ask for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

#: Hypothesis's plugin imports all of Hypothesis for its part of each summary: 0.4 s of a short session's 0.9 s.
_WITHOUT_HYPOTHESIS = "-p no:hypothesispytest"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs once a week, unless its file is named or CUASSAY_TEST_ALL is set, as by `ci/run endurance`.

    Of each set of wrong functions one in three is tried, always the same ones: what breaks a check mostly shows in
    several functions, and each check has tests of its own.
    """
    if os.environ.get("CUASSAY_TEST_ALL"):
        return
    named = [Path(one.partition("::")[0]).name for one in config.args]
    left_out = {item for item in items if item.path.name not in named and _is_weekly(item)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _is_weekly(item: pytest.Item) -> bool:
    is_of_set = item.path.name.endswith("_set_of_faults.py") and item.name.startswith("test_the_check_finds_the_fault")
    return item.get_closest_marker("weekly") is not None or (is_of_set and crc32(item.name.encode()) % 3 != 0)


@pytest.fixture(scope="session", autouse=True)
def cheap_sessions() -> Iterator[None]:
    """Spare the sessions that tests start a plugin that no test of theirs needs."""
    before = os.environ.get("PYTEST_ADDOPTS")
    os.environ["PYTEST_ADDOPTS"] = f"{before or ''} {_WITHOUT_HYPOTHESIS}".strip()
    yield
    if before is None:
        del os.environ["PYTEST_ADDOPTS"]
    else:
        os.environ["PYTEST_ADDOPTS"] = before


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """As pytest gives it; it erases PYTEST_ADDOPTS."""
    monkeypatch.setenv("PYTEST_ADDOPTS", _WITHOUT_HYPOTHESIS)
    return pytester


@pytest.fixture
def own_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Default generators of this test alone."""
    from cuassay.core import generators

    monkeypatch.setattr(generators, "_DEFAULTS", {})
    monkeypatch.setattr(generators, "_SEEDS", {})


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs a call in a thread that lives as long as the test."""
    with ThreadPoolExecutor(1, "elsewhere") as thread:
        yield lambda call: thread.submit(call).result()


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, here and in what is started, even if the session runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
