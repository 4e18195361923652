"""OpSpecs of operations that draw random numbers; implemented in ``devices/<kind>/random.py``.

For a given (seed, offset) such an op is deterministic, so results are compared number by number: uniforms, integers,
masks and permutations without any tolerance. The references take words from `cuassay.arrays.philox`, which is tested
against published results. They compute the rest in integers, or in a wider dtype than any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import INTEGERS, compute_dtype, epsilon, smallest_subnormal
from cuassay.arrays.philox import random_words
from cuassay.core.generator import GeneratorState
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.default_samples import AWKWARD, unary
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples
from cuassay.testing.tolerance import Tolerance

__all__ = ["SPECS"]

Array = NDArray[Any]

#: The upper and the lower half of both numbers are nonzero.
STATE = GeneratorState(0x0123_4567_89AB_CDEF, 4 * (2**33 + 5))

_EXACT = Tolerance(ulps=0)


class _Drawn(OpSpec):
    """A spec whose reference gets arrays in their own dtype, which decides which random words an element gets."""

    def expected(self, sample: Sample) -> Array:
        """The reference's result for the sample's own arrays instead of wider ones."""
        args, kwargs = sample.host()
        with np.errstate(all="ignore"):
            return np.asarray(self.reference(*args, **kwargs)) if self.reference is not None else np.empty(0)

    def scale(self, sample: Sample, expected: Array) -> tuple[Array, int]:
        """The magnitude of a normal number's error is that of its two terms, the mean and the deviation."""
        return np.abs(expected) + abs(float(sample.kwargs.get("mean", 0.0))), 1


# ------------------------------------------------------------------------------------------------ references


