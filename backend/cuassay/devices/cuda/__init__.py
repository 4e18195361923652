"""The kind `cuda`: CuPy, cuda-python and cuassay's own kernels.

This is the only package that imports a CUDA library. Without CuPy the kind is known but absent, and says what to
install.

Its subpackages form layers. Each imports only those below it, as a contract of import-linter checks::

    watched    reports streams, events and copies to watchers; replaces methods while somebody watches
    accesses, cupy_accesses, cupy_order    report to a sanitizer; `facts` says where arrays are
    backend    the kind, as a `cuassay.core.protocols.Backend`
    blas       matrix products and what builds on them: routing, libraries, plans, tuning, convolution, linear algebra
    ops        the other operations, one file for each family
    eager      repeated calls, served without dispatch
    graphs     capture and replay of CUDA graphs, and their memory
    memory     device and pinned memory, and copies to and from the host
    launch     from CUDA C++ to a kernel that runs       streams    streams, events, waits of the host
    driver     the driver without cuassay's objects: status codes, devices, contexts, libraries

`kernels` holds the CUDA C++ of cuassay's kernels.
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
