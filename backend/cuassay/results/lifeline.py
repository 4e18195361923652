"""Start child processes that end when their parent does, even if the parent is killed and cannot notify them.

On Linux the kernel kills the child (``PR_SET_PDEATHSIG``, see prctl(2)). On other systems a thread of the child watches
a pipe whose other end only the parent holds. ``python -m cuassay.results.lifeline PARENT PIPE ALIVE MODULE
ARGUMENT...`` is such a child, and runs MODULE as ``python -m`` does. The pipe ALIVE works in the other direction: the
kernel closes a process's end of it when the process ends, so the parent sees when its children and their children have
ended.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

from cuassay.core.handle import Closing

__all__ = ["Lifeline", "follow", "main"]

_PR_SET_PDEATHSIG = 1

#: The ends of the ALIVE pipes of this process's ancestors. Its children inherit them.
_above: list[int] = []


class Lifeline(Closing):
    """The parent's side, which holds the pipes open and makes the command lines of children."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._ended, self._alive = os.pipe()

    def __repr__(self) -> str:
        return f"Lifeline({'closed' if self._read < 0 else 'open'})"

    @property
    def inherited(self) -> tuple[int, ...]:
        """The file descriptors to pass as ``pass_fds`` to `subprocess.Popen`."""
        return (self._read, self._alive, *_above)

    def command(self, module: Sequence[str]) -> list[str]:
        """Return the command line that runs a module with its arguments as a child."""
        return [sys.executable, "-m", __spec__.name, str(os.getpid()), str(self._read), str(self._alive), *module]

    def wait_ended(self, seconds: float) -> bool:
        """Wait until all children and their children have ended. Returns False if some have not after `seconds`.

        When a child is killed, the processes that it started get their signal when it ends, and end a moment later. No
        child can be started after the first call.
        """
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1
        ended = select.poll()
        ended.register(self._ended, select.POLLIN)
        return bool(ended.poll(seconds * 1000))

    def close(self) -> None:
        """Close the pipes. Call it when the children have ended; calling it twice is allowed."""
        ends = (self._read, self._write, self._ended, self._alive)
        self._read = self._write = self._ended = self._alive = -1
        for end in ends:
            if end >= 0:
                os.close(end)


def follow(parent: int, pipe: int | None = None) -> None:
    """Have this process killed when the process `parent` ends, or at once if it has ended already.

    Parameters
    ----------
    parent : int
        The id of the process that started this one.
    pipe : int, optional
        The pipe to watch on systems whose kernel does not report the end of a parent. Without it, the end of the
        parent goes unnoticed on these systems.
    """
    if not _ask_kernel() and pipe is not None:
        threading.Thread(target=_watch, args=(pipe,), daemon=True, name="lifeline").start()
    if os.getppid() != parent:
        _end()


def _ask_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)


def _watch(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(argv: Sequence[str]) -> None:
    """Follow the parent, and run the module."""
    parent, pipe, alive, module, *words = argv
    os.set_inheritable(int(alive), False)  # processes that the module starts in other ways are not waited for
    _above.append(int(alive))
    follow(int(parent), int(pipe))
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    import_module(__spec__.name).main(sys.argv[1:])  # the module object that MODULE imports, with the same `_above`
