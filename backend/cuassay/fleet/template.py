"""The template of a local fleet: one process that imports pytest, from which the warm processes of all workers fork.

Without it each worker starts a warm process of its own, and each of these imports pytest, NumPy and the plugin again.
The fork server of a local fleet starts the template before it imports dask (`cuassay.fleet.preloaded`), and the workers
inherit the socket to it. `cuassay.fleet.warm` contains what the template does.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cuassay.results.lifeline import Lifeline

__all__ = ["DEFAULTS", "HASH_SEED", "REQUEST", "TEMPLATE", "Template", "request", "start"]

#: The word after the socket's number in the arguments of `cuassay.fleet.warm` that makes it a template.
TEMPLATE = "template"

#: The message that asks the template for a warm process. The socket for its orders comes with the message.
REQUEST = b"fork"

#: Variables that dask sets in its workers if the user has not. An interpreter, the C library or a BLAS reads them as it
#: starts, so the template must start with them.
DEFAULTS = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

#: dask replaces the user's value of this one.
HASH_SEED = {"PYTHONHASHSEED": "6640"}

#: How other variables of this sort begin.
_PREFIXES = ("LC_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON")


@dataclass(frozen=True, slots=True)
class Template:
    """The process, and what it started with.

    Attributes
    ----------
    socket : socket.socket
        Takes the requests of all workers.
    lifeline : Lifeline
        Ends the process with the one that started it.
    process : subprocess.Popen
        The process.
    place : Path
        Its working folder.
    variables : mapping
        The environment variables that it read as it started.
    """

    socket: socket.socket
    lifeline: Lifeline
    process: subprocess.Popen[bytes]
    place: Path
    variables: Mapping[str, str]

    def close(self) -> None:
        """End the process, and with it all that it has forked; may be called twice."""
        self.process.kill()
        self.process.wait()
        self.socket.close()
        self.lifeline.close()


#: The template of this fleet. A worker has it from the fork server, from which it was forked.
_started: list[Template] = []


def start() -> None:
    """Start a template. It ends with this process.

    Raises
    ------
    OSError
        The kernel is older than 5.3: a warm process cannot wait for its shard and for its worker at the same time.
    """
    os.close(os.pidfd_open(os.getpid()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lifeline, environment = Lifeline(), {**DEFAULTS, **os.environ, **HASH_SEED}
    process = subprocess.Popen(
        lifeline.command(["cuassay.fleet.warm", str(theirs.fileno()), TEMPLATE]),
        pass_fds=[*lifeline.inherited, theirs.fileno()],
        env=environment,
    )
    theirs.close()
    _started.append(Template(ours, lifeline, process, Path.cwd(), _read_at_start(environment)))


def request(orders: socket.socket) -> bool:
    """Ask the template for a warm process that takes its orders from `orders`.

    Returns False if there is no template, or if an interpreter that starts here would differ from it. If the template
    ends before it has forked, the kernel closes `orders`.
    """
    for template in _started:
        if (template.place, template.variables) == (Path.cwd(), _read_at_start(os.environ)):
            with suppress(OSError):  # it has ended
                socket.send_fds(template.socket, [REQUEST], [orders.fileno()])
                return True
    return False


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_PREFIXES)}
