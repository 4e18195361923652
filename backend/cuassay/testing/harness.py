"""The state of one pytest session: its devices, its cases and the devices that it has lost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core import settings
from cuassay.core.device import HOST_KINDS, Device
from cuassay.testing import options
from cuassay.testing.isolation import LOST, HangGuard, LostDevices, worker_input
from cuassay.testing.parametrize import Parametrizer
from cuassay.testing.presence import Presence

if TYPE_CHECKING:
    from cuassay.testing.trail import Trail

__all__ = ["HARNESS", "Harness", "begin_again"]


class Harness:
    """The state of one session: devices, parametrization, lost devices, hang guard and trail."""

    def __init__(self, config: pytest.Config) -> None:
        self.presence = _presence(config)
        self.parametrize = Parametrizer(self.presence)
        self.is_replaceable = bool(worker_input(config, "cuassay_replaced_by"))
        told = ["the other tests run in a fresh process"] if self.is_replaceable else []
        self.lost = config.stash[LOST] = LostDevices(*told)
        self.hang = HangGuard(config)
        self.reserves = bool(settings.get("CUASSAY_RESERVATIONS"))
        self.trail: Trail | None = None
        if self.is_replaceable:
            from cuassay.testing.trail import Trail

            self.trail = Trail(worker_input(config, "cuassay_trail", -1))

    def watched(self, case: dict[str, Any]) -> tuple[Device, ...]:
        """The devices that a test may break: its own; without one, all accelerators if this process is replaceable."""
        if case:
            return (case["device"],)
        if not self.is_replaceable or sys.modules.keys().isdisjoint(_LIBRARIES):
            return ()
        return tuple(device for device in self.presence.devices if device.kind not in HOST_KINDS)


#: Libraries that can use an accelerator. If none of them is imported, no device needs to be checked.
_LIBRARIES = ("cuda.bindings", "cupy", "jax", "numba.cuda", "torch")


#: The key under which `pytest.Config` stores the harness.
HARNESS = pytest.StashKey[Harness]()


def begin_again(config: pytest.Config) -> None:
    """Make the harness of a worker, in a process forked from the one that has collected."""
    before = config.stash[HARNESS]
    before.hang.close()
    config.stash[HARNESS] = Harness(config)
    config.stash[HARNESS].presence = before.presence  # the one in `SESSIONS`


def _presence(config: pytest.Config) -> Presence:
    told = worker_input(config, "cuassay")
    if told is not None:
        return Presence.from_controller(told)
    wanted = options.split_list(config.getoption("cuassay_device"))
    required = options.split_list(config.getoption("cuassay_require_device"))
    return Presence(wanted, required) if wanted else Presence.of_setting(required)
