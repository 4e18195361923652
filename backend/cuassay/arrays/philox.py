"""Philox4x32-10 in NumPy: random words as a pure function of seed, subsequence and offset.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11
(2011), section 4.3. The layout is that of cuRAND and torch: the seed is the key, the upper half of the counter is the
subsequence, and the lower half is the offset divided by four. Our subsequence is the index of an element, or of the few
neighbouring elements that share four words, rather than of a thread. Numbers therefore do not depend on the launch
configuration of a kernel. `cuassay.core.generators` chooses offsets, and `cuassay.arrays.distributions` converts the
words. Kernels: devices/cuda/kernels/philox.cuh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.generator import WORDS_PER_CALL
from cuassay.core.recordings import DrawState
from cuassay.errors import DTypeError, ShapeError

__all__ = [
    "ROUNDS",
    "normals",
    "philox4x32",
    "random_words",
    "sine_cosine",
    "uniform_float64",
]

ROUNDS = 10

Words = NDArray[np.uint32]

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
# The golden ratio minus 1, and the square root of 3 minus 1, as fractions of 2**32.
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint32)


def philox4x32(counter: NDArray[Any], key: NDArray[Any]) -> Words:
    """Return four random words for each counter.

    Parameters
    ----------
    counter : array, (..., 4) uint32
    key : array, (..., 2) uint32
        Its leading axes broadcast with those of `counter`.

    Returns
    -------
    array, (..., 4) uint32

    Raises
    ------
    DTypeError, ShapeError
        If either has another dtype or last extent.
    """
    counter, key = _words("counter", counter, 4), _words("key", key, 2)
    for _ in range(ROUNDS):
        counter = _round(counter, key)
        key = key + _WEYL
    return counter


def _words(name: str, array: Any, width: int) -> Words:
    array = np.asarray(array)
    if array.dtype != np.uint32:
        raise DTypeError(f"{name} must be uint32; got {array.dtype}; convert it with astype")
    if array.ndim == 0 or array.shape[-1] != width:
        raise ShapeError(f"{name} must have shape (..., {width}); got {array.shape}; put its words on the last axis")
    return np.asarray(array, dtype=np.uint32)


def _round(counter: Words, key: Words) -> Words:
    products = counter[..., ::2].astype(np.uint64) * _MULTIPLIERS
    high, low = (products >> np.uint64(32)).astype(np.uint32), products.astype(np.uint32)
    mixed = high[..., ::-1] ^ counter[..., 1::2] ^ key
    return np.stack([mixed[..., 0], low[..., 1], mixed[..., 1], low[..., 0]], axis=-1)


def random_words(state: DrawState, n_elements: int, per_element: int = WORDS_PER_CALL, *, first: int = 0) -> Words:
    """Return the words that elements `first` to `first + n_elements` of one call draw from `state`.

    Parameters
    ----------
    state : GeneratorState or ReplayState
        The state to draw from.
    n_elements : int
        The number of elements.
    per_element : int
        The number of words per element; `state.advance` must be given the same number.
    first : int
        The index of the first element.

    Returns
    -------
    array, (n_elements, per_element) uint32
    """
    calls = -(-per_element // WORDS_PER_CALL)
    element = np.arange(n_elements, dtype=np.uint64)[:, None] + np.uint64(first)
    call = np.arange(calls, dtype=np.uint64)[None, :] + np.uint64(state.offset // WORDS_PER_CALL)
    key = np.stack(_halves(np.array(state.seed, dtype=np.uint64)), axis=-1)
    words = philox4x32(np.stack([*_halves(call, n_elements), *_halves(element, n_elements, calls)], axis=-1), key)
    return words.reshape(n_elements, calls * WORDS_PER_CALL)[:, :per_element]


def _halves(values: NDArray[np.uint64], *leading: int) -> tuple[Words, Words]:
    """Return the low and high words of `values`, broadcast so that the first axes have the extents `leading`."""
    shape: Sequence[int] = (*leading, *values.shape[len(leading) :])
    wide = np.broadcast_to(values, shape)
    return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)


def uniform_float64(words: NDArray[Any], *, include_one: bool = False) -> NDArray[np.float64]:
    """Return a float64 from 53 bits of each two neighbouring words: in [0, 1), or in (0, 1] with `include_one`.

    Parameters
    ----------
    words : array, (..., 2 n) uint32
        The first word of each pair is the lower half.

    Returns
    -------
    array, (..., n) float64
    """
    low, high = words[..., ::2].astype(np.uint64), words[..., 1::2].astype(np.uint64)
    steps = ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64)
    return (steps + float(include_one)) * 2.0**-53


def normals(radius: NDArray[Any], angle: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two independent standard normal numbers from two uniform ones, in their dtype.

    Source: G. E. P. Box, M. E. Muller, "A note on the generation of random normal deviates", Ann. Math. Stat. 29
    (1958), 610-611. The sine comes first, as in cuRAND.

    Parameters
    ----------
    radius : array of float
        Uniform in (0, 1]; 0 is excluded because its logarithm is infinite.
    angle : array of float
        Uniform in [0, 1), in turns.
    """
    length = np.sqrt(-2 * np.log(radius))
    sine, cosine = sine_cosine(angle)
    return length * sine, length * cosine


def sine_cosine(angle: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sine and cosine of angles in [0, 1] turns, which are also accurate near their zeros."""
    quarter = np.rint(angle * 4)
    rest = (angle * 4 - quarter) * angle.dtype.type(np.pi / 2)  # the difference is exact
    sine, cosine = np.sin(rest), np.cos(rest)
    choices = [(sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine)]
    turned = quarter.astype(np.int64) % 4
    return np.choose(turned, [s for s, _ in choices]), np.choose(turned, [c for _, c in choices])
