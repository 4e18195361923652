"""Algorithms of cuBLASLt that its heuristic omits: neighbours of fast ones, which differ in one number.

They gain most for products with few rows. On an H200, 1 x 6144 x 4096 in bfloat16 takes 16.3 µs with the heuristic's
first algorithm, 15.8 with those it gives for other workspaces, and 14.5 with a tile twice as tall in a cluster of two.
The library allows 2,640 configurations for that product; 1,219 of them were timed, and none was faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from cuassay.devices.cuda.blas import controls, cublaslt
from cuassay.devices.cuda.blas.libraries import algorithm_of, candidate_of
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.tune.space import Candidate

__all__ = ["near"]

#: Cluster shapes by the library's number: 1 to 8 blocks, in one or two directions. Other GPUs have no clusters: they
#: reject it.
_CLUSTERS = (2, 3, 4, 5, 6, 7, 8, 9)

#: The library does not say what its custom options mean; Hopper's kernels accept these.
_CUSTOM = (0, 1, 2, 3, 4, 5, 6, 7)

#: ``cublasLtReductionScheme_t``: none; then in the compute type, in place, and in the output's type.
_NONE, _REDUCTIONS = 0, (2, 1, 4)

#: The fewest terms in one part of a split sum.
_LEAST_TERMS = 128


def near(problem: Problem, candidates: Sequence[Candidate], device: int) -> Iterator[Candidate]:
    """Yield the neighbours, in one number, of those `candidates` that are cuBLASLt's, if the library accepts them."""
    most = controls.most_workspace_nbytes(device)
    for candidate in candidates:
        if candidate.implementation == "cublaslt":
            algorithm = algorithm_of(candidate)
            for change in _changes(problem, algorithm.config()):
                found = cublaslt.adjusted(problem, algorithm, device, **change)
                if found is not None and found.workspace_nbytes <= most:
                    yield candidate_of(found)


def _changes(problem: Problem, config: dict[str, int]) -> Iterator[dict[str, int]]:
    for name, values in (("CLUSTER_SHAPE_ID", _CLUSTERS), ("CUSTOM_OPTION", _CUSTOM)):
        yield from ({name: value} for value in values if value != config[name])
    yield from ({"TILE_ID": tile} for tile in _tiles_near(config["TILE_ID"]))
    for split in _splits_near(config["SPLITK_NUM"]):
        if problem.k >= _LEAST_TERMS * split:
            yield from ({"SPLITK_NUM": split, "REDUCTION_SCHEME": scheme} for scheme in _schemes(problem, split))
    yield {"CTA_SWIZZLING": 1 - config["CTA_SWIZZLING"]}


def _splits_near(split: int) -> tuple[int, ...]:
    """Return no split, one part more or less, and twice as many; nothing if the library splits by itself."""
    return tuple({1, split - 1, split + 1, 2 * split} - {0, split}) if split > 0 else ()


def _schemes(problem: Problem, split: int) -> tuple[int, ...]:
    """Return how the parts may be added; see `Problem.reductions`."""
    if split == 1:
        return (_NONE,)
    return tuple(scheme for scheme in _REDUCTIONS if problem.reductions & scheme)


@cache
def _tiles() -> dict[tuple[int, int], int]:
    """Return the library's number of each tile, by rows and columns."""
    found = (re.fullmatch(r"TILE_(\d+)x(\d+)", name) for name in cublaslt.tiles())
    return {(int(match[1]), int(match[2])): cublaslt.tiles()[match[0]] for match in found if match}


@cache
def _tiles_near(tile: int) -> tuple[int, ...]:
    """Return tiles half or twice as tall or wide, or with 8 rows or columns more or less."""
    tiles = _tiles()
    sizes = [size for size, number in tiles.items() if number == tile]
    wanted = [
        size
        for rows, columns in sizes
        for size in (
            (2 * rows, columns), (rows // 2, columns), (rows, 2 * columns), (rows, columns // 2),
            (rows, columns + 8), (rows, columns - 8), (rows + 8, columns), (rows - 8, columns),
        )
    ]  # fmt: skip
    return tuple(tiles[size] for size in wanted if size in tiles)
