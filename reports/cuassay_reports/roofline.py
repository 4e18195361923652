"""The roofline of a device: the rate of each timing over its operations per byte, below the measured limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cuassay_reports import units

__all__ = ["Mark", "roofline"]

_Scale = Callable[[float], float]

_WIDE, _TALL = 640.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 74.0, 16.0, 14.0, 36.0

#: Only values between these can be drawn; no machine is beyond them.
_LEAST, _MOST = 1e-30, 1e30


@dataclass(frozen=True)
class Mark:
    """One timing: operations per byte, operations per second, and the text shown on hovering."""

    intensity: float
    flop_per_s: float
    text: str


def roofline(marks: Sequence[Mark], bandwidth: float, computes: Mapping[str, float], label: str) -> Markup:
    """Return the plot with logarithmic axes; empty without a mark or without a measured bandwidth.

    Parameters
    ----------
    marks : sequence of Mark
        The timings; those that no axis can show, such as infinities, are omitted.
    bandwidth : float
        The measured limit in bytes per second.
    computes : mapping
        From dtype to the measured limit in operations per second.
    label : str
        The text for screen readers.
    """
    marks = [mark for mark in marks if _can_be_drawn(mark.intensity) and _can_be_drawn(mark.flop_per_s)]
    computes = {name: limit for name, limit in computes.items() if _can_be_drawn(limit)}
    if not marks or not _can_be_drawn(bandwidth):
        return Markup("")
    ridges = [limit / bandwidth for limit in computes.values()]
    xs = _decades([*(mark.intensity for mark in marks), *ridges])
    tops = [*(mark.flop_per_s for mark in marks), *computes.values()]
    ys = _decades(tops or [bandwidth * xs[-1]])

    def across(value: float) -> float:
        return _LEFT + (math.log10(value) - xs[0]) / (xs[-1] - xs[0]) * (_WIDE - _LEFT - _RIGHT)

    def height(value: float) -> float:
        return _TALL - _BOTTOM - (math.log10(value) - ys[0]) / (ys[-1] - ys[0]) * (_TALL - _TOP - _BOTTOM)

    end = 10.0 ** xs[-1]
    roof = max(computes.values(), default=bandwidth * end)
    low = max(10.0 ** xs[0], 10.0 ** ys[0] / bandwidth)
    high = min(end, roof / bandwidth)
    lines = [_line("roof", across(low), height(low * bandwidth), across(high), height(high * bandwidth))]
    lines += [
        _line("roof", across(limit / bandwidth), height(limit), across(end), height(limit))
        + _text("middle", (across(limit / bandwidth) + across(end)) / 2, height(limit) - 4, name)
        for name, limit in computes.items()
    ]
    return Markup(
        '<svg class="roofline" viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-label="{label}">{grid}{lines}{dots}</svg>'
    ).format(
        w=_WIDE, h=_TALL, label=label, grid=_grid(xs, ys, across, height), lines=_joined(lines),
        dots=_joined(_dot(across(mark.intensity), height(mark.flop_per_s), mark.text) for mark in marks),
    )  # fmt: skip


def _can_be_drawn(value: float) -> bool:
    """Return whether a logarithmic axis can show it: foreign files may contain infinities or 1e300."""
    return _LEAST < value < _MOST


def _decades(values: Iterable[float]) -> range:
    logs = [math.log10(value) for value in values]
    low, high = math.floor(min(logs) - 0.05), math.ceil(max(logs) + 0.05)
    return range(low, max(high, low + 1) + 1)


def _grid(xs: range, ys: range, across: _Scale, height: _Scale) -> Markup:
    """Return lines at the powers of ten, with their values."""
    foot, right = _TALL - _BOTTOM, _WIDE - _RIGHT
    upright = [
        _line("grid", across(10.0**x), _TOP, across(10.0**x), foot)
        + _text("middle", across(10.0**x), foot + 14, f"{10.0**x:g}")
        for x in xs
    ]
    level = [
        _line("grid", _LEFT, height(10.0**y), right, height(10.0**y))
        + _text("end", _LEFT - 6, height(10.0**y) + 4, re.sub(r"\.0+ ", " ", units.quantity(10.0**y, "FLOP/s")))
        for y in ys
    ]
    return _joined([*upright, *level, _text("end", right, _TALL - 4, "FLOP / byte")])


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>').format(
        kind=kind, x1=x1, y1=y1, x2=x2, y2=y2
    )


def _text(anchor: str, x: float, y: float, text: str) -> Markup:
    return Markup('<text text-anchor="{a}" x="{x:.1f}" y="{y:.1f}">{text}</text>').format(a=anchor, x=x, y=y, text=text)


def _dot(x: float, y: float, text: str) -> Markup:
    return Markup('<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{text}</title></circle>').format(x=x, y=y, text=text)


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