def _uniform(like: Array, *, state: GeneratorState, low: float = 0.0, high: float = 1.0) -> Array:
    wide, size = compute_dtype(like.dtype).type, like.size
    words = random_words(state, -(-size * like.itemsize // 16))
    if like.itemsize == 2:
        u = words.astype("<u4").view("<u2").astype(np.float64) / 2**16
    elif like.itemsize == 4:
        u = (words // 2**8) / 2**24
    else:  # exact: multiplying the interval by u gives the same bits as multiplying it by a step
        u = (words[:, ::2] // 2**11 + words[:, 1::2] * 2.0**21) / 2**53
    first, end = (wide(like.dtype.type(edge)) for edge in (low, high))
    most = max(first, np.nextafter(end, wide(-np.inf)))  # if the ends are equal, that number
    drawn = np.minimum(first + (end - first) * u.ravel()[:size].astype(wide), most)
    return _floor_to(drawn, like.dtype).reshape(like.shape)


def _floor_to(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round each value down to a multiple of the dtype's unit."""
    if dtype.itemsize > 2:
        return values
    exact = values.astype(np.float64)
    _, exponent = np.frexp(exact)
    unit = np.maximum(np.ldexp(epsilon(dtype), exponent - 1), smallest_subnormal(dtype))
    return np.asarray(np.floor(exact / unit) * unit)


def _normal(like: Array, *, state: GeneratorState, mean: float = 0.0, std: float = 1.0) -> Array:
    wide = np.longdouble
    if like.itemsize == 8:
        words = random_words(state, -(-like.size // 2)).astype(np.uint64)
        u, v = ((words[:, i] // 2**11 + words[:, i + 1] * 2**21).astype(wide) / wide(2**53) for i in (0, 2))
        minus_log = -np.log(u + wide(2**-53))
    else:
        first, second = random_words(state, -(-like.size // 4)).reshape(-1, 2).T
        near_one = first > 2 * (2**32 // 3)
        x = (np.where(near_one, ~first, first).astype(np.float32) + np.float32(0.5)).astype(wide) / 2**32
        minus_log, v = -np.where(near_one, np.log1p(-x), np.log(x)), (second // 2**6).astype(wide) / 2**26
    turn = 2 * wide("3.14159265358979323846264338327950288") * v
    pair = np.stack([np.sin(turn), np.cos(turn)], axis=-1) * np.sqrt(2 * minus_log)[:, None]
    return np.asarray(mean + std * pair.ravel()[: like.size], np.float64).reshape(like.shape)


def _integers(like: Array, *, state: GeneratorState, low: int, high: int) -> Array:
    count = 2 if high - low <= 2**32 else 4
    words = random_words(state, -(-like.size * count // 4)).reshape(-1, count)[: like.size].astype(object)
    whole = sum(words[:, place] << 32 * place for place in range(count))  # Python integers, which are exact
    return np.asarray(low + (whole * (high - low) >> 32 * count)).astype(like.dtype).reshape(like.shape)


def _permutation(like: Array, *, state: GeneratorState) -> Array:
    keys = random_words(state, 7).ravel()
    bits = max(like.size - 1, 0).bit_length()
    places = _walked(np.arange(like.size, dtype=np.uint64), bits, keys)
    while (beyond := places >= like.size).any():
        places[beyond] = _walked(places[beyond], bits, keys)
    return places.astype(like.dtype).reshape(like.shape)


def _walked(index: Array, bits: int, keys: Array) -> Array:
    low_bits = bits // 2
    left, right = index >> low_bits, index & ((1 << low_bits) - 1)
    for even, odd in keys[:24].reshape(-1, 2):
        left = left ^ _hashed(right + even) % (1 << bits - low_bits)
        right = right ^ _hashed(left + odd) % (1 << low_bits)
    found = left << low_bits | right
    return np.where(found < 2, found ^ (keys[24] & 1), found)


def _hashed(value: Array) -> Array:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        value = value % 2**32
        value = (value ^ value >> shift) * factor
    return value % 2**32


def _fractions(like: Array, state: GeneratorState) -> Array:
    """A multiple of 2**-32 below 1 for each element."""
    return (random_words(state, -(-like.size // 4)).ravel()[: like.size] / 2**32).reshape(like.shape)


def _dropout(a: Array, *, state: GeneratorState, p: float = 0.5) -> Array:
    wide = a.astype(np.float64)
    return np.where(_fractions(a, state) >= p, wide * np.float64(1 / (1 - p) if p < 1 else 0), 0)


# ------------------------------------------------------------------------------------------------ samples


def _like(*choices: dict[str, Any]) -> Callable[[Samples], Iterator[Sample]]:
    """Yield arrays of every size and shape, with the options in turn."""

    def draw(make: Samples) -> Iterator[Sample]:
        for place, sample in enumerate(unary(make)):
            if sample.kind != "extremal":
                yield replace(sample, kwargs={"state": STATE, **choices[place % len(choices)]})

    return draw


def _integer_samples(make: Samples) -> Iterator[Sample]:
    limits = np.iinfo(np.dtype(make.dtype))
    whole = {"low": int(limits.min), "high": int(limits.max) + 1}
    yield from _like({"low": 0, "high": 3}, whole, {"low": 5, "high": 6}, {"low": int(limits.max) - 99,
                     "high": int(limits.max)}, {"low": max(int(limits.min), -7), "high": 101})(make)  # fmt: skip
    if limits.bits == 64:
        for high in (2**32, 2**32 + 1, 3 * 2**61):
            yield Sample((make(33),), {"state": STATE, "low": 0, "high": high})


def _vectors(make: Samples) -> Iterator[Sample]:
    most = int(np.iinfo(np.dtype(make.dtype)).max)
    yield from (Sample((make(n),), {"state": STATE}) for n in (*AWKWARD, 2, 3, 5, 128) if n <= min(most, 3000))
    yield Sample((make(0),), {"state": STATE}, kind="empty")


def _probabilities(make: Samples) -> Iterator[Sample]:
    for sample in unary(make):
        if sample.kind != "extremal":
            shape = sample.args[0].shape
            yield replace(sample, args=(make(shape, low=0.0, high=1.0),), kwargs={"state": STATE})
    yield Sample((make.of([0.0, -1.0, 1.0, 2.0, np.nan, np.inf, 0.5] * 9),), {"state": STATE}, "edges", "extremal")


def _kept(make: Samples) -> Iterator[Sample]:
    for sample, p in zip(unary(make), _turns(0.5, 0.1, 0.0, 1.0, 0.9), strict=False):
        yield replace(sample, kwargs={"state": STATE, "p": p})


def _turns(*values: float) -> Iterator[float]:
    while True:
        yield from values


# ------------------------------------------------------------------------------------------------ errors


def _refuses(*cases: tuple[dict[str, Any], str]) -> Callable[[Samples], Iterator[ErrorInput]]:
    """Yield options that raise with a message, a missing state, a number as state, and an array of bool."""

    def draw(make: Samples) -> Iterator[ErrorInput]:
        right = dict(cases[0][0]) if cases else {}
        yield ErrorInput(Sample((make(3),), label="no state"), ArgumentError, "needs 'state'")
        needed = {key: 1 for key in right if key == "high"} | {key: 0 for key in right if key == "low"}
        yield ErrorInput(Sample((make(3),), {"state": 7, **needed}, "a number"), ArgumentError, "where to draw from")
        yield ErrorInput(Sample((make(3, dtype="bool"),), {"state": STATE, **needed}, "bool"), DTypeError, "bool")
        for scalars, match in cases:
            yield ErrorInput(Sample((make(3),), {"state": STATE, **scalars}), ArgumentError, match)

    return draw


def _permutation_errors(make: Samples) -> Iterator[ErrorInput]:
    yield from _refuses()(make)
    yield ErrorInput(Sample((make((2, 3)),), {"state": STATE}, "two axes"), ShapeError, "one dimension")
    if make.dtype in ("int8", "uint8"):
        yield ErrorInput(Sample((make(257),), {"state": STATE}, "too long"), ArgumentError, "does not fit")


_PROBABILITY = tuple(({"p": p}, "a probability") for p in (-0.1, 1.5, float("nan")))
_INTEGER_BOUNDS = tuple(
    ({"low": low, "high": high}, "whole numbers") for low, high in ((3, 3), (0, 2**70), (0.0, 3), (0, True))
)
_BOUNDS = (
    ({"low": 2.0, "high": 1.0}, "low <= high"),
    ({"low": 0.0, "high": float("inf")}, "finite"),
    ({"low": "0", "high": None}, "must be a real number"),
)
_SPREADS = (({"std": -1.0}, "std >= 0"), ({"mean": float("nan")}, "finite mean"))


# ------------------------------------------------------------------------------------------------ benchmarks


def _activations(**scalars: Any) -> Callable[[Samples, ModelSizes], Iterator[Sample]]:
    def draw(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
        yield Sample((make((sizes.batch, sizes.length, 4 * sizes.width)),), {"state": STATE, **scalars})

    return draw


def _countable(dtype: str, most: int) -> int:
    """`most`, or the largest number of an integer dtype if that is smaller."""
    return min(most, int(np.iinfo(dtype).max)) if dtype in INTEGERS else most


def _integers_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield token numbers."""
    scalars = {"state": STATE, "low": 0, "high": _countable(make.dtype, sizes.vocabulary)}
    yield Sample((make((sizes.batch, sizes.length)),), scalars)


def _order_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a permutation of the vocabulary, or of as many numbers as the dtype has."""
    yield Sample((make((_countable(make.dtype, sizes.vocabulary),)),), {"state": STATE})


def _probabilities_bench(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((make((sizes.batch, sizes.length, 4 * sizes.width), low=0.0, high=1.0),), {"state": STATE})


def _written(like: Array, **scalars: Any) -> Work:
    """The work of writing the result; `like` is not read."""
    return Work(bytes=like.nbytes)


def _mask_written(like: Array, **scalars: Any) -> Work:
    return Work(bytes=like.size)


_INTERVALS: tuple[dict[str, Any], ...] = (
    {},
    {"low": -3.0, "high": 5.0},
    {"low": 2.0, "high": 2.0},
    {"low": 0.7, "high": 0.71},
)
_DISTRIBUTIONS = tuple({"mean": mean, "std": std} for mean, std in product((0.0, -2.5), (1.0, 0.25, 0.0)))

#: On sim all checks run for `dropout` only, because its implementations are those of cpu.
_BOXED = {"sim": "cpu"}

SPECS = (
    _Drawn(
        op=ops.uniform, reference=_uniform, samples=_like(*_INTERVALS), error_inputs=_refuses(*_BOUNDS),
        like=_BOXED,
        bench=_activations(), work=_written, tolerance=_EXACT,
    ),
    _Drawn(
        op=ops.normal, reference=_normal, samples=_like({}, *_DISTRIBUTIONS), error_inputs=_refuses(*_SPREADS),
        like=_BOXED,
        bench=_activations(), work=_written,
    ),
    _Drawn(
        op=ops.integers, reference=_integers, samples=_integer_samples, error_inputs=_refuses(*_INTEGER_BOUNDS),
        like=_BOXED,
        bench=_integers_bench, work=_written, tolerance=_EXACT,
    ),
    _Drawn(
        op=ops.permutation, reference=_permutation, samples=_vectors, error_inputs=_permutation_errors, work=_written,
        like=_BOXED,
        bench=_order_bench, tolerance=_EXACT,
    ),
    _Drawn(
        op=ops.bernoulli, reference=lambda p, *, state: 1.0 * (_fractions(p, state) < p.astype(np.float64)),
        like=_BOXED,
        samples=_probabilities, error_inputs=_refuses(), bench=_probabilities_bench, tolerance=_EXACT,
    ),
    _Drawn(
        op=ops.dropout_mask, reference=lambda like, *, state, p=0.5: _fractions(like, state) >= p, samples=_kept,
        like=_BOXED,
        error_inputs=_refuses(*_PROBABILITY), bench=_activations(p=0.1), work=_mask_written, tolerance=_EXACT,
    ),
    _Drawn(
        op=ops.dropout, reference=_dropout, samples=_kept, error_inputs=_refuses(*_PROBABILITY),
        bench=_activations(p=0.1), supports_grad=True,
    ),
)  # fmt: skip
