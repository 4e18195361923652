"""Random numbers on the simulated device: kind `cpu` computes them, and generators take part in captures.

A recorded operation reads seed and offset from its state when it runs, which is at each replay, after the state was
renewed.
"""

from __future__ import annotations

from cuassay.core import participants
from cuassay.core.recordings import Recordings

__all__ = ["RECORDINGS", "register"]

#: Takes part in every capture on simulated devices, for all generators.
RECORDINGS = Recordings()


def register() -> None:
    """Let generators take part in captures."""
    participants.join("sim", RECORDINGS)
