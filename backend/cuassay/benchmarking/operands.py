"""Rotating operands of matrix products, cut from one piece of random memory that all shapes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cuassay import devices, ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.errors import ArgumentError
from cuassay.tune.shapes import GemmShape

__all__ = ["Arena", "Operands", "Region", "elements_of"]

#: Matrices begin at multiples of this many elements, which is 256 bytes for 16-bit dtypes, as allocated blocks do.
_APART = 128

#: How many random numbers are repeated to fill an arena. It is a prime, so that no two rows are equal.
_BLOCK = 4_194_301


@dataclass(frozen=True, slots=True)
class Region:
    """Equally spaced matrices in an arena. `start` is the first element, and `step` the distance in elements."""

    start: int
    step: int
    count: int
    rows: int
    columns: int


class Arena:
    """Memory of one dtype on a device: normal random numbers if `seed` is given, otherwise uninitialized.

    Attributes
    ----------
    array
        The whole memory, one-dimensional.
    """

    def __init__(self, device: Device, dtype: str, elements: int, *, seed: int | None = None) -> None:
        self.array = devices.empty(elements, dtype, device)
        self._used = 0
        if seed is not None:
            numbers = np.random.default_rng(seed).standard_normal(min(_BLOCK, elements), np.float32)
            block = devices.from_host(numbers.astype(as_dtype(dtype)), device)
            for start in range(0, elements, block.size):
                piece = self.array[start : start + block.size]
                ops.copy(block[: piece.size], device=None, out=piece)

    def __repr__(self) -> str:
        return f"Arena({self.array.size:,} of {self.array.dtype}, {self._used:,} cut)"

    def clear(self) -> None:
        """Release all regions, so that cutting starts at the beginning again."""
        self._used = 0

    def cut(self, count: int, rows: int, columns: int) -> Region:
        """Return the region of the next `count` matrices.

        Raises
        ------
        ArgumentError
            If the arena is too small.
        """
        region = Region(self._used, _padded(rows * columns), count, rows, columns)
        self._used += count * region.step
        if self._used > self.array.size:
            raise ArgumentError(f"{self!r} has no room for {region}; make it larger")
        return region

    def matrices(self, region: Region) -> list[Any]:
        """Return the matrices of a region as row-major views."""
        starts = range(region.start, region.start + region.count * region.step, region.step)
        size, shape = region.rows * region.columns, (region.rows, region.columns)
        return [self.array[start : start + size].reshape(shape) for start in starts]


def _padded(elements: int) -> int:
    return -(-elements // _APART) * _APART


def elements_of(shape: GemmShape, sets: int) -> tuple[int, int]:
    """Return how many elements `sets` of operands and of results take, each in its arena."""
    inputs = _padded(shape.m * shape.k) + _padded(shape.k * shape.n)
    return sets * inputs, sets * _padded(shape.m * shape.n)


@dataclass(frozen=True, slots=True)
class Operands:
    """Several sets of operands for one shape, and their places in the arenas.

    Attributes
    ----------
    shape : GemmShape
        The shape of the product.
    sources, results : Arena
        The arenas of the operands and of the outputs.
    a, b, out : list of array
        Matrices (m, k), (k, n) and (m, n), one per set. `a` and `b` are transposed views if the layout says so.
    at_a, at_b, at_out : Region
        Where the matrices are stored.
    """

    shape: GemmShape
    sources: Arena
    results: Arena
    at_a: Region
    at_b: Region
    at_out: Region
    a: list[Any]
    b: list[Any]
    out: list[Any]

    @classmethod
    def of(cls, shape: GemmShape, sets: int, sources: Arena, results: Arena) -> Operands:
        """Cut operands from the beginning of both arenas. This invalidates operands of another shape."""
        sources.clear()
        results.clear()
        a, b = (
            sources.cut(sets, *(extents if lies == "N" else extents[::-1]))
            for extents, lies in zip(((shape.m, shape.k), (shape.k, shape.n)), shape.layout, strict=True)
        )
        out = results.cut(sets, shape.m, shape.n)
        first, second = (
            [one if lies == "N" else one.T for one in sources.matrices(region)]
            for region, lies in zip((a, b), shape.layout, strict=True)
        )
        return cls(shape, sources, results, a, b, out, first, second, results.matrices(out))

    @property
    def sets(self) -> int:
        """The number of sets."""
        return len(self.out)
