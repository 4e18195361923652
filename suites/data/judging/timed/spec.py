"""Declarations whose measured calls are long enough for a figure: ``ci/judge_times.py`` compares it with others."""

import numpy as np

from cuassay.testing import OpSpec, Tolerance


def waves(xp, a):
    for _ in range(40):
        a = xp.sin(a)
    return a


sorted_rows = OpSpec(
    fn=lambda xp, a: xp.sort(a, axis=-1),
    name="sorted_rows",
    dtypes=("float32",),
    samples=lambda make: [make((3, 65)), make((2, 128))],
    reference=lambda a: np.sort(a, axis=-1),
    bench=lambda make, sizes: [make((256, 8192))],
)

waved = OpSpec(
    fn=waves,
    name="waved",
    dtypes=("float32",),
    samples=lambda make: [make((64, 65)), make(33)],
    reference=lambda a: waves(np, a),
    bench=lambda make, sizes: [make((256, 512))],
)

scaled = OpSpec(
    fn=lambda xp, a: a * 1.5,
    name="scaled",
    dtypes=("float32",),
    samples=lambda make: [make((64, 65)), make((5, 33))],
    reference=lambda a: a * 1.5,
    bench=lambda make, sizes: [make((4096, 2048))],
)


RATE, ROUNDS = 0.998, 400


def decayed(a):
    for _ in range(ROUNDS):
        a = a * RATE + 0.001
    return a


iterated = OpSpec(
    fn=lambda xp, a: decayed(a),
    name="iterated",
    dtypes=("float32",),
    samples=lambda make: [make((64, 65)), make((5, 33))],
    reference=lambda a: a * RATE**ROUNDS + 0.001 * (1 - RATE**ROUNDS) / (1 - RATE),
    tolerance=Tolerance(ulps=256),  # 400 roundings one after another
    bench=lambda make, sizes: [make((2048, 1024))],
)
