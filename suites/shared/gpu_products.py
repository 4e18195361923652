"""What tests of products on a GPU share: operands, results, problems; `pythonpath` lets them import it.

Imported after ``pytest.importorskip``: it needs CuPy.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, reference_dtype
from cuassay.devices.cuda.blas import offline
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.tune.shapes import GemmShape


def host(array: Any) -> Any:
    """On the host, in float64 or complex128."""
    return np.asarray(devices.to_host(array), dtype=reference_dtype(array.dtype))


def random(*shape: int, dtype: str = "bfloat16") -> Any:
    """Numbers from -1 to 1, the same for a shape in every run."""
    values = np.random.default_rng(sum(shape)).uniform(-1, 1, shape)
    return cupy.asarray(values.astype(as_dtype(dtype)))


def problem_of(m: int = 64, n: int = 512, k: int = 1024, dtype: str = "bfloat16", layout: str = "NT") -> Problem:
    """The product ``(m, k) @ (k, n)``, as a tuner is asked for it."""
    return offline.problem_of(GemmShape(m=m, n=n, k=k, layout=layout), dtype)
