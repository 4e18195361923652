"""The declared operations, and how a call finds its kernel.

The operations are declared in `cuassay.ops.catalog`; its ``__all__`` is the only list of them.
"""

from __future__ import annotations

from cuassay.ops import catalog
from cuassay.ops.catalog import *
from cuassay.ops.explain import explain
from cuassay.ops.formats import suggest_memory_format
from cuassay.ops.interposers import Interposer, interpose
from cuassay.ops.operation import Call, Op
from cuassay.ops.plan import Plan
from cuassay.ops.registry import implement, op, ops
from cuassay.ops.rules import Formula
from cuassay.ops.schema import Meta, Schema

__all__ = [
    "Call",
    "Formula",
    "Interposer",
    "Meta",
    "Op",
    "Plan",
    "Schema",
    "explain",
    "implement",
    "interpose",
    "op",
    "ops",
    "suggest_memory_format",
]
__all__ += catalog.__all__
