"""The filter of system calls, run by an interpreter of its instructions."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from cuassay.judging import seccomp

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSED, ABSENT = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def verdict(machine: str, number: int, first: int = 0, architecture: int | None = None, **allowed: bool) -> int:
    """What the kernel would do with a call."""
    given = {"sockets": False, "executes": False, "memfd": False, **allowed}
    data = struct.pack("<IIQ6Q", number, architecture or MACHINES[machine][1], 0, first, 0, 0, 0, 0, 0)
    register = at = 0
    instructions = seccomp.program(machine, **given)
    while True:
        code, if_true, if_false, operand = instructions[at]
        at += 1
        if code == 0x20:
            register = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x06:
            return operand
        else:
            is_true = {0x15: register == operand, 0x35: register >= operand, 0x45: register & operand != 0}[code]
            at += if_true if is_true else if_false


EVERY = [
    pytest.param(machine, numbers[MACHINES[machine][0]], id=f"{machine}-{name}")
    for machine in MACHINES
    for calls in seccomp.REFUSED.values()
    for name, numbers in calls.items()
    if numbers[MACHINES[machine][0]] is not None
]


def test_each_listed_call_is_refused() -> None:
    wrong = [one.id for one in EVERY if verdict(*one.values) != REFUSED]

    assert (len(EVERY) > 80, wrong) == (True, [])


#: Call, number on x86_64, number on aarch64, first argument, what is allowed, what becomes of it.
CALLS: dict[str, tuple[int, int, int, dict[str, Any], int]] = {
    "read": (0, 63, 0, {}, ALLOW),
    "fork": (56, 220, 17, {}, ALLOW),
    "new user namespace": (56, 220, 0x10000000 | 17, {}, REFUSED),
    "new time namespace": (56, 220, 0x80, {}, REFUSED),
    "clone3": (435, 435, 0, {}, ABSENT),
    "newer than this": (470, 470, 0, {}, ABSENT),
    "x32": (0x40000000, 0x40000000, 0, {}, ABSENT),
    "local socket": (41, 198, 1, {}, REFUSED),
    "local socket for CUDA": (41, 198, 1, {"sockets": True}, ALLOW),
    "network": (41, 198, 2, {"sockets": True}, REFUSED),
    "program": (59, 221, 0, {}, REFUSED),
    "program of a compiler": (59, 221, 0, {"executes": True}, ALLOW),
    "file in memory": (319, 279, 0, {}, REFUSED),
    "file in memory for CUDA": (319, 279, 0, {"memfd": True}, ALLOW),
    "second filter": (157, 167, 22, {}, REFUSED),
    "name of a thread": (157, 167, 15, {}, ALLOW),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS)
def test_call(machine: str, case: tuple[int, int, int, dict[str, Any], int]) -> None:
    *numbers, first, allowed, expected = case

    assert verdict(machine, numbers[MACHINES[machine][0]], first, **allowed) == expected


HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = Path("/usr/include") / HEADERS[machine]
    if not header.is_file():
        pytest.skip(f"no {header}: the kernel's headers are not installed")
    found = re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(encoding="utf-8"))
    numbers = {name: int(number) for name, number in found}
    calls = {name: pair[MACHINES[machine][0]] for several in seccomp.REFUSED.values() for name, pair in several.items()}

    wrong = {name: numbers.get(name) for name, number in calls.items() if number not in (None, numbers.get(name))}

    assert wrong == {}


def test_call_of_another_architecture_ends_the_process() -> None:
    assert verdict("x86_64", 0, architecture=0x40000003) == KILL


def test_unknown_machine_is_named() -> None:
    with pytest.raises(OSError, match="riscv64 are not known here"):
        seccomp.program("riscv64", sockets=False, executes=False, memfd=False)
