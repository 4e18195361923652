"""Which of the known names a misspelt one was likely meant to be."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, names: Iterable[str], *, likeness: float = 0.7) -> str | None:
    """The one of `names` that is most like `word`, by difflib's ratio; None where none is `likeness` like it."""
    from difflib import get_close_matches  # not at the start of every session of pytest

    return next(iter(get_close_matches(word, list(names), n=1, cutoff=likeness)), None)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """What to add to a message that `word` is not known; empty where nothing is near."""
    near = nearest(word, names)
    return "" if near is None else f" (did you mean {near!r}?)"
