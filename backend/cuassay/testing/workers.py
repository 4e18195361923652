"""xdist workers and devices: either all tests of an accelerator run in one worker, or each worker has a device.

A worker that has lost a device ends after that test, and xdist starts another. It also ends after a test that the
machine failed, and that test runs again. Two workers on one accelerator share its memory and disturb each other's
timings. This plugin is registered only if xdist is.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from xdist.scheduler import EachScheduling, LoadScopeScheduling

from cuassay.core.device import HOST_KINDS
from cuassay.testing.infrastructure import LOST_GPU
from cuassay.testing.isolation import LOST
from cuassay.testing.pool import DevicePool
from cuassay.testing.presence import Presence
from cuassay.testing.scheduling import DeviceScheduling
from cuassay.testing.second_runs import SecondRuns

__all__ = ["DeviceScheduling", "Reporter", "Workers"]


class Reporter:
    """The worker's side: makes reports text that execnet can send, because the worker would crash otherwise."""

    def __init__(self) -> None:
        self._is_unwell = False

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        """Escape lone surrogates, which occur for example in a message that contains a file name."""
        from cuassay.results.record import sendable  # imports NumPy, which the controller may never need

        return sendable((yield))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """End a replaceable worker after a test that lost its device, or that the machine failed."""
        result = yield
        told = item.config.workerinput  # type: ignore[attr-defined]
        if told.get("cuassay_replaced_by") == "xdist" and (item.config.stash[LOST] or self._is_unwell):
            os._exit(1)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember whether the machine failed a test."""
        self._is_unwell = self._is_unwell or hasattr(report, "cuassay_infrastructure")


class Workers:
    """The controller's side: sends the devices to workers, chooses the scheduler, and has workers replaced.

    Parameters
    ----------
    presence : Presence
        The devices of the session.
    pools : sequence of DevicePool
        The pools from which each worker gets a device; if there are none, a worker sees all devices.
    folder : str
        The folder in which workers reserve memory of devices that they share; empty if they do not.
    """

    def __init__(self, presence: Presence, pools: Sequence[DevicePool] = (), folder: str = "") -> None:
        self._presence = presence
        self._pools = pools
        self._folder = folder
        self._reported: set[str] = set()
        self._second = SecondRuns()
        self._publish: Any = None
        self._distributed: Any = None

    def pytest_report_header(self) -> list[str]:
        """Name the devices of the workers."""
        return [f"cuassay: each worker has one of {', '.join(pool.words)} as {pool.kind}:0" for pool in self._pools]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_newgateway(self, gateway: Any) -> None:
        """Assign a device to a new worker, before it imports anything."""
        avoid = {failed for _, failed in self._waiting_to_run_elsewhere()}
        environment = {pool.variable: pool.take(gateway.id, avoid) or "" for pool in self._pools}
        if self._folder:
            environment["CUASSAY_RESERVATIONS"] = self._folder
        if environment:
            channel = gateway.remote_exec("import os; os.environ.update(channel.receive())")
            channel.send(environment)
            channel.waitclose()

    def pytest_configure_node(self, node: Any) -> None:
        """Send the chosen devices to a new worker."""
        told = self._presence.to_worker()
        told["counts"] |= {pool.kind: 1 for pool in self._pools}
        node.workerinput["cuassay"] = told
        if node.config.getoption("maxworkerrestart", default=None) != "0":
            node.workerinput["cuassay_replaced_by"] = "xdist"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Free the worker's device; if a test waits to run again on another device, start a new worker.

        xdist replaces a worker only if it crashed. It also shuts down a worker without remaining tests, although a test
        of another worker may still have to run again.
        """
        for pool in self._pools:
            pool.give_back(node.gateway.id)
        distributed = self._distributed
        is_stopped = error is not None or distributed is None or distributed.shouldstop or distributed._summary_report  # noqa: SLF001
        if is_stopped or any(node.workeroutput[why] for why in ("shouldstop", "shouldfail")):
            return
        if any(pool.is_other_free(failed) for pool, failed in self._waiting_to_run_elsewhere()):
            distributed.shuttingdown = False
            distributed._clone_node(node)  # noqa: SLF001  as it does after a crash

    def _waiting_to_run_elsewhere(self) -> list[tuple[DevicePool, str]]:
        scheduler = getattr(self._distributed, "sched", None)
        return scheduler.waiting_to_run_elsewhere() if isinstance(scheduler, DeviceScheduling) else []

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> DeviceScheduling | None:
        """The scheduler of this plugin if several workers meet an accelerator; otherwise None, for xdist's own."""
        pooled = [pool.kind for pool in self._pools]
        accelerators = [
            str(device) for device in self._presence.devices if device.kind not in HOST_KINDS or device.kind in pooled
        ]
        if not accelerators or config.getoption("dist") in ("no", "each"):
            return None
        return DeviceScheduling(config, log, accelerators, self._pools)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the tests after which their worker ends."""
        if hasattr(report, "cuassay_lost") or hasattr(report, "cuassay_infrastructure"):
            self._reported.add(report.nodeid)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Wrap xdist's crash handler.

        It must not report a test twice. Unless ``--max-worker-restart`` is given, it must not count a worker that a
        test has ended. xdist's hook for crash reports can change such a report but not prevent it.
        """
        distributed = session.config.pluginmanager.getplugin("dsession")
        report = getattr(distributed, "handle_crashitem", None)
        most = session.config.getoption("maxworkerrestart", default=None)
        if distributed is None or report is None:
            return

        def handle(nodeid: str, worker: Any) -> None:
            if most is None:
                distributed._failed_nodes_count -= 1  # noqa: SLF001  xdist increments it after this call
            if self._second.begin(nodeid):
                if not isinstance(distributed.sched, DeviceScheduling):  # our scheduler has done so already
                    distributed.sched.mark_test_pending(nodeid)
            elif nodeid not in self._reported:
                report(nodeid, worker)

        distributed.handle_crashitem = handle
        if most != "0":
            self._distributed = distributed
            self._keep_first_runs(distributed)

    def _keep_first_runs(self, distributed: Any) -> None:
        self._publish = publish = distributed.worker_testreport

        def take(node: Any, rep: pytest.TestReport) -> None:
            cause, scheduler = getattr(rep, "cuassay_infrastructure", None), distributed.sched
            for pool in self._pools:
                if cause:
                    pool.fail(node.gateway.id, is_lost=cause.startswith(LOST_GPU))
            if not (_runs_again(scheduler) and self._second.keeps(node, rep)):
                publish(node, rep)
            elif cause and isinstance(scheduler, DeviceScheduling):
                scheduler.run_again(rep.nodeid, node.gateway.id)

        distributed.worker_testreport = take

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report the tests that should have run again but did not."""
        if self._publish is not None:
            self._second.publish(self._publish)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests that ran again."""
        if self._second.causes:
            number = len(self._second.causes)
            terminalreporter.section("cuassay isolation")
            terminalreporter.write_line(f"failed by the machine, and run again in a fresh process ({number}):")
        for nodeid, cause in self._second.causes.items():
            terminalreporter.write_line(f"  {nodeid}: {cause}")


def _runs_again(scheduler: Any) -> bool:
    """Whether the scheduler can run a test again; xdist's schedulers for scopes cannot."""
    return isinstance(scheduler, DeviceScheduling) or not isinstance(scheduler, (LoadScopeScheduling, EachScheduling))
