"""Random numbers on NumPy arrays: the reference of every other kind.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.random`. `cuassay.arrays.distributions` computes the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays import distributions
from cuassay.arrays.dtypes import compute_dtype
from cuassay.core.recordings import DrawState
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]


def uniform(like: Array, *, state: DrawState, low: float, high: float, out: Array) -> None:
    """Draw uniformly from ``[low, high)``."""
    within = distributions.bounds(float(low), float(high), out.dtype)
    out[...] = distributions.uniform(state, out.size, within, out.dtype).reshape(out.shape)


def normal(like: Array, *, state: DrawState, mean: float, std: float, out: Array) -> None:
    """Draw from a normal distribution through float64; for 16 bits then through float32, as kernels do."""
    drawn = distributions.normal(state, out.size, out.dtype) * std + mean
    out[...] = drawn.astype(compute_dtype(out.dtype)).astype(out.dtype).reshape(out.shape)


def integers(like: Array, *, state: DrawState, low: int, high: int, out: Array) -> None:
    """Draw integers uniformly from ``[low, high)``."""
    out[...] = distributions.integers(state, out.size, low, high).astype(out.dtype).reshape(out.shape)


def permutation(like: Array, *, state: DrawState, out: Array) -> None:
    """Write the numbers below ``out.size`` in random order."""
    out[...] = distributions.permutation(state, out.size).astype(out.dtype)


def _words(state: DrawState, out: Array) -> NDArray[np.uint32]:
    return distributions.words_of(state, out.size).reshape(out.shape)


def bernoulli(p: Array, *, state: DrawState, out: Array) -> None:
    """Write 1 with the given probability, else 0."""
    out[...] = (_words(state, out) < p.astype(np.float64) * 2.0**32).astype(out.dtype)


def dropout_mask(like: Array, *, state: DrawState, p: float, out: Array) -> None:
    """Write True where `dropout` keeps the element."""
    out[...] = _words(state, out) >= distributions.dropped_words(p)


def dropout(a: Array, *, state: DrawState, p: float, out: Array) -> None:
    """Write ``a / (1 - p)`` where the element is kept, else 0; 16 bits are scaled in float32 and rounded once."""
    wide = compute_dtype(out.dtype)
    kept = _words(state, out) >= distributions.dropped_words(p)
    out[...] = np.where(kept, a.astype(wide) * wide.type(distributions.kept_scale(p)), 0).astype(out.dtype)


def register() -> None:
    """Add these implementations to the registry."""
    for implementation in (uniform, normal, integers, permutation, bernoulli, dropout_mask, dropout):
        name = implementation.__name__
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
