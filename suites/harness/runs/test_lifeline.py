"""Children end with their parent, by the kernel's word or by a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuassay.results.lifeline import Lifeline

#: A child that says it is there, and then waits for longer than any test takes; WATCH leaves it the pipe alone.
SLEEPER = "import os, sys, time\nprint('here', os.getppid(), *sys.argv, flush=True)\ntime.sleep(600)\n"
WATCH = "from cuassay.results import lifeline; lifeline._ask_kernel = lambda: False; lifeline.main({words!r})"
PARENT = """
import subprocess, sys
from cuassay.results.lifeline import Lifeline
with Lifeline() as lifeline:
    command = lifeline.command(["sleeper", "word"])
    if {watches}:
        command = [sys.executable, "-c", {watch!r}.format(words=command[3:])]
    subprocess.Popen(command, pass_fds=lifeline.inherited).wait()
"""


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("sleeper")
@pytest.mark.parametrize("watches", [False, True], ids=["kernel", "pipe"])
def test_a_child_ends_when_its_parent_is_killed(watches: bool) -> None:
    if not watches and sys.platform != "linux":
        pytest.skip("only Linux tells a child of its parent's death")
    code = PARENT.format(watches=watches, watch=WATCH)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        said = parent.stdout.readline().split()
        parent.kill()
        rest = parent.stdout.read()  # ends when the child, which shares it, has ended

    assert said[:2] == ["here", str(parent.pid)]
    assert said[3:] == ["word"]
    assert rest == ""


@pytest.mark.usefixtures("sleeper")
def test_a_child_whose_parent_has_gone_already_ends_at_once() -> None:
    with Lifeline() as lifeline:
        command = lifeline.command(["sleeper"])
        command[3] = str(os.getppid())  # not the process that starts it
        done = subprocess.run(command, pass_fds=lifeline.inherited, capture_output=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


@pytest.mark.usefixtures("sleeper")
def test_the_end_of_a_child_is_seen_when_it_comes_and_not_before() -> None:
    with (
        Lifeline() as lifeline,
        subprocess.Popen(lifeline.command(["sleeper"]), pass_fds=lifeline.inherited, stdout=subprocess.PIPE) as child,
    ):
        child.stdout.readline()
        assert not lifeline.wait_ended(0.0)
        threading.Timer(0.5, child.kill).start()
        assert lifeline.wait_ended(60.0)


def test_a_lifeline_closes_twice_and_says_so() -> None:
    lifeline = Lifeline()
    lifeline.close()
    lifeline.close()

    assert repr(lifeline) == "Lifeline(closed)"
