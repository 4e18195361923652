"""A candidate in a process of its own, as the judge sees it: arguments, outputs, errors, life."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.core.generator import GeneratorState
from cuassay.errors import CandidateLostError, OutOfMemoryError, StateError
from cuassay.judging import candidate, protocol
from cuassay.judging.limits import MOST_SOURCE_NBYTES, JailOptions, Limits
from cuassay.judging.process import CandidateProcess
from cuassay.judging.zygote import Zygote

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="candidates are judged on Linux")

LIMITS = Limits(load_s=60, call_s=60, arena_nbytes=1 << 20)
BASE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ROOM = (BASE.shape, "float32")

Start = Callable[[str], CandidateProcess]


@pytest.fixture(scope="module", params=["cpu", "sim"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    with Zygote(request.param) as one:
        yield one


@pytest.fixture
def started(zygote: Zygote, tmp_path: Path) -> Iterator[Start]:
    made: list[CandidateProcess] = []

    def start(text: str) -> CandidateProcess:
        file = tmp_path / "candidate.py"
        file.write_text(text, encoding="utf-8")
        made.append(CandidateProcess(file, device=zygote.kind, limits=LIMITS, jail=JailOptions(), zygote=zygote))
        made[-1].load()
        return made[-1]

    yield start
    for one in made:
        one.close()


# ---------------------------------------------------------------------------------------- empty calls


def test_an_empty_call_leaves_the_candidate_out(started: Start) -> None:
    one = started("def run(xp, a):\n    raise ValueError('called')\n")

    assert one.empty(limit_s=60) is None
    assert one.time((BASE,), {}, [ROOM], limit_s=60) is None
    assert (one.empty(limit_s=60) or 0) > 0


def test_an_empty_call_is_no_late_write_of_the_one_before(started: Start) -> None:
    one = started("def run(xp, a):\n    return a + 1\n")

    for _ in range(3):
        np.testing.assert_array_equal(one.call((BASE,), {}, [ROOM]).outputs[0].array, BASE + 1)
        assert one.empty(limit_s=60)
    one.close()
    assert one.late_writes == 0


# ---------------------------------------------------------------------------------------- arguments and outputs


def test_arguments_of_every_kind_arrive(started: Start) -> None:
    one = started(
        "def run(xp, a, several, pair, number, flag, word, none, z, *, k, table, state):\n"
        "    assert (pair[1], number, flag, word, none, z) == (3, 2.5, True, 'x', None, 1 + 2j)\n"
        "    assert (state.seed, state.offset) == (2**64 - 1, 8)\n"
        "    assert type(pair) is tuple and type(several) is list and table == {1: 'one'}\n"
        "    return a + several[0] * several[1] + pair[0] + k\n"
    )

    arguments = [BASE, [BASE, np.float32(2)], (BASE, 3), 2.5, True, "x", None, 1 + 2j]
    reply = one.call(arguments, {"k": 7, "table": {1: "one"}, "state": GeneratorState(2**64 - 1, 8)}, [ROOM])

    assert reply.raised is None
    np.testing.assert_array_equal(reply.outputs[0].array, BASE * 4 + 7)


LAYOUTS = {
    "transposed": BASE.T,
    "reversed": BASE[::-1, :, ::-1],
    "strided": BASE[:, 1:, ::2],
    "broadcast": np.broadcast_to(BASE[0, 0], (3, 4)),
    "empty": BASE[:0],
    "one": BASE[1, 1, 1, ...],
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_arrives(started: Start, array: np.ndarray[Any, Any]) -> None:
    one = started("import numpy as np\ndef run(xp, a):\n    return a + 0, xp.asarray(np.array(a.strides, 'int64'))\n")

    reply = one.call([array], {}, [(array.shape, "float32"), ((array.ndim,), "int64")])

    assert reply.raised is None
    values, strides = (output.array for output in reply.outputs)
    np.testing.assert_array_equal(values, array)
    if array.size:
        np.testing.assert_array_equal(strides, array.strides)


def test_outputs_are_taken_as_the_candidate_gives_them(started: Start) -> None:
    one = started("def run(xp, a):\n    return a[0], 'words', a, xp.concatenate([a, a]), 2.0, a\n")

    reply = one.call([BASE], {}, [ROOM, 64, 4096, ROOM, 8])

    shapes = [(output.shape, output.dtype, output.problem) for output in reply.outputs]
    assert [shapes[0], shapes[2], shapes[3]] == [
        ((3, 4), "float32", ""),
        ((2, 3, 4), "float32", ""),
        ((4, 3, 4), "float32", "too large"),
    ]
    assert reply.outputs[1].problem == "not an array"
    assert float(reply.outputs[4].array) == 2.0
    assert reply.extra == 1


def test_missing_output_is_told(started: Start) -> None:
    reply = started("def run(xp, a):\n    return a\n").call([BASE], {}, [ROOM, ROOM])

    assert [output.problem for output in reply.outputs] == ["", "missing"]
    assert [output.unwritten_nbytes for output in reply.outputs] == [0, 96]


def test_changed_input_is_told(started: Start) -> None:
    reply = started("def run(xp, a, b):\n    b[...] = 0\n    return a\n").call([BASE, BASE.T], {}, [ROOM])

    assert reply.changed == (1,)
    np.testing.assert_array_equal(reply.outputs[0].array, BASE)


def test_exception_is_told_and_the_next_call_runs(started: Start) -> None:
    one = started("def run(xp, a, k=0):\n    if k: raise KeyError('a\\x1bb')\n    return a\n")

    raised = one.call([BASE], {"k": 1}, [ROOM]).raised

    assert (raised.kind, raised.message) == ("KeyError", "'a\\x1bb' (candidate.py:2)")
    assert one.call([BASE], {}, [ROOM]).raised is None


def test_exception_in_a_library_is_told_with_the_candidates_own_line(started: Start) -> None:
    one = started("import json\n\ndef run(xp, a):\n    return json.loads('x' * int(a[0, 0]))\n")

    raised = one.call([np.ones((2, 2))], {}, [ROOM]).raised

    assert raised.message.endswith("(candidate.py:4)")


def test_line_of_the_candidate_follows_a_long_message(started: Start) -> None:
    one = started("def run(xp, a):\n    raise ValueError('x' * 5000)\n")

    raised = one.call([BASE], {}, [ROOM]).raised

    assert raised.message.endswith("x... (candidate.py:2)")
    assert len(raised.message) < 500


def test_exception_that_no_line_of_the_candidate_raises_has_none(started: Start) -> None:
    raised = started("def run():\n    return 1\n").call([BASE], {}, [ROOM]).raised

    assert raised.message.endswith("were given")


def test_time_holds_the_whole_call(started: Start) -> None:
    one = started("import time\ndef run(xp, a):\n    time.sleep(0.02)\n    return a\n")

    reply = one.call([BASE], {}, [ROOM])

    assert reply.ended_ns - reply.begun_ns >= 20_000_000  # a sleep is never shorter


WATCHER = """
import gc, struct, threading, time
import numpy as np
from cuassay.judging.candidate import Server

