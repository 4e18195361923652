"""Each part of the jail by itself: behind another part, one that does nothing would not be noticed."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.judging import landlock, linux, seccomp, shared
from cuassay.judging.jail import NOBODY, Jail
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.process import CandidateProcess

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="candidates are judged on Linux")


def in_child(work: Callable[[], Any], *, confine: Callable[[], None] = lambda: None) -> str:
    """What `work` returns in a forked process after `confine`, or the name of the error that it raises, as text."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            confine()
            text = str(work())
        except BaseException as error:  # noqa: BLE001  the child must end here
            text = type(error).__name__
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        text = told.read()
    os.waitpid(process, 0)
    return text


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


# ---------------------------------------------------------------------------------------- landlock, seccomp, mounts


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("read", "listed", "written", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("text")
    (tmp_path / "other/single").write_text("one")
    return tmp_path


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "reads": (lambda at: (at / "read/file").read_text(), "text"),
    "does not write what it reads": (lambda at: (at / "read/file").write_text("x"), "PermissionError"),
    "lists": (lambda at: names(at / "listed"), "['file']"),
    "does not read what it lists": (lambda at: (at / "listed/file").read_text(), "PermissionError"),
    "writes": (lambda at: (at / "written/new").write_text("x"), "1"),
    "removes": (lambda at: (at / "written/file").unlink(), "None"),
    "reads one file": (lambda at: (at / "other/single").read_text(), "one"),
    "does not read another": (lambda at: (at / "other/file").read_text(), "PermissionError"),
    "does not list another": (lambda at: names(at / "other"), "PermissionError"),
    "does not remove another": (lambda at: (at / "other/file").unlink(), "PermissionError"),
    "does not run a program": (lambda at: subprocess.run(["/bin/true"], check=False), "PermissionError"),
    "does not make a door": (lambda at: os.link(at / "other/file", at / "written/door"), "OSError"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_landlock(folders: Path, case: tuple[Callable[[Path], Any], str]) -> None:
    work, expected = case

    def confine() -> None:
        linux.forbid_new_privileges()
        landlock.restrict(
            read=[str(folders / "read"), str(folders / "other/single")],
            listed=[str(folders / "listed")],
            written=[str(folders / "written")],
            devices=["/dev/null"],
            executes=False,
        )

    found = in_child(lambda: work(folders), confine=confine)

    assert found in ((expected, "PermissionError") if expected == "OSError" else (expected,))


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "network": (lambda: socket.socket(socket.AF_INET), "PermissionError"),
    "local socket": (lambda: socket.socket(socket.AF_UNIX), "PermissionError"),
    "pair of sockets": (lambda: len(socket.socketpair()), "2"),
    "namespace": (lambda: linux.unshare(linux.CLONE_NEWUSER), "PermissionError"),
    "mount": (lambda: linux.mount("none", "/mnt", "tmpfs", 0), "PermissionError"),
    "trace": (lambda: ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0), "-1"),
    "program": (lambda: subprocess.run(["/bin/true"], check=False), "PermissionError"),
    "file in memory": (lambda: os.memfd_create("x"), "PermissionError"),
    "fork": (lambda: os.waitpid(os.fork() or os._exit(3), 0)[1] >> 8, "3"),
}


@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS)
def test_seccomp(case: tuple[Callable[[], Any], str]) -> None:
    def confine() -> None:
        linux.forbid_new_privileges()
        seccomp.install(seccomp.program(linux.MACHINE, sockets=False, executes=False, memfd=False))

    assert in_child(case[0], confine=confine) == case[1]


SEEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "package": (lambda at: Path(linux.__file__).read_text()[:3], '"""'),
    "declarations of this package": (lambda at: names(Path(linux.__file__).parents[1] / "testing"), "[]"),
    "folder that may be read": (lambda at: (at / "read/file").read_text(), "text"),
    "hidden file in it": (lambda at: repr((at / "read/spec").read_text()), "''"),
    "folder that may not be read": (lambda at: names(at / "other"), "FileNotFoundError"),
    "no writing there": (lambda at: (at / "read/new").write_text("x"), "OSError"),
    "no writing to the root": (lambda at: Path("/new").write_text("x"), "OSError"),
    "scratch": (lambda at: Path("/tmp/new").write_text("x"), "1"),  # noqa: S108  its own
    "first process": (lambda at: os.getpid(), "1"),
    "no other process": (lambda at: [name for name in names(Path("/proc")) if name.isdigit()], "['1']"),
    "interfaces": (lambda at: [name for _, name in socket.if_nameindex()], "['lo']"),
    "device": (lambda at: Path("/dev/null").write_text("x"), "1"),
    "no disk": (lambda at: [name for name in names(Path("/dev")) if name in ("mem", "kmem", "vda", "sda")], "[]"),
}


@pytest.mark.parametrize("case", SEEN.values(), ids=SEEN)
def test_namespaces(folders: Path, case: tuple[Callable[[Path], Any], str]) -> None:
    work, expected = case
    (folders / "read/spec").write_text("ANSWER = 42\n")
    (folders / "scratch").mkdir()
    options = JailOptions(hidden=(str(folders / "read/spec"),), readable=(str(folders / "read"),))

    def inside() -> str:
        jail = Jail(options, Limits(), "cpu", str(folders / "scratch"))
        jail.before_fork()
        return in_child(lambda: work(folders), confine=jail.enter)

    found = in_child(inside)

    assert found in ((expected, "PermissionError") if expected == "OSError" else (expected,))


# ---------------------------------------------------------------------------------------- a whole one, from inside


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a confined candidate tells of itself."""
    file = tmp_path_factory.mktemp("told") / "candidate.py"
    file.write_text(
        "import os, resource\n"
        "def run(xp, a):\n"
        "    for line in open('/proc/self/status'): print(line.strip())\n"
        "    print('fds:', len(os.listdir('/proc/self/fd')) - 1, sorted(map(str, map(os.readlink,\n"
        "          (f'/proc/self/fd/{n}' for n in (0, 1, 2)))))[0])\n"
        "    for name in ('CORE', 'NPROC', 'FSIZE', 'NOFILE'):\n"
        "        print(name + ':', *resource.getrlimit(getattr(resource, 'RLIMIT_' + name)))\n"
        "    return a\n"
    )
    limits = Limits(processes=20, scratch_nbytes=1 << 20, arena_nbytes=1 << 20)
    with CandidateProcess(file, device="cpu", limits=limits, jail=JailOptions()) as one:
        one.load()
        assert one.call([np.zeros(1)], {}, [((1,), "float64")]).raised is None
    return dict(line.split(":", 1) for line in one.output.splitlines())


@pytest.mark.parametrize("name", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_no_capability_is_left(told: dict[str, str], name: str) -> None:
    assert int(told[name], 16) == 0


def test_filter_and_privileges_are_for_good(told: dict[str, str]) -> None:
    assert (told["Seccomp"].strip(), told["NoNewPrivs"].strip()) == ("2", "1")


def test_nobody_runs_it_where_the_judge_is_root(told: dict[str, str]) -> None:
    assert {*told["Uid"].split()} == {str(os.getuid() or NOBODY)}


def test_limits_are_hard(told: dict[str, str]) -> None:
    most = {name: told[name].split() for name in ("CORE", "NPROC", "FSIZE", "NOFILE")}

    processes = str(20 + (os.getuid() != 0))
    assert most == {"CORE": ["0"] * 2, "NPROC": [processes] * 2, "FSIZE": ["1048576"] * 2, "NOFILE": ["1024"] * 2}


def test_it_holds_no_file_of_the_judges_but_two_bells(told: dict[str, str]) -> None:
    assert told["fds"].split() == ["5", "/dev/null"]


def test_shared_memory_keeps_its_size() -> None:
    with ExitStack() as owner:
        descriptor = shared.create("test", 4096, owner)
        for nbytes in (0, 8192):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, nbytes)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
