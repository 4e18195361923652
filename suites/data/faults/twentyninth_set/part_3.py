"""Scientific and data code: circles, blocks, calendars, merges, splines, graphs, orbits: faults with their twins."""

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import ErrorInput, OpSpec, Sample


class Pair(NamedTuple):
    name: str
    kind: str
    origin: str
    shows: str
    checks: tuple[str, ...]
    make: Callable[[], tuple[Any, Any, Any]]


PAIRS: list[Pair] = []


def pair(name, kind, origin, shows, *checks):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register


@pair(
    "circular_deviation",
    "the length of the mean vector exceeds 1 by rounding where all angles are equal, and a root of a negative is taken",
    "scipy.stats.circstd and astropy.stats.circstd: identical angles gave nan until the length was clipped",
    "the angles [8, 8, 8] in degrees: nan instead of 0 (at [10, 10, 10] it is 8.5e-7)",
)
def circular_deviation():
    """The deviation sqrt(2 * (1 - R)) along an axis, in the unit of the angles; R is the length of the mean vector."""

    def none(xp, a, axis):
        shape = list(a.shape)
        del shape[axis]
        return xp.full(tuple(shape), math.nan, dtype=a.dtype)

    def mean_vector(xp, a, period, axis):
        angles = a.astype("float64") * (2 * math.pi / period)
        return angles, xp.cos(angles).mean(axis=axis, keepdims=True), xp.sin(angles).mean(axis=axis, keepdims=True)

    def wrong(xp, a, period=360.0, axis=-1):
        if a.shape[axis] == 0:
            return none(xp, a, axis)
        _, x, y = mean_vector(xp, a, period, axis)
        deviation = xp.sqrt(2 * (1 - xp.sqrt(x * x + y * y)))
        return (deviation.sum(axis=axis) * (period / (2 * math.pi))).astype(a.dtype)

    def right(xp, a, period=360.0, axis=-1):
        if a.shape[axis] == 0:
            return none(xp, a, axis)
        angles, x, y = mean_vector(xp, a, period, axis)
        half = xp.sin((angles - xp.arctan2(y, x)) / 2)  # 1 - cos(d) = 2 * sin(d / 2) ** 2
        return (xp.sqrt((4 * half * half).mean(axis=axis)) * (period / (2 * math.pi))).astype(a.dtype)

    def reference(a, period=360.0, axis=-1):
        angles = np.moveaxis(a, axis, -1) * (2 * np.pi / period)
        if angles.shape[-1] == 0:
            return np.full(angles.shape[:-1], np.nan)
        length = np.hypot(np.cos(angles).mean(-1), np.sin(angles).mean(-1))
        between = np.sin((angles[..., :, None] - angles[..., None, :]) / 2)
        return np.sqrt(2 * (2 * between**2).mean((-2, -1)) / (1 + length)) * (period / (2 * np.pi))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="circular_deviation",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 25), low=0, high=360),
                Sample((make((3, 12, 2), low=0, high=360),), {"axis": 1}),
                Sample((make((6, 9), low=0, high=24),), {"period": 24.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cusum_levels",
    "a reset at the last step of a block of 32 is lost, because the reported level is carried and not the state",
    "streaming CUSUM charts on a GPU, one launch for each block: the level that is shown is not the level that goes on",
    "drift 0, limit 10, counts 31 times 0, then 20, then 1: the level after the alarm is 21 instead of 1",
)
def cusum_levels():
    """Levels of a one-sided CUSUM chart along the last axis; after a level above the limit it starts again from 0."""

    def check(drift, limit):
        if drift < 0 or limit < 0:
            raise ValueError(f"drift and limit are {drift} and {limit}; give 0 or more")

    def one_block(xp, steps, state, limit):
        levels = []
        for i in range(steps.shape[-1]):
            level = xp.maximum(state + steps[..., i], 0)
            levels.append(level)
            state = xp.where(level > limit, 0, level)
        return xp.stack(levels, axis=-1)

    def wrong(xp, counts, drift=3, limit=15):
        check(drift, limit)
        if counts.size == 0:
            return counts.copy()
        state, out = xp.zeros(counts.shape[:-1], dtype="int64"), []
        for start in range(0, counts.shape[-1], 32):
            out.append(one_block(xp, counts[..., start : start + 32].astype("int64") - drift, state, limit))
            state = out[-1][..., -1]
        return xp.concatenate(out, axis=-1).astype(counts.dtype)

    def right(xp, counts, drift=3, limit=15):
        check(drift, limit)
        if counts.size == 0:
            return counts.copy()
        state, out = xp.zeros(counts.shape[:-1], dtype="int64"), []
        for start in range(0, counts.shape[-1], 32):
            out.append(one_block(xp, counts[..., start : start + 32].astype("int64") - drift, state, limit))
            last = out[-1][..., -1]
            state = xp.where(last > limit, 0, last)
        return xp.concatenate(out, axis=-1).astype(counts.dtype)

    def reference(counts, drift=3, limit=15):
        check(drift, limit)
        out = np.zeros(counts.shape, dtype="int64")
        for row in np.ndindex(counts.shape[:-1]):
            level = 0
            for i, count in enumerate(counts[row].tolist()):
                level = max(0, (0 if level > limit else level) + count - drift)
                out[(*row, i)] = level
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cusum_levels",
            dtypes=("int32", "int64"),
            result_dtype=lambda counts: counts,
            samples=lambda make: [
                make(50, low=0, high=6),
                make((3, 40), low=0, high=6),
                Sample((make((2, 70), low=0, high=6),), {"drift": 2, "limit": 30}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"drift": -1}), ValueError, "drift and limit")],
        )

    return wrong, right, declare