(server,) = [one for one in gc.get_objects() if isinstance(one, Server)]
seen = {}
def watch():
    for call in range(1, 100):
        wanted = struct.pack("<dd", call, -call)
        while bytes(server.arena[: 1 << 18]).find(wanted) < 0:
            pass
        seen[call] = time.perf_counter_ns()
threading.Thread(target=watch, daemon=True).start()
def run(xp, a, call):
    while call not in seen:
        time.sleep(0.001)
    return np.full(1 << 14, seen[call])
"""


def test_a_trusted_process_is_timed_from_its_call_to_its_answer(started: Start) -> None:
    one = started("import time\ndef run(xp, a):\n    time.sleep(0.05)\n    return a\n")

    seconds = one.time([BASE], {}, [ROOM], limit_s=60)

    assert seconds is not None
    assert 0.05 <= seconds < 60


def test_a_thread_of_the_candidate_sees_inputs_when_the_clock_runs(started: Start) -> None:
    one = started(WATCHER)

    for call in range(1, 6):
        reply = one.call([np.array([call, -call], np.float64), call], {}, [((1 << 14,), "int64")])
        assert reply.asked_ns <= reply.begun_ns <= int(reply.outputs[0].array[0]) <= reply.ended_ns


LATE = """
import sys, threading
def run(xp, a):
    frame = sys._getframe(1).f_locals
    arena, at = frame["server"].arena, frame["request"].rooms[0].offset
    def work():
        while True:
            arena[at] = 255 - arena[at]
    threading.Thread(target=work, daemon=True).start()
    return a
