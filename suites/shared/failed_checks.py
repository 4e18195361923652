"""What a failed check says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["failure"]


def failure(check: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The message of a failed check; empty if it passes."""
    try:
        check(*args, **options)
    except AssertionError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    return ""
