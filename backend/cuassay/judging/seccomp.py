"""A system call filter in classic BPF: it denies calls that a candidate does not need and an attacker would use.

It lists the denied calls, not the allowed ones, because CUDA's driver makes many calls. Calls newer than those known
here appear unimplemented to the candidate, and libraries fall back to older ones. See seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterator, Sequence

from cuassay.judging import linux

__all__ = ["REFUSED", "install", "program"]

#: Calls that fail with EPERM, by reason; each with its number on x86_64 and on aarch64 (None: does not exist).
REFUSED: dict[str, dict[str, tuple[int | None, int | None]]] = {
    "other processes": {
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "kcmp": (312, 272),
        "pidfd_getfd": (438, 438),
        "process_madvise": (440, 440),
        "process_mrelease": (448, 448),
    },
    "the kernel's own machines": {
        "bpf": (321, 280),
        "userfaultfd": (323, 282),
        "perf_event_open": (298, 241),
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "seccomp": (317, 277),
    },
    "namespaces and mounts": {
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
        "open_tree": (428, 428),
        "move_mount": (429, 429),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "setns": (308, 268),
        "unshare": (272, 97),
        "name_to_handle_at": (303, 264),
        "open_by_handle_at": (304, 265),
        "fanotify_init": (300, 262),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
    },
    "memory that outlives its mappings": {
        "shmget": (29, 194),
        "msgget": (68, 186),
        "semget": (64, 190),
        "mq_open": (240, 180),
        "memfd_secret": (447, 447),
    },
    "the machine": {
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "reboot": (169, 142),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "clock_adjtime": (305, 266),
        "adjtimex": (159, 171),
        "acct": (163, 89),
        "iopl": (172, None),
        "ioperm": (173, None),
        "modify_ldt": (154, None),
        "lookup_dcookie": (212, 18),
        "nfsservctl": (180, 42),
        "syslog": (103, 116),
        "vhangup": (153, 58),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "personality": (135, 92),
    },
}

_EXECUTES = {"execve": (59, 221), "execveat": (322, 281)}
_MEMFD_CREATE = (319, 279)  # unmapped, its memory is charged to no process
_CLONE, _CLONE3 = (56, 220), 435
_SOCKET = (41, 198)
_PRCTL, _PR_SET_SECCOMP = (157, 167), 22
_SECCOMP = (317, 277)

_AF_UNIX = 1
_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag

#: The newest call that is known here, from Linux 6.18.
_NEWEST = 469

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000

_SET_MODE_FILTER, _ALL_THREADS = 1, 1

#: One instruction: code, jumps if true and if false, operand.
Instruction = tuple[int, int, int, int]


def program(machine: str, *, sockets: bool, executes: bool, memfd: bool) -> list[Instruction]:
    """Return the filter's instructions.

    Parameters
    ----------
    machine : str
        The machine's name in `platform.machine`.
    sockets, executes, memfd : bool
        Whether local sockets, other programs, and memfd files are allowed.

    Raises
    ------
    OSError
        If the call numbers of that machine are not known here.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"the numbers of system calls on {machine} are not known here")
    column, architecture = _ARCHITECTURES[machine]
    refuse = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    absent = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),  # on another architecture the numbers mean other calls
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _NEWEST + 1),  # x32's calls too
        absent,
        (_EQUAL, 0, 1, _CLONE3),  # its flags are in memory, which a filter cannot read
        absent,
    ]
    refused = [*_numbers(column), *(() if executes else (pair[column] for pair in _EXECUTES.values()))]
    for number in [*refused, *(() if memfd else (_MEMFD_CREATE[column],))]:
        made += [(_EQUAL, 0, 1, number), refuse]
    made += _if_argument(_CLONE[column], (_ANY_BIT, 0, 1, _NAMESPACES), refuse)
    made += _if_argument(_PRCTL[column], (_EQUAL, 0, 1, _PR_SET_SECCOMP), refuse)
    if sockets:
        made += _if_argument(_SOCKET[column], (_EQUAL, 1, 0, _AF_UNIX), refuse)
    else:
        made += [(_EQUAL, 0, 1, _SOCKET[column]), refuse]
    return [*made, (_RETURN, 0, 0, _ALLOW)]


def _numbers(column: int) -> Iterator[int]:
    for calls in REFUSED.values():
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                yield number


def _if_argument(number: int, test: Instruction, then: Instruction) -> Sequence[Instruction]:
    """Apply `then` to call `number` if its first argument passes `test`; the register holds the number afterwards."""
    return [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _FIRST_ARGUMENT), test, then, (_LOAD, 0, 0, _NUMBER)]


def install(instructions: Sequence[Instruction]) -> None:
    """Filter the calls of this process, all its threads and its children, for good; raises `OSError` if rejected."""
    packed = b"".join(struct.pack("<HBBI", *one) for one in instructions)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
    number = _SECCOMP[_ARCHITECTURES[linux.MACHINE][0]]
    linux.syscall(number, _SET_MODE_FILTER, _ALL_THREADS, ctypes.c_char_p(header), what="seccomp")
