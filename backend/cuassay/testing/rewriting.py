"""What pytest is told in a process that imported cuassay first."""

from __future__ import annotations

import sys

__all__ = ["leave_packages_as_they_are"]

_PACKAGES = ("cuassay", "cuassay_reports")


def leave_packages_as_they_are() -> None:
    """Mark our packages, so that pytest does not warn that it can no longer rewrite their assertions; they have none.

    The warning comes before any test, and ends the session if the project's ``filterwarnings`` say ``error``.
    """
    for name in _PACKAGES:
        if (module := sys.modules.get(name)) is not None:
            module.__doc__ = f"{module.__doc__ or ''}\nPYTEST_DONT_REWRITE"
