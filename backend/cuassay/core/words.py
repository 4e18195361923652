"""Format values for error messages: their repr, shortened so that the message stays readable."""

from __future__ import annotations

__all__ = ["shown"]

_MOST = 200


def shown(value: object) -> str:
    """Return the repr of `value`, cut after 200 characters, or its type if the repr raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  the repr is the caller's code, and the message matters more
        return f"{type(value).__qualname__} (its repr raises {type(error).__name__})"
    return text if len(text) <= _MOST else f"{text[:_MOST]}... ({len(text):,} characters)"
