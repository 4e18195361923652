"""The worker of ``pytest --cuassay-isolate`` that is not forked: a separate session, which collects for itself.

To other plugins it looks like a worker of pytest-xdist: ``config.workerinput`` is set, and nothing is printed.
`cuassay.testing.sending` defines what it does, and `cuassay.testing.forking` when it is needed.
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
from cuassay.testing.rewriting import leave_packages_as_they_are
from cuassay.testing.sending import Sender, load_devices

__all__ = ["Worker", "main"]


class Worker(Sender):
    """A pytest plugin that makes a session a worker.

    Parameters
    ----------
    told : dict
        The session's ``workerinput``; ``cuassay_faults`` in it is the descriptor of the file for crash stacks.
    orders, reports : Connection
        The pipes from and to the controller.
    """

    def __init__(self, told: dict[str, Any], orders: Connection, reports: Connection) -> None:
        super().__init__(orders, reports)
        self._told = told

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        """Set the attributes of a worker before the first plugin is configured."""
        config = self._config = yield
        config.workerinput = Told(self._told)  # type: ignore[attr-defined]
        config.workeroutput = self._output  # type: ignore[attr-defined]
        self._faults = self._told["cuassay_faults"]
        self._silence(config)
        if hasattr(config.option, "benchmark_disable"):
            config.option.benchmark_disable = True
        return config

    def _silence(self, config: pytest.Config) -> None:
        """Make all reporters write nowhere.

        Plugins replace pytest's reporter by their own, which takes the current standard output, so this is replaced.
        """
        self.write_beside_stacks(config)
        self._nowhere = Path(os.devnull).open("w")  # noqa: SIM115  open until the process ends
        self._stdout, sys.stdout = sys.stdout, self._nowhere

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Restore the standard output for tests, now that all reporters exist."""
        sys.stdout = self._stdout

    def pytest_internalerror(self, excrepr: object) -> None:
        """Print an error of pytest or of a plugin to stderr, which is not silenced."""
        sys.stderr.write(f"{excrepr}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Write the stacks of a crash to the controller's file, instead of the terminal."""
        faulthandler.enable(self._faults)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the ordered tests."""
        load_devices(session.items)  # meanwhile the controller collects, or another worker runs tests
        self.send("ready")
        self.run_tests(session)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Skip the computation of status words, because this process prints none."""
        return "", "", ""

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Send `pytest.exit` to the controller; Ctrl-C reaches it directly."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            self.send("exit", str(excinfo.value), excinfo.value.returncode)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send that this worker has finished, and print no summary."""
        sys.stdout = self._nowhere
        self.send_end(session)


def main(argv: Sequence[str]) -> None:
    """Run one session for the controller, with which two pipes connect it."""
    orders, reports = (Connection(int(argv[0]), writable=False), Connection(int(argv[1]), readable=False))
    told: dict[str, Any] = orders.recv()
    sys.path[:] = told["path"]
    worker = Worker(told["workerinput"], orders, reports)
    leave_packages_as_they_are()
    status = pytest.main(told["args"], plugins=[worker])
    sys.stdout.flush()
    sys.stderr.flush()
    if worker.is_lost:
        os._exit(int(status))  # a driver with a broken context may hang when the interpreter exits


if __name__ == "__main__":
    main(sys.argv[1:])
