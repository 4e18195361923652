"""Landlock: restrict for good which files a process may open; see landlock(7). Needs no privileges, and Linux 5.13."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from cuassay.judging import linux

__all__ = ["restrict", "version"]

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE, _MAKE = 1 << 4 | 1 << 5, 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12  # folders, files, FIFOs, symbolic links
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15

#: By version of the interface: all file rights that it knows; they are denied unless a rule grants them.
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 0b11  # bind and connect, version 4
_SCOPES = 0b11  # abstract sockets and signals of other processes, version 6

_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE


def version() -> int:
    """Return the version of the interface; raises `OSError` if the kernel has none."""
    return linux.syscall(_CREATE, None, 0, _ASK_VERSION, what="landlock")


def restrict(
    *, read: Iterable[str], listed: Iterable[str], written: Iterable[str], devices: Iterable[str], executes: bool
) -> int:
    """Let this thread and its children open only these files; return the version of the interface.

    Parameters
    ----------
    read, written : iterable of str
        Files, and folders with everything below them.
    listed : iterable of str
        Folders whose names, and the names below them, may be listed.
    devices : iterable of str
        Device files.
    executes : bool
        Whether programs in `read` may be executed.

    Raises
    ------
    OSError
        If the kernel rejects the rules.
    """
    found = version()
    handled = max(_HANDLED[known] for known in _HANDLED if known <= found)
    fields = (handled, _TCP if found >= 4 else 0, _SCOPES if found >= 6 else 0)
    size = 8 if found < 4 else 16 if found < 6 else 24
    ruleset = linux.syscall(_CREATE, ctypes.c_char_p(struct.pack("<3Q", *fields)), size, 0, what="landlock ruleset")
    reading = _READ_FILE | _READ_DIR | (_EXECUTE if executes else 0)
    writing = reading | _WRITE_FILE | _REMOVE | _MAKE | _REFER | _TRUNCATE
    try:
        for paths, rights in (
            (read, reading),
            (listed, _READ_DIR),
            (written, writing),
            (devices, _READ_FILE | _WRITE_FILE | _IOCTL_DEVICE),
        ):
            for path in paths:
                _grant(ruleset, path, rights & handled)
        linux.syscall(_RESTRICT_SELF, ruleset, 0, what="landlock")
    finally:
        os.close(ruleset)
    return found


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _FILE_RIGHTS
        rule = ctypes.c_char_p(struct.pack("<Qi", rights, place))
        linux.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0, what=f"landlock rule for {path}")
    finally:
        os.close(place)
