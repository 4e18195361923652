"""One worker of ``pytest --cuassay-isolate``, as its controller sees it: the process, its pipes, and how it ended."""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core import settings
from cuassay.results.lifeline import Lifeline
from cuassay.testing.forked import ForkedWorker
from cuassay.testing.forking import Fork, why_not_by_now, why_not_forked
from cuassay.testing.node import Node
from cuassay.testing.sending import Order
from cuassay.testing.trail import Trail

if TYPE_CHECKING:
    from cuassay.testing.presence import Presence

__all__ = ["Child", "Children"]

_WORKER = "cuassay.testing.isolated"

#: Milliseconds between two checks of a worker that sends nothing.
_POLL_MS = 100

#: Milliseconds for which messages are collected: waking this process for each would cost as much as a short test.
_NAP_MS = 50

#: Bytes of messages that the pipe can hold; Linux grants this size to any user.
_PIPE_NBYTES = 1 << 20

#: Seconds that a worker may take to end by itself, and by which its own hang guard may be late.
_PATIENCE_SECONDS = 10.0

#: Lines of a stack that do not belong to the test.
_OTHERS = re.compile(
    r'^  File ".*/(_pytest|pluggy|cuassay/testing|cuassay/results)/|^  File "<frozen runpy>"|^Extension modules'
)

#: The line that pytest-timeout writes before it ends the process.
_TIMED = re.compile(r"^\++ Timeout \++$", re.MULTILINE)

#: The name of a controller's method without ``_on_``, and its arguments.
Message = tuple[Any, ...]


class Child:
    """One worker process, the pipes to it, and the file to which it writes the stacks of a crash."""

    def __init__(
        self,
        config: pytest.Config,
        presence: Presence,
        node: Node,
        masks: Mapping[str, str],
        session: pytest.Session | None = None,
    ) -> None:
        told = node.configure()
        theirs, self._orders = Pipe(duplex=False)
        self._reports, sent = Pipe(duplex=False)
        with suppress(OSError, AttributeError):  # the user's pipe memory is used up, or this is not Linux
            fcntl.fcntl(sent, fcntl.F_SETPIPE_SZ, _PIPE_NBYTES)
        self._received: deque[Message] = deque()
        self._ready = select.poll()
        self._ready.register(self._reports, select.POLLIN)
        self._faults = TemporaryFile()  # noqa: SIM115  closed with the child
        shared = TemporaryFile()  # noqa: SIM115  closed below; the mapping keeps its pages
        Trail.make_room(shared)
        self.trail = Trail(shared.fileno())
        self._lifeline = Lifeline()
        self.limit = float(settings.get("CUASSAY_HANG_SECONDS"))
        self.since: float | None = None
        told["cuassay_replaced_by"] = "us"
        told["cuassay_faults"] = self._faults.fileno()
        told["cuassay_trail"] = shared.fileno()
        if presence.is_explicit or presence.is_decided:
            told["cuassay"] = presence.to_worker()
        self.node = node
        self.process: Fork | subprocess.Popen[bytes]
        if session is None:
            files = (theirs, sent, self._faults, shared)
            self.process = self._started(config, [str(theirs.fileno()), str(sent.fileno())], files, masks)
            self._order({"workerinput": told, "args": node.words(), "path": sys.path})
        else:
            self.process = self._forked(ForkedWorker(session, told, theirs, sent))
        self._end = _end_of(self.process.pid)
        for one in (theirs, sent, shared):
            one.close()

    def _started(
        self, config: pytest.Config, words: Sequence[str], files: Sequence[Any], masks: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._lifeline.command([_WORKER, *words]),
            cwd=config.invocation_params.dir,
            env={**os.environ, **masks},
            pass_fds=[*self._lifeline.inherited, *(one.fileno() for one in files)],
        )

    def _forked(self, worker: ForkedWorker) -> Fork:
        parent = os.getpid()

        def run() -> None:
            self._orders.close()
            self._reports.close()
            worker.run(parent)

        return Fork(run)

    def __repr__(self) -> str:
        return f"Child({self.process.pid})"

    def _order(self, message: object) -> None:
        with suppress(OSError):  # the worker is dead already, which `messages` notices
            self._orders.send(message)

    def run(self, order: Order) -> None:
        """Order the worker to run tests."""
        self._order(order)

    def messages(self) -> Iterator[Message]:
        """Yield the worker's messages until it has ended."""
        while True:
            while self._received:
                yield self._received.popleft()
            try:
                if self._ready.poll(0):
                    self._received += self._reports.recv()
                    continue
            except (EOFError, OSError, pickle.UnpicklingError):  # the last message may be incomplete
                return
            self._nap()
            if self._ready.poll(_POLL_MS):
                continue
            if self.process.poll() is not None and not self._ready.poll(0):
                return  # a process forked by a test may hold the pipe open
            if self._is_overdue():
                self.process.kill()

    def _nap(self) -> None:
        """Wait for more messages, unless the worker ends."""
        if self._end < 0:
            time.sleep(_NAP_MS / 1000)
            return
        ended = select.poll()
        ended.register(self._end, select.POLLIN)
        ended.poll(_NAP_MS)

    def is_ready(self) -> bool:
        """Whether a worker without orders has finished collecting."""
        return bool(self._ready.poll(0))

    def _is_overdue(self) -> bool:
        """Whether a test has run so long that the worker's own guard should have ended it."""
        return bool(self.limit and self.since) and time.monotonic() - (self.since or 0) > self.limit + _PATIENCE_SECONDS

    def death(self) -> tuple[str, str]:
        """How the process ended: ``crashed`` or ``timed out``, and the details."""
        status, overdue = self._wait(), self._is_overdue()
        if overdue or self.stacks().startswith("Timeout"):
            return "timed out", f"it ran longer than the {self.limit:g} s of CUASSAY_HANG_SECONDS"
        if _TIMED.search(self.stacks()):
            return "timed out", "pytest-timeout ended its process"
        if status is None:
            return "crashed", "its process does not end, even when killed"
        if status < 0:
            return "crashed", f"its process was killed by {_signal_name(-status)}"
        return "crashed", f"its process ended with status {status}"

    def bad_end(self) -> str | None:
        """How the process ended, if a signal killed it or it had to be killed; otherwise None."""
        status = self._wait()
        if status is None or status < 0:
            return f"killed by {_signal_name(-(status or -signal.SIGKILL))}"
        return None

    def stacks(self) -> str:
        """What the worker wrote to the file for crash stacks, without the frames of the harness."""
        size = os.fstat(self._faults.fileno()).st_size
        return "".join(_own_frames(os.pread(self._faults.fileno(), size, 0).decode(errors="replace")))

    def _wait(self) -> int | None:
        for _ in range(2):
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(_PATIENCE_SECONDS)
            self.process.kill()
        return None

    def interrupt(self) -> None:
        """Make the worker tear its fixtures down and end."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # it may have received Ctrl-C itself
            return
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Wait for the process, or kill it; may be called twice."""
        self._orders.close()
        self._wait()
        for held in (self._reports, self._faults, self._lifeline, self.trail):
            held.close()
        end, self._end = self._end, -1
        if end >= 0:
            os.close(end)


