"""pandas, or an error that names the extra that installs it.

Every module that reads results takes pandas from here. ``columns`` and ``lines``, which writers use too, do not need
it.
"""

from __future__ import annotations

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"results cannot be read: {error.name} is not installed; install it with: pip install 'cuassay[report]'",
        name=error.name,
    ) from error

__all__ = ["pd"]