@pair(
    "roll_to_weekday",
    "the modified rolls look one day ahead for the month's end, but a Saturday rolls by two (back: a Sunday)",
    "QuantLib Calendar::adjust and numpy.busday_offset with modifiedfollowing: the month of the rolled date decides",
    "day 18657, Saturday 30 January 2021: rolls to Monday 1 February, 18659, instead of Friday the 29th, 18656",
)
def roll_to_weekday():
    """Days since 1970 rolled from weekends to weekdays, as numpy.busday_offset does with an offset of 0."""

    rolls = ("following", "preceding", "modifiedfollowing", "modifiedpreceding")

    def check(roll):
        if roll not in rolls:
            raise ValueError(f"roll is {roll!r}; give one of {rolls}")

    def month(days):
        shifted = days + 719468
        era = shifted // 146097
        day = shifted - era * 146097
        year = (day - day // 1460 + day // 36524 - day // 146096) // 365
        rest = day - (365 * year + year // 4 - year // 100)
        return (year + 400 * era) * 12 + (5 * rest + 2) // 153

    def both_ways(xp, wide):
        weekday = (wide + 3) % 7
        weekend = weekday > 4
        return weekend, xp.where(weekend, 7 - weekday, 0), xp.where(weekend, weekday - 4, 0)

    def wrong(xp, days, roll="modifiedfollowing"):
        check(roll)
        wide = days.astype("int64")
        weekend, ahead, back = both_ways(xp, wide)
        first, second, look = (ahead, -back, 1) if roll.endswith("following") else (-back, ahead, -1)
        moved = wide + first
        if roll.startswith("modified"):
            moved = xp.where(weekend & (month(wide + look) != month(wide)), wide + second, moved)
        return moved.astype(days.dtype)

    def right(xp, days, roll="modifiedfollowing"):
        check(roll)
        wide = days.astype("int64")
        _, ahead, back = both_ways(xp, wide)
        first, second = (ahead, -back) if roll.endswith("following") else (-back, ahead)
        moved = wide + first
        if roll.startswith("modified"):
            moved = xp.where(month(moved) != month(wide), wide + second, moved)
        return moved.astype(days.dtype)

    def reference(days, roll="modifiedfollowing"):
        check(roll)
        return np.busday_offset(days.astype("datetime64[D]"), 0, roll=roll).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="roll_to_weekday",
            dtypes=("int32", "int64"),
            result_dtype=lambda days: days,
            samples=lambda make: [
                make(40, low=-10000, high=30000),
                Sample((make((3, 10), low=-10000, high=30000),), {"roll": "following"}),
                Sample((make(20, low=-10000, high=30000),), {"roll": "modifiedpreceding"}),
                Sample((make(20, low=-10000, high=30000),), {"roll": "preceding"}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"roll": "nearest"}), ValueError, "roll is 'nearest'")
            ],
        )

    return wrong, right, declare


