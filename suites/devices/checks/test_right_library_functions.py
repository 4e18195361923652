"""Right functions of SciPy, scikit-learn, einops and opt_einsum, as their users declare them: none is refused.

They take arrays of any library that follows the array API. A library that is not installed skips its tests.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, conformance

FLOATS = ("float32", "float64")


def library(name: str) -> Any:
    """The module `name`; where it is missing, what raises a skip at its first use."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return Missing(name)


class Missing:
    """A library that is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"{self._name} is not installed")


special, stats, signal, integrate, fft = (
    library(f"scipy.{name}") for name in ("special", "stats", "signal", "integrate", "fft")
)
with warnings.catch_warnings():  # CuPy tells of its experimental parts when they are first imported
    warnings.simplefilter("ignore")
    library("cupyx.scipy.signal")
einops, opt_einsum, sklearn = library("einops"), library("opt_einsum"), library("sklearn")
preprocessing, metrics = library("sklearn.preprocessing"), library("sklearn.metrics")


def right(fn: Any, **declared: Any) -> Any:
    return conformance(OpSpec(fn=fn, **{"dtypes": FLOATS, "samples": rows, **declared}))


def rows(make: Any) -> list[Any]:
    return [make((3, 33)), make((17, 257))]


def images(make: Any) -> list[Any]:
    return [make((2, 3, 8, 12)), make((5, 3, 16, 4))]


def pairs(make: Any) -> list[Any]:
    return [(make((7, 3)), make((5, 3))), (make((33, 17)), make((9, 17)))]


def two_images(make: Any) -> list[Any]:
    return [(make((2, 3, 8)), make((2, 3, 8)))]


def products(make: Any) -> list[Any]:
    return [(make((4, 5)), make((5, 3))), (make((33, 17)), make((17, 65)))]


def chains(make: Any) -> list[Any]:
    return [(make((4, 5)), make((5, 6)), make((6, 3)))]


def scikit_learn(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` with scikit-learn's dispatch to the library of its arrays."""

    def dispatched(arrays: Sequence[Any]) -> Any:
        with sklearn.config_context(array_api_dispatch=True):
            return fn(*arrays)

    return lambda xp, *arrays: dispatched(arrays)  # a lambda's tests are named after their variable


# ------------------------------------------------------------------------------------------------ SciPy

if "SCIPY_ARRAY_API" in os.environ:
    test_scipy_logsumexp = right(lambda xp, a: special.logsumexp(a, axis=-1))
    test_scipy_softmax = right(lambda xp, a: special.softmax(a, axis=-1))
    test_scipy_softmax_by_a_reference = right(
        lambda xp, a: special.softmax(a, axis=-1),
        reference=lambda a: np.exp(a - np.logaddexp.reduce(a, axis=-1, keepdims=True)),
        relations=("shift_invariant",),
    )
    test_scipy_log_softmax = right(lambda xp, a: special.log_softmax(a, axis=-1))
    test_scipy_zscore = right(lambda xp, a: stats.zscore(a, axis=-1))
    test_scipy_skew = right(lambda xp, a: stats.skew(a, axis=-1))
    test_scipy_kurtosis = right(lambda xp, a: stats.kurtosis(a, axis=-1))
    test_scipy_sem = right(lambda xp, a: stats.sem(a, axis=-1))
    test_scipy_moment = right(lambda xp, a: stats.moment(a, 2, axis=-1))
    test_scipy_trapezoid = right(lambda xp, a: integrate.trapezoid(a, axis=-1))
    test_scipy_cumulative_trapezoid = right(lambda xp, a: integrate.cumulative_trapezoid(a, axis=-1))
    test_scipy_hilbert = right(lambda xp, a: xp.abs(signal.hilbert(a, axis=-1)))
    test_scipy_fft = right(lambda xp, a: fft.fft(a, axis=-1), result_dtype=lambda a: f"complex{2 * int(a[5:])}")
    test_scipy_rfft = right(lambda xp, a: xp.abs(fft.rfft(a, axis=-1)))
    test_scipy_fftconvolve = right(
        lambda xp, a, b: signal.fftconvolve(a, b),
        samples=lambda make: [(make(257), make(9)), (make(100), make(33))],
        reference=np.convolve,
    )


# ------------------------------------------------------------------------------------------------ einops


