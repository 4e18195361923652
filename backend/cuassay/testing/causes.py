"""Order the failures of one declaration so that those that name the cause come first: one fault often fails several.

The order is that of `CHECK_NAMES`, except that `extremal` comes before the checks that choose numbers. A check whose
message says that its own subject is not the cause comes last, and so does one that ended with an unexpected error.
`zeros` comes before `sizes`: if both fail, larger arrays fail because they hold such numbers, and `zeros` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cuassay.testing.check_names import CHECK_NAMES

__all__ = ["cause_lines", "ordered_by_cause"]

_NAMES = [name for name in CHECK_NAMES if name not in ("extremal", "zeros")]
_NAMES.insert(_NAMES.index("units"), "extremal")
_NAMES.insert(_NAMES.index("sizes"), "zeros")
_ORDER = {name: place for place, name in enumerate(_NAMES)}

#: What checks say if what they try is not the cause: the plain call is wrong as well.
_NOT_THE_CAUSE = ("no earlier call is the cause", "no cache is at fault", "no option is the cause")

#: The errors with which checks report a fault.
_OWN_ERRORS = ("AssertionError", "RaceError")


def ordered_by_cause(reports: Iterable[Any]) -> list[Any]:
    """Sort reports of failed tests: those of a declaration stay together and are ordered by cause.

    Declarations, and tests that were not generated, keep the order in which they first failed.
    """
    first: dict[object, int] = {}
    keys = []
    for place, report in enumerate(reports):
        check = _check(report)
        group = _declaration(report) if check else place
        keys.append((first.setdefault(group, place), _rank(report), place, report))
    return [report for *_, report in sorted(keys, key=lambda key: key[:3])]


def cause_lines(reports: Sequence[Any]) -> Iterator[str]:
    """For each declaration with several failed checks, a line that says which to look at first."""
    groups: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
    for report in reports:
        if check := _check(report):
            ranks = groups.setdefault(_declaration(report), (report.cuassay["op"], {}))[1]
            ranks[check] = min(_rank(report), ranks.get(check, 2 * len(_ORDER)))
    ops = [name for name, _ in groups.values()]
    for (where, _), (op, ranks) in groups.items():
        name = op if ops.count(op) == 1 else f"{op} ({where.rpartition('::')[2]})"
        if len(ranks) > 1:
            begin, *others = sorted(ranks, key=ranks.__getitem__)
            rest = f"the other {len(others)}, {', '.join(others)}," if len(others) > 1 else others[0]
            yield f"{name}: {len(ranks)} checks failed; look at {begin} first: {rest} may follow from it"


def _check(report: Any) -> str | None:
    """The name of the generated check that failed, or None."""
    name: str | None = getattr(report, "cuassay", {}).get("check")
    return name if name in _ORDER else None


def _declaration(report: Any) -> tuple[str, str]:
    """The class of generated tests, or the module, and the op."""
    where, *inside = report.nodeid.partition("[")[0].split("::")
    return "::".join([where, *inside[:-1]]), report.cuassay["op"]


def _rank(report: Any) -> int:
    """The rank of a failed test within its declaration; after an unexpected error, `values` comes first."""
    check, text = _check(report), str(getattr(report, "longrepr", None) or "")
    if check is None:
        return -1
    if text and not any(error in text for error in _OWN_ERRORS):
        return len(_ORDER) + (0 if check == "values" else 1 + _ORDER[check])
    return _ORDER[check] + len(_ORDER) * any(said in text for said in _NOT_THE_CAUSE)
