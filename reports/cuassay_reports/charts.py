"""Small charts as inline SVG: no script, no request, colours from the page's style."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

__all__ = ["sparkline"]

_WIDTH, _HEIGHT, _MARGIN = 84.0, 22.0, 3.0

# A line fills the height only when its values differ by more than this: otherwise noise of a
# thousandth would look like a mountain range.
_LEAST_RANGE = 0.10


def sparkline(values: Sequence[float], label: str) -> Markup:
    """Return a line through `values`, oldest first, its last point marked; empty for fewer than two.

    Parameters
    ----------
    values : sequence of float
        Positive and finite; others are left out.
    label : str
        What a screen reader says.
    """
    points = [value for value in values if math.isfinite(value) and value > 0]
    if len(points) < 2:
        return Markup("")
    places = _places(points)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return Markup(
        '<svg class="spark" viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-label="{label}">'
        '<polyline points="{path}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2.4"/></svg>'
    ).format(w=_WIDTH, h=_HEIGHT, label=label, path=path, x=x, y=y)


def _places(values: Sequence[float]) -> list[tuple[float, float]]:
    low, high = min(values), max(values)
    middle, span = (low + high) / 2, max(high - low, _LEAST_RANGE * high)
    step = (_WIDTH - 2 * _MARGIN) / (len(values) - 1)
    inner = _HEIGHT - 2 * _MARGIN
    return [
        (_MARGIN + number * step, _HEIGHT / 2 - (value - middle) / span * inner) for number, value in enumerate(values)
    ]
