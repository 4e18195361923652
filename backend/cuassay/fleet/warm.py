"""A process that has imported pytest and forks the process of each shard of one worker.

Starting Python and importing pytest, NumPy and the plugin takes twice the processor time of the rest of a short shard.
A warm process does it once. It imports no file of the project and no plugin but ours, makes no CUDA context and runs
no thread, so a shard starts in the same state as in a new process.

The worker orders one shard at a time through a socket, and the answer is the exit status. A warm process kills its
shard and ends when the worker closes the socket or ends. If the warm process itself is killed, the kernel kills what it
has forked, as `cuassay.results.lifeline` arranges.

A warm process is a child of its worker, or it is forked from the template of a local fleet (`cuassay.fleet.template`),
so that its imports are those of the template.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from cuassay.core.handle import Handle
from cuassay.fleet.template import TEMPLATE, request
from cuassay.results.lifeline import Lifeline, follow
from cuassay.testing.rewriting import leave_packages_as_they_are

__all__ = ["PYTEST", "Warm", "can_warm", "main"]

#: The module that shards of a warm process run.
PYTEST = "pytest"

#: What each session of a shard imports, in addition to what the session without tests does.
_MODULES = ("cuassay.devices", "cuassay.testing.recording")

#: Variables that give pytest more options or plugins: they are for the shards.
_PYTEST_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")

#: Variables by which coverage.py measures new processes from their first line, which a fork would not be.
_COVERAGE_VARIABLES = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")

#: More than any message has; an order is in a file, whose descriptor is sent.
_MESSAGE_NBYTES = 64


def can_warm(arguments: Sequence[str]) -> bool:
    """Whether the process of a shard may be forked.

    A benchmark is measured in a new process, and so is coverage. Only Linux lets a fork use all libraries.
    """
    is_plain = arguments[0] == PYTEST and "--benchmark-only" not in arguments
    return is_plain and sys.platform == "linux" and os.environ.keys().isdisjoint(_COVERAGE_VARIABLES)


class _Forked:
    """A warm process that the template has forked, with the methods of `subprocess.Popen` that `Warm` uses.

    It is a child of the template. The socket shows when it has ended, and its exit status remains unknown.
    """

    returncode = -signal.SIGKILL  #: the most likely status
    pid = "forked"

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._end = select.poll()
        self._end.register(orders, 0)  # POLLHUP is always reported

    def poll(self, milliseconds: int | None = 0) -> int | None:
        return self.returncode if self._end.poll(milliseconds) else None

    def wait(self) -> int | None:
        return self.poll(None)

    def kill(self) -> None:
        with suppress(OSError):  # it has ended
            self._orders.shutdown(socket.SHUT_WR)


class Warm(Handle):
    """The worker's side of a warm process, which has the methods of `subprocess.Popen` for a shard.

    Attributes
    ----------
    returncode : int or None
        The exit status of the last shard, or None while it runs. The negative number of a signal that killed it.
    is_lost : bool
        Whether the process ended before its shard did.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lifeline = Lifeline()
        self._process: _Forked | subprocess.Popen[bytes]
        with theirs:
            self._process = _Forked(self._socket) if request(theirs) else self._started(theirs)
        self._answers = select.poll()
        self._answers.register(self._socket, select.POLLIN)
        self._is_killed = False
        self.is_lost = False
        self.returncode: int | None = 0

    def _started(self, orders: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._lifeline.command([__spec__.name, str(orders.fileno())]),
            pass_fds=[*self._lifeline.inherited, orders.fileno()],
        )

    def __repr__(self) -> str:
        return f"Warm({'closed' if self._socket.fileno() < 0 else self._process.pid})"

    @property
    def is_child(self) -> bool:
        """Whether it is a child of this process, and not of a template."""
        return not isinstance(self._process, _Forked)

    @property
    def is_well(self) -> bool:
        """Whether it can be given a shard."""
        is_open = self._socket.fileno() >= 0 and not self._is_killed
        return is_open and self.returncode is not None and self._process.poll() is None

    def run(self, words: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        """Order a shard: the words after ``python -m``, the file for its output, and its variables."""
        self.returncode = None
        with TemporaryFile("w+") as file:  # a message is limited to 208 KiB, and variables may be longer
            json.dump({"words": words, "log": str(log), "environment": dict(environment)}, file)
            file.seek(0)
            with suppress(OSError):  # it has ended, which `poll` finds
                socket.send_fds(self._socket, [b"order"], [file.fileno()])

    def poll(self, milliseconds: int | None = 0) -> int | None:
        """The exit status of the shard, or None if it still runs after that many milliseconds."""
        if self.returncode is None and self._answers.poll(milliseconds):
            answer = self._answer()
            self.is_lost = not answer
            self.returncode = int(answer) if answer else self._process.wait()
        return self.returncode

    def _answer(self) -> bytes:
        with suppress(OSError):
            return self._socket.recv(_MESSAGE_NBYTES)
        return b""

    def wait(self) -> int | None:
        """The exit status of the shard, once it has ended."""
        return self.poll(None)

    def kill(self) -> None:
        """End the shard, if one runs, and this process with it. Any thread may call this."""
        if self.returncode is None:
            self._is_killed = True
            self._process.kill()

    def close(self) -> None:
        """End the process; may be called twice."""
        if self._socket.fileno() >= 0:
            self._process.kill()
            self._process.wait()
            self._socket.close()
            self._lifeline.close()


# ---------------------------------------------------------------------------------------------- the warm process


def main(argv: Sequence[str]) -> None:
    """Be a warm process or, with a second argument, a template. The first one is the number of the socket."""
    orders = socket.socket(fileno=int(argv[0]))
    orders.set_inheritable(False)
    _import_pytest()
    gc.collect()
    gc.freeze()  # a fork would copy what the collector touches
    if argv[1:] == [TEMPLATE]:
        _fork_warm(orders)
    else:
        _fork_shards(orders)


def _fork_warm(requests: socket.socket) -> None:
    """Fork a warm process for each request, until no process holds the other end of the socket."""
    parent = os.getpid()
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, _MESSAGE_NBYTES, 1)
        if not message:
            return
        with socket.socket(fileno=descriptors[0]) as orders:
            if os.fork() == 0:
                requests.close()
                follow(parent)
                _fork_shards(orders)
                return
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # warm processes that have ended
                pass


