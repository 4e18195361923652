"""Gathered columns as pandas frames."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cuassay_reports.frames import pd
from cuassay_reports.gather import Booleans, Floats, Integers, Lists, Table, Texts

__all__ = ["Codes", "codes", "distinct", "frame", "lists", "numbered", "objects", "order", "texts"]

Codes = npt.NDArray[np.int64]


def frame(table: Table) -> pd.DataFrame:
    """Return all rows of `table`, in the order of the files."""
    places = order(table)
    return pd.DataFrame({name: _values(column)[places] for name, column in table.columns.items()}, copy=False)


def codes(table: Table, name: str) -> Codes:
    """Return a number for each row, equal if the text in the column `name` is equal."""
    column = table.columns[name]
    if not isinstance(column, Texts):
        raise TypeError(f"column {name!r} holds no texts; numbers stand for texts only")
    return _viewed(column.codes).astype(np.int64)[order(table)]


def distinct(table: Table, name: str) -> list[str]:
    """Return the texts of the column `name`; `codes` are indices into them."""
    column = table.columns[name]
    return list(column.index) if isinstance(column, Texts) else []


def order(table: Table) -> Codes:
    """Return the places of the gathered rows in the order of the files."""
    return np.argsort(_viewed(table.places), kind="stable")


def _values(column: Any) -> Any:
    if isinstance(column, Texts):
        return texts(list(column.index), _viewed(column.codes))
    if isinstance(column, Floats):
        return _viewed(column.values)
    if isinstance(column, Integers):
        missing = np.array(column.missing, dtype=np.bool_)
        if isinstance(column, Booleans):
            return pd.arrays.BooleanArray(_viewed(column.values).astype(np.bool_), missing)
        return pd.arrays.IntegerArray(_viewed(column.values), missing)
    if isinstance(column, Lists):
        return lists(_viewed(column.flat), _viewed(column.lengths))
    return objects(column.values)


def _viewed(values: array[Any]) -> npt.NDArray[Any]:
    """Return the same memory as a NumPy array, because copies of large lists would double the memory."""
    return np.frombuffer(values, dtype=values.typecode)


def numbered(keys: Iterable[Codes]) -> Codes:
    """Return a number for each row, equal if all `keys` are equal, numbered in order of first occurrence."""
    found: Codes | None = None
    for key in keys:
        known = key if found is None else found * (int(key.max(initial=0)) + 1) + key
        found = np.asarray(pd.factorize(known)[0], dtype=np.int64)
    return np.zeros(0, dtype=np.int64) if found is None else found


def texts(distinct: Sequence[str], numbers: npt.NDArray[Any]) -> Any:
    """Return a column of texts, each row's text selected by its number."""
    return pd.Series(list(distinct) or [""], dtype="str").array.take(numbers)


def objects(values: Sequence[object]) -> npt.NDArray[np.object_]:
    """Return an array of any objects, including sequences."""
    found = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        found[place] = value
    return found


def lists(flat: npt.NDArray[np.float64], lengths: Codes) -> npt.NDArray[np.object_]:
    """Return an array of arrays with these lengths, which are consecutive in `flat`; None for the length -1."""
    ends = np.cumsum(np.maximum(lengths, 0))
    places = zip((ends - lengths).tolist(), ends.tolist(), (lengths < 0).tolist(), strict=True)
    return objects([None if is_missing else flat[start:end] for start, end, is_missing in places])
