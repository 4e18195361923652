"""Sums and maxima over leading and middle axes on a CUDA device: shapes for each way in which columns are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_places import KINDS

from cuassay import Device, from_host, ops, to_host
from cuassay.testing import devices, dtypes

#: By what is special, the shape; the axis is the last but one.
SHAPES = {
    "one block a tile": (33, 129),
    "a pack a line": (1_030, 8),
    "a cluster a tile": (4_099, 24),
    "clusters, then a second launch": (70_001, 33),
    "many tiles, wide": (9, 20_000),
    "many tiles, two blocks each": (515, 33_000),
    "stacks": (3, 700, 5),
    "stacks of wide tiles": (64, 65, 260),
}


@devices("cuda")
@dtypes("bfloat16", "float32", "float64", "int8")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_columns_are_reduced_whichever_way_they_are_cut(
    device: Device, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    # Whole numbers, of which float32 holds every sum; bfloat16 rounds the result once.
    host = np.random.default_rng(2026).integers(-8, 8, shape)
    a = from_host(host.astype(dtype), device)

    total, largest = ops.sum(a, axis=-2), ops.amax(a, axis=-2)

    expected = host.sum(axis=-2)
    if dtype.name != "int8":
        expected = expected.astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(to_host(total), expected)
    np.testing.assert_array_equal(to_host(largest), host.max(axis=-2).astype(dtype))


@devices("cuda")
@pytest.mark.parametrize("name", ["sum", "amax", "mean", "var", "logsumexp", "argmax", "softmax", "cumsum", "prod"])
def test_more_columns_apart_than_a_grid_is_high(device: Device, name: str) -> None:
    """Of a middle axis the outer rows are many: a grid has at most 65,535 blocks in its second and third direction."""
    host = np.random.default_rng(2026).standard_normal((70_001, 4, 3)).astype(np.float32)
    arguments: dict[str, Any] = {"axis": 1}

    found = to_host(getattr(ops, name)(from_host(host, device), **arguments))

    np.testing.assert_allclose(found, to_host(getattr(ops, name)(host, **arguments)), rtol=1e-4, atol=1e-5)


@devices("cuda")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_two_runs_give_the_same_bits(device: Device, shape: tuple[int, ...]) -> None:
    a = from_host(np.random.default_rng(2026).standard_normal(shape).astype(np.float32), device)

    np.testing.assert_array_equal(to_host(ops.sum(a, axis=-2)), to_host(ops.sum(a, axis=-2)))


@devices("cuda")
@dtypes("bfloat16", "float32", "float64", "int8")
@pytest.mark.parametrize("rows", [63, 64, 65, 5_000])
def test_prefix_sums_of_a_column_have_the_same_bits_in_a_batch(device: Device, dtype: np.dtype[Any], rows: int) -> None:
    """With few columns, parts of one are the work of many threads; with very many a thread takes a column."""
    columns = 70_000 if rows < 100 else 66_000
    host = np.random.default_rng(2026).standard_normal((rows, columns)) * 3
    a = from_host(host.astype(dtype), device)
    few = ops.copy(a[:, 100:109])

    whole, alone = to_host(ops.cumsum(a, axis=0))[:, 100:109], to_host(ops.cumsum(few, axis=0))

    np.testing.assert_array_equal(whole, alone)
    expected = np.cumsum(host.astype(dtype)[:, 100:109].astype(np.float64), axis=0)
    atol = 0.05 * np.sqrt(rows) if dtype.name == "bfloat16" else 1e-4 * np.sqrt(rows)
    np.testing.assert_allclose(
        alone.astype(np.float64), expected, rtol=8e-3 if dtype.name == "bfloat16" else 1e-5, atol=atol
    )


@devices(*KINDS)
@dtypes("bfloat16", "float32", "float64", "int8")
@pytest.mark.parametrize("rows", [1, 15, 16, 64, 65, 129, 4_097])
def test_prefix_sums_have_the_same_bits_whether_a_thread_takes_a_part_or_a_column(
    device: Device, dtype: np.dtype[Any], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last part of 65 and of 129 rows has one row, and that of 16 rows is what a thread has in flight."""
    reduction = pytest.importorskip("cuassay.devices.cuda.ops.reduction", reason="CuPy is not installed")
    host = (np.random.default_rng(2026).standard_normal((2, rows, 5)) * 3).astype(dtype)
    a = from_host(host, device)
    of_parts = to_host(ops.cumsum(a, axis=1))
    monkeypatch.setattr(reduction, "_MANY_COLUMNS", 1)

    of_columns = to_host(ops.cumsum(a, axis=1))

    np.testing.assert_array_equal(of_columns, of_parts)
    expected = np.cumsum(host.astype(np.float64), axis=1)
    rtol, atol = (8e-3, 1e-2) if dtype.name == "bfloat16" else (1e-5, 1e-4)
    np.testing.assert_allclose(of_parts.astype(np.float64), expected, rtol=rtol, atol=atol)


@devices(*KINDS)
@dtypes("bfloat16", "float32", "float64")
@pytest.mark.parametrize("rows", [2, 20, 200])
def test_minus_infinity_in_a_column_is_an_exponential_of_zero(device: Device, dtype: np.dtype[Any], rows: int) -> None:
    """At its beginning, at its end, everywhere, and next to infinity. A column of 200 rows is cut into parts."""
    host = np.random.default_rng(2026).standard_normal((rows, 6)).astype(dtype).astype(np.float64)
    host[0, 0] = host[-1, 1] = host[:, 2] = host[: rows // 2, 3] = host[:-1, 4] = -np.inf
    host[-1, 4] = np.inf

    found = to_host(ops.logsumexp(from_host(host.astype(dtype), device), axis=0)).astype(np.float64)

    np.testing.assert_allclose(
        found, np.logaddexp.reduce(host, axis=0), rtol=8e-3 if dtype.name == "bfloat16" else 1e-5
    )


@devices(*KINDS)
@dtypes("bfloat16", "float32", "float64")
@pytest.mark.parametrize("rows", [2, 20, 200])
@pytest.mark.parametrize("offset", [-1000.0, 1000.0], ids=str)
def test_logsumexp_of_columns_whose_exponentials_no_dtype_holds(
    device: Device, dtype: np.dtype[Any], rows: int, offset: float
) -> None:
    host = (np.random.default_rng(2026).standard_normal((rows, 6)) + offset).astype(dtype)

    found = to_host(ops.logsumexp(from_host(host, device), axis=0)).astype(np.float64)

    expected = np.logaddexp.reduce(host.astype(np.float64), axis=0)
    np.testing.assert_allclose(found, expected, rtol=8e-3 if dtype.name == "bfloat16" else 1e-6)


@devices(*KINDS)
@pytest.mark.parametrize("shape", [(7, 20, 5), (7, 9, 33), (5, 200, 300)], ids=str)
def test_statistics_of_a_block_that_walks_over_stacks(
    device: Device, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last read of shared memory for a stack comes before the first write for the next one."""
    normalization = pytest.importorskip("cuassay.devices.cuda.ops.normalization", reason="CuPy is not installed")
    a = from_host(np.random.default_rng(2026).standard_normal(shape).astype(np.float32), device)
    alone = [to_host(op(a, axis=1)) for op in (ops.var, ops.logsumexp)]
    monkeypatch.setattr(normalization, "_MAX_GRID_Z", 2)

    found = [[to_host(op(a, axis=1)) for op in (ops.var, ops.logsumexp)] for _ in range(5)]

    for one in found:
        np.testing.assert_array_equal(one, alone)
