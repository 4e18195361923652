"""Derivatives of functions over `cuassay.ops`, on every kind of device.

A function that is differentiated gets traced arrays, which have the operators and views of arrays. Each op on them
runs at once and is recorded (`recorder`). The backward pass also consists of ops (`cuassay.ops.derivatives`,
`backward`), so it can be captured in a graph, checked for races on the simulated device, and cast by autocast.
"""

from __future__ import annotations

from cuassay.autograd.checking import gradcheck, gradgradcheck
from cuassay.autograd.checkpointing import checkpoint
from cuassay.autograd.function import Context, Function
from cuassay.autograd.functional import grad, jvp, stop_gradient, value_and_grad, vjp

__all__ = [
    "Context",
    "Function",
    "checkpoint",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "jvp",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]
