"""Distributions made from random words: uniforms, normals, integers, masks and permutations, equal on every device.

In one call, element ``i`` in C order gets its words from subsequence ``i // k``, where ``k`` elements share four words:

======================================= ======== ==========================================
distribution, dtype                     k        words of an element
======================================= ======== ==========================================
uniform float16, bfloat16               8        half a word, the lower half first
uniform float32                         4        one
uniform float64                         2        two, the lower half first
normal up to float32; float64           4; 2     two of two neighbours; four of two
integers, range up to 2**32; above      2; 1     two; four; the least significant first
masks, dropout, bernoulli               4        one, whatever the dtype
======================================= ======== ==========================================

Every call therefore takes four words of each subsequence that it uses, so the generator advances by `WORDS_PER_CALL`.
The kernels in devices/cuda/kernels/random.cu and philox.cuh give the same bits, except for normals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import compute_dtype, dtype_name
from cuassay.arrays.philox import normals, random_words, sine_cosine, uniform_float64
from cuassay.core.recordings import DrawState
from cuassay.errors import ArgumentError

__all__ = [
    "BITS",
    "Bounds",
    "bounds",
    "dropped_words",
    "integers",
    "kept_scale",
    "normal",
    "permutation",
    "permutation_bits",
    "uniform",
    "words_of",
]

Array = NDArray[Any]

_WORD = 2**32
_ROUNDS = 24
_KEY_CALLS = -(-(_ROUNDS + 1) // 4)  # one word per round and one for the parity; a call gives four words


def words_of(state: DrawState, n: int) -> NDArray[np.uint32]:
    """Return one word for each of `n` elements."""
    return random_words(state, -(-n // 4)).reshape(-1)[:n]


# ------------------------------------------------------------------------------------------------ uniform


@dataclass(frozen=True, slots=True)
class Bounds:
    """An interval in the dtype that it is computed in. `last` is the largest result.

    A result is ``low + step * k``, where k is a whole number with as many bits as `BITS` says.
    """

    low: Any
    step: Any
    last: Any


#: From the item size of a dtype to the number of bits of a uniform number.
BITS = {2: 16, 4: 24, 8: 53}


@lru_cache(maxsize=256)
def bounds(low: float, high: float, dtype: np.dtype[Any]) -> Bounds:
    """Return the interval ``[low, high)`` for results of `dtype`, with its ends rounded to that dtype.

    Equal ends give an interval of one number.

    Raises
    ------
    ArgumentError
        If the ends are in the wrong order, if they or their difference are not finite, or if the difference is too
        small to be divided into steps (below 2e-31 in float32).
    """
    wide = compute_dtype(dtype).type
    with np.errstate(over="ignore", invalid="ignore"):
        ends = np.array([low, high], np.float64).astype(dtype)
        first, end = (wide(one) for one in ends)
        step = wide(end - first) * wide(2.0 ** -BITS[dtype.itemsize])
    if not (first <= end and np.isfinite([first, end, step]).all()):
        raise ArgumentError(
            f"uniform numbers need low <= high and a finite difference; got low {low!r}, high {high!r} in "
            f"{dtype_name(dtype)}; give such bounds"
        )
    if first < end and step < np.finfo(wide).tiny:
        raise ArgumentError(
            f"the interval from {low!r} to {high!r} is too narrow for {dtype_name(dtype)}: its steps would not be "
            "normal numbers; draw from a wider one and scale the result"
        )
    return Bounds(first, step, wide(_below(ends[1:])[0]) if first < end else first)


def _below(values: Array) -> Array:
    """Return the next smaller number of each value. The values must be finite."""
    bits = values.view(f"i{values.dtype.itemsize}")
    least = np.iinfo(bits.dtype).min
    lower = np.where(bits < 0, bits + 1, np.where(bits == 0, least + 1, bits - 1))
    return lower.astype(bits.dtype).view(values.dtype)


def _rounded_down(values: Array, dtype: np.dtype[Any]) -> Array:
    nearest = values.astype(dtype)
    return np.where(nearest.astype(values.dtype) > values, _below(nearest), nearest)


def uniform(state: DrawState, n: int, within: Bounds, dtype: np.dtype[Any]) -> Array:
    """Return `n` numbers of `dtype` in ``[low, last]``.

    Product and sum are rounded to nearest; 16-bit results are then rounded down.
    """
    k = _whole(random_words(state, -(-n * dtype.itemsize // 16)), dtype.itemsize).reshape(-1)[:n]
    return _rounded_down(np.minimum(within.low + within.step * k, within.last), dtype)


def _whole(words: NDArray[np.uint32], itemsize: int) -> Array:
    """Return whole numbers of `BITS` bits, as floats."""
    if itemsize == 2:
        return np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1).astype(np.float32)
    if itemsize == 4:
        return (words >> np.uint32(8)).astype(np.float32)
    return (_joined(words) >> np.uint64(11)).astype(np.float64)


# ------------------------------------------------------------------------------------------------ normal


def normal(state: DrawState, n: int, dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return `n` standard normal numbers in float64, from as many words as `dtype` uses. The sine comes first."""
    if dtype.itemsize == 8:
        words = random_words(state, -(-n // 2))
        pairs = normals(uniform_float64(words[:, :2], include_one=True), uniform_float64(words[:, 2:]))
    else:
        words = random_words(state, -(-n // 4))
        sine, cosine = sine_cosine((words[:, 1::2] >> np.uint32(6)).astype(np.float64) * 2.0**-26)
        pairs = (length := _radius(words[:, ::2])) * sine, length * cosine
    return np.stack(pairs, axis=-1).reshape(-1)[:n]


def _radius(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return ``sqrt(-2 ln u)``, where u = (word + 1/2) / 2**32 rounded to float32.

    The logarithm is log(u) up to 2/3, and log1p(u - 1) above.
    """
    near_one = words > 2 * (_WORD // 3)  # as in philox.cuh's radius, where this keeps the series of the logarithm short
    rounded = np.where(near_one, ~words, words).astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    x = rounded.astype(np.float64)
    return np.asarray(np.sqrt(-2 * np.where(near_one, np.log1p(-x), np.log(x))))


# ------------------------------------------------------------------------------------------------ integers


def integers(state: DrawState, n: int, low: int, high: int) -> NDArray[np.uint64]:
    """Return `n` whole numbers in ``[low, high)``, modulo 2**64: ``low + floor((high - low) * x)``.

    x is a fraction of 64 or 128 bits. The relative error of each value's probability is at most 2**-32.
    """
    reach = high - low
    if reach <= _WORD:
        pairs = _joined(random_words(state, -(-n // 2))).reshape(-1)[:n]
        drawn = _product_high(pairs, reach)
    else:
        lower, upper = _joined(random_words(state, n)).T
        drawn = upper if reach == _WORD**2 else _product_high_of_two(upper, lower, reach)
    return drawn + np.uint64(low % _WORD**2)


def _joined(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Join neighbouring words to 64-bit numbers, the lower half first."""
    return words[:, 1::2].astype(np.uint64) << np.uint64(32) | words[:, ::2]


def _product_high(a: NDArray[np.uint64], b: int) -> NDArray[np.uint64]:
    """Return the upper 64 bits of each ``a * b``, where b is below 2**64."""
    half, mask = np.uint64(32), np.uint64(_WORD - 1)
    low_b, high_b = np.uint64(b % _WORD), np.uint64(b // _WORD)
    low_a, high_a = a & mask, a >> half
    middle = high_a * low_b + (low_a * low_b >> half)
    crossed = low_a * high_b + (middle & mask)
    return np.asarray(high_a * high_b + (middle >> half) + (crossed >> half))


def _product_high_of_two(upper: NDArray[np.uint64], lower: NDArray[np.uint64], b: int) -> NDArray[np.uint64]:
    """Return the upper 64 of the 192 bits of ``(upper * 2**64 + lower) * b``."""
    product = upper * np.uint64(b)
    carries = product + _product_high(lower, b) < product
    return _product_high(upper, b) + carries.astype(np.uint64)


# ------------------------------------------------------------------------------------------------ masks


def dropped_words(p: float) -> int:
    """Return the bound below which a word drops its element, for drop probability `p`: p * 2**32, rounded."""
    return round(p * _WORD)


def kept_scale(p: float) -> float:
    """Return the factor of kept elements that preserves the mean: ``1 / (1 - p)``, or 0 if no element is kept."""
    return 1 / (1 - p) if p < 1 else 0.0


# ------------------------------------------------------------------------------------------------ permutation


def permutation_bits(n: int) -> int:
    """Return the number of bits of the network that permutes `n` indices."""
    return max(n - 1, 0).bit_length()


def permutation(state: DrawState, n: int) -> NDArray[np.uint64]:
    """Return the numbers below `n` in random order.

    A Feistel network permutes the indices below the next power of two, and is applied again until the result is below
    `n`: J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section 4; for shuffling: R.
    Mitchell et al., arXiv 2106.06161. Each index is computed independently. For large `n` not every order can occur,
    as with any generator that has a 64-bit seed.
    """
    keys = random_words(state, _KEY_CALLS).reshape(-1)
    bits = permutation_bits(n)
    found = _permuted(np.arange(n, dtype=np.uint64), bits, keys)
    while (outside := found >= n).any():
        found[outside] = _permuted(found[outside], bits, keys)
    return found


def _permuted(index: NDArray[np.uint64], bits: int, keys: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Permute numbers of `bits` bits. The last step chooses the parity, because the network is always even."""
    right_bits = bits // 2
    left_mask, right_mask = (np.uint32(2**width - 1) for width in (bits - right_bits, right_bits))
    left, right = (index >> np.uint64(right_bits)).astype(np.uint32), index.astype(np.uint32) & right_mask
    for even, odd in zip(keys[:_ROUNDS:2], keys[1:_ROUNDS:2], strict=True):
        left = left ^ _mixed(right, even) & left_mask
        right = right ^ _mixed(left, odd) & right_mask
    found = left.astype(np.uint64) << np.uint64(right_bits) | right
    return np.where(found < 2, found ^ np.uint64(keys[_ROUNDS] & np.uint32(1)), found)


def _mixed(values: NDArray[np.uint32], key: np.uint32) -> NDArray[np.uint32]:
    """Apply the finalizer of MurmurHash3, in which every output bit depends on every input bit."""
    mixed = values + key
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return mixed ^ mixed >> np.uint32(16)
