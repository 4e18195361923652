"""The update of a loss scale on NumPy arrays.

Called by `cuassay.amp.GradScaler` through `cuassay.ops`; OpSpec: `cuassay.testing.specs.loss_scale`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]


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
    """Update in float64, rounded to float32 once."""
    now, steps = float(scale.reshape(())), int(growth_tracker.reshape(())) + 1
    with np.errstate(over="ignore"):
        grown = np.float32(now * growth_factor)
    if found_inf.reshape(()) != 0:
        now, steps = now * backoff_factor, 0
    elif steps >= growth_interval:
        now, steps = float(grown) if np.isfinite(grown) else now, 0
    scale[...], growth_tracker[...], found_inf[...] = now, steps, 0
    with np.errstate(divide="ignore"):
        inv_scale[...] = 1 / scale.astype(np.float64)


def register() -> None:
    """Add the implementation to the registry."""
    registry.implement("update_scale_", kind="cpu", dtypes=("float32",))(update_scale_)
