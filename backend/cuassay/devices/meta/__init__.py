"""Kind `meta`: arrays with shape, dtype and strides but no memory, to plan functions over ops.

Every declared op runs on them: it checks its arguments as on any kind and returns arrays with the result's shape and
dtype, but computes nothing. Operations that need values raise. `backend` is the interface to the rest of the project.
"""

from __future__ import annotations

from cuassay.devices.meta import nothing
from cuassay.devices.meta.array import MetaArray
from cuassay.devices.meta.backend import MetaBackend
from cuassay.devices.meta.stream import MetaEvent, MetaStream

__all__ = ["BACKEND", "MetaArray", "MetaBackend", "MetaEvent", "MetaStream"]

BACKEND = MetaBackend()
nothing.register()
