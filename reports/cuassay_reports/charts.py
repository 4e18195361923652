"""Small charts as inline SVG, without scripts or requests; the colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from markupsafe import Markup

__all__ = ["Point", "history_plot", "sparkline"]

_WIDTH, _HEIGHT, _MARGIN = 84.0, 22.0, 3.0

# A line fills the height only if its values differ by more than this: otherwise noise of a thousandth would look
# like a large change.
_LEAST_RANGE = 0.10


def sparkline(values: Sequence[float], label: str) -> Markup:
    """Return a line through `values`, oldest first, with a mark at its last point; empty for fewer than two values.

    Parameters
    ----------
    values : sequence of float
        The values; those that are not positive and finite are omitted.
    label : str
        The text for screen readers.
    """
    points = _thinned([value for value in values if math.isfinite(value) and value > 0])
    if len(points) < 2:
        return Markup("")
    places = _places(points)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return Markup(
        '<svg class="spark" viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-label="{label}">'
        '<polyline points="{path}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2.4"/></svg>'
    ).format(w=_WIDTH, h=_HEIGHT, label=label, path=path, x=x, y=y)


def _thinned(values: Sequence[float]) -> Sequence[float]:
    """Return at most ``_MOST`` values, each the median of its neighbours, because more cannot be distinguished."""
    if len(values) <= _MOST:
        return values
    edges = [round(place * len(values) / _MOST) for place in range(_MOST + 1)]
    return [median(values[start:stop]) for start, stop in pairwise(edges)]


_MOST = 40
"""The most points of a sparkline."""


def _places(values: Sequence[float]) -> list[tuple[float, float]]:
    low, high = min(values), max(values)
    middle, span = (low + high) / 2, max(high - low, _LEAST_RANGE * high)
    step = (_WIDTH - 2 * _MARGIN) / (len(values) - 1)
    inner = _HEIGHT - 2 * _MARGIN
    return [
        (_MARGIN + number * step, _HEIGHT / 2 - (value - middle) / span * inner) for number, value in enumerate(values)
    ]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a history: its median, its quartiles, and the text shown on hovering."""

    run: str
    value: float
    low: float
    high: float
    text: str


_WIDE, _TALL, _EDGE, _LEFT = 640.0, 96.0, 6.0, 58.0


def history_plot(points: Sequence[Point], steps: Mapping[str, str], label: str) -> Markup:
    """Return a plot of `points`, oldest first, with a band of their quartiles and a line at each step.

    Parameters
    ----------
    points : sequence of Point
        The points; their values are positive and finite.
    steps : mapping
        The run at which each new level began, mapped to ``slower`` or ``faster``.
    label : str
        The text for screen readers.
    """
    low, high = min(point.value for point in points), max(point.value for point in points)
    middle, span = (low + high) / 2, max(high - low, 0.02 * high)

    def height(value: float) -> float:
        place = _TALL / 2 - (value - middle) / span * (_TALL - 2 * _EDGE)
        return min(max(place, 0.0), _TALL)

    step = (_WIDE - _LEFT - _EDGE) / max(len(points) - 1, 1)
    across = [_LEFT + number * step for number in range(len(points))]
    places = list(zip(across, points, strict=True))
    upper = [(x, height(point.high if math.isfinite(point.high) else point.value)) for x, point in places]
    lower = [(x, height(point.low if math.isfinite(point.low) else point.value)) for x, point in places]
    marks = [
        Markup('<line class="{word}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{tall:.0f}"/>').format(
            word=steps[point.run], x=x - step / 2, tall=_TALL
        )
        for x, point in places
        if point.run in steps
    ]
    dots = [
        Markup('<circle cx="{x:.1f}" cy="{y:.1f}" r="2"><title>{text}</title></circle>').format(
            x=x, y=height(point.value), text=point.text
        )
        for x, point in places
    ]
    return Markup(
        '<svg class="history" viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-label="{label}">'
        '<polygon points="{band}"/>{marks}{dots}{scale}</svg>'
    ).format(
        w=_WIDE,
        h=_TALL,
        label=label,
        band=" ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)]),
        marks=Markup("").join(marks),
        dots=Markup("").join(dots),
        scale=_scale(points),
    )


def _scale(points: Sequence[Point]) -> Markup:
    """Return the values at the top and the bottom of the points as text."""
    lowest, highest = (end(points, key=lambda point: point.value) for end in (min, max))
    return Markup("").join(
        Markup('<text x="4" y="{y:.0f}">{text}</text>').format(y=y, text=point.text.rpartition(" · ")[2])
        for y, point in ((11, highest), (_TALL - 4, lowest))
    )
