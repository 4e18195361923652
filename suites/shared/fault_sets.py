"""The sets of wrong functions in suites/data/faults, and one generated check of a function of theirs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

__all__ = ["pairs_of", "run_check"]


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
