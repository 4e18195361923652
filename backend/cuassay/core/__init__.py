"""Storey 1, words: standard library only; no arrays, no driver."""
