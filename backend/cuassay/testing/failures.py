"""What a failed comparison prints after its numbers: the inputs at the worst index, and a map of the errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ErrorMap", "error_map", "index_text", "inputs_there", "number", "place_of"]

#: The most rows and columns of a map: what fits into a terminal with pytest's margin.
_ROWS, _COLUMNS = 12, 48

#: The map is not printed if a larger fraction of the result is wrong.
_MOST_WRONG = 0.5

#: The most numbers of an input's row that are printed, of integers and of others, which take more room.
_SHOWN_INTEGERS, _SHOWN = 16, 6

#: The most members of a list that are printed.
_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """Where the wrong elements of a result are, as a coarse grid over its rows and columns.

    Leading axes count as rows.

    Attributes
    ----------
    rows, columns : int
        The extents of the result.
    percent : list of list of int
        For each cell of the grid, the percentage of its elements that are wrong; at least 1 if any is wrong.
    """

    rows: int
    columns: int
    percent: list[list[int]]

    def as_row(self) -> dict[str, object]:
        """The map as a value of the column ``error_map``."""
        return {"rows": self.rows, "columns": self.columns, "percent": self.percent}

    def lines(self) -> Iterator[str]:
        """The map as text; nothing if most of the result is wrong, because the positions then tell little."""
        cells = [cell for row in self.percent for cell in row]
        if sum(cells) > 100 * len(cells) * _MOST_WRONG:
            return
        high, wide = (_span(self.rows, len(self.percent)), _span(self.columns, len(self.percent[0])))
        each = "an element" if high == wide == 1 else f"up to {high:,} x {wide:,} elements"
        yield f"where, of {self.rows:,} x {self.columns:,} (. right, + partly wrong, # wrong; a mark is {each}):"
        yield from ("  " + "".join(map(_mark, row)) for row in self.percent)


def _span(extent: int, cells: int) -> int:
    return -(-extent // cells)


def _mark(percent: int) -> str:
    return "#" if percent == 100 else "+" if percent else "."


def error_map(bad: NDArray[np.bool_]) -> ErrorMap | None:
    """The map of the wrong elements; None for results with fewer than two rows or columns."""
    if bad.ndim < 2 or not bad.size:
        return None
    flat = bad.reshape(-1, bad.shape[-1])
    if min(flat.shape) < 2:
        return None
    rows, columns = (_edges(extent, most) for extent, most in zip(flat.shape, (_ROWS, _COLUMNS), strict=True))
    percent = [[_percent(flat[top:low, left:right]) for left, right in columns] for top, low in rows]
    return ErrorMap(*flat.shape, percent)


def _edges(extent: int, most: int) -> list[tuple[int, int]]:
    span = _span(extent, min(extent, most))
    return [(start, min(extent, start + span)) for start in range(0, extent, span)]


def _percent(cell: NDArray[np.bool_]) -> int:
    wrong = int(np.count_nonzero(cell))
    return 0 if not wrong else max(1, 100 * wrong // cell.size)


# ------------------------------------------------------------------------------------------------ inputs


def inputs_there(index: tuple[int, ...], shape: tuple[int, ...], inputs: Any) -> Iterator[str]:
    """A line for each input of a call, with its element, row or column that corresponds to the result's index."""
    args, kwargs = inputs or ((), {})
    for name, value in _named(args, kwargs):
        yield f"input {name}{_described(value, index, shape)}"


def _named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    named: Iterable[tuple[str, Any]] = [*((str(place), one) for place, one in enumerate(args)), *kwargs.items()]
    for name, value in named:
        if isinstance(value, list):
            yield from ((f"{name}[{place}]", one) for place, one in enumerate(value[:_MEMBERS]))
        else:
            yield name, value


def _described(value: Any, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if not isinstance(value, np.ndarray):
        return f": {value!r:.80}"
    if not value.size:
        return f" is empty, of shape {value.shape}"
    if value.ndim == 0:
        return f": {number(value[()])}"
    place = place_of(value.shape, index, shape)
    found = value[place]
    if not isinstance(found, np.ndarray):
        return f" there: {number(found)}"
    where = "" if all(isinstance(one, slice) for one in place) else f" at [{index_text(place)}]"
    flat = found.reshape(-1)
    shown = flat[: _SHOWN_INTEGERS if flat.dtype.kind in "biu" else _SHOWN]
    more = " ..." if flat.size > shown.size else ""
    there = _not_finite(found, place)
    return f"{where}: {', '.join(map(number, shown))}{more} ({flat.size:,} numbers{there})"


def _not_finite(found: NDArray[Any], place: tuple[Any, ...]) -> str:
    """Where the first infinity or NaN is among the numbers that are not printed; empty if there is none."""
    if found.dtype.kind not in "fcV":
        return ""
    hidden = ~np.isfinite(found)
    hidden.reshape(-1)[:_SHOWN] = False
    if not (count := int(np.count_nonzero(hidden))):
        return ""
    first = tuple(int(at) for at in np.argwhere(hidden)[0])
    inside = iter(first)
    index = ", ".join(str(next(inside) if isinstance(one, slice) else one) for one in place)
    others = f" and {count - 1:,} more" if count > 1 else ""
    return f"; {number(found[first])} at [{index}]{others}"


def index_text(place: tuple[Any, ...]) -> str:
    """An element or slice of an array as Python writes it, such as ``3, :``."""
    return ", ".join(":" if isinstance(one, slice) else str(one) for one in place)


def place_of(extents: tuple[int, ...], index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The element or slice of an input that corresponds to an index of the result; axes are matched by their extents.

    An axis of extent 1 has index 0, as in broadcasting. An axis that the result lacks becomes a slice.
    """
    if len(extents) <= len(shape):
        last = len(shape) - len(extents)
        aligned = list(zip(extents, shape[last:], index[last:], strict=True))
        if all(extent in (1, whole) for extent, whole, _ in aligned):
            return tuple(0 if extent == 1 else at for extent, _, at in aligned)
    matched = _common(extents, shape)
    return tuple(index[matched[axis]] if axis in matched else slice(None) for axis in range(len(extents)))


def _common(extents: tuple[int, ...], shape: tuple[int, ...]) -> dict[int, int]:
    """The longest common subsequence of two shapes, as a mapping from axes of the first to axes of the second."""
    if not extents or not shape:
        return {}
    if extents[0] == shape[0]:
        return {0: 0} | {a + 1: b + 1 for a, b in _common(extents[1:], shape[1:]).items()}
    without = {a + 1: b for a, b in _common(extents[1:], shape).items()}
    other = {a: b + 1 for a, b in _common(extents, shape[1:]).items()}
    return max(without, other, key=len)


def number(value: Any) -> str:
    """A number with all of its digits."""
    return repr(value.item()) if isinstance(value, np.generic) and value.dtype.kind != "V" else repr(float(value))
