"""Failures of one declaration, those first that name their cause: one fault often fails several checks.

The order of causes is that of `CHECK_NAMES`, but for `extremal`, which comes before checks that choose numbers. A check
that says itself that its subject is not the cause comes last, as does one that ended by another error than its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cuassay.testing.check_names import CHECK_NAMES

__all__ = ["cause_lines", "ordered_by_cause"]

_NAMES = [name for name in CHECK_NAMES if name != "extremal"]
_NAMES.insert(_NAMES.index("zeros"), "extremal")
_ORDER = {name: place for place, name in enumerate(_NAMES)}

#: What a check of calls in turn says where a first call is wrong, too.
_AT_FIRST = "meets for the first time as well"

#: Errors by which checks say what is wrong.
_OWN_ERRORS = ("AssertionError", "RaceError")


def ordered_by_cause(reports: Iterable[Any]) -> list[Any]:
    """The reports of failed tests with those of each declaration together and in the order of causes.

    Declarations, and tests that were not generated, stay in the order in which they first failed.
    """
    first: dict[object, int] = {}
    keys = []
    for place, report in enumerate(reports):
        check = _check(report)
        group = _declaration(report) if check else place
        keys.append((first.setdefault(group, place), _rank(report), place, report))
    return [report for *_, report in sorted(keys, key=lambda key: key[:3])]


def cause_lines(reports: Sequence[Any]) -> Iterator[str]:
    """A line for each declaration of which several checks failed: with which to begin."""
    groups: dict[object, tuple[str, dict[str, int]]] = {}
    for report in reports:
        if check := _check(report):
            ranks = groups.setdefault(_declaration(report), (report.cuassay["op"], {}))[1]
            ranks[check] = min(_rank(report), ranks.get(check, 2 * len(_ORDER)))
    for name, ranks in groups.values():
        if len(ranks) > 1:
            begin, *others = sorted(ranks, key=ranks.__getitem__)
            may = f"{', '.join(others)} may follow from it"
            yield f"{name}: {len(ranks)} checks failed; look at {begin} first, as {may}"


def _check(report: Any) -> str | None:
    """The generated check that failed, or None."""
    name: str | None = getattr(report, "cuassay", {}).get("check")
    return name if name in _ORDER else None


def _declaration(report: Any) -> tuple[str, str]:
    """The class of generated tests, or the module and the op."""
    where, *inside = report.nodeid.partition("[")[0].split("::")
    return "::".join([where, *inside[:-1]]), report.cuassay["op"]


def _rank(report: Any) -> int:
    """The place of a failed test among those of its declaration; after an error of another kind, `values` first."""
    check, text = _check(report), str(getattr(report, "longrepr", None) or "")
    if check is None:
        return -1
    if text and not any(error in text for error in _OWN_ERRORS):
        return len(_ORDER) + (0 if check == "values" else 1 + _ORDER[check])
    return _ORDER[check] + (len(_ORDER) if _AT_FIRST in text else 0)
