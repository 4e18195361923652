"""The state of a counter-based (Philox) generator, a seed and an offset: validation, advance and storage.

The numbers themselves are computed by `cuassay.arrays.philox` and by kernels. In one call each element has its own
subsequence and takes a few words of it from `offset` on. The offset then moves past the words that one element took.
Two calls therefore never share a word, and the numbers do not depend on the launch configuration of a kernel.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["DEFAULT_SEED", "WORDS_PER_CALL", "GeneratorState"]

#: torch's default, so that runs without a seed use the same key in both libraries.
DEFAULT_SEED = 67_280_421_310_721

#: One Philox call produces four words of 32 bits. Offsets count words and are multiples of 4.
WORDS_PER_CALL = 4

_SEEDS = 2**64
_SUBSEQUENCES = 2**64
# torch stores the offset as a signed 64-bit integer.
_OFFSETS = 2**63


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """The position of a generator.

    Parameters
    ----------
    seed : int
        The key, below 2**64.
    offset : int
        The number of words taken from each subsequence so far: a multiple of 4, below 2**63.

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
        """Return the state after a call in which each of `n_elements` elements took `per_thread` words.

        The state is unchanged if either number is 0.

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
        """Return 16 bytes, little-endian: the seed unsigned, then the offset signed, as in torch's CUDA state."""
        return struct.pack("<Qq", self.seed, self.offset)

    @classmethod
    def from_bytes(cls, data: bytes) -> GeneratorState:
        """Read the 16 bytes of `to_bytes`, or the 8 bytes of a seed alone, which implies offset 0.

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
