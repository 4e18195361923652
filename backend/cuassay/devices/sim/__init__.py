"""The kind `sim`: a deterministic simulated accelerator on the host, and the folder to copy for a new kind.

Work runs at once, in program order; what a device would leave unordered is found by clocks (`clock`), what it
would leave uninitialised is poisoned (`memory`), what it would take time is virtual (`profiles`). `backend` is what the
rest of the project sees.
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
