"""The sets of wrong functions in suites/data/faults, and one generated check of a function of theirs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.errors import RaceError
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

__all__ = ["assert_found", "pairs_of", "run_check"]


def pairs_of(file: str) -> dict[str, Any]:
    """The pairs of the set in `file`, by their names."""
    return {pair.name: pair for pair in runpy.run_path(str(_FAULTS / file))["PAIRS"]}


_FAULTS = Path(__file__).parents[1] / "data" / "faults"


def run_check(check: str, kind: str, dtype: str, spec: OpSpec) -> None:
    """Run a check on the first device of a kind; a skip would hide what it finds, and fails."""
    try:
        CHECKS[check](spec, f"{kind}:0", *((np.dtype(dtype),) if dtype else ()))
    except pytest.skip.Exception as skipped:
        pytest.fail(f"{check} was skipped: {skipped}")


def assert_found(pair: Any, check: str, kind: str, dtype: str, *, raises: type[Exception] | None = None) -> None:
    """The check passes the right function of a pair, and fails the wrong one, or shows the error that it raises."""
    _, right, declare = pair.make()
    run_check(check, kind, dtype, declare(right))

    wrong, _, declare = pair.make()  # made again: what the wrong one keeps must not reach its twin
    with pytest.raises(raises or (AssertionError, RaceError)):
        run_check(check, kind, dtype, declare(wrong))
