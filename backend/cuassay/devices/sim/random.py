"""Random numbers on the simulated device: kind `cpu` computes them; generators take part in its captures.

A recorded operation asks its state for seed and offset when it runs: at each replay, which has renewed the state.
"""

from __future__ import annotations

from cuassay.core import participants
from cuassay.core.recordings import Recordings

__all__ = ["RECORDINGS", "register"]

#: Takes part in every capture on simulated devices, for all generators.
RECORDINGS = Recordings()


def register() -> None:
    """Generators take part in captures."""
    participants.join("sim", RECORDINGS)
