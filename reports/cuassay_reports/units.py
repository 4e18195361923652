"""Numbers for people: three significant digits and a suitable unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["UNKNOWN", "VIRTUAL", "count", "nbytes", "noun", "percent", "quantity", "ratio", "signed_percent"]

UNKNOWN = "–"
"""The text for an unknown number."""

VIRTUAL = "virtual s"
"""The unit of modelled times of simulated devices."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def quantity(value: float, unit: str) -> str:
    """Return `value` scaled: ``(1.5e-5, 's')`` is ``'15.0 µs'``, ``(4e12, 'B/s')`` is ``'4.00 TB/s'``."""
    if not math.isfinite(value):
        return UNKNOWN
    if unit == "s":
        return _scaled(value, _SECONDS)
    if unit == VIRTUAL:
        return _scaled(value, tuple((factor, f"virtual {name}") for factor, name in _SECONDS))
    if unit == "B":
        return nbytes(value)
    return _scaled(value, tuple((factor, prefix + unit) for factor, prefix in _DECIMAL))


def nbytes(value: float) -> str:
    """Return bytes in binary units: ``'1.50 GiB'``; whole numbers without a fraction."""
    if not math.isfinite(value):
        return UNKNOWN
    factor, unit = next((step for step in _BINARY if abs(value) >= step[0]), _BINARY[-1])
    scaled = value / factor
    return f"{scaled:.0f} {unit}" if scaled == round(scaled) else f"{_digits(scaled)} {unit}"


def percent(fraction: float) -> str:
    """Return ``'87 %'``; a fraction under one percent keeps a digit."""
    if not math.isfinite(fraction):
        return UNKNOWN
    return f"{fraction * 100:.1f} %" if abs(fraction) < 0.01 else f"{fraction * 100:.0f} %"


def signed_percent(fraction: float) -> str:
    """Return ``'+3.1 %'``, with a true minus sign."""
    if not math.isfinite(fraction):
        return UNKNOWN
    text = f"{fraction * 100:+.1f} %".replace("-", "\N{MINUS SIGN}")
    return "0.0 %" if text[1:] == "0.0 %" else text


def ratio(value: float) -> str:
    """Return ``'1.42×'``."""
    return f"{_digits(value)}×" if math.isfinite(value) else UNKNOWN


def count(number: int, one: str, many: str = "") -> str:
    """Return ``'1 device'`` or ``'1,200 devices'``."""
    return f"{number:,} {noun(number, one, many)}"


def noun(number: int, one: str, many: str = "") -> str:
    """Return ``'device'`` for 1, else ``'devices'``."""
    return one if number == 1 else many or one + "s"


def _scaled(value: float, steps: Sequence[tuple[float, str]]) -> str:
    # 999.6 would print as "1000", so the unit is chosen after rounding to three digits.
    rounded = float(f"{value:.3g}")
    factor, unit = next((step for step in steps if abs(rounded) >= step[0]), steps[-1])
    return f"{_digits(value / factor)} {unit}".rstrip()


def _digits(value: float) -> str:
    size = abs(float(f"{value:.3g}"))
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
