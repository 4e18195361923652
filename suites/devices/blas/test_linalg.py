"""Linear algebra through `cuassay.linalg`: shapes, stacks, what fails and how it is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, linalg, ops, to_host
from cuassay.errors import ArgumentError, CuassayError, DTypeError, LinAlgError, ShapeError
from cuassay.testing import devices as on
from cuassay.testing.samples import Samples

DTYPES = ("float32", "float64", "complex64", "complex128")

#: The functions of one square matrix.
OF_ONE = (linalg.inv, linalg.det, linalg.cholesky, linalg.qr, linalg.svd, linalg.eigh)


def drawn(*shape: int, dtype: str = "float64") -> Any:
    return Samples(11, dtype, "linalg")(shape, low=-1, high=1).values


def regular(*shape: int, dtype: str = "float64") -> Any:
    return drawn(*shape, dtype=dtype) + 4 * np.eye(shape[-1], dtype=dtype)


# ------------------------------------------------------------------------------------------------ what they give


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_solution_gives_back_the_right_side(device: Device, dtype: str) -> None:
    a, b = regular(3, 6, 6, dtype=dtype), drawn(3, 6, 2, dtype=dtype)

    x = linalg.solve(from_host(a, device), from_host(b, device))

    assert x.dtype == a.dtype
    np.testing.assert_allclose(a @ to_host(x), b, rtol=1e-4, atol=1e-4)


def test_a_vector_gives_a_vector(device: Device) -> None:
    a, b = regular(5, 5), drawn(5)

    x = to_host(linalg.solve(from_host(a, device), from_host(b, device)))

    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-10)


def test_one_matrix_stands_for_each_of_a_stack(device: Device) -> None:
    a, b = regular(4, 4), drawn(3, 4, 2)

    x = to_host(linalg.solve(from_host(a, device), from_host(b, device)))

    np.testing.assert_allclose(a @ x, b, atol=1e-10)


def test_stacks_broadcast(device: Device) -> None:
    a, b = regular(2, 1, 4, 4), drawn(3, 4, 2)

    x = to_host(linalg.solve(from_host(a, device), from_host(b, device)))

    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-10)


def test_two_dtypes_give_the_promoted_one(device: Device) -> None:
    x = linalg.solve(from_host(regular(2, 3, 3, dtype="float32"), device), from_host(drawn(2, 3, 1), device))

    assert x.dtype == np.float64


@pytest.mark.parametrize("n", [1, 3, 40, 300])
def test_an_inverse_inverts_whatever_the_library_does_for_that_size(device: Device, n: int) -> None:
    a = drawn(2, n, n) + np.eye(n) * (2 + n)

    inverse = to_host(linalg.inv(from_host(a, device)))

    np.testing.assert_allclose(a @ inverse, np.broadcast_to(np.eye(n), a.shape), atol=1e-10)


def test_determinants_have_signs_and_zeros(device: Device) -> None:
    a = np.stack([np.eye(3), np.eye(3)[[1, 0, 2]], np.diag([2.0, 3, -1]), np.ones((3, 3))])

    assert to_host(linalg.det(from_host(a, device))).tolist() == [1, -1, -6, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cholesky_factor_is_lower_and_gives_the_matrix(device: Device, dtype: str) -> None:
    root = regular(2, 5, 5, dtype=dtype)
    a = root @ root.conj().swapaxes(-2, -1)

    factor = to_host(linalg.cholesky(from_host(a, device)))

    np.testing.assert_array_equal(np.triu(factor, 1), 0)
    np.testing.assert_allclose(factor @ factor.conj().swapaxes(-2, -1), a, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (2, 6, 3)])
def test_q_is_orthonormal_and_r_upper(device: Device, shape: tuple[int, ...], mode: str) -> None:
    a = drawn(*shape)

    q, r = map(to_host, linalg.qr(from_host(a, device), mode))

    assert (q.shape, r.shape) == tuple(one.shape for one in np.linalg.qr(a, mode))
    np.testing.assert_allclose(
        q.swapaxes(-2, -1) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *[q.shape[-1]] * 2)), atol=1e-12
    )
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)


@pytest.mark.parametrize("full", [False, True], ids=["reduced", "full"])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 5, 5), (2, 40, 36)])
def test_singular_values_descend_and_give_the_matrix(device: Device, shape: tuple[int, ...], full: bool) -> None:
    a = drawn(*shape)

    u, s, vh = map(to_host, linalg.svd(from_host(a, device), full))

    inner = min(shape[-2:])
    assert (u.shape, s.shape, vh.shape) == tuple(one.shape for one in np.linalg.svd(a, full_matrices=full))
    assert (np.diff(s, axis=-1) <= 0).all()
    np.testing.assert_allclose((u[..., :inner] * s[..., None, :]) @ vh[..., :inner, :], a, atol=1e-12)


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("shape", [(6, 6), (3, 5, 5), (2, 40, 40)])
def test_eigenvalues_ascend_and_only_one_triangle_is_read(device: Device, shape: tuple[int, ...], uplo: str) -> None:
    whole = drawn(*shape)
    whole = whole + whole.swapaxes(-2, -1)
    spoiled = np.where((np.triu if uplo == "U" else np.tril)(np.ones(shape)) > 0, whole, 99.0)

    w, v = map(to_host, linalg.eigh(from_host(spoiled, device), uplo))

    assert (np.diff(w, axis=-1) >= 0).all()
    np.testing.assert_allclose(whole @ v, v * w[..., None, :], atol=1e-11)


def test_least_squares_of_full_rank_agree_with_numpy(device: Device) -> None:
    a, b = drawn(8, 3), drawn(8, 2)

    found = linalg.lstsq(from_host(a, device), from_host(b, device))

    x, residuals, rank, s = np.linalg.lstsq(a, b)
    np.testing.assert_allclose(to_host(found.solution), x, rtol=1e-9)
    np.testing.assert_allclose(to_host(found.residuals), residuals, rtol=1e-9)
    assert int(to_host(found.rank)) == rank
    np.testing.assert_allclose(to_host(found.singular_values), s, rtol=1e-9)


def test_least_squares_of_lower_rank_give_the_shortest_solution(device: Device) -> None:
    a = np.ones((2, 4, 3))
    b = np.full((2, 4), 6.0)[..., None]

    found = linalg.lstsq(from_host(a, device), from_host(b, device))

    np.testing.assert_allclose(to_host(found.solution), np.full((2, 3, 1), 2.0), rtol=1e-12)
    assert to_host(found.rank).tolist() == [1, 1]


def test_views_that_are_not_contiguous_are_read_as_they_are(device: Device) -> None:
    a = regular(6, 6)
    there = from_host(a, device)

    np.testing.assert_allclose(to_host(linalg.inv(there.T[::2, ::2])), np.linalg.inv(a.T[::2, ::2]), rtol=1e-10)


# ------------------------------------------------------------------------------------------------ what fails


def test_a_singular_matrix_raises_and_is_named(device: Device) -> None:
    a = np.stack([np.eye(2), np.zeros((2, 2)), np.zeros((2, 2))])

    with pytest.raises(LinAlgError, match=r"solve: matrix \(1,\) is singular, and 1 more of 3"):
        linalg.solve(from_host(a, device), from_host(np.ones((3, 2, 1)), device))
    with pytest.raises(LinAlgError, match="inv: the matrix is singular"):
        linalg.inv(from_host(a[1], device))


def test_unchecked_a_singular_matrix_spoils_no_other(device: Device) -> None:
    a = np.stack([2 * np.eye(2), np.zeros((2, 2)), 4 * np.eye(2)])

    x = to_host(linalg.solve(from_host(a, device), from_host(np.ones((3, 2, 1)), device), check_errors=False))

    assert x[[0, 2], :, 0].tolist() == [[0.5, 0.5], [0.25, 0.25]]


@pytest.mark.parametrize("stack", [(), (3,)], ids=["one", "stack"])
def test_what_is_not_positive_definite_raises(device: Device, stack: tuple[int, ...]) -> None:
    a = np.broadcast_to(np.array([[1.0, 2], [2, 1]]), (*stack, 2, 2))

    with pytest.raises(LinAlgError, match="is not positive definite"):
        linalg.cholesky(from_host(np.ascontiguousarray(a), device))


def test_our_error_is_a_value_error_and_one_of_ours() -> None:
    assert issubclass(LinAlgError, ValueError)
    assert issubclass(LinAlgError, CuassayError)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
@pytest.mark.parametrize("function", OF_ONE, ids=lambda function: function.__name__)
def test_what_lapack_does_not_have_is_refused_with_the_reason(device: Device, function: Any, dtype: str) -> None:
    from cuassay.arrays.dtypes import as_dtype

    a = from_host(np.eye(2, dtype=as_dtype(dtype)), device)

    with pytest.raises(DTypeError, match=f"LAPACK and cuSOLVER have nothing else; got {dtype}; cast to float32"):
        function(a)


@pytest.mark.parametrize("function", [linalg.inv, linalg.det, linalg.cholesky, linalg.eigh], ids=lambda f: f.__name__)
def test_what_is_not_square_is_refused(device: Device, function: Any) -> None:
    with pytest.raises(ShapeError, match="square matrices"):
        function(from_host(np.ones((2, 3)), device))


def test_stacks_that_do_not_broadcast_are_refused(device: Device) -> None:
    a, b = from_host(np.ones((2, 3, 3)), device), from_host(np.ones((3, 3, 1)), device)

    with pytest.raises(ShapeError, match="must broadcast"):
        linalg.solve(a, b)


@on("cpu", "sim")  # cuSOLVER gives NaN without a word, or not, by routine
@pytest.mark.parametrize("function", [linalg.svd, linalg.eigh, linalg.cholesky, lambda a: linalg.lstsq(a, a)])
def test_what_does_not_converge_is_told(device: Device, function: Any) -> None:
    a = from_host(np.array([[np.nan, 0.0], [0.0, 1.0]]), device)

    with pytest.raises(LinAlgError):
        function(a)


@on("cpu", "sim")
def test_nan_above_the_diagonal_is_not_read_by_cholesky(device: Device) -> None:
    a = from_host(np.array([[4.0, np.nan], [2.0, 5.0]]), device)

    np.testing.assert_allclose(to_host(linalg.cholesky(a)), [[2, 0], [1, 2]], atol=1e-12)


# ------------------------------------------------------------------------------------------------ libraries


@pytest.fixture
def default_afterwards() -> Iterator[None]:
    yield
    linalg.preferred_linalg_library("default")


@pytest.mark.usefixtures("default_afterwards")
def test_a_preference_is_kept_and_an_unknown_one_refused() -> None:
    assert linalg.preferred_linalg_library("NumPy") == "numpy"
    assert linalg.preferred_linalg_library() == "numpy"
    with pytest.raises(ArgumentError, match="default, numpy, scipy, cusolver"):
        linalg.preferred_linalg_library("magma")


@pytest.mark.skipif(find_spec("scipy") is None, reason="SciPy is not installed")
@pytest.mark.usefixtures("default_afterwards")
def test_scipy_gives_the_same_numbers() -> None:
    a, b = regular(2, 5, 5), drawn(2, 5, 2)
    numbers = {}

    for library in ("numpy", "scipy"):
        linalg.preferred_linalg_library(library)
        numbers[library] = linalg.solve(a, b), linalg.svd(a).S, linalg.eigh(a).eigenvalues

    for left, right in zip(*numbers.values(), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ linear


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 3, 4), (2, 1, 3, 2)], ids=len)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_layer_takes_any_number_of_leading_axes(device: Device, leading: tuple[int, ...], dtype: str) -> None:
    make = Samples(3, dtype, "layer")
    a, weight, bias = make((*leading, 16)), make((8, 16)), make(8)

    out = to_host(ops.linear(a.on(device), weight.on(device), bias.on(device)))

    wide = [one.values.astype(np.float64) for one in (a, weight, bias)]
    expected = wide[0] @ wide[1].T + wide[2]
    assert (out.shape, out.dtype) == ((*leading, 8), a.dtype)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=2**-7, atol=2**-5)


@pytest.mark.skipif(find_spec("scipy") is None, reason="SciPy is not installed")
@pytest.mark.usefixtures("default_afterwards")
def test_scipy_reads_what_numpy_reads_and_no_more() -> None:
    a = np.array([[2.0, np.nan], [1.0, 3.0]])
    results = {}
    for library in ("numpy", "scipy"):
        linalg.preferred_linalg_library(library)
        results[library] = linalg.eigh(a).eigenvalues, linalg.solve(a, np.ones(2), check_errors=False)

    np.testing.assert_allclose(results["scipy"][0], results["numpy"][0], rtol=1e-12)
    assert all(np.isnan(found[1]).any() for found in results.values())


@pytest.mark.skipif(find_spec("scipy") is None, reason="SciPy is not installed")
def test_scipy_has_no_more_threads_than_allowed() -> None:
    text = """
import numpy as np, threadpoolctl
from cuassay import linalg
linalg.solve(np.eye(3), np.ones(3))  # looks for what BLAS there is
linalg.preferred_linalg_library("scipy")
import scipy.linalg
seen, solve = set(), scipy.linalg.solve
def watched(*args, **named):
    seen.update(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")
    return solve(*args, **named)
scipy.linalg.solve = watched
linalg.solve(np.eye(3), np.ones(3))
print(seen)
"""
    environment = {**os.environ, "CUASSAY_CPU_THREADS": "1", "OPENBLAS_NUM_THREADS": "2"}
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=True)

    assert found.stdout == "{1}\n"
