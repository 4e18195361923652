"""What a candidate's process may take, and how it is confined: plain data that the judge gives to the supervisor."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cuassay.errors import ArgumentError

__all__ = ["MOST_SOURCE_NBYTES", "JailOptions", "Limits"]

#: Bytes that a candidate's file may have: the judge reads and hashes it in a process that has no limits.
MOST_SOURCE_NBYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a candidate's process may take; all of them end it, or make its calls fail.

    Parameters
    ----------
    load_s, call_s : float
        Seconds to load its file, and for one call.
    memory_nbytes : int
        Host memory that it may take beyond what it starts with, all its processes together.
    processes : int
        Processes and threads.
    output_nbytes : int
        Bytes kept of what it prints; the rest is thrown away.
    arena_nbytes : int
        Bytes of all arrays of one call, inputs and outputs. What is not used is not taken from the machine.
    scratch_nbytes : int
        Bytes of files that it may write, all of them together.
    """

    load_s: float = 30.0
    call_s: float = 10.0
    memory_nbytes: int = 4 << 30
    processes: int = 64
    output_nbytes: int = 64 << 10
    arena_nbytes: int = 4 << 30
    scratch_nbytes: int = 64 << 20

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not value > 0:
                raise ArgumentError(f"Limits({one.name}=) must be above 0; got {value!r}; give a larger one")


@dataclass(frozen=True, kw_only=True, slots=True)
class JailOptions:
    """How a candidate's process is confined.

    Parameters
    ----------
    hidden : tuple of str
        Files that it must not read, such as the declaration and what it imports. Folders are allowed.
    readable : tuple of str
        Files and folders that it may read besides Python, its libraries and this package.
    executes : bool
        Whether it may start other programs: compilers need that.
    required : bool
        Whether a candidate must not run at all where a part of the jail is missing.
    """

    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    executes: bool = False
    required: bool = False
