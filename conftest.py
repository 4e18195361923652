"""What every suite shares: pytest's own test bed, and how Hypothesis draws."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest

try:
    from hypothesis import settings
except ImportError as error:
    raise pytest.UsageError(
        "this conftest.py is for cuassay's own tests, which `ci/run test` runs; run your tests in another folder"
    ) from error

pytest_plugins = ["pytester"]

# xdist sets it for its workers to the width of its own terminal; what a test reads is not shown there.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COLUMNS", None)

# SciPy reads it when it is imported: with it, its functions take the arrays of other libraries as they are.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# No deadlines: a first call may compile. CI draws the same examples in every run, a laptop new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Exempt collected tests from later garbage collections: they live as long as the session.

    Each full collection would walk all of them again, 0.7 s for 34,000 tests; a run makes hundreds.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests whose names hold an address of memory: the workers of pytest-xdist would collect different tests."""
    if found := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"the name of a test holds an address of memory: {found[0]}; give its parameter an id")
