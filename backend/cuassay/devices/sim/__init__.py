"""The kind `sim`: a deterministic simulated accelerator on the host, and the folder to copy for a new kind.

Work runs at once, in program order. Clocks find work that a device would leave unordered (`clock`), memory that a
device would leave uninitialised is poisoned (`memory`), and times are virtual (`profiles`). `backend` is what the rest
of the project uses.
"""

from __future__ import annotations

from cuassay.devices.sim import boxed, random
from cuassay.devices.sim.array import SimArray
from cuassay.devices.sim.backend import SimBackend
from cuassay.devices.sim.capture import SimCapture
from cuassay.devices.sim.profiles import PROFILES
from cuassay.devices.sim.stream import SimEvent, SimStream

__all__ = ["BACKEND", "PROFILES", "SimArray", "SimBackend", "SimCapture", "SimEvent", "SimStream"]

BACKEND = SimBackend()
boxed.register()
random.register()