def _fork_shards(orders: socket.socket) -> None:
    """Fork a process for each order, until the worker has closed the socket."""
    parent = os.getpid()
    while descriptors := socket.recv_fds(orders, _MESSAGE_NBYTES, 1)[1]:
        with os.fdopen(descriptors[0]) as file:
            order = json.load(file)
        child = os.fork()
        if child == 0:
            orders.close()
            follow(parent)
            _run(order["words"], order["log"], order["environment"])
            return
        if _is_closed_before_end(orders, child):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with suppress(BrokenPipeError):  # closed: `recv_fds` says so next
            orders.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _is_closed_before_end(orders: socket.socket, child: int) -> bool:
    """Wait until `child` ends or the worker closes the socket; True if it closes the socket first."""
    try:
        end = os.pidfd_open(child)
    except OSError:  # a kernel before 5.3, where the worker kills this process instead
        return False
    try:
        found = select.poll()
        found.register(end, select.POLLIN)
        found.register(orders, select.POLLIN)  # no order comes before the answer to the last one
        return end not in dict(found.poll())
    finally:
        os.close(end)


def _run(words: Sequence[str], log: str, environment: Mapping[str, str]) -> None:
    """Be ``python -m`` with `words` and these variables, and write the output to `log`."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    _set_variables(environment)
    sys.pycache_prefix = environment.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    _run_module(words)


def _set_variables(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _run_module(words: Sequence[str]) -> None:
    sys.argv = list(words)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _import_pytest() -> None:
    """Run a session without tests: pytest imports most of itself when it needs it."""
    with TemporaryDirectory(prefix="cuassay-") as empty, _variables_kept(), Path(os.devnull).open("w") as nowhere:
        own = ("-p", "cuassay.testing.plugin", "-p", "cuassay.testing.listing", "--cuassay-isolate")
        with redirect_stdout(nowhere), suppress(SystemExit):
            _run_module((PYTEST, *own, "-p", "no:cacheprovider", f"--rootdir={empty}", f"-c={os.devnull}", empty))
    for name in _MODULES:
        importlib.import_module(name)
    leave_packages_as_they_are()


@contextmanager
def _variables_kept() -> Iterator[None]:
    """Without options and plugins of others in the variables, which are as before afterwards."""
    before = dict(os.environ)
    for name in _PYTEST_VARIABLES:
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        _set_variables(before)


if __name__ == "__main__":
    main(sys.argv[1:])
