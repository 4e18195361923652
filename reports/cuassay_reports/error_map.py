"""A picture of where a failed result is wrong, from the column ``error_map``, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

__all__ = ["error_map_picture"]

#: The width and height of a cell in pixels.
_CELL = 8

#: The most cells in a direction: a file may contain anything.
_MOST = 64


def error_map_picture(error_map: object) -> Markup:
    """Return the grid of a failed result with its wrong cells marked; empty if the map is missing or malformed.

    Parameters
    ----------
    error_map : object
        The value of the column: ``rows`` and ``columns`` of the result, and ``percent``, the wrong share of each cell.
    """
    if not isinstance(error_map, dict):
        return Markup("")
    grid: Any = error_map.get("percent")
    rows, columns = (error_map.get(name) for name in ("rows", "columns"))
    if not _is_grid(grid) or not isinstance(rows, int) or not isinstance(columns, int):
        return Markup("")
    wide, high = len(grid[0]) * _CELL, len(grid) * _CELL
    cells = Markup("").join(
        Markup('<rect x="{}" y="{}" width="{}" height="{}" fill-opacity="{:.2f}"/>').format(
            column * _CELL, row * _CELL, _CELL - 1, _CELL - 1, 0.3 + 0.7 * percent / 100
        )
        for row, line in enumerate(grid)
        for column, percent in enumerate(line)
        if percent
    )
    return Markup(
        '<figure class="error-map"><svg viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
        'aria-label="where the result is wrong">{cells}</svg><figcaption>Where the result is wrong: '
        "{rows:,} rows, {columns:,} columns</figcaption></figure>"
    ).format(w=wide, h=high, cells=cells, rows=rows, columns=columns)


def _is_grid(grid: object) -> bool:
    if not isinstance(grid, list) or not 0 < len(grid) <= _MOST or not all(isinstance(line, list) for line in grid):
        return False
    width = len(grid[0])
    return 0 < width <= _MOST and all(len(line) == width and _are_percentages(line) for line in grid)


def _are_percentages(line: Sequence[object]) -> bool:
    return all(type(cell) is int and 0 <= cell <= 100 for cell in line)
