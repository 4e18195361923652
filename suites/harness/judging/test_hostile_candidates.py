"""Candidates that attack their process, the judge or the machine: each is lost for its reason, and leaves nothing."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.errors import CandidateLostError
from cuassay.judging import protocol
from cuassay.judging.jail import PARTS
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.process import CandidateProcess
from cuassay.judging.zygote import Zygote

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="candidates are judged on Linux")

LIMITS = Limits(call_s=20, memory_nbytes=64 << 20, processes=16, output_nbytes=1000, arena_nbytes=1 << 20)
SHORT = replace(LIMITS, call_s=0.3)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("cpu") as one:
        yield one


@pytest.fixture
def judged(zygote: Zygote, tmp_path: Path) -> Iterator[Any]:
    started: list[CandidateProcess] = []

    def start(body: str, limits: Limits = LIMITS, *, is_jailed: bool = True, head: str = "") -> CandidateProcess:
        file = tmp_path / f"candidate{len(started)}.py"
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        imports = "import ctypes, gc, mmap, os, signal, socket, sys, time\nimport numpy as np\n"
        file.write_text(f"{imports}{head}\ndef run(xp, a):\n{lines}\n    return a\n", encoding="utf-8")
        (tmp_path / "spec.py").write_text("ANSWER = 42\n", encoding="utf-8")
        jail = JailOptions(hidden=(str(tmp_path / "spec.py"),)) if is_jailed else None
        started.append(CandidateProcess(file, device="cpu", limits=limits, jail=jail, zygote=zygote))
        started[-1].load()
        return started[-1]

    yield start
    for one in started:
        one.close()


def call(one: CandidateProcess) -> Any:
    return one.call([np.arange(3.0)], {}, [((3,), "float64")])


def own_processes(one: CandidateProcess) -> list[int]:
    """The processes in the namespace of the candidate's."""
    (first,) = map(int, Path(f"/proc/{one.supervisor}/task/{one.supervisor}/children").read_text().split())
    return in_namespace(namespace_of(first))


