"""Workers of xdist and devices: one accelerator's tests stay in one worker, or each worker has a device.

A worker that has lost a device ends after the test that lost it, and xdist starts another; so does one in which the
machine failed a test, which then runs again. Two workers on one accelerator share its memory and disturb each other's
times. This module is a plugin of its own, registered only where xdist is.
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
    """The worker's side: what a report carries must be text that execnet can send, or the worker dies of it."""

    def __init__(self) -> None:
        self._is_unwell = False

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        """Escape lone surrogates, such as a message has that names a file."""
        from cuassay.results.record import sendable  # brings NumPy, which the controller may never need

        return sendable((yield))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """End this process after a test that has lost its device, or that the machine failed, if it is replaced."""
        result = yield
        told = item.config.workerinput  # type: ignore[attr-defined]
        if told.get("cuassay_replaced_by") == "xdist" and (item.config.stash[LOST] or self._is_unwell):
            os._exit(1)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See that the machine failed the test."""
        self._is_unwell = self._is_unwell or hasattr(report, "cuassay_infrastructure")


class Workers:
    """The controller's side: tells the workers the devices, chooses the scheduler, and sees workers replaced.

    Parameters
    ----------
    presence : Presence
        The devices of the session.
    pools : sequence of DevicePool
        From which each worker gets a device; if there are none, it sees all.
    folder : str
        Where workers reserve memory of devices that they share; empty: nowhere.
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
        """Name the devices that the workers have."""
        return [f"cuassay: each worker has one of {', '.join(pool.words)} as {pool.kind}:0" for pool in self._pools]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_newgateway(self, gateway: Any) -> None:
        """Give a new worker its device, before it imports anything."""
        avoid = {failed for _, failed in self._waiting_to_run_elsewhere()}
        environment = {pool.variable: pool.take(gateway.id, avoid) or "" for pool in self._pools}
        if self._folder:
            environment["CUASSAY_RESERVATIONS"] = self._folder
        if environment:
            channel = gateway.remote_exec("import os; os.environ.update(channel.receive())")
            channel.send(environment)
            channel.waitclose()

    def pytest_configure_node(self, node: Any) -> None:
        """Send the decision to a new worker."""
        told = self._presence.to_worker()
        told["counts"] |= {pool.kind: 1 for pool in self._pools}
        node.workerinput["cuassay"] = told
        if node.config.getoption("maxworkerrestart", default=None) != "0":
            node.workerinput["cuassay_replaced_by"] = "xdist"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Let the next worker have the device; where a test waits for it to run again, start that worker.

        xdist replaces only a worker that crashed, and ends one for which nothing is left when another may still fail.
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
        """Ours where several workers meet an accelerator; else None, which leaves it to xdist."""
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
        """Report no test twice, and count no worker that a test has ended, unless ``--max-worker-restart`` asks for it.

        xdist has a hook for the report of a crash, which can change it but not prevent it.
        """
        distributed = session.config.pluginmanager.getplugin("dsession")
        report = getattr(distributed, "handle_crashitem", None)
        most = session.config.getoption("maxworkerrestart", default=None)
        if distributed is None or report is None:
            return

        def handle(nodeid: str, worker: Any) -> None:
            if most is None:
                distributed._failed_nodes_count -= 1  # noqa: SLF001  it counts each one after this call
            if self._second.begin(nodeid):
                if not isinstance(distributed.sched, DeviceScheduling):  # ours has done it
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
        """Report what should have run again and did not come to it."""
        if self._publish is not None:
            self._second.publish(self._publish)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what ran again."""
        if self._second.causes:
            number = len(self._second.causes)
            terminalreporter.section("cuassay isolation")
            terminalreporter.write_line(f"failed by the machine, and run again in a fresh process ({number}):")
        for nodeid, cause in self._second.causes.items():
            terminalreporter.write_line(f"  {nodeid}: {cause}")


def _runs_again(scheduler: Any) -> bool:
    """Whether the scheduler takes a test back: xdist's for scopes does not."""
    return isinstance(scheduler, DeviceScheduling) or not isinstance(scheduler, (LoadScopeScheduling, EachScheduling))