@pair(
    "asof_index",
    "without exact matches one equal right time is stepped over, though several right rows may have that time",
    "pandas.merge_asof with allow_exact_matches=False, and its cuDF rewrites: repeated timestamps on the right",
    "left time 5, right times [3, 5, 5], exact=False: row 1, whose time is equal, instead of row 0",
)
def asof_index():
    """For each left time the last right row that is not later, or -1; the times are given as gaps between rows."""

    def times(xp, gaps):
        return xp.cumsum(gaps.astype("int64"))

    def within(xp, left, right_times, index, tolerance):
        found = index >= 0
        if tolerance is not None:
            found = found & (left - right_times[xp.maximum(index, 0)] <= tolerance)
        return xp.where(found, index, -1)

    def wrong(xp, left_gaps, right_gaps, exact=True, tolerance=None):
        left, right_times = times(xp, left_gaps), times(xp, right_gaps)
        if right_gaps.shape[0] == 0:
            return xp.full(left.shape, -1, dtype="int64")
        index = xp.searchsorted(right_times, left, side="right") - 1
        if not exact:
            equal = (index >= 0) & (right_times[xp.maximum(index, 0)] == left)
            index = xp.where(equal, index - 1, index)
        return within(xp, left, right_times, index, tolerance)

    def right(xp, left_gaps, right_gaps, exact=True, tolerance=None):
        left, right_times = times(xp, left_gaps), times(xp, right_gaps)
        if right_gaps.shape[0] == 0:
            return xp.full(left.shape, -1, dtype="int64")
        index = xp.searchsorted(right_times, left, side="right" if exact else "left") - 1
        return within(xp, left, right_times, index, tolerance)

    def reference(left_gaps, right_gaps, exact=True, tolerance=None):
        right_times = np.cumsum(right_gaps, dtype="int64").tolist()
        out = []
        for time in np.cumsum(left_gaps, dtype="int64").tolist():
            rows = [i for i, other in enumerate(right_times) if other < time or (exact and other == time)]
            near = rows and (tolerance is None or time - right_times[rows[-1]] <= tolerance)
            out.append(rows[-1] if near else -1)
        return np.array(out, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="asof_index",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(30, low=0, high=60), make(45, low=0, high=40)),
                Sample((make(20, low=0, high=60), make(30, low=0, high=40)), {"tolerance": 10}),
                Sample((make(20, low=0, high=60), make(30, low=0, high=40)), {"exact": False}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bspline_basis",
    "all intervals between knots are half open, so at the last knot every basis function is zero",
    "scipy.interpolate.BSpline.design_matrix and sklearn SplineTransformer: the right end belongs to the last interval",
    "x = 1: the row is [0, ..., 0] instead of [0, ..., 0, 1]",
)
def bspline_basis():
    """The values of the B-splines on clamped, equally spaced knots over [0, 1]: a new last axis of pieces + degree."""

    def check(pieces, degree):
        if pieces < 1 or degree < 0:
            raise ValueError(f"pieces and degree are {pieces} and {degree}; give 1 and 0 or more")

    def knots_of(pieces, degree):
        return [0.0] * degree + [i / pieces for i in range(pieces + 1)] + [1.0] * degree

    def raise_degree(xp, x, basis, knots, degree):
        for order in range(1, degree + 1):
            higher = []
            for i in range(len(basis) - 1):
                total = xp.zeros(x.shape, dtype="float64")
                if knots[i + order] > knots[i]:
                    total = total + (x - knots[i]) / (knots[i + order] - knots[i]) * basis[i]
                if knots[i + order + 1] > knots[i + 1]:
                    width = knots[i + order + 1] - knots[i + 1]
                    total = total + (knots[i + order + 1] - x) / width * basis[i + 1]
                higher.append(total)
            basis = higher
        return xp.stack(basis, axis=-1)

    def wrong(xp, x, pieces=4, degree=3):
        check(pieces, degree)
        knots, wide = knots_of(pieces, degree), x.astype("float64")
        basis = [((wide >= a) & (wide < b)).astype("float64") for a, b in zip(knots, knots[1:], strict=False)]
        return raise_degree(xp, wide, basis, knots, degree).astype(x.dtype)

    def right(xp, x, pieces=4, degree=3):
        check(pieces, degree)
        knots, wide = knots_of(pieces, degree), x.astype("float64")
        basis = [((wide >= a) & (wide < b)).astype("float64") for a, b in zip(knots, knots[1:], strict=False)]
        last = degree + pieces - 1
        basis[last] = ((wide >= knots[last]) & (wide <= 1)).astype("float64")
        return raise_degree(xp, wide, basis, knots, degree).astype(x.dtype)

    def reference(x, pieces=4, degree=3):
        check(pieces, degree)
        knots = knots_of(pieces, degree)
        out = np.zeros((*x.shape, pieces + degree))
        for where in np.ndindex(x.shape):
            at = float(x[where])
            if not 0 <= at <= 1:
                continue
            span = max(i for i in range(degree, degree + pieces) if knots[i] <= at)
            values = [1.0]
            for order in range(1, degree + 1):
                saved, row = 0.0, []
                for r in range(order):
                    above, below = knots[span + r + 1], knots[span + 1 - order + r]
                    part = values[r] / (above - below)
                    row.append(saved + (above - at) * part)
                    saved = (at - below) * part
                values = [*row, saved]
            out[where][span - degree : span + 1] = values
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bspline_basis",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40, low=0, high=1),
                Sample((make((3, 7), low=0, high=1),), {"pieces": 5, "degree": 2}),
                Sample((make(15, low=0, high=1),), {"pieces": 1, "degree": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=1),), {"pieces": 0}), ValueError, "pieces and degree are 0")
            ],
        )

    return wrong, right, declare


