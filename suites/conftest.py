"""What tests of several groups ask for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


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
