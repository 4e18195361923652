"""Operands of products in rotation, cut from one piece of random memory that is made once for all shapes."""

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

#: Matrices begin at multiples of this many elements: 256 bytes for 16-bit ones, as blocks of an allocator do.
_APART = 128

#: Random numbers, repeated to fill an arena; a prime, so that no two rows are equal.
_BLOCK = 4_194_301


@dataclass(frozen=True, slots=True)
class Region:
    """Matrices in an arena, one after another: where the first begins and how far the next is, in elements."""

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
        All of it, one-dimensional.
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
        """Cut from the beginning again."""
        self._used = 0

    def cut(self, count: int, rows: int, columns: int) -> Region:
        """The next `count` matrices.

        Raises
        ------
        ArgumentError
            If there is no more room.
        """
        region = Region(self._used, _padded(rows * columns), count, rows, columns)
        self._used += count * region.step
        if self._used > self.array.size:
            raise ArgumentError(f"{self!r} has no room for {region}; make it larger")
        return region

    def matrices(self, region: Region) -> list[Any]:
        """Row-major, each a view."""
        starts = range(region.start, region.start + region.count * region.step, region.step)
        size, shape = region.rows * region.columns, (region.rows, region.columns)
        return [self.array[start : start + size].reshape(shape) for start in starts]


def _padded(elements: int) -> int:
    return -(-elements // _APART) * _APART


def elements_of(shape: GemmShape, sets: int) -> tuple[int, int]:
    """Elements that the operands take of one arena, and the results of another."""
    inputs = _padded(shape.m * shape.k) + _padded(shape.k * shape.n)
    return sets * inputs, sets * _padded(shape.m * shape.n)


@dataclass(frozen=True, slots=True)
class Operands:
    """`sets` of operands of one shape, and where each is.

    Attributes
    ----------
    shape : GemmShape
        Of the product.
    sources, results : Arena
        What the operands are cut from, and the outputs.
    a, b, out : list of array
        (m, k), (k, n) and (m, n), one a set; as the layout says, `a` and `b` are transposed views.
    at_a, at_b, at_out : Region
        Where they lie, as stored.
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
        """Cut operands from the beginning of both arenas; operands of another shape are overwritten."""
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
        """How many."""
        return len(self.out)
