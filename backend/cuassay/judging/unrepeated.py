"""Large inputs without the repetition of benchmark samples.

`cuassay.testing.samples.BenchSamples` draws some numbers of a large array and repeats them. A candidate that relies on
this could compute the first part of its result and copy it, which is right as long as the inputs repeat.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import is_complex, is_float
from cuassay.testing.samples import BENCH_TILE, HostArray, Sample, over_arguments

__all__ = ["unrepeated"]


def unrepeated(sample: Sample, seed: int) -> Sample:
    """Return the sample with the repeated numbers of its large drawn arrays replaced by new ones in the same range."""
    chance = np.random.default_rng(seed)

    def put(value: Any) -> Any:
        is_drawn = isinstance(value, HostArray) and (value.is_free or value.span is not None)
        return _renewed(value, chance) if is_drawn and value.values.size > BENCH_TILE else value

    args, kwargs = over_arguments(sample.args, sample.kwargs, put)
    return replace(sample, args=args, kwargs=kwargs)


def _renewed(given: HostArray, chance: np.random.Generator) -> HostArray:
    flat = given.values.reshape(-1).copy()
    flat[BENCH_TILE:] = _like(flat[:BENCH_TILE], flat.size - BENCH_TILE, chance)
    return replace(given, values=flat.reshape(given.shape))


def _like(drawn: NDArray[Any], count: int, chance: np.random.Generator) -> NDArray[Any]:
    """Draw numbers between the least and the largest of `drawn`; for a complex array, both parts."""
    if drawn.dtype == np.bool_:
        return chance.integers(0, 2, count, dtype=np.bool_)
    if is_complex(drawn.dtype):
        return _like(drawn.real, count, chance) + 1j * _like(drawn.imag, count, chance)
    if not is_float(drawn.dtype):
        return chance.integers(drawn.min(), drawn.max(), count, dtype=drawn.dtype, endpoint=True)
    least, most = (np.float32(one) for one in (drawn.min(), drawn.max()))
    return np.asarray(least + (most - least) * chance.random(count, np.float32))
