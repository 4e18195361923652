"""A CuPy program under memory pressure that CuPy's own pool cannot serve, though there is room, and ours can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import cuassay.cuda
from cuassay.cuda import memory

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import cupy

MIB = 2**20
LIMIT = 1024 * MIB


def volumes(nbytes: int) -> Any:
    """A field of `nbytes`, as float32 on a grid of planes of 1 MiB."""
    return cupy.zeros((nbytes // MIB, 512, 512), cupy.float32)


def adaptive_refinement() -> float:
    """Sixteen subdomains out of one workspace; every other is refined, and its field grows to twice the size.

    Live at once are never more than 896 MiB of the 1,024 allowed; but what each refinement frees lies in pieces.
    """
    workspace = volumes(1000 * MIB)  # a set-up phase that needs it all, once
    del workspace
    fields = [volumes(56 * MIB) for _ in range(16)]
    for coarse in range(0, 16, 4):
        fields[coarse] = fields[coarse + 2] = None  # both are merged into one finer field
        fields[coarse] = volumes(112 * MIB)
        fields[coarse] += 1
    return float(sum(field.sum() for field in fields if field is not None))


@contextmanager
def cupys_own_pool() -> Iterator[None]:
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(LIMIT)
    with cupy.cuda.using_allocator(pool.malloc):
        yield


@contextmanager
def ours() -> Iterator[None]:
    memory.empty_cache()
    _, total = cuassay.cuda.mem_get_info()
    former = memory.get_per_process_memory_fraction()
    memory.set_per_process_memory_fraction((LIMIT + memory.memory_reserved()) / total)
    memory.use_with_cupy()
    try:
        yield
    finally:
        memory.use_with_cupy(False)
        memory.set_per_process_memory_fraction(former)
        memory.empty_cache()


def test_cupys_own_pool_fails_although_there_is_room() -> None:
    with cupys_own_pool(), pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        adaptive_refinement()


def test_ours_makes_one_range_of_the_pieces() -> None:
    with ours():
        total = adaptive_refinement()

    assert total == 4 * 112 * MIB / 4
