"""The declared operations, and how a call finds its kernel."""

from __future__ import annotations

from cuassay.ops.catalog import (
    add,
    amax,
    bernoulli,
    copy,
    declare,
    dropout,
    dropout_mask,
    exp,
    gelu,
    integers,
    layer_norm,
    linear,
    matmul,
    mul,
    normal,
    permutation,
    relu,
    softmax,
    sum,
    uniform,
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
    "bernoulli",
    "copy",
    "declare",
    "dropout",
    "dropout_mask",
    "exp",
    "gelu",
    "implement",
    "integers",
    "interpose",
    "layer_norm",
    "linear",
    "matmul",
    "mul",
    "normal",
    "op",
    "ops",
    "permutation",
    "relu",
    "softmax",
    "sum",
    "uniform",
]
