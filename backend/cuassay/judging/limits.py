"""The limits and the confinement of a candidate's process: plain data that the judge sends to the supervisor."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cuassay.errors import ArgumentError

__all__ = ["MOST_SOURCE_NBYTES", "JailOptions", "Limits"]

#: The most bytes of a candidate's file, because the judge reads and hashes it in a process without limits.
MOST_SOURCE_NBYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a candidate's process; exceeding one ends it, or makes its calls fail.

    Parameters
    ----------
    load_s, call_s : float
        Seconds for loading its file, and for one call.
    memory_nbytes : int
        Host memory beyond what it starts with, for all its processes together.
    processes : int
        The number of processes and threads.
    output_nbytes : int
        The bytes kept of its printed output; the rest is discarded.
    arena_nbytes : int
        The bytes of all arrays of one call, inputs and outputs. Unused bytes are not allocated.
    device_arena_nbytes : int
        The same in a GPU's memory, which is allocated as a whole. Calls with larger arrays pass through the host.
    scratch_nbytes : int
        The bytes of all files that it may write together.
    """

    load_s: float = 30.0
    call_s: float = 10.0
    memory_nbytes: int = 4 << 30
    processes: int = 64
    output_nbytes: int = 64 << 10
    arena_nbytes: int = 4 << 30
    device_arena_nbytes: int = 1 << 30
    scratch_nbytes: int = 64 << 20

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not value > 0:
                raise ArgumentError(f"Limits({one.name}=) must be above 0; got {value!r}; give a larger one")


@dataclass(frozen=True, kw_only=True, slots=True)
class JailOptions:
    """The confinement of a candidate's process.

    Parameters
    ----------
    hidden : tuple of str
        Files and folders that it must not read, such as the declaration and what it imports.
    readable : tuple of str
        Files and folders that it may read besides Python, its libraries and this package.
    executes : bool
        Whether it may start other programs, as compilers do.
    required : bool
        Whether a candidate must not run if a part of the jail is missing.
    """

    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    executes: bool = False
    required: bool = False
