"""Linux calls that confine a process and are not in Python 3.11, through libc; each raises `OSError`."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from functools import cache
from typing import Any

__all__ = [
    "CLONE_NEWIPC",
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUSER",
    "CLONE_NEWUTS",
    "MACHINE",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_RDONLY",
    "MS_REC",
    "MS_REMOUNT",
    "clear_capabilities",
    "die_with_parent",
    "forbid_new_privileges",
    "has_capability",
    "keep_freed_memory",
    "make_read_only",
    "mount",
    "own_files_of_process",
    "pivot_root",
    "prctl",
    "reap_descendants",
    "syscall",
    "unmount",
    "unshare",
]

MACHINE = platform.machine()

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18

_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4

_CAPABILITY_VERSION = 0x20080522  # 3 words per set
_CAPABILITIES = 64

#: System call numbers that differ between machines; those from 424 on are the same everywhere.
_NUMBERS = {"x86_64": {"pivot_root": 155}, "aarch64": {"pivot_root": 41}}
_SAME = {"mount_setattr": 442}


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def keep_freed_memory() -> None:
    """Make the allocator keep the memory of freed arrays: the kernel clears new pages, and a verdict needs many arrays.

    It does nothing if the C library has no `mallopt`. Memory that was once in use stays with the process.
    """
    with suppress(AttributeError):
        for option, value in _KEPT:
            _libc().mallopt(option, value)


#: From glibc's malloc.h: M_MMAP_MAX, M_TRIM_THRESHOLD, and M_ARENA_MAX, because only the main arena keeps such memory.
_KEPT = ((-4, 0), (-1, 2**31 - 1), (-8, 1))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def syscall(number: int, *arguments: Any, what: str) -> int:
    """Make a system call by number; integers are passed as 64 bits."""
    passed = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    return _checked(_libc().syscall(ctypes.c_long(number), *passed), what)


def prctl(option: int, *arguments: int, what: str) -> int:
    """Call prctl(2)."""
    given = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_libc().prctl(option, *(ctypes.c_ulong(one) for one in given)), what)


def unshare(flags: int) -> None:
    """Move into new namespaces, those named in `flags`; see unshare(2). Python has it from 3.12 on."""
    _checked(_libc().unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Call mount(2)."""
    arguments = (_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options))
    _checked(_libc().mount(*arguments), f"mount {kind or source or ''} on {target}")


def unmount(target: str) -> None:
    """Detach a mount at once; files that are open in it stay open."""
    _checked(_libc().umount2(_bytes(target), _MNT_DETACH), f"unmount {target}")


def make_read_only(target: str, *, devices: bool = False) -> None:
    """Make a mount and all mounts inside it read-only, without set-user-ID bits; Linux 5.12."""
    bits = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (0 if devices else _MOUNT_ATTR_NODEV)
    attributes = (ctypes.c_uint64 * 4)(bits, 0, 0, 0)
    syscall(
        _SAME["mount_setattr"],
        _AT_FDCWD,
        ctypes.c_char_p(_bytes(target)),
        _AT_RECURSIVE,
        attributes,
        ctypes.sizeof(attributes),
        what=f"mount_setattr {target}",
    )


def pivot_root(root: str) -> None:
    """Make the mount `root` the root of this mount namespace, and detach the old root; see pivot_root(2)."""
    os.chdir(root)
    number = _NUMBERS[MACHINE]["pivot_root"]
    syscall(number, ctypes.c_char_p(b"."), ctypes.c_char_p(b"."), what="pivot_root")
    unmount(".")  # the old root is mounted on top of the new one
    os.chdir("/")


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends; a change of user resets this."""
    prctl(_PR_SET_PDEATHSIG, 9, what="PR_SET_PDEATHSIG")


def reap_descendants() -> None:
    """Make orphaned descendants children of this process instead of init's."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1, what="PR_SET_CHILD_SUBREAPER")


def own_files_of_process() -> None:
    """Make this process's files in /proc belong to its user; a change of user resets this."""
    prctl(_PR_SET_DUMPABLE, 1, what="PR_SET_DUMPABLE")


def forbid_new_privileges() -> None:
    """Prevent programs that are executed later from gaining rights that this process does not have."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1, what="PR_SET_NO_NEW_PRIVS")


def _capability_sets() -> tuple[Any, Any]:
    return (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()


def has_capability(number: int) -> bool:
    """Return whether this process has the capability in its own user namespace."""
    header, data = _capability_sets()
    _checked(_libc().capget(header, data), "capget")
    return bool(data[0 if number < 32 else 3] >> (number % 32) & 1)


def clear_capabilities() -> None:
    """Give up every capability, also for programs that are executed later."""
    for number in range(_CAPABILITIES):
        if _libc().prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break  # nothing to give up, or the kernel knows no more capabilities
    _libc().prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, data = _capability_sets()
    _checked(_libc().capset(header, data), "capset")
