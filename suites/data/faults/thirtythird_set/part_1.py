"""Special values and dtypes in statistics, learning, signals, finance and physics: faults with their twins."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import OpSpec, Sample


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
    "account_balances",
    "int64 amounts are added up as float64",
    "numpy.bincount adds its weights as float64; group sums of integers that are built on it lose the last digits",
    "amounts whose sum is beyond 2**53, such as 2**53 and 1 in one account: the balance is off by one",
)
def account_balances():
    """The sum of the amounts of each account, in int64; numbers of accounts from `count` on are ignored."""

    def wrong(xp, amounts, accounts, count=8):
        return xp.bincount(accounts, weights=amounts, minlength=count)[:count].astype("int64")

    def right(xp, amounts, accounts, count=8):
        mine = accounts[None, :] == xp.arange(count)[:, None]
        return xp.where(mine, amounts.astype("int64")[None, :], 0).sum(axis=1)

    def reference(amounts, accounts, count=8):
        out = np.zeros(count, dtype="int64")
        kept = accounts < count
        np.add.at(out, accounts[kept], amounts[kept].astype("int64"))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="account_balances",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40), make(40, dtype="int64", low=0, high=7)),
                Sample((make(75), make(75, dtype="int64", low=0, high=2)), {"count": 3}),
                (make(1), make(1, dtype="int64", low=0, high=7)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "vertical_wavenumber",
    "the branch is chosen by the argument's imaginary part, which may be -0.0",
    "transfer-matrix and RCWA codes, which flip the root where the imaginary part of its square is negative",
    "-4 - 0j, a conjugated real permittivity: the root is -2j, a wave that grows instead of decaying",
)
def vertical_wavenumber():
    """sqrt(permittivity - kx**2), the root whose imaginary part is not negative; of two real roots the positive one."""

    def wrong(xp, permittivity, kx=0.0):
        square = permittivity.astype("complex128") - kx * kx
        root = xp.sqrt(square)
        return xp.where(square.imag < 0, -root, root).astype(permittivity.dtype)

    def right(xp, permittivity, kx=0.0):
        root = xp.sqrt(permittivity.astype("complex128") - kx * kx)
        return xp.where(root.imag < 0, -root, root).astype(permittivity.dtype)

    def reference(permittivity, kx=0.0):
        root = np.sqrt(permittivity - kx * kx)
        return np.where(root.imag < 0, -root, root)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="vertical_wavenumber",
            dtypes=("complex64", "complex128"),
            result_dtype=lambda permittivity: permittivity,
            samples=lambda make: [
                make(48),
                Sample((make((3, 17)),), {"kx": 1.5}),
                Sample((make((2, 3, 5)),), {"kx": 0.25}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cardinal_sine",
    "the number that stands for zero is itself zero in float16",
    "numpy.sinc replaced 0 by 1e-20 whatever the dtype, which is 0 in float16",
    "0.0 in float16: nan instead of 1",
)
def cardinal_sine():
    """sin(pi a) / (pi a), and 1 at zeros of both signs; at infinities NaN, as numpy.sinc."""

    def wrong(xp, a):
        y = math.pi * xp.where(a == 0, 1e-20, a).astype("float64")
        return (xp.sin(y) / y).astype(a.dtype)

    def right(xp, a):
        zero = a == 0
        y = math.pi * xp.where(zero, 1.0, a.astype("float64"))
        return xp.where(zero, 1.0, xp.sin(y) / y).astype(a.dtype)

    def reference(a):
        with np.errstate(all="ignore"):
            return np.where(a == 0, 1.0, np.sin(math.pi * a) / (math.pi * a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cardinal_sine",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(65), make((4, 31)), make((3, 40), low=-50, high=50)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "langevin",
    "the difference of two reciprocals cancels near zero",
    "magnetization codes that replace only x == 0 and trust float64 for the rest",
    "1e-7 or a subnormal number in float32: two reciprocals of about 1e7 leave nothing of 3e-8",
)
def langevin():
    """The Langevin function coth(x) - 1 / x of paramagnetism; x / 3 near zero."""

    def wrong(xp, x):
        wide = x.astype("float64")
        safe = xp.where(wide == 0, 1.0, wide)
        return xp.where(wide == 0, wide, 1 / xp.tanh(safe) - 1 / safe).astype(x.dtype)

    def right(xp, x):
        wide = x.astype("float64")
        small = xp.abs(wide) < 0.1
        near = xp.where(small, wide, 0.0)
        square = near * near
        series = near * (1 / 3 - square * (1 / 45 - square * (2 / 945 - square / 4725)))
        far = xp.where(small, 1.0, wide)
        return xp.where(small, series, 1 / xp.tanh(far) - 1 / far).astype(x.dtype)

    def reference(x):
        out = np.empty(x.shape)
        for i in np.ndindex(x.shape):
            v = float(x[i])
            if abs(v) < 0.05:
                out[i] = v * (1 / 3 - v**2 / 45 + 2 * v**4 / 945 - v**6 / 4725)
            else:
                out[i] = 1 / math.tanh(v) - 1 / v
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="langevin",
            dtypes=("float16", "float32"),
            result_dtype=lambda x: x,
            samples=lambda make: [make(60), make((5, 13)), make((2, 30), low=-20, high=20)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cooccurrence",
    "products and sums of uint8 wrap around before the result is widened",
    "co-occurrence matrices as x.T @ x of uint8 tables, cast to int64 afterwards",
    "40 rows that hold 3 in two columns: 9 * 40 = 360 comes out as 104",
)
def cooccurrence():
    """For each two columns of a table of small counts, the sum of the products over its rows, in int64."""

    def wrong(xp, table):
        return (table.T @ table).astype("int64")

    def right(xp, table):
        wide = table.astype("int64")
        return wide.T @ wide

    def reference(table):
        wide = table.astype("int64")
        return (wide[:, :, None] * wide[:, None, :]).sum(axis=0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cooccurrence",
            dtypes=("uint8", "int32"),
            result_dtype="int64",
            samples=lambda make: [
                make((40, 6), low=0, high=3),
                make((12, 9), low=0, high=3),
                make((1, 4), low=0, high=3),
                Sample((make((0, 5), low=0, high=3),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dice_loss",
    "the smoothing term is zero in float16",
    "segmentation losses under mixed precision: 1e-8 as a float16 tensor is 0",
    "no pixel in the mask and probabilities of 0 in float16: nan instead of 0",
)
def dice_loss():
    """1 - (2 sum(p m) + eps) / (sum(p) + sum(m) + eps) over the last axis; 0 for an empty mask that is met exactly."""

    def loss(xp, probabilities, mask, eps):
        wide = probabilities.astype("float64")
        overlap = xp.where(mask, wide, 0.0).sum(axis=-1)
        total = wide.sum(axis=-1) + mask.sum(axis=-1)
        return (1 - (2 * overlap + eps) / (total + eps)).astype(probabilities.dtype)

    def wrong(xp, probabilities, mask, eps=1e-8):
        return loss(xp, probabilities, mask, xp.full((), eps, dtype=probabilities.dtype))

    def right(xp, probabilities, mask, eps=1e-8):
        return loss(xp, probabilities, mask, eps)

    def reference(probabilities, mask, eps=1e-8):
        both = 2 * (probabilities * mask).sum(-1) + eps
        return 1 - both / (probabilities.sum(-1) + mask.sum(-1) + eps)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dice_loss",
            dtypes=("float16", "float32"),
            result_dtype=lambda probabilities, mask: probabilities,
            samples=lambda make: [
                (make((4, 30), low=0, high=1), make((4, 30), dtype="bool")),
                (make((2, 3, 16), low=0, high=1), make((2, 3, 16), dtype="bool")),
                Sample((make((3, 25), low=0, high=1), make((3, 25), dtype="bool")), {"eps": 1.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "crest_factor",
    "the result of an empty input has the default dtype",
    "early returns of zeros(shape) for empty inputs, which are float64 whatever the input is",
    "a float32 input of shape (0, 64) or (3, 0): the result is float64",
)
def crest_factor():
    """The largest magnitude over the root mean square along the last axis, in the input's dtype; 0 for silence."""

    def ratio(xp, signal):
        wide = signal.astype("float64")
        rms = xp.sqrt((wide * wide).mean(axis=-1))
        silent = rms == 0
        largest = xp.abs(wide).max(axis=-1)
        return xp.where(silent, 0.0, largest / xp.where(silent, 1.0, rms)).astype(signal.dtype)

    def wrong(xp, signal):
        if signal.size == 0:
            return xp.zeros(signal.shape[:-1])
        return ratio(xp, signal)

    def right(xp, signal):
        if signal.size == 0:
            return xp.zeros(signal.shape[:-1], dtype=signal.dtype)
        return ratio(xp, signal)

    def reference(signal):
        if signal.size == 0:
            return np.zeros(signal.shape[:-1])
        rms = np.sqrt(np.mean(signal**2, axis=-1))
        with np.errstate(all="ignore"):
            return np.where(rms == 0, 0.0, np.abs(signal).max(axis=-1) / rms)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="crest_factor",
            dtypes=("float16", "float32"),
            result_dtype=lambda signal: signal,
            samples=lambda make: [
                make((3, 64)),
                make((2, 4, 33)),
                make((5, 1)),
                Sample((make((0, 64)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "distinct_values",
    "each NaN counts as another value",
    "numpy.unique before 1.21, and every count of the steps in a sorted array",
    "two NaN in a row: they count as two values instead of one",
)
def distinct_values():
    """The number of distinct values along the last axis; all NaN count as one value, zeros of both signs as one."""

    def count(xp, a, new):
        if a.shape[-1] == 0:
            return xp.zeros(a.shape[:-1], dtype="int64")
        return (new.sum(axis=-1) + 1).astype("int64")

    def wrong(xp, a):
        ordered = xp.sort(a, axis=-1)
        return count(xp, a, ordered[..., 1:] != ordered[..., :-1])

    def right(xp, a):
        ordered = xp.sort(a, axis=-1)
        after, before = ordered[..., 1:], ordered[..., :-1]
        return count(xp, a, (after != before) & ~xp.isnan(before))

    def reference(a):
        out = np.zeros(a.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            row = a[i].tolist()
            out[i] = len({v for v in row if v == v}) + any(v != v for v in row)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="distinct_values",
            dtypes=("float16", "float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(40),
                make((4, 25)),
                make((2, 3, 7)),
                make.of([3.0, 1.0, 3.0, 2.0, 1.0, -2.5]),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "portfolio_value",
    "a position of zero times a price of NaN is NaN",
    "backtests with delisted assets: no price any more, and no position either",
    "a position of 0 next to a price of nan or infinity: the whole portfolio is nan",
)
def portfolio_value():
    """The sum of prices times positions over the last axis; an asset that is not held needs no price."""

    def wrong(xp, prices, positions):
        return (prices.astype("float64") * positions).sum(axis=-1).astype(prices.dtype)

    def right(xp, prices, positions):
        values = prices.astype("float64") * positions
        return xp.where(positions == 0, 0.0, values).sum(axis=-1).astype(prices.dtype)

    def reference(prices, positions):
        with np.errstate(all="ignore"):
            return np.where(positions == 0, 0.0, prices * positions).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="portfolio_value",
            dtypes=("float32",),
            result_dtype=lambda prices, positions: prices,
            samples=lambda make: [
                (make(12), make(12, dtype="int64", low=-2, high=5)),
                (make((6, 20)), make((6, 20), dtype="int64", low=0, high=3)),
                Sample((make((5, 9)), make(9, dtype="int64", low=-2, high=5)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "profit_factor",
    "a loss of zero is negated to -0.0 before the division",
    "performance reports of backtests, written as gains / -losses",
    "returns without a negative one: -inf instead of inf",
)
def profit_factor():
    """The gains over the losses along the last axis: inf without losses, NaN without both."""

    def sums(xp, returns):
        wide = returns.astype("float64")
        return xp.maximum(wide, 0.0).sum(axis=-1), xp.minimum(wide, 0.0).sum(axis=-1)

    def wrong(xp, returns):
        gains, losses = sums(xp, returns)
        return (gains / -losses).astype(returns.dtype)

    def right(xp, returns):
        gains, losses = sums(xp, returns)
        return (gains / xp.abs(losses)).astype(returns.dtype)

    def reference(returns):
        with np.errstate(all="ignore"):
            return np.abs(np.maximum(returns, 0)).sum(-1) / np.abs(np.minimum(returns, 0)).sum(-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="profit_factor",
            dtypes=("float16", "float32"),
            result_dtype=lambda returns: returns,
            samples=lambda make: [make(60), make((4, 30)), make((2, 3, 21))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "image_distance",
    "infinity over infinity where the limit is finite",
    "optics code with the lens equation solved as u f / (u - f): nan for an object at infinity",
    "an object at inf, or a lens of focal length inf: nan instead of the focal length, or of minus the distance",
)
def image_distance():
    """The distance v of the image of a thin lens, 1 / v = 1 / f - 1 / u; an object at infinity has it at f."""

    def wrong(xp, distance, focal):
        u, f = distance.astype("float64"), focal.astype("float64")
        return (u * f / (u - f)).astype(distance.dtype)

    def right(xp, distance, focal):
        u, f = distance.astype("float64"), focal.astype("float64")
        return (1 / (1 / f - 1 / u)).astype(distance.dtype)

    def reference(distance, focal):
        with np.errstate(all="ignore"):
            return 1 / (1 / focal - 1 / distance)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="image_distance",
            dtypes=("float16", "float32"),
            result_dtype=lambda distance, focal: distance,
            samples=lambda make: [
                (make(40), make(40)),
                (make((3, 14)), make((3, 14))),
                Sample((make((5, 8)), make(8)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "treatment_effect",
    "~ of a mask of integers is never zero",
    "PyTorch 1.2 made masks bool; code with ~ met masks of uint8 from older callers, where it inverts all bits",
    "a mask of uint8 zeros and ones: all rows count as controls",
)
def treatment_effect():
    """The mean of the treated minus that of the others, over the last axis; NaN where one of them is empty.

    `treated` holds truth values, or zeros and ones in any integer dtype.
    """

    def mean_of(xp, outcomes, chosen):
        return xp.where(chosen, outcomes.astype("float64"), 0.0).sum(axis=-1) / (chosen != 0).sum(axis=-1)

    def wrong(xp, outcomes, treated):
        effect = mean_of(xp, outcomes, treated) - mean_of(xp, outcomes, ~treated)
        return effect.astype(outcomes.dtype)

    def right(xp, outcomes, treated):
        effect = mean_of(xp, outcomes, treated != 0) - mean_of(xp, outcomes, treated == 0)
        return effect.astype(outcomes.dtype)

    def reference(outcomes, treated):
        out = np.full(outcomes.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            ours, others = outcomes[i][treated[i] != 0], outcomes[i][treated[i] == 0]
            if len(ours) and len(others):
                out[i] = ours.mean() - others.mean()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="treatment_effect",
            dtypes=("float16", "float32"),
            result_dtype=lambda outcomes, treated: outcomes,
            samples=lambda make: [
                (make(50), make(50, dtype="bool")),
                (make((4, 18)), make((4, 18), dtype="bool")),
                (make((3, 30)), make((3, 30), dtype="uint8", low=0, high=1)),
            ],
            reference=reference,
        )

    return wrong, right, declare
