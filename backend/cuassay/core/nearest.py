"""Suggest a known name for a misspelled or unusual one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest", "usual_kind"]


def nearest(word: str, names: Iterable[str], *, likeness: float = 0.7) -> str | None:
    """Return the name most similar to `word` by difflib's ratio, or None if no ratio reaches `likeness`."""
    from difflib import get_close_matches  # imported here to keep the start of pytest fast

    return next(iter(get_close_matches(word, list(names), n=1, cutoff=likeness)), None)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to a message that `word` is unknown; empty if no name is similar."""
    near = nearest(word, names)
    return "" if near is None else f" (did you mean {near!r}?)"


def usual_kind(word: str) -> str:
    """Return the device kind that a word such as ``"gpu"`` usually means; the word itself if it means none."""
    return {"gpu": "cuda", "nvidia": "cuda", "host": "cpu", "simulator": "sim"}.get(word, word)
