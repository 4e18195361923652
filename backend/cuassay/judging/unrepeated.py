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
    flat = np.empty_like(given.values.reshape(-1))
    drawn = flat[:BENCH_TILE] = given.values.reshape(-1)[:BENCH_TILE]
    _fill(flat[BENCH_TILE:], drawn, chance)
    return replace(given, values=flat.reshape(given.shape))


def _fill(rest: NDArray[Any], drawn: NDArray[Any], chance: np.random.Generator) -> None:
    """Draw numbers between the least and the largest of `drawn` into `rest`; for a complex array, both parts."""
    if is_complex(drawn.dtype):
        _fill(rest.real, drawn.real, chance)
        _fill(rest.imag, drawn.imag, chance)
    elif drawn.dtype == np.bool_:
        rest[:] = chance.integers(0, 2, rest.size, dtype=np.bool_)
    elif is_float(drawn.dtype):
        least, most = (np.float32(one) for one in (drawn.min(), drawn.max()))
        found = rest if rest.dtype == np.float32 and rest.flags.c_contiguous else np.empty(rest.size, np.float32)
        chance.random(out=found, dtype=np.float32)
        found *= most - least
        found += least
        if found is not rest:
            rest[:] = found
    else:
        rest[:] = chance.integers(drawn.min(), drawn.max(), rest.size, dtype=drawn.dtype, endpoint=True)
