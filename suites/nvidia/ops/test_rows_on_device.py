"""softmax and layer_norm on a CUDA device: the shapes where a fault of tail, head or alignment would hide."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay import ops

pytestmark = pytest.mark.usefixtures("on_cuda")


cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

# Rounding of the result alone, then of an accumulation in float32 or float64 over the longest row.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-13}
DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in TOLERANCE}


def sample(shape: tuple[int, ...], dtype: str, scale: float = 4.0, shift: float = 0.0) -> Any:
    values = np.random.default_rng(2026).standard_normal(shape) * scale + shift
    return values.astype(DTYPES[dtype])


def softmax_reference(a: Any, axis: int = -1) -> Any:
    wide = a.astype(np.float64)
    weights = np.exp(wide - wide.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def layer_norm_reference(a: Any, weight: Any, bias: Any, eps: float) -> Any:
    wide = a.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return normal * weight.astype(np.float64) + bias.astype(np.float64)


def assert_near(got: Any, expected: Any, dtype: str) -> None:
    values = got.get().astype(np.float64)
    np.testing.assert_allclose(values, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "columns", [1, 2, 31, 33, 768, 1000, 1023, 1024, 1025, 1032, 4096, 8191, 50_257, 120_001, 250_000]
)
def test_softmax_is_right_at_every_length_of_row(columns: int, dtype: str) -> None:
    a = sample((3, columns), dtype)

    assert_near(ops.softmax(cupy.asarray(a)), softmax_reference(a), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [1, 3])
@pytest.mark.parametrize("columns", [768, 2051])
def test_softmax_is_right_where_the_array_begins_off_alignment(columns: int, offset: int, dtype: str) -> None:
    flat = sample((4 * columns + offset,), dtype)
    a = cupy.asarray(flat)[offset:].reshape(4, columns)

    assert_near(ops.softmax(a), softmax_reference(flat[offset:].reshape(4, columns)), dtype)


@pytest.mark.parametrize("columns", [5, 1024, 50_257])
@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_softmax_of_a_row_with_nan_or_inf_is_nan_and_spares_its_neighbours(columns: int, value: float) -> None:
    a = sample((3, columns), "float32")
    a[1, columns // 2] = value

    found = ops.softmax(cupy.asarray(a)).get()

    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("columns", [5, 1024, 50_257])
def test_softmax_of_masked_rows_is_zero_where_masked_and_nan_where_all_is(columns: int) -> None:
    a = sample((2, columns), "float32")
    a[0, : columns - 1] = -np.inf
    a[1] = -np.inf

    found = ops.softmax(cupy.asarray(a)).get()

    assert found[0, -1] == 1
    assert (found[0, :-1] == 0).all()
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("columns", [4, 1024, 4096])
def test_softmax_has_results_smaller_than_the_least_normal_number(columns: int) -> None:
    a = np.full((2, columns), -200.0, np.float32)
    a[:, 1:4] = 0, -88, -96  # 6.1e-39 and 2.0e-42
    expected = softmax_reference(a)

    found = ops.softmax(cupy.asarray(a)).get().astype(np.float64)

    np.testing.assert_allclose(found[:, 2:4], expected[:, 2:4], rtol=0.05)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_softmax_along_another_axis(axis: int) -> None:
    a = sample((5, 37, 6), "float32")

    assert_near(ops.softmax(cupy.asarray(a), axis=axis), softmax_reference(a, axis), "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 7, 33, 767, 768, 1024, 1025, 8191, 8192, 250_000])
def test_layer_norm_is_right_at_every_width(columns: int, dtype: str) -> None:
    a, weight, bias = sample((3, columns), dtype), sample((columns,), dtype), sample((columns,), dtype)

    found = ops.layer_norm(*map(cupy.asarray, (a, weight, bias)), eps=1e-5)

    assert_near(found, layer_norm_reference(a, weight, bias, 1e-5), dtype)


@pytest.mark.parametrize("columns", [768, 8192])
def test_layer_norm_does_not_cancel_where_the_mean_is_large(columns: int) -> None:
    a = sample((2, columns), "float32", scale=1.0, shift=10_000.0)
    one, zero = np.ones(columns, np.float32), np.zeros(columns, np.float32)

    found = ops.layer_norm(*map(cupy.asarray, (a, one, zero)), eps=1e-5)

    np.testing.assert_allclose(found.get(), layer_norm_reference(a, one, zero, 1e-5), atol=2e-3)
