"""A scheduler for xdist that matches tests to workers by their devices.

xdist's ``--dist loadgroup`` with a mark would do the same, but pytest 9.2 with xdist 3.8 ignores the mark silently
(pytest-xdist issue 1386).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from cuassay.testing.pool import DevicePool

__all__ = ["DeviceScheduling"]

#: The number of pending tests that a worker needs before it starts one.
_AHEAD = 2

#: Prefix of the scope of a test that runs again, alone.
_AGAIN = "again "


class DeviceScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns tests of an accelerator to one worker, or to workers that have a device; others as ``--dist`` says.

    Parameters
    ----------
    config, log
        Passed to xdist's scheduler.
    accelerators : iterable of str
        Names of devices that only one worker at a time may use, or those of `pools`.
    pools : sequence of DevicePool
        The devices of the workers; if there are none, every worker sees every device.
    """

    def __init__(
        self, config: pytest.Config, log: Any, accelerators: Iterable[str], pools: Sequence[DevicePool] = ()
    ) -> None:
        super().__init__(config, log)
        self._by = config.getoption("dist")
        names = "|".join(map(re.escape, accelerators))
        self._device = re.compile(rf"[\[-]({names})(?=[-\]])")
        self._pools = {f"{pool.kind}:0": pool for pool in pools}
        self._needs: dict[str, Sequence[DevicePool]] = {}
        self._to_begin: set[str] = set()
        self._again: dict[str, str | None] = {}

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Note what a worker collected, except one that xdist shut down before it was ready, and never added.

        That happens if a second worker dies while the replacement of the first one is collecting.
        """
        if node in self.assigned_work:
            super().add_node_collection(node, collection)

    def remove_node(self, node: Any) -> str | None:
        """Return the test that crashed the worker, if any, and keep xdist from giving it to the next worker."""
        units = self.assigned_work.get(node, {}).values()
        crashed = next(((unit, name) for unit in units for name, is_done in unit.items() if not is_done), None)
        if crashed is not None:
            unit, name = crashed
            unit[name] = name not in self._to_begin or name in self._again
            if name in self._to_begin and name in self._again:
                self.workqueue[self._split_scope(name)] = {name: False}
            self._to_begin.discard(name)
        super().remove_node(node)
        return None if crashed is None else str(crashed[1])

    def run_again(self, nodeid: str, worker: str) -> None:
        """Run a test of `worker` again when that has ended; on another device of `pools`, if there is one."""
        self._to_begin.add(nodeid)
        found = self._device.search(nodeid)
        pool = None if found is None else self._pools.get(found[1])
        if pool is not None:
            self._again[nodeid] = pool.word_of(worker)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid in self._again:
            return f"{_AGAIN}{nodeid}"
        found = self._device.search(nodeid)
        if found is not None and found[1] not in self._pools:
            return found[1]
        if self._by == "loadfile":
            return nodeid.partition("::")[0]
        return nodeid.rpartition("::")[0] if self._by == "loadscope" else nodeid

    # ---------------------------------------------------------------------------------------------- who has what

    def _assign_work_unit(self, node: Any) -> None:
        """Assign the first unit that `node` can run; units that need a device come before others."""
        if self._pools and not self._needs:
            for scope in sorted(self.workqueue, key=lambda scope: not self._pools_of(scope)):
                self.workqueue.move_to_end(scope)
        if (scope := self._next(node)) is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """Assign more work as xdist does; shut a worker down if it can run none of the remaining units.

        A worker runs a test only when it knows the next one. xdist gives a replacement worker a single unit, with which
        it would wait forever.
        """
        if node not in self.registered_collections:
            return  # it is still collecting; xdist will call `schedule`
        if self.workqueue and not node.shutting_down and self._next(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)
            if not node.shutting_down and self._pending_of(self.assigned_work[node]) < _AHEAD:
                self._reschedule(node)

    def _next(self, node: Any) -> str | None:
        """The next unit for `node`; one without a device searches from the end, where units without devices are."""
        has_device = any(pool.word_of(node.gateway.id) for pool in self._pools.values())
        scopes = self.workqueue if has_device or not self._pools else reversed(self.workqueue)
        return next((scope for scope in scopes if self._can_run(node, scope)), None)

    def _can_run(self, node: Any, scope: str) -> bool:
        pools = self._pools_of(scope) if self._pools else ()
        return all(pool.word_of(node.gateway.id) for pool in pools) and self._is_other_device(node, scope, pools)

    def _pools_of(self, scope: str) -> Sequence[DevicePool]:
        """The pools of the devices that a unit's tests need."""
        if scope not in self._needs:
            found = {match[1] for nodeid in self.workqueue[scope] if (match := self._device.search(nodeid))}
            self._needs[scope] = [pool for name, pool in self._pools.items() if name in found]
        return self._needs[scope]

    def _is_other_device(self, node: Any, scope: str, pools: Sequence[DevicePool]) -> bool:
        """Whether a unit may run in `node`: a test failed by its device needs another device, if there is one."""
        failed = self._failed_on(scope)
        return failed is None or all(
            pool.word_of(node.gateway.id) != failed or not pool.has_other(failed) for pool in pools
        )

    def _failed_on(self, scope: str) -> str | None:
        """The device that failed a unit's test, if that waits to run again; otherwise None."""
        return self._again.get(scope.removeprefix(_AGAIN)) if scope.startswith(_AGAIN) else None

    def waiting_to_run_elsewhere(self) -> list[tuple[DevicePool, str]]:
        """The pools and failed devices of tests that wait for another device, if no active worker has one."""
        at_work = [node for node in self.nodes if not node.shutting_down]
        return [
            (pool, failed)
            for scope in self.workqueue
            if (failed := self._failed_on(scope)) is not None
            and not any(self._can_run(node, scope) for node in at_work)
            for pool in self._pools_of(scope)
        ]
