"""Which integers can be the address of a stream: the driver follows whatever it is given, and the process ends."""

from __future__ import annotations

from typing import Any

from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["address_of", "stream_at"]

#: 0 is the default stream, 1 and 2 are the legacy one and that of each thread; all others are addresses.
_RESERVED = 2

#: No program on Linux has memory below: executables that are not relocated begin here.
_LOWEST = 0x40_0000

#: The end of what a process can address, on x86-64 with five levels of pages; less on others.
_END = 2**56

#: An address that the driver took from its heap is a multiple of it.
_ALIGNMENT = 8


def address_of(stream: Any) -> int:
    """The address of a stream that is not of CuPy's class: an address, or any object with ``__cuda_stream__``.

    Raises
    ------
    ArgumentError
        If it is neither; see `stream_at`.
    """
    if hasattr(stream, "__cuda_stream__"):
        described = stream.__cuda_stream__
        _, stream = described() if callable(described) else described
        stream = int(stream)
    return stream_at(stream)


def stream_at(address: Any) -> int:
    """`address` as the address of a stream, which is not looked at: only the driver knows whether it is one.

    Raises
    ------
    ArgumentError
        If it is not an int, or is one that no stream can have, such as the number of a device.
    """
    is_number = isinstance(address, int) and not isinstance(address, bool)
    if is_number and (0 <= address <= _RESERVED or (_LOWEST <= address < _END and not address % _ALIGNMENT)):
        return int(address)
    why = ": no stream can have this address" if is_number else ""
    raise ArgumentError(
        f"{shown(address)} is not a CUDA stream{why}; give one of cuassay's or CuPy's, its address, or an object with "
        "__cuda_stream__"
    )
