"""The kind `cuda`: CuPy, cuda-python and kernels of our own.

The only room that imports a CUDA library. Without CuPy the kind is known but absent, and says what to install.
"""

from __future__ import annotations

from importlib.util import find_spec

from cuassay.devices.cuda.backend import CudaBackend

__all__ = ["BACKEND"]

BACKEND = CudaBackend()

if find_spec("cupy") is not None:
    from cuassay.devices.cuda import (
        conv,
        elementwise,
        emulation,
        linalg,
        multi_tensor,
        optim,
        random,
        reduction,
        scaling,
        solver,
    )

    elementwise.register()
    reduction.register()
    linalg.register()
    emulation.register()
    conv.register()
    solver.register()
    multi_tensor.register()
    optim.register()
    random.register()
    scaling.register()
