"""The support matrix: which op works for which dtype on which device, according to the tests that ran.

A cell summarizes all tests of (subject, op, dtype); this module defines its state.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from cuassay_reports.frames import pd
from cuassay_reports.load import Row, grouped_by, records

__all__ = ["DTYPE_ORDER", "STATES", "State", "dtypes_in_order", "support"]

State = Literal["failed", "passed", "xfailed", "skipped", "not run"]

STATES: dict[State, str] = {
    "failed": "at least one check failed or broke",
    "passed": "at least one check passed and none failed",
    "xfailed": "a known failure, and nothing passed",
    "skipped": "every check was skipped",
    "not run": "no test of this kind was there",
}
"""The meaning of each state of a cell, in the order in which states are decided."""

DTYPE_ORDER = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
"""The order of the columns; unknown names come last."""


def support(tests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell.

    Parameters
    ----------
    tests : pandas.DataFrame
        Rows of ``Results.tests``, usually of ``results.latest()``. Rows without an op or a dtype belong to no cell.

    Returns
    -------
    pandas.DataFrame
        `subject`, `device`, `op`, `dtype`, `state`, the counts `passed`, `failed`, `xfailed` and `skipped`, `reasons`
        (distinct reasons of tests that did not pass) and `headroom` (the worst, NaN if unknown). Every pair of an op
        and a dtype that occurs anywhere has a row for every subject.
    """
    ours = tests[(tests["op"] != "") & (tests["dtype"] != "") & (tests["device"] != "")]
    cells = {key: _cell(rows) for key, rows in grouped_by(records(ours), _KEY).items()}
    subjects = dict.fromkeys(zip(ours["subject"], ours["device"], strict=True))
    dtypes = dtypes_in_order(ours["dtype"])
    pairs = [(op, dtype) for op in dict.fromkeys(ours["op"]) for dtype in dtypes]
    keys = [(subject, device, op, dtype) for subject, device in subjects for op, dtype in pairs]
    rows = [dict(zip(_KEY, key, strict=True)) | cells.get(key, _EMPTY) for key in keys]
    return pd.DataFrame(rows, columns=[*_KEY, *_EMPTY])


_KEY = ("subject", "device", "op", "dtype")
_EMPTY: dict[str, Any] = {
    "state": "not run", "passed": 0, "failed": 0, "xfailed": 0, "skipped": 0, "reasons": (), "headroom": float("nan"),
}  # fmt: skip


def dtypes_in_order(names: Iterable[str]) -> list[str]:
    """Return the distinct names, by ``DTYPE_ORDER`` and then by name."""
    place = {name: number for number, name in enumerate(DTYPE_ORDER)}
    return sorted(set(names), key=lambda name: (place.get(name, len(place)), name))


def _cell(rows: Sequence[Row]) -> dict[str, Any]:
    outcomes = Counter("failed" if row["outcome"] == "error" else row["outcome"] for row in rows)
    counts = {name: outcomes[name] for name in ("passed", "failed", "xfailed", "skipped")}
    state = next(name for name in STATES if counts.get(name, 0) or name == "not run")
    reasons = dict.fromkeys(row["reason"] for row in rows if row["outcome"] != "passed" and row["reason"])
    headroom = max((row["headroom"] for row in rows if not math.isnan(row["headroom"])), default=math.nan)
    return {"state": state, **counts, "reasons": tuple(reasons), "headroom": headroom}
