"""A quick check of many rows: rows with the same columns are checked together, column by column.

`columns.validate` takes several microseconds per row. Here whole columns are checked, and every doubtful case is left
to `validate`. Needs only the standard library.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cuassay_reports.columns import SCHEMA, TABLES, Column, ResultFormatError, check, validate
from cuassay_reports.values import INT64

__all__ = ["alike", "rejections"]

Row = Mapping[str, Any]


def alike(rows: Sequence[Row]) -> dict[tuple[str, ...], list[int]]:
    """Return the places of the rows by the names of their columns."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        found[tuple(row)].append(place)
    return found


def rejections(rows: Sequence[Row]) -> Iterator[tuple[int, ResultFormatError]]:
    """Yield the place of each row that does not follow the schema, and the reason; the places are not in order."""
    for names, places in alike(rows).items():
        found = zip(*(rows[place].values() for place in places), strict=True)
        if not _are_valid(dict(zip(names, found, strict=True))):
            yield from _rejected(rows, places)


def _rejected(rows: Sequence[Row], places: Sequence[int]) -> Iterator[tuple[int, ResultFormatError]]:
    for place in places:
        try:
            validate(rows[place])
        except ResultFormatError as error:
            yield place, error


def _are_valid(found: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether all values are certainly valid."""
    try:
        (record,) = set(found["record"])
        if set(found["schema"]) != {SCHEMA} or set(map(type, found["schema"])) != {int}:
            return False
        columns = {column.name: column for column in TABLES[record]}
    except (KeyError, TypeError, ValueError):  # missing, not hashable, or several tables
        return False
    is_complete = all(name in found for name, column in columns.items() if column.required)
    return is_complete and all(name in columns and _is_valid(record, columns[name], found[name]) for name in found)


def _is_valid(record: str, column: Column, values: Sequence[Any]) -> bool:
    kind, types = column.kind, set(map(type, values))
    if column.choices:
        return types == {str} and set(values) <= {*column.choices}
    if kind == "str":
        return types == {str} and all(map(str.isascii, values))
    if kind == "float" and types == {float}:
        return math.isfinite(sum(values))  # the sum is not finite if one of the numbers is not
    if kind == "int":
        return types == {int} and min(values) >= -INT64 and max(values) < INT64
    if kind == "list" and types == {list}:
        return all(set(map(type, one)) <= {float} and math.isfinite(sum(one)) for one in values)
    return _each_is_valid(record, column, values)


def _each_is_valid(record: str, column: Column, values: Sequence[Any]) -> bool:
    try:
        for value in values:
            check(record, column, value)
    except ResultFormatError:
        return False
    return True
