"""The right function for ../wrong/alibi_slopes.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def slopes(heads):
    power = 2 ** (heads.bit_length() - 1)
    found = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    more = [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return found + more[:heads - power]


def alibi(xp, scores):
    heads, rows, columns = scores.shape
    slope = xp.asarray(slopes(heads)).astype(scores.dtype)[:, None, None]
    distance = xp.arange(columns)[None, :] - xp.arange(rows)[:, None]
    return scores + slope * distance.astype(scores.dtype)


def published(heads):
    power = 2 ** int(np.floor(np.log2(heads)))
    first = 2.0 ** (-8.0 / power)
    base = np.power(first, np.arange(1, power + 1))
    half = 2.0 ** (-4.0 / power)
    return np.concatenate([base, np.power(half, np.arange(1, 2 * (heads - power) + 1, 2))])


def reference(scores):
    heads, rows, columns = scores.shape
    return scores + published(heads)[:, None, None] * (np.arange(columns) - np.arange(rows)[:, None])


test_alibi = conformance(OpSpec(
    fn=alibi,
    reference=reference,
    dtypes=("float32",),
    samples=lambda make: [make((4, 10, 10)), make((8, 1, 7)), make((12, 3, 3))],
))
