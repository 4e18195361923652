"""Failures of one declaration, those first that name their cause: one fault often fails several checks.

The order of causes is the order of `CHECK_NAMES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cuassay.testing.check_names import CHECK_NAMES

__all__ = ["cause_lines", "ordered_by_cause"]

_ORDER = {name: place for place, name in enumerate(CHECK_NAMES)}


def ordered_by_cause(reports: Iterable[Any]) -> list[Any]:
    """The reports of failed tests with those of each declaration together and in the order of causes.

    Declarations, and tests that were not generated, stay in the order in which they first failed.
    """
    first: dict[object, int] = {}
    keys = []
    for place, report in enumerate(reports):
        check = _check(report)
        group = _declaration(report) if check else place
        keys.append((first.setdefault(group, place), _rank(check), place, report))
    return [report for *_, report in sorted(keys, key=lambda key: key[:3])]


def cause_lines(reports: Sequence[Any]) -> Iterator[str]:
    """A line for each declaration of which several checks failed: with which to begin."""
    groups: dict[object, tuple[str, dict[str, None]]] = {}
    for report in reports:
        if check := _check(report):
            groups.setdefault(_declaration(report), (report.cuassay["op"], {}))[1].setdefault(check)
    for name, checks in groups.values():
        if len(checks) > 1:
            begin, *others = sorted(checks, key=_rank)
            may = f"{', '.join(others)} may follow from it"
            yield f"{name}: {len(checks)} checks failed; look at {begin} first, as {may}"


def _check(report: Any) -> str | None:
    """The generated check that failed, or None."""
    name: str | None = getattr(report, "cuassay", {}).get("check")
    return name if name in _ORDER else None


def _declaration(report: Any) -> tuple[str, str]:
    """The class of generated tests, or the module and the op."""
    where, *inside = report.nodeid.partition("[")[0].split("::")
    return "::".join([where, *inside[:-1]]), report.cuassay["op"]


def _rank(check: str | None) -> int:
    return -1 if check is None else _ORDER[check]
