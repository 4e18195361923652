"""Automatic mixed precision: a table of the dtype of each op, and loss scaling against underflow in 16 bits.

Names and rules follow ``torch.amp``.
"""

from __future__ import annotations

from cuassay.amp.autocast import (
    autocast,
    clear_autocast_cache,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_enabled,
)
from cuassay.amp.policy import Rule, custom_rule, rule_of
from cuassay.amp.scaler import GradScaler

__all__ = [
    "GradScaler",
    "Rule",
    "autocast",
    "clear_autocast_cache",
    "custom_fwd",
    "custom_rule",
    "get_autocast_dtype",
    "is_autocast_enabled",
    "rule_of",
]