def of(array: Any) -> Any:
    """einops for NumPy and CuPy, and its functions of the array API for the simulated device."""
    return library("einops.array_api") if type(array).__module__.startswith("cuassay") else einops


test_einops_transposed = right(lambda xp, a: of(a).rearrange(a, "b c h w -> b h w c"), samples=images)
test_einops_flattened = right(lambda xp, a: of(a).rearrange(a, "b c h w -> b (c h w)"), samples=images)
test_einops_patches = right(
    lambda xp, a: of(a).rearrange(a, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=2), samples=images
)
test_einops_mean_pool = right(
    lambda xp, a: of(a).reduce(a, "b c (h 2) (w 2) -> b c h w", "mean"),
    samples=images,
    reference=lambda a: a.reshape(*a.shape[:2], a.shape[2] // 2, 2, a.shape[3] // 2, 2).mean(axis=(3, 5)),
)
test_einops_max_pool = right(lambda xp, a: of(a).reduce(a, "b c (h 2) (w 2) -> b c h w", "max"), samples=images)
test_einops_global_sum = right(lambda xp, a: of(a).reduce(a, "b c h w -> b c", "sum"), samples=images)
test_einops_repeated = right(lambda xp, a: of(a).repeat(a, "r c -> r c k", k=3))
test_einops_packed = right(lambda xp, a, b: of(a).pack([a, b], "r *")[0], samples=lambda make: [
    (make((3, 5)), make((3, 7))),
])  # fmt: skip
test_einops_stacked = right(lambda xp, a, b: of(a).rearrange([a, b], "n b c h -> b c (n h)"), samples=two_images)


# ------------------------------------------------------------------------------------------------ opt_einsum

test_opt_einsum_product = right(
    lambda xp, a, b: opt_einsum.contract("ij,jk->ik", a, b), samples=products, reference=np.matmul
)
test_opt_einsum_chain = right(lambda xp, a, b, c: opt_einsum.contract("ij,jk,kl->il", a, b, c), samples=chains)
test_opt_einsum_row_products = right(
    lambda xp, a: opt_einsum.contract("ij,ij->i", a, a), reference=lambda a: (a * a).sum(-1)
)
test_opt_einsum_outer = right(lambda xp, a, b: opt_einsum.contract("i,j->ij", a, b), samples=lambda make: [
    (make(17), make(33)),
])  # fmt: skip
test_opt_einsum_trace = right(lambda xp, a: opt_einsum.contract("ij,kj->ik", a, a))
test_opt_einsum_sum = right(lambda xp, a: opt_einsum.contract("ij->j", a))


# ------------------------------------------------------------------------------------------------ scikit-learn


def targets(make: Any) -> Iterator[Any]:
    yield make(33), make(33)
    yield make(257), make(257)


test_sklearn_standard_scaler = right(scikit_learn(lambda a: preprocessing.StandardScaler().fit_transform(a)))
test_sklearn_min_max_scaler = right(scikit_learn(lambda a: preprocessing.MinMaxScaler().fit_transform(a)))
test_sklearn_max_abs_scaler = right(scikit_learn(lambda a: preprocessing.MaxAbsScaler().fit_transform(a)))
test_sklearn_normalizer = right(scikit_learn(lambda a: preprocessing.Normalizer().fit_transform(a)))
test_sklearn_euclidean_distances = right(
    scikit_learn(lambda a, b: metrics.pairwise.euclidean_distances(a, b)), samples=pairs
)
test_sklearn_rbf_kernel = right(scikit_learn(lambda a, b: metrics.pairwise.rbf_kernel(a, b, gamma=0.1)), samples=pairs)
test_sklearn_linear_kernel = right(
    scikit_learn(lambda a, b: metrics.pairwise.linear_kernel(a, b)), samples=pairs, reference=lambda a, b: a @ b.T
)
test_sklearn_cosine_similarity = right(
    scikit_learn(lambda a, b: metrics.pairwise.cosine_similarity(a, b)), samples=pairs
)
test_sklearn_polynomial_kernel = right(
    scikit_learn(lambda a, b: metrics.pairwise.polynomial_kernel(a, b, degree=2)), samples=pairs
)
test_sklearn_mean_squared_error = right(
    scikit_learn(lambda a, b: metrics.mean_squared_error(a, b)), samples=targets, result_dtype="float64"
)
