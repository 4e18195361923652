"""Whether two ways to compute a product agree: by how much each may differ, and the comparison.

Both are correct, so they differ only by the order of their sums and by the last rounding.
The kernel is kernels/agreement.cu.
"""

from __future__ import annotations

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import hook

__all__ = ["Tolerances", "difference", "tolerances"]

#: The allowed error of a result: relative to the element, and relative to the root mean square of all elements.
Tolerances = tuple[float, float]

#: Two roundings to the output's dtype.
_OF_OUTPUT = {"float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-13, "complex128": 1e-13}
_NARROWEST = 1e-6

#: Sums in another order in the compute type, and operands rounded to another type, by truncation or to nearest.
_OF_COMPUTE = {
    "16F": 0.1,
    "32F": 1e-4,
    "64F": 1e-11,
    "32F_FAST_16F": 1e-2,
    "32F_FAST_16BF": 5e-2,
    "32F_FAST_TF32": 1e-2,
}
#: By the operands' dtype: tensor cores truncate while they accumulate, fp8 sums after 13 bits.
_OF_OPERANDS = {"float16": 1e-3, "bfloat16": 1e-3, "float8_e4m3fn": 3e-2, "float8_e5m2": 3e-2}

_BLOCK, _MOST_BLOCKS = 256, 1024


def tolerances(problem: Problem) -> Tolerances:
    """Return by how much correct results of `problem` may differ."""
    relative = _OF_OUTPUT.get(problem.d.dtype, _NARROWEST)
    return relative, _OF_COMPUTE[problem.compute] + _OF_OPERANDS.get(problem.a.dtype, 0.0) + relative


def difference(got: int, expected: int, nbytes: int, dtype: str, allowed: Tolerances) -> str | None:
    """Return how the data at `got` differs from the data at `expected`, in words, or None. Waits for the device."""
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    if real.startswith("float8"):
        return "results in fp8 are not compared"
    count = nbytes // as_dtype(real).itemsize
    blocks = min(_MOST_BLOCKS, -(-count // _BLOCK))
    found = hook.empty((3, blocks), np.float64, cupy.cuda.runtime.getDevice())
    relative, of_all = allowed
    kernel("agreement.cu", f"compare<{real}>")(blocks, _BLOCK, (got, expected, found, count, relative))
    excess, squares, elements = found.get()
    worst, scale = float(excess.max()), float(np.sqrt(squares.sum() / max(1.0, elements.sum())))
    if worst <= of_all * scale:
        return None
    return (
        f"its result is wrong: an element differs from the default's by {worst:.3g} more than {relative:.3g} of it, "
        f"where {of_all:.3g} of the root mean square {scale:.3g} is allowed"
    )
