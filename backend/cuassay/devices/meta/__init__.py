"""The kind `meta`: arrays with a shape, a dtype and strides, and no memory, so that a function over ops can be planned.

Every declared op runs on them: it checks its arguments as on any kind, gives arrays of the result's shape and dtype,
and computes nothing. What asks for values raises. `backend` is what the rest of the project sees.
"""

from __future__ import annotations

from cuassay.devices.meta import nothing
from cuassay.devices.meta.array import MetaArray
from cuassay.devices.meta.backend import MetaBackend
from cuassay.devices.meta.stream import MetaEvent, MetaStream

__all__ = ["BACKEND", "MetaArray", "MetaBackend", "MetaEvent", "MetaStream"]

BACKEND = MetaBackend()
nothing.register()
