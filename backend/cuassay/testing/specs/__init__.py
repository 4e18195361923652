"""The OpSpecs of this package's ops, in modules named like those in ``devices/<kind>``."""

from __future__ import annotations

from cuassay.testing.specs import (
    comparison,
    conv,
    elementwise,
    functions,
    indexing,
    joining,
    linalg,
    loss_scale,
    multi_tensor,
    optim,
    random,
    reduction,
    scaled,
    solver,
    statistics,
    storage,
    views,
)

__all__ = ["SPECS"]

SPECS = (
    *elementwise.SPECS,
    *functions.SPECS,
    *comparison.SPECS,
    *multi_tensor.SPECS,
    *optim.SPECS,
    *reduction.SPECS,
    *statistics.SPECS,
    *linalg.SPECS,
    *scaled.SPECS,
    *conv.SPECS,
    *solver.SPECS,
    *storage.SPECS,
    *views.SPECS,
    *indexing.SPECS,
    *joining.SPECS,
    *random.SPECS,
    *loss_scale.SPECS,
)
