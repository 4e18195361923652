"""The declared operations, and how a call finds its kernel."""

from __future__ import annotations

from cuassay.ops.catalog import (
    add,
    amax,
    copy,
    declare,
    exp,
    gelu,
    layer_norm,
    linear,
    matmul,
    mul,
    relu,
    softmax,
    sum,
)
from cuassay.ops.dispatch import Call, Interposer, Op, Plan, interpose
from cuassay.ops.registry import implement, op, ops
from cuassay.ops.schema import Meta, Schema

__all__ = [
    "Call",
    "Interposer",
    "Meta",
    "Op",
    "Plan",
    "Schema",
    "add",
    "amax",
    "copy",
    "declare",
    "exp",
    "gelu",
    "implement",
    "interpose",
    "layer_norm",
    "linear",
    "matmul",
    "mul",
    "op",
    "ops",
    "relu",
    "softmax",
    "sum",
]