class Children:
    """Makes the workers of a session, and starts the next one in advance after one was lost.

    If one test kills its process, others often do too. If none does, a second worker would only cost time.

    Attributes
    ----------
    count : int
        The number of workers that got tests.
    """

    def __init__(self, config: pytest.Config, presence: Presence) -> None:
        self._config, self._presence, self._run = config, presence, uuid.uuid4().hex
        self._spare: Child | None = None
        self._masks: dict[str, str] = {}
        self._why = why_not_forked(config)
        self.count = 0

    def __repr__(self) -> str:
        return f"Children({self.count} taken{'' if self._spare is None else ', one spare'})"

    def _new(self, session: pytest.Session | None = None) -> Child:
        return Child(self._config, self._presence, Node(self._config, self._run), self._masks, session)

    def why_started(self) -> str | None:
        """Why the next worker cannot be forked from this process, or None if it can."""
        if self._masks:
            return "the machine has failed a test, and the next worker sees its devices in another order"
        return self._why or why_not_by_now()

    def take(self, session: pytest.Session | None = None) -> Child:
        """The next worker; it is forked if that is possible and `session` has collected."""
        self.count += 1
        if self._spare is None:
            return self._new(None if self.why_started() else session)
        child, self._spare = self._spare, None
        return child

    def move(self) -> None:
        """Rotate the visible devices for the next workers, because the machine failed a test.

        Kinds of which tests name several devices are left alone, because each test means a certain one.
        """
        from cuassay.devices import backend

        kinds = [device.kind for device in self._presence.devices]
        for kind in (kind for kind in kinds if kinds.count(kind) == 1):
            visibility = getattr(backend(kind), "visibility", None)
            if visibility is not None:
                variable, visible = visibility()
                words = self._masks[variable].split(",") if variable in self._masks else list(visible)
                self._masks[variable] = ",".join([*words[1:], *words[:1]])
        self.dismiss()

    def prepare(self) -> None:
        """Start the next worker in advance, if this session has lost one and cannot fork."""
        if self.count > 1 and self._spare is None and self.why_started():
            self._spare = self._new()

    def dismiss(self) -> None:
        """End the worker that was started in advance: normally, or at once if it still collects."""
        child, self._spare = self._spare, None
        if child is None:
            return
        if child.is_ready():
            child.run(((), 0, ()))
        else:
            child.process.kill()
        child.close()
        child.node.went_down(None)


def _end_of(pid: int) -> int:
    """A file descriptor that becomes readable when the process has ended; -1 if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, or one that forbids the call
        return -1


def _own_frames(text: str) -> Iterator[str]:
    """The lines of a stack without the frames of pytest and the worker, and without their source lines."""
    is_kept = True
    for line in text.splitlines(keepends=True):
        is_source = line.startswith("    ")
        is_kept = is_kept if is_source else not _OTHERS.search(line)
        if is_kept:
            yield line


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
