"""How products of few columns are cut for the kernels of `skinny`: rejected problems, tiles and blocks.

Only arithmetic.

In the terms of `Problem`: `a` has m *rows*, `b` has n <= 128 columns, the *tokens*; k is the *depth*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cuassay.arrays.dtypes import HALVES
from cuassay.devices.cuda.blas.problem import Problem

__all__ = ["PANEL", "Tiling", "cuts", "padded", "refusal"]

#: Elements in a line of shared memory; `kPanel` of the kernels.
PANEL = 64

#: The most blocks of a cluster that every device of compute capability 9.0 supports.
_MOST_SPLITS = 8

#: The largest product of warpgroups and tokens at which two wide blocks fit into the registers of a multiprocessor.
_HALF_THE_SUMS = 128

#: A cluster synchronizes its blocks at each tile, so it is offered only if it saves more than this share of idle time.
_WORTH_A_CLUSTER = 0.05

#: Shared memory that a block uses in addition to its dynamic part: the system's, and the barriers of the wide kernel.
_SYSTEM_NBYTES, _BARRIERS_NBYTES = 1024, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a product is cut, and for which kernel.

    Attributes
    ----------
    kernel : str
        ``narrow``: warps of 16 or 32 rows; ``wide``: warpgroups of 64 rows.
    rows, warps : int
        Rows of a warp (of a warpgroup if wide), and the number of these side by side in a tile.
    depth, stages : int
        Terms of a stage, and stages of a block.
    splits : int
        Blocks of a cluster, which share the terms of a tile.
    blocks : int
        Blocks of the launch. A narrow cluster walks over tiles and a wide cluster has one tile; without clusters, wide
        blocks divide the steps evenly.
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
        """Panels of a stage; the narrow kernel has separate warps for each."""
        return self.depth // PANEL

    @property
    def threads(self) -> int:
        """Threads of a block; the last warp of a wide block issues the copies."""
        return 128 * self.warps + 32 if self.is_wide else 32 * self.warps * self.slices

    def tiles(self, problem: Problem) -> int:
        """The number of tiles that cover all rows."""
        return -(-problem.m // self.tile_rows)

    def steps(self, problem: Problem) -> int:
        """The number of stages that the terms of a tile take."""
        return -(-problem.k // self.depth)

    def shared_nbytes(self, tokens: int) -> int:
        """The dynamic shared memory of a block: its stages and its sums (in the narrow kernel, sums for each slice).

        The sums of a wide cluster overlay the stages.
        """
        stages = 2 * self.stages * (self.tile_rows + tokens) * self.depth
        sums = 4 * tokens * (self.tile_rows + 4) * (1 if self.is_wide else self.slices)
        return max(stages, sums) if self.is_wide and self.splits > 1 else stages + sums

    def workspace_nbytes(self, problem: Problem) -> int:
        """The workspace: a flag and the sums of a tile for each block, if blocks share tiles outside of clusters."""
        if not self.is_wide or self.splits > 1 or self.tiles(problem) % self.blocks == 0:
            return 0
        return self.blocks * (8 + 4 * self.tile_rows * padded(problem.n))


def _narrow(rows: int, warps: int, depth: int, stages: int) -> Tiling:
    return Tiling(kernel="narrow", rows=rows, warps=warps, depth=depth, stages=stages)


def _wide(warps: int, depth: int, stages: int) -> Tiling:
    return Tiling(kernel="wide", rows=64, warps=warps, depth=depth, stages=stages)


#: The offered tilings by the number of tokens, rounded up; the most promising first. Stages fill the shared memory of a
#: multiprocessor with one block, or with two.
_TILINGS: dict[int, tuple[Tiling, ...]] = {
    8: (_narrow(16, 1, 512, 4), _narrow(32, 1, 512, 3), _narrow(16, 1, 256, 6), _wide(1, 128, 6), _wide(2, 64, 12)),
    16: (_narrow(16, 1, 512, 4), _narrow(32, 1, 512, 3), _narrow(16, 1, 256, 6), _wide(1, 128, 10), _wide(2, 64, 11)),
    32: (_narrow(32, 1, 256, 4), _wide(1, 128, 4), _wide(1, 128, 9), _wide(2, 64, 10), _wide(3, 64, 7)),
    64: (_wide(1, 128, 6), _wide(1, 64, 5), _wide(2, 64, 8), _wide(3, 64, 5), _wide(2, 64, 3)),
    128: (_wide(1, 64, 7), _wide(1, 64, 3), _wide(2, 64, 4), _wide(3, 64, 3)),
}

#: Tilings for clusters; their sums do not need room next to the stages.
_CLUSTERED: dict[int, tuple[Tiling, ...]] = {
    8: (),
    16: (),
    32: (_wide(1, 128, 4), _wide(1, 128, 9)),
    64: (_wide(1, 128, 3), _wide(1, 128, 6), _wide(2, 64, 4), _wide(2, 64, 8)),
    128: (_wide(1, 64, 4),),
}

#: No power of two divides 6,144 rows evenly among 132 multiprocessors, but three warps side by side give 128 tiles.
_THREE: dict[int, Tiling] = {8: _narrow(16, 3, 256, 7), 16: _narrow(16, 3, 256, 6), 32: _narrow(16, 3, 256, 4)}

#: Tilings for a `a` that is not transposed, where the rows of a term are contiguous: narrow tiles have a multiple of 64
#: rows.
_TURNED: dict[int, tuple[Tiling, ...]] = {
    tokens: (
        *((_narrow(16, 4, 128, 6),) if tokens <= 32 else ()),
        *((_narrow(16, 4, 128, 4),) if tokens <= 16 else ()),
        *(one for one in tilings if one.is_wide),
    )
    for tokens, tilings in _TILINGS.items()
}


def padded(tokens: int) -> int:
    """Round the tokens up to a number that an instruction supports."""
    return next(most for most in _TILINGS if tokens <= most)


def _offered(problem: Problem) -> tuple[Tiling, ...]:
    tokens = padded(problem.n)
    three = (_THREE[tokens],) if problem.transpose_a and tokens in _THREE else ()
    return *(_TILINGS if problem.transpose_a else _TURNED)[tokens], *three


def refusal(problem: Problem) -> str | None:
    """Return why the kernels cannot compute `problem`, or None."""
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
    """Yield the tilings offered on a device with `multiprocessors`, each with `shared_nbytes` of shared memory."""
    tokens = padded(problem.n)

    def most(tiling: Tiling) -> int:
        """The number of blocks that run at a time: one or two on each multiprocessor."""
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
    """Divide the steps evenly among one or all blocks that fit on a multiprocessor, or cut tiles into equal parts."""
    tiles, steps = tiling.tiles(problem), tiling.steps(problem)
    for blocks in (many, few, tiles * max(1, min(many // tiles, steps // 2))):
        yield replace(tiling, blocks=min(blocks, tiles * steps))


def _clusters(problem: Problem, tiling: Tiling, few: int, many: int) -> Iterator[Tiling]:
    """Yield clusters of one tile each that leave few multiprocessors idle, or the largest if there are few tiles."""
    tiles, most = tiling.tiles(problem), min(_MOST_SPLITS, tiling.steps(problem) // 2)
    for splits in range(2, most + 1):
        if 3 * few <= 4 * tiles * splits <= 4 * many:
            yield replace(tiling, blocks=tiles * splits, splits=splits)
    if most > 1 and 4 * tiles * most < 3 * few:
        yield replace(tiling, blocks=tiles * most, splits=most)


def _walking(problem: Problem, tiling: Tiling, few: int, many: int) -> Iterator[Tiling]:
    """Yield blocks or clusters that walk over tiles: as many as fit, or one for each tile."""
    tiles, most = tiling.tiles(problem), min(_MOST_SPLITS, tiling.steps(problem) // 2)
    yield replace(tiling, blocks=min(tiles, many))
    yield from _clusters(problem, tiling, few, many)

    def idle(splits: int) -> float:
        """The share of all blocks' time that is idle because the last tiles are too few for all clusters."""
        clusters = many // splits
        return 1 - tiles * splits / (-(-tiles // clusters) * many)

    best = min(range(1, most + 1), key=idle, default=1)
    if tiles > many and idle(best) < idle(1) - _WORTH_A_CLUSTER:
        yield replace(tiling, blocks=best * -(-tiles // -(-tiles // (many // best))), splits=best)
