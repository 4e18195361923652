"""How much each series varies from run to run without a change: a machine's noise, by class of the paired gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cuassay_reports import units
from cuassay_reports.frames import pd
from cuassay_reports.load import records

__all__ = ["FEWEST", "NoiseClass", "NoiseSection", "noise", "noise_sections"]

FEWEST = 6
"""The fewest points of a series for estimating its noise."""

_CLASSES = ((0.0015, "0.5 %"), (0.003, "1 %"), (0.01, "2 %"), (np.inf, "never"))
"""The most noise of a class, and the smallest change that ``cuassay ab`` then decides; see "Compare two versions"."""

_SHOWN = 10


@dataclass(frozen=True)
class NoiseClass:
    """Series whose noise is at most `most`: their `count` and `share` of all; the gate decides changes of `gate`."""

    most: str
    gate: str
    count: int
    share: float


@dataclass(frozen=True)
class NoiseSection:
    """The noise of one subject: its classes, the median, and the noisiest series."""

    subject: str
    device: str
    median: str
    classes: Sequence[NoiseClass]
    noisiest: Sequence[tuple[str, str]]


def noise(points: pd.DataFrame) -> pd.DataFrame:
    """Estimate the noise of each series.

    Steps and creep have little influence: the noise is the median distance of consecutive points, scaled to a standard
    deviation.

    Parameters
    ----------
    points : pandas.DataFrame
        The frame that `history.series` returned.

    Returns
    -------
    pandas.DataFrame
        One row per series of at least ``FEWEST`` points: its columns in `points`, and `noise`, a fraction.
    """
    ordered = points.sort_values("order", kind="stable")
    apart = np.log(ordered["value"]).groupby(ordered["series"]).diff().abs()
    found = 1.4826 / np.sqrt(2) * apart.groupby(ordered["series"]).median()
    counts = ordered["series"].value_counts()
    last = ordered.drop_duplicates("series", keep="last")
    kept = last[last["series"].map(counts) >= FEWEST]
    return kept.assign(noise=kept["series"].map(found))


def noise_sections(points: pd.DataFrame) -> list[NoiseSection]:
    """Summarize the noise of every subject that has enough runs."""
    return [_section(rows) for _, rows in noise(points).groupby("subject", sort=False)]


def _section(rows: pd.DataFrame) -> NoiseSection:
    values = rows["noise"].to_numpy()
    bounds = [0.0, *(most for most, _ in _CLASSES)]
    counts = [int(((values > low) & (values <= high)).sum()) for low, high in pairwise(bounds)]
    counts[0] += int((values == 0).sum())
    classes = [
        NoiseClass("more" if np.isinf(most) else f"{most:.2%}".replace("%", " %"), gate, count, count / len(values))
        for (most, gate), count in zip(_CLASSES, counts, strict=True)
    ]
    worst = records(rows.sort_values("noise", ascending=False).head(_SHOWN))
    named = [(" ".join(row[key] for key in ("benchmark", "dtype", "case", "implementation") if row[key]),
              f"± {row['noise']:.2%}".replace("%", " %")) for row in worst]  # fmt: skip
    first = rows.iloc[0]
    return NoiseSection(first["subject"], first["device"], units.percent(float(np.median(values))), classes, named)
