"""A warm process to fork candidates' supervisors from: imports done, no device, no secrets, no code of a candidate.

Starting Python and importing a simulated device takes half a second, and forking takes milliseconds. ``python -c``
starts it with a socket to the judge. Each message on the socket orders one candidate, with the descriptors of its
memory and its pipes.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import cuassay
from cuassay.core.handle import Closing
from cuassay.errors import CandidateLostError
from cuassay.judging import candidate
from cuassay.judging.supervisor import Order, supervise

__all__ = ["Zygote", "main"]

_MESSAGE_NBYTES = 1 << 16

#: The start script: isolated from the user's site and variables, with this package where the judge found it.
_BOOT = """\
import sys
sys.path[:0] = [path for path in sys.argv[3:] if path not in sys.path]
from cuassay.judging.zygote import main
main(int(sys.argv[1]), sys.argv[2])
"""

#: Variables that are kept for a candidate on a GPU.
_CUDA_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")

#: Limits on library threads: they would start one per core, and a candidate's threads are counted.
_THREADS = dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 8)

#: Seconds that it may take to end by itself.
_PATIENCE_SECONDS = 2.0


class Zygote(Closing):
    """The judge's side of a zygote.

    Parameters
    ----------
    kind : str
        The device kind whose modules it imports.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [str(theirs.fileno()), kind, *_roots()]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", _BOOT, *words],
            env=_environment(kind),
            cwd="/",
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def __repr__(self) -> str:
        return f"Zygote({self.kind}, {'closed' if self._socket.fileno() < 0 else self._process.pid})"

    @property
    def process(self) -> int:
        """The id of the process."""
        return self._process.pid

    def spawn(self, order: Order, descriptors: Sequence[int]) -> None:
        """Order a candidate; `descriptors` are those of `Order.DESCRIPTORS`, which the caller keeps and closes.

        Raises
        ------
        CandidateLostError
            If the zygote has ended.
        """
        message = json.dumps(asdict(order)).encode()
        try:
            with self._lock:
                socket.send_fds(self._socket, [message], descriptors)
        except OSError as error:
            raise CandidateLostError(
                f"the process that candidates are forked from is gone ({error}); start another Zygote",
                reason="jail",
                detail=str(error),
            ) from error

    def close(self) -> None:
        """End it and every candidate that it has started; a second call does nothing."""
        self._socket.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _roots() -> list[str]:
    """Return the folders from which this package and its libraries are imported, for an isolated Python."""
    import ml_dtypes
    import numpy as np

    files = (cuassay.__file__, np.__file__, ml_dtypes.__file__)
    return list(dict.fromkeys(str(Path(str(file)).resolve().parent.parent) for file in files))


def _environment(kind: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _CUDA_VARIABLES if kind == "cuda" and name in os.environ}
    cores = len(os.sched_getaffinity(0))
    threads = {name: str(min(most, cores)) for name, most in _THREADS.items()}
    own = {"CUPY_CACHE_IN_MEMORY": "1"} if kind == "cuda" else {}  # leaves no file for the next candidate
    return {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", **threads, **own, **kept}


def main(descriptor: int, kind: str) -> None:
    """Fork a supervisor for each order, until the judge closes the socket."""
    candidate.preload(kind)
    gc.collect()
    gc.freeze()  # avoids copies of pages that the collector touches after a fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors report by themselves, so nobody waits for them
    orders = socket.socket(fileno=descriptor)
    while True:
        message, received, _, _ = socket.recv_fds(orders, _MESSAGE_NBYTES, len(Order.DESCRIPTORS))
        if not message:
            return
        if os.fork() == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(Order.from_words(json.loads(message)), dict(zip(Order.DESCRIPTORS, received, strict=False)))
        for one in received:
            os.close(one)