@pair(
    "standard_columns",
    "a constant column is recognised by deviations of exactly zero, which the rounded mean spoils",
    "sklearn StandardScaler: constant features such as 0.1 became plus or minus 1 before _is_constant_feature",
    "the column [0.1, 0.1, 0.1] in float64: -1 in each row instead of 0",
)
def standard_columns():
    """Columns less their mean, over their standard deviation; a constant column becomes zeros."""

    def deviations(xp, a):
        wide = a.astype("float64")
        away = wide - wide.mean(axis=0, keepdims=True)
        return wide, away, xp.abs(away).max(axis=0, keepdims=True)

    def scaled(xp, a, away, top, constant, ddof):
        unit = xp.where(constant, 0.0, away / xp.where(constant, 1.0, top))
        spread = xp.sqrt((unit * unit).sum(axis=0, keepdims=True) / max(a.shape[0] - ddof, 1))
        return (unit / xp.where(constant, 1.0, spread)).astype(a.dtype)

    def wrong(xp, a, ddof=0):
        if a.size == 0:
            return a.copy()
        _, away, top = deviations(xp, a)
        return scaled(xp, a, away, top, top == 0, ddof)

    def right(xp, a, ddof=0):
        if a.size == 0:
            return a.copy()
        wide, away, top = deviations(xp, a)
        constant = wide.max(axis=0, keepdims=True) == wide.min(axis=0, keepdims=True)
        return scaled(xp, a, away, top, constant, ddof)

    def reference(a, ddof=0):
        out = np.zeros(a.shape)
        if a.size == 0:
            return out
        for column in np.ndindex(a.shape[1:]):
            values = a[(slice(None), *column)]
            if (values == values[0]).all():
                continue
            away = values - values.mean()
            unit = away / np.abs(away).max()
            out[(slice(None), *column)] = unit / np.sqrt((unit * unit).sum() / max(len(values) - ddof, 1))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="standard_columns",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((20, 5), low=-3, high=3),
                make((31, 4), low=0, high=100),
                Sample((make((9, 3), low=-3, high=3),), {"ddof": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "angular_separation",
    "the law of cosines: the arc cosine next to 1 keeps half of the digits, so close places are far apart or equal",
    "astropy.coordinates.angular_separation uses Vincenty's formula, because the law of cosines fails for small angles",
    "float32, both places at longitude 1.0, latitudes 0.4 and 0.4001: 0 instead of 0.0001",
)
def angular_separation():
    """The angle between two places on a sphere, given as longitude and latitude in radians."""

    def wrong(xp, lon1, lat1, lon2, lat2):
        cosine = xp.sin(lat1) * xp.sin(lat2) + xp.cos(lat1) * xp.cos(lat2) * xp.cos(lon2 - lon1)
        return xp.arccos(xp.clip(cosine, -1, 1))

    def right(xp, lon1, lat1, lon2, lat2):
        apart = lon2 - lon1
        sin1, cos1, sin2, cos2 = xp.sin(lat1), xp.cos(lat1), xp.sin(lat2), xp.cos(lat2)
        across = cos2 * xp.sin(apart)
        along = xp.sin(lat2 - lat1) + 2 * sin1 * cos2 * xp.sin(apart / 2) ** 2
        return xp.arctan2(xp.sqrt(across * across + along * along), sin1 * sin2 + cos1 * cos2 * xp.cos(apart))

    def reference(lon1, lat1, lon2, lat2):
        def unit(lon, lat):
            return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)

        one, two = unit(lon1, lat1), unit(lon2, lat2)
        half = np.linalg.norm(one - two, axis=-1)
        return 2 * np.arctan2(half, np.linalg.norm(one + two, axis=-1))

    def declare(fn):
        def places(make, shape):
            return (
                make(shape, low=-3, high=3),
                make(shape, low=-1.5, high=1.5),
                make(shape, low=-3, high=3),
                make(shape, low=-1.5, high=1.5),
            )

        return OpSpec(
            fn=fn,
            name="angular_separation",
            dtypes=("float32", "float64"),
            samples=lambda make: [places(make, 20), places(make, (3, 5))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "eccentric_anomaly",
    "the loop stops when the largest step is small, without its size: at once where all mean anomalies are negative",
    "Newton loops for Kepler's equation over a batch: max(step) where max(abs(step)) was meant",
    "mean anomalies [-1, -2] with eccentricity 0.8: [-1.952, -2.507] after one Newton step instead of [-1.782, -2.487]",
)
def eccentric_anomaly():
    """E in E - e * sin(E) = M by Newton's method for a batch; M is from -pi to pi, e below 1."""

    def start(xp, mean):
        return math.pi * xp.sign(mean)  # from there each sign is approached from one side

    def newton(xp, at, mean, e):
        return (at - e * xp.sin(at) - mean) / (1 - e * xp.cos(at))

    def wrong(xp, mean_anomaly, eccentricity):
        if mean_anomaly.size == 0:
            return mean_anomaly.copy()
        mean, e = mean_anomaly.astype("float64"), eccentricity.astype("float64")
        at = start(xp, mean)
        for _ in range(60):
            step = newton(xp, at, mean, e)
            at = at - step
            if float(step.max()) < 1e-12:
                break
        return at.astype(mean_anomaly.dtype)

    def right(xp, mean_anomaly, eccentricity):
        if mean_anomaly.size == 0:
            return mean_anomaly.copy()
        mean, e = mean_anomaly.astype("float64"), eccentricity.astype("float64")
        at = start(xp, mean)
        for _ in range(60):
            step = newton(xp, at, mean, e)
            at = at - step
            if float(xp.abs(step).max()) < 1e-12:
                break
        return at.astype(mean_anomaly.dtype)

    def reference(mean_anomaly, eccentricity):
        low, high = np.full(mean_anomaly.shape, -4.0), np.full(mean_anomaly.shape, 4.0)
        for _ in range(60):  # E - e * sin(E) increases
            middle = (low + high) / 2
            above = middle - eccentricity * np.sin(middle) > mean_anomaly
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return (low + high) / 2

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="eccentric_anomaly",
            dtypes=("float32",),
            samples=lambda make: [
                (make(30, low=-3, high=3), make(30, low=0, high=0.9)),
                (make((4, 6), low=-3, high=3), make((4, 6), low=0, high=0.9)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rolling_range",
    "a centred window of even length reaches one place too far ahead",
    "pandas rolling(window, center=True): an even window has its odd element behind, (window - 1) // 2 are ahead",
    "[0, 0, 5] with window=2 and center=True: [0, 5, 0] instead of [0, 0, 5]",
)
def rolling_range():
    """The largest less the smallest value in a moving window along an axis; at the ends the window is shorter."""

    def check(window):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")

    def spread(xp, a, behind, ahead, axis):
        moved = xp.moveaxis(a, axis, -1)
        length = moved.shape[-1]
        edges = [xp.full((*moved.shape[:-1], n), math.inf, dtype=a.dtype) for n in (behind, ahead)]
        over = xp.concatenate([-edges[0], moved, -edges[1]], axis=-1)
        under = xp.concatenate([edges[0], moved, edges[1]], axis=-1)
        most, least = over[..., :length], under[..., :length]
        for i in range(1, behind + ahead + 1):
            most = xp.maximum(most, over[..., i : i + length])
            least = xp.minimum(least, under[..., i : i + length])
        return xp.moveaxis(most - least, -1, axis)

    def wrong(xp, a, window=5, center=False, axis=-1):
        check(window)
        ahead = window // 2 if center else 0
        return spread(xp, a, window - 1 - ahead, ahead, axis)

    def right(xp, a, window=5, center=False, axis=-1):
        check(window)
        ahead = (window - 1) // 2 if center else 0
        return spread(xp, a, window - 1 - ahead, ahead, axis)

    def reference(a, window=5, center=False, axis=-1):
        check(window)
        moved = np.moveaxis(a, axis, -1)
        out = np.zeros(moved.shape)
        ahead = (window - 1) // 2 if center else 0
        for i in range(moved.shape[-1]):
            part = moved[..., max(0, i + ahead - window + 1) : i + ahead + 1]
            out[..., i] = part.max(-1) - part.min(-1)
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rolling_range",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 30)),
                Sample((make(25),), {"window": 4}),
                Sample((make((3, 12)),), {"center": True}),
                Sample((make((9, 2, 3)),), {"window": 3, "axis": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare


@pair(
    "closeness",
    "nodes that cannot be reached count as if at distance 0, so small components are the most central",
    "networkx.closeness_centrality with wf_improved, and cuGraph ports that divide n - 1 by the sum of distances",
    "4 nodes with the one edge 0-1: 3 for nodes 0 and 1 instead of 1/3",
)
def closeness():
    """Closeness centrality of an undirected graph from its edges, as networkx: (r / sum) * (r / (n - 1)) for r reached.

    Loops and repeated edges change nothing; edges with a node outside 0 to nodes - 1 are left out.
    """

    def distances(xp, source, target, nodes):
        """For each node the sum of the distances to those that it reaches, and their number."""
        every = xp.arange(nodes)
        inside = (source >= 0) & (source < nodes) & (target >= 0) & (target < nodes)
        one = ((source[:, None] == every) & inside[:, None]).astype("float64")
        two = ((target[:, None] == every) & inside[:, None]).astype("float64")
        linked = xp.matmul(one.T, two)
        linked = linked + linked.T
        reached = frontier = xp.eye(nodes, dtype="bool")
        total, count = xp.zeros(nodes, dtype="float64"), xp.zeros(nodes, dtype="float64")
        for step in range(1, nodes):
            frontier = (xp.matmul(frontier.astype("float64"), linked) > 0) & ~reached
            reached = reached | frontier
            new = frontier.astype("float64").sum(axis=1)
            total, count = total + step * new, count + new
        return total, count

    def wrong(xp, source, target, nodes=12):
        total, _ = distances(xp, source, target, nodes)
        return xp.where(total > 0, (nodes - 1) / xp.where(total > 0, total, 1.0), 0.0)

    def right(xp, source, target, nodes=12):
        total, count = distances(xp, source, target, nodes)
        return xp.where(total > 0, count * count / (xp.where(total > 0, total, 1.0) * max(nodes - 1, 1)), 0.0)

    def reference(source, target, nodes=12):
        near = [set() for _ in range(nodes)]
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            if 0 <= a < nodes and 0 <= b < nodes:
                near[a].add(b)
                near[b].add(a)
        out = np.zeros(nodes)
        for node in range(nodes):
            far, queue = {node: 0}, deque([node])
            while queue:
                at = queue.popleft()
                for other in near[at] - far.keys():
                    far[other] = far[at] + 1
                    queue.append(other)
            if len(far) > 1:
                out[node] = (len(far) - 1) / sum(far.values()) * (len(far) - 1) / (nodes - 1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="closeness",
            dtypes=("int32", "int64"),
            result_dtype="float64",
            samples=lambda make: [
                (make(50, low=0, high=11), make(50, low=0, high=11)),
                Sample((make(30, low=0, high=5), make(30, low=0, high=5)), {"nodes": 6}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "weighted_percentile",
    "where the weights reach the share exactly, the mean is taken with the next value even if its weight is zero",
    "sklearn.utils.stats._weighted_percentile with average=True: the next observation of weight zero was used",
    "values [1, 2, 3] with weights [1, 0, 1], q=50: 1.5 instead of 2",
)
def weighted_percentile():
    """The q-th percentile along the last axis by whole weights; the mean of two values where the share is met exactly.

    Values of weight zero count for nothing; nan where all weights are zero.
    """

    def check(q):
        if not 0 <= q <= 100:
            raise ValueError(f"q is {q}; give 0 to 100")

    def ordered(xp, a, weights, q):
        order = xp.argsort(a, axis=-1)
        values = xp.take_along_axis(a.astype("float64"), order, axis=-1)
        counts = xp.take_along_axis(weights.astype("int64"), order, axis=-1)
        reached = xp.cumsum(counts, axis=-1)
        share = q * reached[..., -1:]
        lower = xp.argmax(((100 * reached >= share) & (counts > 0)).astype("int64"), axis=-1)[..., None]
        return values, 100 * reached, share, lower

    def between(xp, a, values, lower, upper, share, reached):
        one, two = (xp.take_along_axis(values, i, axis=-1) for i in (lower, upper))
        middle = xp.where(lower == upper, one, one * 0.5 + two * 0.5)
        return xp.where(reached[..., -1:] > 0, middle, math.nan)[..., 0].astype(a.dtype)

    def wrong(xp, a, weights, q=50):
        check(q)
        if a.shape[-1] == 0:
            return xp.full(a.shape[:-1], math.nan, dtype=a.dtype)
        values, reached, share, lower = ordered(xp, a, weights, q)
        met = (xp.take_along_axis(reached, lower, axis=-1) == share) & (share < reached[..., -1:])
        upper = xp.where(met, xp.minimum(lower + 1, a.shape[-1] - 1), lower)
        return between(xp, a, values, lower, upper, share, reached)

    def right(xp, a, weights, q=50):
        check(q)
        if a.shape[-1] == 0:
            return xp.full(a.shape[:-1], math.nan, dtype=a.dtype)
        values, reached, share, lower = ordered(xp, a, weights, q)
        met = (xp.take_along_axis(reached, lower, axis=-1) == share) & (share < reached[..., -1:])
        above = xp.argmax((reached > share).astype("int64"), axis=-1)[..., None]
        return between(xp, a, values, lower, xp.where(met, above, lower), share, reached)

    def reference(a, weights, q=50):
        check(q)
        out = np.full(a.shape[:-1], np.nan)
        for row in np.ndindex(out.shape):
            order = np.argsort(a[row], kind="stable")
            repeated = np.repeat(a[row][order], np.asarray(weights)[row][order])
            if len(repeated):
                whole, rest = divmod(q * len(repeated), 100)
                if rest or whole in (0, len(repeated)):
                    out[row] = repeated[min(whole, len(repeated) - 1)]
                elif repeated[whole - 1] == repeated[whole]:
                    out[row] = repeated[whole]
                else:
                    out[row] = repeated[whole - 1] * 0.5 + repeated[whole] * 0.5
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_percentile",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30), make(30, dtype="int64", low=0, high=5)),
                (make((3, 25)), make((3, 25), dtype="int64", low=0, high=5)),
                Sample((make((2, 21)), make((2, 21), dtype="int64", low=0, high=5)), {"q": 90}),
                Sample((make(17), make(17, dtype="int64", low=0, high=5)), {"q": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4, dtype="int64", low=0, high=5)), {"q": 101}), ValueError, "q is 101")
            ],
        )

    return wrong, right, declare


@pair(
    "theil_sen",
    "pairs with the same time enter the median as slopes of zero instead of being left out",
    "scipy.stats.theilslopes keeps pairs with deltax > 0 only; batched rewrites divide with a guard",
    "y = [0, 5, 2, 3] at times [0, 0, 1, 2]: 0.5 instead of 1.0; at times that are all equal 0 instead of nan",
)
def theil_sen():
    """The median of the slopes of all pairs of points with different times; nan if there are none."""

    def pairs(xp, y, times):
        i, j = xp.triu_indices(times.shape[0], 1)
        wide, at = y.astype("float64"), times.astype("int64")
        return wide[..., j] - wide[..., i], at[j] - at[i]

    def wrong(xp, y, times):
        rise, run = pairs(xp, y, times)
        if run.shape[0] == 0:
            return xp.full(y.shape[:-1], math.nan, dtype=y.dtype)
        slopes = xp.where(run == 0, 0.0, rise / xp.where(run == 0, 1, run))
        return xp.asarray(xp.median(slopes, axis=-1)).astype(y.dtype)

    def right(xp, y, times):
        rise, run = pairs(xp, y, times)
        kept = xp.nonzero(run)[0]
        if kept.shape[0] == 0:
            return xp.full(y.shape[:-1], math.nan, dtype=y.dtype)
        return xp.asarray(xp.median(rise[..., kept] / run[kept], axis=-1)).astype(y.dtype)

    def reference(y, times):
        out = np.full(y.shape[:-1], np.nan)
        at = times.tolist()
        for row in np.ndindex(out.shape):
            slopes = [
                (y[row][j] - y[row][i]) / (at[j] - at[i]) for j in range(len(at)) for i in range(j) if at[i] != at[j]
            ]
            if slopes:
                out[row] = np.median(slopes)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="theil_sen",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((3, 9), low=-100, high=100), make(9, dtype="int64", low=0, high=365)),
                (make(12, low=-100, high=100), make(12, dtype="int64", low=0, high=365)),
            ],
            reference=reference,
        )

    return wrong, right, declare
