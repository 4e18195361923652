"""Streams and events, and the waits of the host inside CuPy."""
