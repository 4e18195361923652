"""The kind `cpu`: NumPy, the readable implementation.

16-bit and 8-bit floats are computed in float32 and rounded once, at the end. NumPy itself rounds after every step, so
that its bfloat16 sum of 4,096 ones is 256.
"""

from __future__ import annotations

from cuassay.devices.cpu import (
    conv,
    elementwise,
    indexing,
    joining,
    linalg,
    loss_scale,
    multi_tensor,
    normalization,
    optim,
    random,
    reduction,
    solver,
)
from cuassay.devices.cpu.runtime import CpuBackend

__all__ = ["BACKEND"]

BACKEND = CpuBackend()
elementwise.register()
indexing.register()
joining.register()
reduction.register()
normalization.register()
linalg.register()
conv.register()
solver.register()
multi_tensor.register()
optim.register()
random.register()
loss_scale.register()