"""


def test_late_write_is_counted(started: Start) -> None:
    one = started(LATE)
    for _ in range(100):
        one.call([BASE], {}, [ROOM])
        time.sleep(0.02)  # its threads need the time to write
        if one.late_writes:
            break

    assert one.late_writes == 1


def test_without_late_writes_none_is_counted(started: Start) -> None:
    one = started("def run(xp, a):\n    return a\n")
    for _ in range(3):
        one.call([BASE], {}, [ROOM])
    one.close()

    assert one.late_writes == 0


def test_race_is_found_in_the_candidates_process(tmp_path: Path) -> None:
    (tmp_path / "racing.py").write_text(
        "from cuassay.devices import backend\n"
        "def run(xp, a):\n"
        "    side = backend('sim').new_stream(0)\n"
        "    with backend('sim').use_stream(side):\n"
        "        return a * 2\n"
    )
    with CandidateProcess(tmp_path / "racing.py", device="sim:0", limits=LIMITS) as one:
        one.load()
        assert one.call([BASE], {}, [ROOM]).raised.kind == "RaceError"


# ---------------------------------------------------------------------------------------- life


def test_calls_out_of_order_are_refused(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("def run(xp, a):\n    return a\n")
    one = CandidateProcess(tmp_path / "c.py", device=zygote.kind, limits=LIMITS, zygote=zygote)
    with pytest.raises(StateError, match=r"between load\(\) and close\(\)"):
        one.call([BASE])
    one.load()
    with pytest.raises(StateError, match="loaded once"):
        one.load()
    one.close()
    with pytest.raises(StateError, match=r"between load\(\) and close\(\)"):
        one.call([BASE])
    one.close()


def test_file_is_read_once(zygote: Zygote, tmp_path: Path) -> None:
    file = tmp_path / "c.py"
    file.write_text("def run(xp, a):\n    return a + 1\n")
    with CandidateProcess(file, device=zygote.kind, limits=LIMITS, zygote=zygote) as one:
        file.write_text("def run(xp, a):\n    return a + 2\n")
        one.load()
        np.testing.assert_array_equal(one.call([BASE], {}, [ROOM]).outputs[0].array, BASE + 1)
        assert one.source == b"def run(xp, a):\n    return a + 1\n"


def test_judge_never_holds_the_candidates_code(started: Start) -> None:
    one = started("class PlantedClass: pass\ndef run(xp, a):\n    return a\n")
    one.call([BASE], {}, [ROOM])

    assert "candidate" not in sys.modules
    assert not [found for found in gc.get_objects() if getattr(found, "__name__", "") == "PlantedClass"]


def test_ended_zygote_is_told(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("def run(xp, a):\n    return a\n")
    ended = Zygote("cpu")
    ended.close()
    ended.close()
    with CandidateProcess(tmp_path / "c.py", device="cpu", zygote=ended) as one:
        with pytest.raises(CandidateLostError) as caught:
            one.load()
        assert caught.value.reason == "jail"


def open_files() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_process_for_which_no_memory_can_be_mapped_leaves_nothing(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("def run(xp, a):\n    return a\n")
    limits, before = Limits(arena_nbytes=1 << 60), open_files()
    one = CandidateProcess(tmp_path / "c.py", device=zygote.kind, limits=limits, zygote=zygote)
    with one, pytest.raises(OutOfMemoryError, match=r"got 1,152,921,504,606,846,976 bytes .* lower Limits"):
        one.load()

    assert open_files() == before


def test_process_whose_zygote_has_ended_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.py").write_text("def run(xp, a):\n    return a\n")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    ended = Zygote("cpu")
    ended.close()
    before = open_files()
    with CandidateProcess(tmp_path / "c.py", device="cpu", zygote=ended) as one, pytest.raises(CandidateLostError):
        one.load()

    assert open_files() == before
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_ended_supervisor_is_told_at_once(started: Start) -> None:
    one = started("import time\ndef run(xp, a):\n    time.sleep(50)\n")
    killer = threading.Timer(0.2, os.kill, (one.supervisor, signal.SIGKILL))
    killer.start()

    with pytest.raises(CandidateLostError, match="its supervisor ended without a report"):
        one.call([BASE], {}, [ROOM], limit_s=20)


JUDGE = """
import os, sys, time
from cuassay.judging.limits import JailOptions
from cuassay.judging.process import CandidateProcess
one = CandidateProcess(sys.argv[1], device="cpu", jail=JailOptions())
one.load()
child = open(f"/proc/{one.supervisor}/task/{one.supervisor}/children").read().split()[0]
print(one._scratch, one._zygote._process.pid, one.supervisor, child, flush=True)
time.sleep(1000)
"""


def test_nothing_outlives_a_killed_judge(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("def run(xp, a):\n    return a\n")
    judge = subprocess.Popen([sys.executable, "-c", JUDGE, str(tmp_path / "c.py")], stdout=subprocess.PIPE)
    scratch, *pids = judge.stdout.readline().split()
    processes = [os.pidfd_open(int(pid)) for pid in pids]

    judge.send_signal(signal.SIGKILL)
    judge.wait()

    for one in processes:
        assert select.select([one], [], [], 60)[0], "it has not ended"
        os.close(one)
    assert not Path(os.fsdecode(scratch)).exists()
    judge.stdout.close()


def test_a_file_that_is_too_long_is_not_loaded(zygote: Zygote, tmp_path: Path) -> None:
    file = tmp_path / "candidate.py"
    file.write_bytes(b"#" * (MOST_SOURCE_NBYTES + 1))
    one = CandidateProcess(file, device=zygote.kind, limits=LIMITS, zygote=zygote)
    with one, pytest.raises(CandidateLostError, match="more than 4,194,304 bytes") as caught:
        one.load()
    assert (caught.value.reason, one.supervisor) == ("load", -1)


class Doorbell:
    """A bell of the server's; ringing it makes the judge's next request, a while later."""

    def __init__(self, control: memoryview) -> None:
        self.control, self.waits = control, 0

    def ring(self) -> bool:
        if protocol.reply_number(self.control) == 2:
            request = protocol.Request(3, b"[[], {}]", (), ())
            threading.Timer(0.02, protocol.write_request, (self.control, request)).start()
        return True

    def wait(self, seconds: float) -> bool:
        self.waits += 1
        return protocol.reply_number(self.control) != 3


def test_a_process_that_was_woken_does_not_sleep_before_the_call() -> None:
    control = memoryview(bytearray(protocol.CONTROL_NBYTES))
    bell: Any = Doorbell(control)
    server = candidate.Server(Device("cpu"), control, memoryview(bytearray(8)), bell)
    protocol.write_request(control, protocol.Request(2, b"", (), ()))
    calls = []

    server.run(lambda _, request: (calls.append(request.number), ((), 0.0, False))[1])

    assert (calls, bell.waits) == ([3], 1)  # it sleeps after the call, not before


def test_no_two_requests_have_one_number(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one = started("def run(xp, a):\n    return a\n")
    numbers: list[int] = []
    send = protocol.send

    def noted(control: Any, message: bytes) -> None:
        numbers.append(int.from_bytes(message[:8], "little"))
        send(control, message)

    monkeypatch.setattr(protocol, "send", noted)
    for _ in range(3):
        one.call([BASE], {}, [ROOM])

    assert len(numbers) >= 6
    assert numbers == sorted(set(numbers))
