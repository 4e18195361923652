"""The worker of ``pytest --cuassay-isolate`` that is not a fork: a session of its own, which collects for itself.

To other plugins it is a worker of pytest-xdist: ``config.workerinput`` is set, and nothing is printed. What it does is
`cuassay.testing.sending`'s; `cuassay.testing.forking` says when there is need of it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from cuassay.testing.node import Told
from cuassay.testing.sending import Sender, load_devices

__all__ = ["Worker", "main"]


class Worker(Sender):
    """A pytest plugin: the session of a worker.

    Parameters
    ----------
    told : dict
        ``workerinput`` of the session; its ``cuassay_faults`` is the descriptor of the file for stacks.
    orders, reports : Connection
        From the controller, and to it.
    """

    def __init__(self, told: dict[str, Any], orders: Connection, reports: Connection) -> None:
        super().__init__(orders, reports)
        self._told = told

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        """Be a worker before the first plugin is configured."""
        config = self._config = yield
        config.workerinput = Told(self._told)  # type: ignore[attr-defined]
        config.workeroutput = self._output  # type: ignore[attr-defined]
        self._faults = self._told["cuassay_faults"]
        self._silence(config)
        if hasattr(config.option, "benchmark_disable"):
            config.option.benchmark_disable = True
        return config

    def _silence(self, config: pytest.Config) -> None:
        """Let reporters print nothing.

        Plugins replace pytest's reporter by their own, which takes the standard output that it finds; so there is one.
        """
        self.write_beside_stacks(config)
        self._nowhere = Path(os.devnull).open("w")  # noqa: SIM115  to the end
        self._stdout, sys.stdout = sys.stdout, self._nowhere

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Let tests print, now that the reporters are made."""
        sys.stdout = self._stdout

    def pytest_internalerror(self, excrepr: object) -> None:
        """Print an error of pytest or of a plugin where it can be seen."""
        sys.stderr.write(f"{excrepr}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Write the stack of a crash where the controller finds it, instead of on the terminal."""
        faulthandler.enable(self._faults)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of the order."""
        load_devices(session.items)  # while the controller collects, or another worker runs tests
        self.send("ready")
        self.run_tests(session)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Spare the silent reporter the words: the process that reports finds them."""
        return "", "", ""

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Pass on `pytest.exit`; Ctrl-C reaches the controller by itself."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            self.send("exit", str(excinfo.value), excinfo.value.returncode)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say that this worker came to its end; print no summary."""
        sys.stdout = self._nowhere
        self.send_end(session)


def main(argv: Sequence[str]) -> None:
    """Run one session for the controller at the other end of two pipes."""
    orders, reports = (Connection(int(argv[0]), writable=False), Connection(int(argv[1]), readable=False))
    told: dict[str, Any] = orders.recv()
    sys.path[:] = told["path"]
    worker = Worker(told["workerinput"], orders, reports)
    status = pytest.main(told["args"], plugins=[worker])
    sys.stdout.flush()
    sys.stderr.flush()
    if worker.is_lost:
        os._exit(int(status))  # a driver whose context is dead may hang while the interpreter ends


if __name__ == "__main__":
    main(sys.argv[1:])
