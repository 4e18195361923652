"""What tests of several groups ask for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

#: Hypothesis's plugin imports all of Hypothesis for its part of each summary: 0.4 s of a short session's 0.9 s.
_WITHOUT_HYPOTHESIS = "-p no:hypothesispytest"


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
