"""Which generated tests of right functions each commit runs: not on sim what says the same there as on cpu."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Checks that ask what numbers a function gives for inputs of their own. On sim arrays are NumPy's, and so are the
#: numbers. What `combined` asks of memory besides, `aliasing` asks on sim too.
_OF_NUMBERS = {"sizes", "combined", "zeros", "stress", "units", "infinities", "halves"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these out on sim where cpu runs them; with CUASSAY_TEST_ALL, as `ci/run endurance` sets, none."""
    of_right = [item for item in items if _is_of_right_function(item)]
    if os.environ.get("CUASSAY_TEST_ALL") or not any(_is_on(item, "cpu") for item in of_right):
        return
    left_out = {item for item in of_right if _is_on(item, "sim") and _check(item) in _OF_NUMBERS}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _is_of_right_function(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent and item.path.name.startswith("test_right_")


def _is_on(item: pytest.Item, kind: str) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and str(callspec.params.get("cuassay_device", "")).startswith(kind)


def _check(item: pytest.Item) -> str:
    return getattr(getattr(item, "function", None), "cuassay_check", "")
