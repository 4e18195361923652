"""The kind `cuda`: CuPy, cuda-python and kernels of our own.

The only room that imports a CUDA library. Without CuPy the kind is known but absent, and says what to install.

Its wings stand one above the other. Each imports only those below it; a contract of import-linter holds them to that::

    watched    what watchers are told of streams, events and copies; replaces methods while somebody watches
    accesses, cupy_accesses, cupy_order    what a sanitizer is told; `facts` says where arrays lie
    backend    the kind as `cuassay.core.protocols.Backend` asks for it
    blas       matrix products and what builds on them: routing, libraries, plans, tuning, convolution, linear algebra
    ops        the other operations, one file for each family
    eager      repeated calls, served without dispatch
    graphs     capture and replay of CUDA graphs, and their memory
    memory     device and pinned memory, and copies to and from the host
    launch     from CUDA C++ to a kernel that runs       streams    streams, events, waits of the host
    driver     the driver and nothing of ours: status codes, devices, contexts, libraries

`kernels` holds the CUDA C++ of our own kernels.
"""

from __future__ import annotations

from importlib.util import find_spec

from cuassay.devices.cuda.backend import CudaBackend

__all__ = ["BACKEND"]

BACKEND = CudaBackend()

if find_spec("cupy") is not None:
    from cuassay.devices.cuda import accesses, cupy_accesses, watched
    from cuassay.devices.cuda.blas import conv, emulation, routing, solver
    from cuassay.devices.cuda.ops import (
        bodies,
        body_reductions,
        comparison,
        elementwise,
        indexing,
        joining,
        loss_scale,
        multi_tensor,
        normalization,
        optim,
        padding,
        random,
    )

    elementwise.register()
    indexing.register()
    joining.register()
    comparison.register()
    normalization.register()
    padding.register()
    routing.register()
    emulation.register()
    conv.register()
    solver.register()
    multi_tensor.register()
    optim.register()
    random.register()
    loss_scale.register()
    bodies.register()
    body_reductions.register()
    watched.register()
    accesses.register()
    cupy_accesses.register()
