"""Seed and offset of a counter-based (Philox) generator: what is valid, what comes next, how it is stored.

The numbers themselves are computed by `cuassay.arrays.philox` and by kernels. One call gives each element its own
subsequence and a few words from `offset` on; then the offset moves past the words that one element took. So two
calls never share a word, and how a kernel was launched changes nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["DEFAULT_SEED", "WORDS_PER_CALL", "GeneratorState"]

#: torch's default, so that unseeded runs of both start from the same key.
DEFAULT_SEED = 67_280_421_310_721

#: One Philox call gives four words of 32 bits; offsets count words and are multiples of it.
WORDS_PER_CALL = 4

_SEEDS = 2**64
_SUBSEQUENCES = 2**64
# torch stores the offset as a signed number.
_OFFSETS = 2**63


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """The position of a generator.

    Parameters
    ----------
    seed : int
        The key, below 2**64.
    offset : int
        Words that each subsequence has given so far: a multiple of 4, below 2**63.

    Raises
    ------
    ArgumentError
        If either is out of range.
    """

    seed: int = DEFAULT_SEED
    offset: int = 0

    def __post_init__(self) -> None:
        seed, offset = as_whole(self.seed), as_whole(self.offset)
        if seed is None or not 0 <= seed < _SEEDS:
            raise ArgumentError(f"seed does not fit; got {shown(self.seed)}; give an integer from 0 to 2**64 - 1")
        if offset is None or not 0 <= offset < _OFFSETS:
            raise ArgumentError(f"offset does not fit; got {shown(self.offset)}; give a multiple of 4 below 2**63")
        if self.offset % WORDS_PER_CALL:
            raise ArgumentError(f"offset {self.offset!r} is not a multiple of 4; one Philox call gives four words")

    def advance(self, n_elements: int, per_thread: int) -> GeneratorState:
        """The state after a call in which each of `n_elements` took `per_thread` words.

        A call of no elements, or of no words, leaves the state as it is.

        Raises
        ------
        ArgumentError
            If a number is negative, there are more than 2**64 elements, or the offset leaves its range.
        """
        if not 0 <= n_elements <= _SUBSEQUENCES:
            raise ArgumentError(f"n_elements is {n_elements!r}; give 0 to 2**64, as each has its own subsequence")
        if per_thread < 0:
            raise ArgumentError(f"per_thread is {per_thread!r}; give the number of words an element takes, 0 or more")
        if not n_elements:
            return self
        calls = -(-per_thread // WORDS_PER_CALL)
        return GeneratorState(self.seed, self.offset + calls * WORDS_PER_CALL)

    def to_bytes(self) -> bytes:
        """16 bytes, little-endian: the seed unsigned, then the offset signed; the layout of torch's CUDA state."""
        return struct.pack("<Qq", self.seed, self.offset)

    @classmethod
    def from_bytes(cls, data: bytes) -> GeneratorState:
        """The state in `data`: the 16 bytes of `to_bytes`, or 8 bytes of a seed alone, which start at offset 0.

        Raises
        ------
        ArgumentError
            If `data` has another length, or holds no valid state.
        """
        if len(data) not in (8, 16):
            raise ArgumentError(
                f"a generator's state has 16 bytes, or 8 for a seed alone; got {len(data)}; give what to_bytes returned"
            )
        return cls(*struct.unpack("<Qq"[: 1 + len(data) // 8], data))
