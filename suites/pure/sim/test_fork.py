"""A process forked while threads work on the simulated device: the child has a fresh one, and hangs on no lock."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")

#: What a child does is timed by an alarm, so that one that hangs ends by a signal.
CHILD = """
import os, signal, sys, threading
import numpy as np
from cuassay import devices, from_host, ops, random
from cuassay.errors import ForkError

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            code = work() or 0
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr)
            code = 5
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

BUSY = """
def work():
    drawn = random.uniform((4,), dtype="float32", device="sim")
    total = ops.sum(from_host(np.full(100, 3, np.float32), "sim"), axis=None)
    pinned = devices.empty_pinned((8,), "float32", "sim")
    return 0 if devices.to_host(total).item() == 300 and drawn.size == pinned.size // 2 else 3

work()  # a fork while another thread imports leaves Python's own import locks held
stop = []
def loop():
    while not stop:
        work()

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=loop) for _ in range(2)]
[thread.start() for thread in threads]
codes = [child(work) for _ in range(20)]
stop.append(True)
[thread.join() for thread in threads]
print(codes)
"""

KEPT = """
sim = devices.backend("sim")
array, stream, pinned = from_host(np.ones(4), "sim"), sim.new_stream(0), devices.empty_pinned((4,), "float32", "sim")

def refused(what):
    try:
        what()
    except ForkError as error:
        return "before this process" in str(error)

def work():
    global array, stream, pinned
    told = [refused(what) for what in (array.get, lambda: array + 1, stream.synchronize, lambda: pinned.sum())]
    del array, stream, pinned
    fresh = sim.memory_info(0)
    return 0 if told == [True] * 4 and fresh[0] == fresh[1] and from_host(np.ones(4), "sim").sum().item() == 4 else 3

print([child(work)], array.sum().item(), float(pinned.size))
"""

MAKING = """
from cuassay.devices.sim import backend

made, begun, goes_on = backend._machine, threading.Event(), threading.Event()

def slow(changed):
    begun.set()
    goes_on.wait()
    return made(changed)

def work():
    backend._machine = made
    return 0 if from_host(np.ones(4), "sim").sum().item() == 4 else 3

devices.backend("sim")
backend._machine = slow
thread = threading.Thread(target=lambda: devices.backend("sim").machine)
thread.start()
begun.wait()
code = child(work)
goes_on.set()
thread.join()
print(code)
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD + program], capture_output=True, text=True, check=False
    )


def test_child_of_a_process_whose_threads_work_computes() -> None:
    done = _run(BUSY)

    assert (done.stdout.strip(), done.stderr) == (str([0] * 20), "")


def test_arrays_streams_and_pinned_memory_of_the_parent_are_refused_in_the_child() -> None:
    done = _run(KEPT)

    assert (done.stdout.strip(), done.stderr) == ("[0] 4.0 4.0", "")


def test_child_forked_while_a_thread_makes_the_machine_has_its_own() -> None:
    done = _run(MAKING)

    assert (done.stdout.strip(), done.stderr) == ("0", "")
