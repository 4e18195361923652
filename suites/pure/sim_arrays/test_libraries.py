"""Libraries of others on the simulated device: array_api_compat, einops, scikit-learn and SciPy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import array_api_compat
import einops.array_api
import numpy as np
import pytest

from cuassay import Device
from cuassay.devices.sim import SimArray


def test_array_api_compat_finds_namespace_and_device(xp: Any) -> None:
    x = xp.ones((2, 3))

    assert array_api_compat.is_array_api_obj(x)
    assert array_api_compat.array_namespace(x, xp.zeros(2)) is xp
    assert not array_api_compat.is_numpy_namespace(xp)
    assert array_api_compat.device(x) == x.device
    assert array_api_compat.size(x) == 6
    assert array_api_compat.to_device(x, "sim:1").device == Device("sim:1")


EINOPS: dict[str, Callable[[Any], Any]] = {
    "rearrange": lambda x: einops.array_api.rearrange(x, "(a b) c -> c a b", b=2),
    "reduce": lambda x: einops.array_api.reduce(x, "a b -> b", "mean"),
    "repeat": lambda x: einops.array_api.repeat(x, "a b -> a b c", c=2),
    "pack": lambda x: einops.array_api.pack([x, x], "* b")[0],
    "unpack": lambda x: einops.array_api.unpack(x, [[2], [4]], "* b")[1],
}


@pytest.mark.parametrize("call", EINOPS.values(), ids=EINOPS.keys())
def test_einops_gives_what_it_gives_of_numpys_arrays(xp: Any, call: Any) -> None:
    host = np.arange(24.0).reshape(6, 4)

    found = call(xp.asarray(host))

    assert isinstance(found, SimArray)
    np.testing.assert_allclose(found.get(), call(host), rtol=1e-12)


#: Both look at SCIPY_ARRAY_API when they are imported, so that they run in a process of their own.
PROGRAM = """
import numpy as np
from cuassay import devices

{imports}
calls = {{
{calls}
}}
xp, host = devices.namespace("sim"), np.random.default_rng(0).normal(size=(24, 8))
for name, call in calls.items():
    expected = call(host)
    with {context}:
        found = call(xp.asarray(host))
    if isinstance(expected, np.ndarray):
        assert type(found).__name__ == "SimArray", name
        found = found.get()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)
print(len(calls))
"""

SCIPY = {
    "imports": """
from contextlib import nullcontext
import scipy.fft, scipy.integrate, scipy.signal, scipy.special, scipy.stats
""",
    "context": "nullcontext()",
    "calls": """
    "logsumexp": lambda x: scipy.special.logsumexp(x, axis=1),
    "softmax": scipy.special.softmax,
    "log_softmax": lambda x: scipy.special.log_softmax(x, axis=0),
    "zscore": scipy.stats.zscore,
    "skew": scipy.stats.skew,
    "kurtosis": scipy.stats.kurtosis,
    "sem": scipy.stats.sem,
    "fft": scipy.fft.fft,
    "rfftn": scipy.fft.rfftn,
    "fftconvolve": lambda x: scipy.signal.fftconvolve(x, x),
    "hilbert": scipy.signal.hilbert,
    "trapezoid": scipy.integrate.trapezoid,
""",
}

SKLEARN = {
    "imports": """
from sklearn import config_context, linear_model, metrics, preprocessing
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

def classes(x):
    return x.__array_namespace__().astype(x[:, 0] > 0, "int64")
""",
    "context": "config_context(array_api_dispatch=True)",
    "calls": """
    "PCA": lambda x: PCA(2, svd_solver="full").fit_transform(x),
    "StandardScaler": lambda x: preprocessing.StandardScaler().fit_transform(x),
    "MinMaxScaler": lambda x: preprocessing.MinMaxScaler().fit_transform(x),
    "Normalizer": lambda x: preprocessing.Normalizer().fit_transform(x),
    "Ridge": lambda x: linear_model.Ridge(solver="svd").fit(x[:, :5], x[:, 5]).predict(x[:, :5]),
    "LinearDiscriminantAnalysis": lambda x: LinearDiscriminantAnalysis().fit(x, classes(x)).predict(x),
    "euclidean_distances": lambda x: metrics.pairwise.euclidean_distances(x[:12], x[12:]),
    "rbf_kernel": metrics.pairwise.rbf_kernel,
    "r2_score": lambda x: metrics.r2_score(x[:, 0], x[:, 0] + x[:, 1]),
    "accuracy_score": lambda x: metrics.accuracy_score(classes(x), classes(x[::-1])),
""",
}


@pytest.mark.parametrize(("parts", "count"), [(SCIPY, 12), (SKLEARN, 10)], ids=["scipy", "scikit-learn"])
def test_a_librarys_functions_give_what_they_give_of_numpys_arrays(parts: dict[str, str], count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(**parts)],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == (str(count), "")
