"""pandas, or an error that says how to install it.

Every module that reads results takes pandas from here. ``columns`` and ``lines``, which writers use too, do not need
it.
"""

from __future__ import annotations

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"results cannot be read: {error.name} is not installed; install it with: pip install pandas",
        name=error.name,
    ) from error

__all__ = ["pd"]
