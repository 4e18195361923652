"""How products of few columns are cut for the kernels of `skinny`: what is refused, tiles, blocks. Pure numbers.

In the words of `Problem`: `a` has m *rows*, `b` has n <= 128 columns, the *tokens*; k is the *depth*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cuassay.arrays.dtypes import HALVES
from cuassay.devices.cuda.blas.problem import Problem

__all__ = ["PANEL", "Tiling", "cuts", "padded", "refusal"]

#: Elements in a line of shared memory; `kPanel` of the kernels.
PANEL = 64

#: Most blocks of a cluster on every device of compute capability 9.0.
_MOST_SPLITS = 8

#: Most warpgroups times tokens of a wide block that leave the registers of a multiprocessor to another one.
_HALF_THE_SUMS = 128

#: A cluster waits for its blocks at each tile: it is offered for so much less idle time.
_WORTH_A_CLUSTER = 0.05

#: Shared memory that a block takes in addition to its own: the system's, and where the wide kernel has its barriers.
_SYSTEM_NBYTES, _BARRIERS_NBYTES = 1024, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a product is cut, and by which kernel.

    Attributes
    ----------
    kernel : str
        ``narrow``: warps of 16 or 32 rows; ``wide``: warpgroups of 64.
    rows, warps : int
        Rows of a warp (a warpgroup), and how many of these are side by side in a tile.
    depth, stages : int
        Terms of a stage, and stages of a block.
    splits : int
        Blocks that share the terms of a tile as a cluster.
    blocks : int
        Of the launch. A narrow cluster walks over tiles, a wide one has one; wide blocks alone have equally many steps.
    """

    kernel: str
    rows: int
    warps: int
    depth: int
    stages: int
    splits: int = 1
    blocks: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kernel}, {self.warps} x {self.rows} rows, {self.stages} stages of {self.depth}, "
            f"{self.blocks} blocks, split by {self.splits}"
        )

    @property
    def is_wide(self) -> bool:
        """Whether warpgroups multiply."""
        return self.kernel == "wide"

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return self.rows * self.warps

    @property
    def slices(self) -> int:
        """Panels of a stage; in the narrow kernel each has warps of its own."""
        return self.depth // PANEL

    @property
    def threads(self) -> int:
        """Of a block; the last warp of a wide one asks for the copies."""
        return 128 * self.warps + 32 if self.is_wide else 32 * self.warps * self.slices

    def tiles(self, problem: Problem) -> int:
        """Of all rows."""
        return -(-problem.m // self.tile_rows)

    def steps(self, problem: Problem) -> int:
        """Stages that the terms of a tile take."""
        return -(-problem.k // self.depth)

    def shared_nbytes(self, tokens: int) -> int:
        """Dynamic shared memory of a block: its stages and the sums, of a narrow one those of each slice.

        The sums of a wide cluster take the place of the stages.
        """
        stages = 2 * self.stages * (self.tile_rows + tokens) * self.depth
        sums = 4 * tokens * (self.tile_rows + 4) * (1 if self.is_wide else self.slices)
        return max(stages, sums) if self.is_wide and self.splits > 1 else stages + sums

    def workspace_nbytes(self, problem: Problem) -> int:
        """A flag and a tile's sums for each block, where a tile is shared by others than a cluster."""
        if not self.is_wide or self.splits > 1 or self.tiles(problem) % self.blocks == 0:
            return 0
        return self.blocks * (8 + 4 * self.tile_rows * padded(problem.n))


def _narrow(rows: int, warps: int, depth: int, stages: int) -> Tiling:
    return Tiling(kernel="narrow", rows=rows, warps=warps, depth=depth, stages=stages)


def _wide(warps: int, depth: int, stages: int) -> Tiling:
    return Tiling(kernel="wide", rows=64, warps=warps, depth=depth, stages=stages)


#: By tokens, rounded up: what is offered, the likeliest first. Stages fill the shared memory of a multiprocessor with
#: one block, or with two.
_TILINGS: dict[int, tuple[Tiling, ...]] = {
    8: (_narrow(16, 1, 512, 4), _narrow(32, 1, 512, 3), _narrow(16, 1, 256, 6), _wide(1, 128, 6), _wide(2, 64, 12)),
    16: (_narrow(16, 1, 512, 4), _narrow(32, 1, 512, 3), _narrow(16, 1, 256, 6), _wide(1, 128, 10), _wide(2, 64, 11)),
    32: (_narrow(32, 1, 256, 4), _wide(1, 128, 4), _wide(1, 128, 9), _wide(2, 64, 10), _wide(3, 64, 7)),
    64: (_wide(1, 128, 6), _wide(1, 64, 5), _wide(2, 64, 8), _wide(3, 64, 5), _wide(2, 64, 3)),
    128: (_wide(1, 64, 7), _wide(1, 64, 3), _wide(2, 64, 4), _wide(3, 64, 3)),
}

#: As clusters; without the sums that lie next to the stages.
_CLUSTERED: dict[int, tuple[Tiling, ...]] = {
    8: (),
    16: (),
    32: (_wide(1, 128, 4), _wide(1, 128, 9)),
    64: (_wide(1, 128, 3), _wide(1, 128, 6), _wide(2, 64, 4), _wide(2, 64, 8)),
    128: (_wide(1, 64, 4),),
}

#: In three warps side by side 6,144 rows, which no power of two deals evenly to 132 multiprocessors, are 128 tiles.
_THREE: dict[int, Tiling] = {8: _narrow(16, 3, 256, 7), 16: _narrow(16, 3, 256, 6), 32: _narrow(16, 3, 256, 4)}

#: Where the rows of a term lie together a narrow tile has a multiple of 64 rows.
_TURNED: dict[int, tuple[Tiling, ...]] = {
    tokens: (
        *((_narrow(16, 4, 128, 6),) if tokens <= 32 else ()),
        *((_narrow(16, 4, 128, 4),) if tokens <= 16 else ()),
        *(one for one in tilings if one.is_wide),
    )
    for tokens, tilings in _TILINGS.items()
}


def padded(tokens: int) -> int:
    """Tokens rounded up to what an instruction takes."""
    return next(most for most in _TILINGS if tokens <= most)


def _offered(problem: Problem) -> tuple[Tiling, ...]:
    tokens = padded(problem.n)
    three = (_THREE[tokens],) if problem.transpose_a and tokens in _THREE else ()
    return *(_TILINGS if problem.transpose_a else _TURNED)[tokens], *three


def refusal(problem: Problem) -> str | None:
    """Why the kernels cannot compute `problem`, or None."""
    p = problem
    contiguous = p.k if p.transpose_a else p.m
    refusals = {
        f"{p.n} columns, of at most 128": not 1 <= p.n <= max(_TILINGS),
        f"{p.batch} of them": p.batch != 1,
        "nothing to add": not (p.m and p.k),
        f"operands of {p.a.dtype} and {p.b.dtype}": p.a.dtype != p.b.dtype or p.a.dtype not in HALVES,
        f"results of {p.d.dtype}": p.d.dtype not in (p.a.dtype, "float32") or p.c.dtype != p.d.dtype,
        f"sums in {p.compute}": p.compute != "32F",
        "b transposed": p.transpose_b,
        f"scales by {p.scaling}": p.scaling != "none",
        f"complex factors, {p.alpha} and {p.beta}": bool(complex(p.alpha).imag or complex(p.beta).imag),
        f"addresses aligned to {p.alignment} bytes, and lines of {p.a.leading} and {p.b.leading} elements": (
            p.alignment < 16 or any(extent % 8 for extent in (p.a.leading, p.b.leading, contiguous, p.k))
        ),
    }
    return next((reason for reason, holds in refusals.items() if holds), None)


def cuts(problem: Problem, multiprocessors: int, shared_nbytes: int) -> Iterator[Tiling]:
    """The tilings offered on a device with `multiprocessors`, each with `shared_nbytes` of shared memory."""
    tokens = padded(problem.n)

    def most(tiling: Tiling) -> int:
        """Blocks at a time: one on each multiprocessor, or two."""
        if tiling.is_wide and tiling.warps * tokens > _HALF_THE_SUMS:
            return multiprocessors
        own = tiling.shared_nbytes(tokens) + _SYSTEM_NBYTES + (_BARRIERS_NBYTES if tiling.is_wide else 0)
        return multiprocessors * max(1, min(2, shared_nbytes // own))

    for tiling in _offered(problem):
        deal = _dealt if tiling.is_wide else _walking
        yield from deal(problem, tiling, multiprocessors, most(tiling))
    for tiling in _CLUSTERED[tokens]:
        yield from _clusters(problem, tiling, multiprocessors, most(replace(tiling, splits=2)))


def _dealt(problem: Problem, tiling: Tiling, few: int, many: int) -> Iterator[Tiling]:
    """Steps dealt evenly to one or all blocks that fit on each multiprocessor, or tiles cut into equal parts."""
    tiles, steps = tiling.tiles(problem), tiling.steps(problem)
    for blocks in (many, few, tiles * max(1, min(many // tiles, steps // 2))):
        yield replace(tiling, blocks=min(blocks, tiles * steps))


def _clusters(problem: Problem, tiling: Tiling, few: int, many: int) -> Iterator[Tiling]:
    """Clusters of one tile each that leave few multiprocessors idle; the largest, where there are fewer tiles."""
    tiles, most = tiling.tiles(problem), min(_MOST_SPLITS, tiling.steps(problem) // 2)
    for splits in range(2, most + 1):
        if 3 * few <= 4 * tiles * splits <= 4 * many:
            yield replace(tiling, blocks=tiles * splits, splits=splits)
    if most > 1 and 4 * tiles * most < 3 * few:
        yield replace(tiling, blocks=tiles * most, splits=most)


def _walking(problem: Problem, tiling: Tiling, few: int, many: int) -> Iterator[Tiling]:
    """Blocks or clusters that walk over tiles, all that fit or as many as there are tiles."""
    tiles, most = tiling.tiles(problem), min(_MOST_SPLITS, tiling.steps(problem) // 2)
    yield replace(tiling, blocks=min(tiles, many))
    yield from _clusters(problem, tiling, few, many)

    def idle(splits: int) -> float:
        """Part of all blocks' time that is idle, as the last tiles are too few for all clusters."""
        clusters = many // splits
        return 1 - tiles * splits / (-(-tiles // clusters) * many)

    best = min(range(1, most + 1), key=idle, default=1)
    if tiles > many and idle(best) < idle(1) - _WORTH_A_CLUSTER:
        yield replace(tiling, blocks=best * -(-tiles // -(-tiles // (many // best))), splits=best)
