"""Streams and events by ``torch.cuda.streams``' names; CuPy is imported at the first use of one.

They are CuPy's, extended: see `cuassay.devices.cuda.stream`, also for how others' streams are taken over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuassay.devices.cuda.stream import Event, ExternalStream, Stream

__all__ = ["Event", "ExternalStream", "Stream"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from cuassay.devices.cuda import stream

    found = globals()[name] = getattr(stream, name)
    return found
