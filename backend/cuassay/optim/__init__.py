"""Optimizers over plain arrays of any device kind: they hold states and hyperparameters; a step is an op."""

from __future__ import annotations

from cuassay.optim.adam import Adam, AdamW
from cuassay.optim.files import load, save

__all__ = ["Adam", "AdamW", "load", "save"]
