"""Storey 1: names, settings and protocols. It imports the standard library only; no arrays, no driver."""
