"""Optimizers for plain arrays of any device kind. They hold states and hyperparameters, and each step is an op."""

from __future__ import annotations

from cuassay.optim.adam import Adam, AdamW
from cuassay.optim.files import load, save

__all__ = ["Adam", "AdamW", "load", "save"]
