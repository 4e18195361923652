"""How products of few columns are cut: blocks that fit, all rows and terms covered; no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cuassay.cuda")

from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.blas.tilings import Tiling, cuts, padded, refusal
from cuassay.ops.products import MixedForm

#: Of an H200: multiprocessors, bytes of shared memory on each, and most that a block may ask for.
MULTIPROCESSORS, SHARED, MOST = 132, 233_472, 232_448


def make_problem(rows: int, tokens: int, depth: int, *, is_turned: bool = False) -> Problem:
    shape = (rows, depth) if is_turned else (depth, rows)
    d = Operand(rows, tokens, rows, 0, "bfloat16")
    return Problem(
        m=rows, n=tokens, k=depth, batch=1, transpose_a=not is_turned, transpose_b=False,
        a=Operand(*shape, shape[0], 0, "bfloat16"), b=Operand(depth, tokens, depth, 0, "bfloat16"), c=d, d=d,
        compute="32F",
    )  # fmt: skip


def cut(problem: Problem) -> list[Tiling]:
    return list(cuts(problem, MULTIPROCESSORS, SHARED))


SHAPES = [(8, 8), (64, 500_000), (576, 7168), (2112, 7168), (4096, 4096), (28_672, 4096), (128_256, 8192)]


@pytest.mark.parametrize("is_turned", [False, True], ids=["TN", "NN"])
@pytest.mark.parametrize("tokens", [1, 8, 9, 32, 33, 64, 65, 128])
@pytest.mark.parametrize(("rows", "depth"), SHAPES)
def test_what_is_offered_fits_the_device(rows: int, depth: int, tokens: int, is_turned: bool) -> None:
    problem = make_problem(rows, tokens, depth, is_turned=is_turned)

    offered = cut(problem)

    assert refusal(problem) is None
    assert 1 <= len(set(offered)) <= 24
    for one in offered:
        assert one.shared_nbytes(padded(tokens)) + (1024 if one.is_wide else 0) <= MOST
        assert one.threads <= 1024
        assert one.blocks % one.splits == 0
        assert 1 <= one.splits <= min(8, one.steps(problem))
        # More blocks than there is work for would have none of it, and the kernels are not made for that.
        assert 1 <= one.blocks <= one.tiles(problem) * (one.steps(problem) if one.is_wide else one.splits)
        assert one.blocks <= max(2 * MULTIPROCESSORS, one.tiles(problem) if one.is_wide else 0)
        assert not is_turned or one.tile_rows % 64 == 0


def test_a_workspace_is_needed_only_where_tiles_are_shared() -> None:
    problem = make_problem(64 * 132, 64, 4096)
    wide = next(one for one in cut(problem) if one.is_wide and one.tile_rows == 64)

    assert replace(wide, blocks=132).workspace_nbytes(problem) == 0
    assert replace(wide, blocks=66).workspace_nbytes(problem) == 0
    assert replace(wide, blocks=131).workspace_nbytes(problem) == 131 * (8 + 4 * 64 * 64)


def test_a_wide_cluster_has_a_tile_and_its_sums_where_its_stages_were() -> None:
    problem = make_problem(2112, 64, 7168)
    clusters = [one for one in cut(problem) if one.is_wide and one.splits > 1]

    assert clusters
    for one in clusters:
        assert one.blocks == one.tiles(problem) * one.splits
        assert one.workspace_nbytes(problem) == 0
        assert one.shared_nbytes(64) == 2 * one.stages * (one.tile_rows + 64) * one.depth


@pytest.mark.parametrize(("rows", "depth"), [(64, 1216), (512, 512)])
def test_few_tiles_are_shared_by_the_largest_clusters(rows: int, depth: int) -> None:
    problem = make_problem(rows, 1, depth, is_turned=True)

    assert max(one.splits for one in cut(problem)) == min(8, -(-depth // 128) // 2)


@pytest.mark.parametrize(("rows", "splits"), [(6144, 2), (7168, 4), (128_256, 1)], ids=str)
def test_clusters_walk_where_blocks_alone_would_be_idle_at_the_end(rows: int, splits: int) -> None:
    """6,144 rows are 384 tiles of 16: blocks alone, 264 at a time, have one or two, clusters of two three or two."""
    problem = make_problem(rows, 1, 4096)
    walking = [one for one in cut(problem) if (one.kernel, one.rows, one.warps, one.stages) == ("narrow", 16, 1, 6)]

    assert walking[0].splits == 1
    assert [one.splits for one in walking[1:]] == ([splits] if splits > 1 else [])
    for one in walking:
        clusters = one.blocks // one.splits
        assert one.tiles(problem) > clusters


def test_a_block_has_warps_for_its_slices_or_one_that_copies() -> None:
    narrow = Tiling(kernel="narrow", rows=16, warps=2, depth=256, stages=4)
    wide = Tiling(kernel="wide", rows=64, warps=2, depth=64, stages=3)

    assert (narrow.slices, narrow.threads, wide.threads) == (4, 32 * 2 * 4, 2 * 128 + 32)
    assert narrow.shared_nbytes(8) == 2 * 4 * (32 + 8) * 256 + 4 * 4 * 8 * (32 + 4)  # sums of each slice
    assert wide.shared_nbytes(64) == 2 * 3 * (128 + 64) * 64 + 4 * 64 * (128 + 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n": 129}, "129 columns"),
        ({"batch": 2}, "2 of them"),
        ({"k": 0}, "nothing to add"),
        ({"b": Operand(512, 16, 512, 0, "float16")}, "operands of bfloat16 and float16"),
        ({"c": Operand(512, 16, 512, 0, "float32")}, "results of bfloat16"),
        ({"compute": "16F"}, "sums in 16F"),
        ({"transpose_b": True}, "b transposed"),
        ({"alpha": 1j}, "complex factors"),
        ({"alignment": 8}, "addresses aligned to 8 bytes"),
    ],
    ids=["columns", "batch", "empty", "operands", "results", "sums", "transposed", "complex", "alignment"],
)
def test_what_the_kernels_cannot_compute_is_refused(change: dict[str, Any], reason: str) -> None:
    problem = make_problem(512, 16, 512)

    assert refusal(problem) is None
    assert (refusal(replace(problem, **change)) or "").startswith(reason)


@pytest.mark.parametrize("extent", ["rows", "depth"])
def test_pieces_of_16_bytes_are_not_cut(extent: str) -> None:
    rows, depth = (516, 512) if extent == "rows" else (512, 516)

    assert refusal(make_problem(rows, 16, depth, is_turned=True)) is not None
    assert (refusal(make_problem(rows, 16, depth)) is None) == (extent == "rows")


# ------------------------------------------------------------------------------------------------ integer weights


@pytest.mark.parametrize("multiprocessors", [MULTIPROCESSORS, 4])
@pytest.mark.parametrize("tokens", [1, 8, 9, 16])
@pytest.mark.parametrize("rows", [1, 31, 2048, 4096, 7168, 28_672, 128_256])
def test_the_tiling_of_integer_weights_fits_and_covers_all_rows(rows: int, tokens: int, multiprocessors: int) -> None:
    mixed = pytest.importorskip("cuassay.devices.cuda.blas.mixed", reason="CuPy is not installed")
    form = MixedForm(rows, 4096, 8, 1)

    tiling = mixed.tiling_of(tokens, form, multiprocessors)

    assert tiling.tokens >= tokens
    assert (tiling.tiles(form) - 1) * tiling.rows < rows <= tiling.tiles(form) * tiling.rows
    assert tiling.threads <= 1024
    assert tiling.blocks * (tiling.shared_nbytes + 1024) <= SHARED
    are_all_at_once = tiling.tiles(form) <= tiling.blocks * multiprocessors
    assert are_all_at_once or (tiling.rows, tiling.blocks) == (32, 4)
