"""How a value is shown in a message: its repr, never long enough to bury the sentence."""

from __future__ import annotations

__all__ = ["shown"]

_MOST = 200


def shown(value: object) -> str:
    """`value` as an error message quotes it: its repr, cut after 200 characters; the type where it has none."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  the repr is the caller's code, and the message matters more
        return f"{type(value).__qualname__} (its repr raises {type(error).__name__})"
    return text if len(text) <= _MOST else f"{text[:_MOST]}... ({len(text):,} characters)"
