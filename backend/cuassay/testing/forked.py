"""The worker of ``pytest --cuassay-isolate`` that is forked from its controller: it runs what that has collected.

The session, its plugins and their state are copies of the controller's. Reporting continues in the controller: here,
reporting hooks reach no plugin, and what the session has set up is not torn down. Fixtures are set up here.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import pytest

from cuassay.results.lifeline import follow
from cuassay.testing.harness import begin_again
from cuassay.testing.node import Told
from cuassay.testing.sending import Sender, load_devices

__all__ = ["ForkedWorker"]

#: Hooks that report on tests: the controller calls the plugins' hooks, so this process must not.
_TELLING = (
    "pytest_report_teststatus",
    "pytest_runtest_logfinish",
    "pytest_runtest_logreport",
    "pytest_runtest_logstart",
    "pytest_warning_recorded",
)


class ForkedWorker(Sender):
    """Runs tests in a forked process.

    Parameters
    ----------
    session : pytest.Session
        The controller's session, which has collected.
    told : mapping
        The ``workerinput``; ``cuassay_faults`` in it is the descriptor of the file for crash stacks.
    orders, reports : Connection
        The pipes from and to the controller.
    """

    def __init__(
        self, session: pytest.Session, told: Mapping[str, Any], orders: Connection, reports: Connection
    ) -> None:
        super().__init__(orders, reports)
        self._session, self._told = session, told
        self._config = session.config
        self._faults = told["cuassay_faults"]

    def run(self, parent: int) -> NoReturn:
        """Run the ordered tests and end this process; `parent` is the controller's process id."""
        status = 1
        try:
            follow(parent)
            self._become_worker()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            status = self._run()
        except BaseException:  # noqa: BLE001  the callers are frames of the controller, which must not run on here
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(status)

    def _become_worker(self) -> None:
        config, self._process = self._config, os.getpid()
        atexit._clear()  # noqa: SLF001  the controller runs these functions itself; multiprocessing does the same
        gc.freeze()  # a collection would write to all pages shared with the controller, and so copy them
        config.workerinput = Told(self._told)  # type: ignore[attr-defined]
        config.workeroutput = self._output  # type: ignore[attr-defined]
        _capture_again(config)
        self.write_beside_stacks(config)
        faulthandler.enable(self._faults)
        _measure_nothing(config)
        self._take_hooks(config)
        begin_again(config)

    def _take_hooks(self, config: pytest.Config) -> None:
        manager = config.pluginmanager
        others = manager.get_plugins() - {self._session}  # the session counts failures for --maxfail
        manager.register(self, "cuassay_forked")
        for name in _TELLING:
            setattr(config.hook, name, manager.subset_hook_caller(name, others))

    def _run(self) -> int:
        status = pytest.ExitCode.OK
        try:
            load_devices(self._session.items)
            self.send("ready")
            self.run_tests(self._session)
        except KeyboardInterrupt:  # the controller receives it as well
            status = pytest.ExitCode.INTERRUPTED
        except pytest.exit.Exception as error:
            self.send("exit", str(error), error.returncode)
            status = pytest.ExitCode.INTERRUPTED
        self._config.pluginmanager.get_plugin("runner").pytest_sessionfinish(self._session)  # type: ignore[union-attr]
        self.send_end(self._session)
        if not self.is_lost:
            atexit._run_exitfuncs()  # noqa: SLF001  functions that tests have registered
        return int(status)


def _capture_again(config: pytest.Config) -> None:
    """Capture into new files, because the controller shares the old ones and their offsets."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()


def _measure_nothing(config: pytest.Config) -> None:
    """Run each benchmark once, as a test, without measuring."""
    if hasattr(config.option, "benchmark_disable"):
        config.option.benchmark_disable = True
    measured = getattr(config, "_benchmarksession", None)
    if measured is not None:
        measured.disabled = True
