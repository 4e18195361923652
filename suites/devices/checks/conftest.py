"""Which generated tests of right functions each commit runs: not on sim what says the same there as on cpu."""

from __future__ import annotations

import os

import pytest

#: Checks of numbers: what they ask of a function does not depend on its device, and arrays of sim are NumPy's.
_OF_NUMBERS = {"sizes", "combined", "zeros", "stress", "units", "infinities", "halves"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these out on sim, unless CUASSAY_TEST_ALL is set, as `ci/run endurance` does."""
    if os.environ.get("CUASSAY_TEST_ALL"):
        return
    left_out = [item for item in items if _says_the_same_on_cpu(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _says_the_same_on_cpu(item)]


def _says_the_same_on_cpu(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    if not item.path.name.startswith("test_right_") or callspec is None:
        return False
    check = getattr(getattr(item, "function", None), "cuassay_check", "")
    return check in _OF_NUMBERS and str(callspec.params.get("cuassay_device", "")).startswith("sim")