def namespace_of(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def in_namespace(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and namespace_of(entry.name) == name:
                found.append(int(entry.name))
    return found


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def lost(one: CandidateProcess) -> CandidateLostError:
    with pytest.raises(CandidateLostError) as caught:
        call(one)
    return caught.value


# ---------------------------------------------------------------------------------------- an honest one


def test_every_part_of_the_jail_is_on(judged: Any) -> None:
    one = judged("a = a + 1")

    assert dict(one.jail) == dict.fromkeys(PARTS, "on")
    np.testing.assert_array_equal(call(one).outputs[0].array, [1, 2, 3])


def test_next_candidate_is_unaffected_by_a_lost_one(judged: Any) -> None:
    lost(judged("os._exit(0)"))

    np.testing.assert_array_equal(call(judged("a = a * 2")).outputs[0].array, [0, 2, 4])


def test_what_may_be_read_can_lie_where_the_candidate_writes(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/table.txt").write_text("7")
    (tmp_path / "secret.txt").write_text("8")
    file = tmp_path / "candidate.py"
    file.write_text(
        "import os\ndef run(xp, a, folder):\n    open('/tmp/own', 'w').write('x')\n"
        "    a[:] = int(open(folder + '/data/table.txt').read())\n    print(os.listdir(folder))\n    return a\n"
    )
    jail = JailOptions(readable=(str(tmp_path / "data"),))
    with CandidateProcess(file, device="cpu", limits=LIMITS, jail=jail, zygote=zygote) as one:
        one.load()
        reply = one.call([np.zeros(3), str(tmp_path)], {}, [((3,), "float64")])
        assert (reply.raised, dict(one.jail)) == (None, dict.fromkeys(PARTS, "on"))
        np.testing.assert_array_equal(reply.outputs[0].array, [7, 7, 7])
    assert one.output == "['data']\n"


def test_required_jail_without_a_part_runs_nothing(zygote: Zygote, tmp_path: Path) -> None:
    file = tmp_path / "candidate.py"
    file.write_text("print('ran')\n")
    jail = JailOptions(required=True, hidden=("/proc/version",))  # which cannot be hidden
    with CandidateProcess(file, device="cpu", limits=LIMITS, jail=jail, zygote=zygote) as one:
        with pytest.raises(CandidateLostError, match="the jail has no files") as caught:
            one.load()
        assert caught.value.reason == "jail"
        assert "read" in one.jail["files"]
    assert one.output == ""


# ---------------------------------------------------------------------------------------- lost for the right reason

LOST = {
    "crash": ("ctypes.string_at(0)", "crash", "SIGSEGV"),
    "exit 0": ("os._exit(0)", "exit", "status 0"),
    "exit 3": ("os._exit(3)", "exit", "status 3"),
    "system exit": ("sys.exit(0)", "exit", ""),
    "hang": ("while True: time.sleep(1)", "hang", "0.3 s"),
    "hang with the interpreter's lock": ("ctypes.PyDLL(None).sleep(1000)", "hang", "0.3 s"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(100)", "hang", ""),
    "forged reply": (
        "sys._getframe(2).f_locals['self'].control[1 << 19] = 77; time.sleep(100)",
        "protocol",
        "reply 77",
    ),
}


@pytest.mark.parametrize(("body", "reason", "detail"), LOST.values(), ids=LOST)
def test_loss_is_named(judged: Any, body: str, reason: str, detail: str) -> None:
    one = judged(body, SHORT if reason == "hang" else LIMITS)

    error = lost(one)

    assert error.reason == reason
    assert detail in error.detail


def test_lost_candidate_stays_lost(judged: Any) -> None:
    one = judged("os._exit(0)")
    first = lost(one)

    assert lost(one) is first
    one.close()
    one.close()


@pytest.mark.parametrize(
    ("head", "reason", "detail"),
    [
        ("raise ValueError('a\\x1b[31mred\\n')", "load", "ValueError: a\\x1b[31mred\\n"),
        ("os._exit(0)", "exit", "status 0"),
        ("def broken(:", "load", "SyntaxError"),
        ("while True: time.sleep(1)", "hang", ""),
    ],
    ids=["raises", "exits", "syntax", "hangs"],
)
def test_file_that_cannot_be_loaded(judged: Any, head: str, reason: str, detail: str) -> None:
    with pytest.raises(CandidateLostError) as caught:
        judged("", replace(LIMITS, load_s=0.3 if reason == "hang" else 20), head=head)

    assert caught.value.reason == reason
    assert detail in caught.value.detail


def test_why_a_file_cannot_be_loaded_is_told_where_its_process_has_ended_by_then(
    judged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, reply_number = itertools.count(), protocol.reply_number

    def late(control: Any) -> int:
        found = reply_number(control)
        if next(looks) == 0:
            time.sleep(1)
        return found

    monkeypatch.setattr(protocol, "reply_number", late)

    with pytest.raises(CandidateLostError) as caught:
        judged("", replace(LIMITS, load_s=20), head="raise ValueError('red')")

    assert caught.value.reason == "load"


def test_file_without_run_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    one = CandidateProcess(tmp_path / "empty.py", device="cpu", limits=LIMITS, zygote=zygote)
    with one, pytest.raises(CandidateLostError, match="no function run") as caught:
        one.load()
    assert caught.value.reason == "load"


# ---------------------------------------------------------------------------------------- more than it may take


def test_memory_over_the_limit_is_refused(judged: Any) -> None:
    raised = call(judged("np.ones(100 << 20, np.uint8)")).raised

    assert raised.kind.endswith("MemoryError")


def test_memory_of_all_processes_counts(judged: Any) -> None:
    one = judged("for _ in range(2): os.fork()\nx = np.ones(30 << 20, np.uint8)\ntime.sleep(100)")

    assert lost(one).reason == "memory"


def test_shared_memory_counts(judged: Any) -> None:
    one = judged("x = mmap.mmap(-1, 200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(100)")

    assert lost(one).reason == "memory"


DROPPED = """
from cuassay.judging.candidate import Server
(server,) = [one for one in gc.get_objects() if isinstance(one, Server)]
arena, step = np.frombuffer(server.arena, np.uint8), 1 << 20
for at in range(0, len(arena), step):
    arena[at : at + step] = 1
    ctypes.CDLL(None).madvise(ctypes.c_void_p(arena.ctypes.data + at), ctypes.c_size_t(step), 4)
"""


def test_shared_memory_counts_though_no_process_maps_it_any_more(judged: Any) -> None:
    one = judged(DROPPED, replace(LIMITS, arena_nbytes=256 << 20))
    if one.group != "on":
        pytest.skip(one.group)

    assert lost(one).reason == "memory"
    assert list(Path("/sys/fs/cgroup").rglob(f"cuassay-{one.supervisor}")) == []


def test_files_are_limited(judged: Any) -> None:
    one = judged("for i in range(5): open(str(i), 'wb').write(bytes(900_000))", replace(LIMITS, scratch_nbytes=1 << 20))

    assert call(one).raised.kind == "OSError"


def test_fork_bomb_ends_with_its_namespace(judged: Any) -> None:
    one = judged("while True:\n    try: os.fork()\n    except OSError: time.sleep(1)", SHORT)
    (name,) = {namespace_of(pid) for pid in own_processes(one)}

    assert lost(one).reason in ("hang", "processes")
    assert in_namespace(name) == []


def test_output_is_drained_and_cut(judged: Any) -> None:
    one = judged("for _ in range(64): os.write(1, b'x' * (1 << 20))")

    assert call(one).raised is None
    one.close()
    assert one.output.startswith("x" * 1000 + "\n[67,107,864 more bytes")


def test_daemon_does_not_survive(judged: Any) -> None:
    one = judged(
        "if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(1000)\ntime.sleep(0.1)"
    )
    call(one)
    (name,) = {namespace_of(pid) for pid in own_processes(one)}
    assert len(in_namespace(name)) > 1

    one.close()

    assert in_namespace(name) == []


def test_daemon_does_not_survive_without_a_jail(judged: Any) -> None:
    one = judged(
        "if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    a[0] = os.getpid()\n"
        "    time.sleep(1000)\nwhile not a[0]: time.sleep(0.01)",
        is_jailed=False,
    )
    daemon = int(call(one).outputs[0].array[0])

    one.close()

    assert not Path(f"/proc/{daemon}").exists()


# ---------------------------------------------------------------------------------------- what it must not reach

REFUSED = {
    "network": "socket.socket(socket.AF_INET)",
    "local socket": "socket.socket(socket.AF_UNIX)",
    "another program": "os.execv(sys.executable, [sys.executable, '-c', '1'])",
    "spec": "open(SPEC).read()",
    "folder of the spec": "os.listdir(os.path.dirname(SPEC))",
    "declarations of this package": "import cuassay.testing.specs.elementwise",
    "another user": "os.setuid(0)",
    "library": "open(np.__file__, 'a')",
    "root folder": "open('/planted', 'w')",
    "passwords": "open('/etc/passwd').read()",
    "other processes' memory": "open('/proc/1/../2/mem', 'rb').read(1)",
    "memory of the first process's parent": "os.kill(os.getppid() or 2, 0)",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_attempt_is_refused(judged: Any, body: str, tmp_path: Path) -> None:
    one = judged(body.replace("SPEC", repr(str(tmp_path / "spec.py"))))

    raised = call(one).raised

    assert raised is not None
    assert raised.kind in (
        "PermissionError",
        "FileNotFoundError",
        "ModuleNotFoundError",
        "OSError",
        "ProcessLookupError",
    )


CALLS = {
    "ptrace": (101, 16, 1),
    "unshare": (272, 0x10000000),
    "bpf": (321, 0),
    "clone3": (435, 0),
    "io_uring": (425, 1),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are those of x86_64")
@pytest.mark.parametrize("arguments", CALLS.values(), ids=CALLS)
def test_system_call_is_refused(judged: Any, arguments: tuple[int, ...]) -> None:
    one = judged(f"libc = ctypes.CDLL(None, use_errno=True)\na[0] = libc.syscall{arguments}\na[1] = ctypes.get_errno()")

    result, number, _ = call(one).outputs[0].array

    assert (result, number in (1, 38)) == (-1, True)


def test_environment_holds_nothing_of_the_judge(judged: Any) -> None:
    one = judged("print(*sorted(os.environ))")
    call(one)
    one.close()

    threads = ["MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
    assert one.output.split() == sorted(["HOME", "LANG", "PATH", "TMPDIR", *threads])


def test_stopped_candidate_does_nothing(judged: Any) -> None:
    one = judged(
        "if not os.fork():\n    while True: time.sleep(0.001); a[0] += 1\n"
        "import threading\ndef work():\n    while True: a[1] += 1; time.sleep(0.001)\n"
        "threading.Thread(target=work, daemon=True).start()"
    )
    call(one)
    with one.stopped():
        states = {state(pid) for pid in own_processes(one)}
        call_states = len(own_processes(one)), states
    assert call_states == (2, {"T"})
    assert call(one).raised is None
