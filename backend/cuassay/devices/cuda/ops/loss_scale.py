"""The update of a loss scale on the device, so that the host need not wait to learn of an overflow.

Kernel: kernels/loss_scale.cu. Called by `cuassay.amp.GradScaler`; OpSpec: `cuassay.testing.specs.loss_scale`.
"""

from __future__ import annotations

from typing import Any

from cuassay.devices.cuda.launch.launch import kernel
from cuassay.ops import registry

__all__ = ["register"]

Array = Any


def update_scale_(
    scale: Array,
    inv_scale: Array,
    growth_tracker: Array,
    found_inf: Array,
    *,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
) -> None:
    """Update the scale, in one launch of one thread."""
    arguments = scale, inv_scale, growth_tracker, found_inf
    numbers = float(growth_factor), float(backoff_factor), int(growth_interval)
    kernel("loss_scale.cu", "update_scale")(1, 1, (*arguments, *numbers))


def register() -> None:
    """Add the implementation to the registry."""
    registry.implement("update_scale_", kind="cuda", dtypes=("float32",))(update_scale_)
