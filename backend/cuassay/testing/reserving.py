"""Reserve what a test needs of its device before it starts, if processes share devices.

They share devices if the setting CUASSAY_RESERVATIONS names a folder. ``cuassay run`` with several jobs and
``--cuassay-workers share`` set it for their processes. Every test makes a reservation, so that a test that needs its
device alone can wait for the others. `cuassay.testing.reservations` implements the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core import settings
from cuassay.core.capability import parse_requirement
from cuassay.core.device import Device
from cuassay.errors import CuassayError
from cuassay.testing.marks import EXCLUSIVE
from cuassay.testing.skips import case_of, requirements

if TYPE_CHECKING:
    from cuassay.testing.reservations import Need

__all__ = ["held", "need_of"]

_HELD = pytest.StashKey[bool]()


@contextmanager
def held(item: pytest.Item, before_waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold a reservation for `item` inside the block; a nested block for the same test does nothing.

    Parameters
    ----------
    item : pytest.Item
        The test that is about to run.
    before_waiting : callable
        Called once if the device does not have enough free memory yet.
    """
    folder = settings.get("CUASSAY_RESERVATIONS")
    case = case_of(item) if folder and _HELD not in item.stash else {}
    need = need_of(item, case) if case and case["device"].kind != "cpu" else None
    if need is None:
        yield
        return
    from cuassay.testing.reservations import Reservation

    item.stash[_HELD] = True
    try:
        with closing(Reservation(Path(folder), need)) as reservation:
            if not reservation.try_begin():
                before_waiting()
                reservation.wait()
            yield
            if need.nbytes:
                _release(case["device"])
    finally:
        del item.stash[_HELD]


def need_of(item: pytest.Item, case: dict[str, Any]) -> Need | None:
    """What the test declares to need of its device; nothing if the device has less memory, because it is then skipped.

    None if the device or the declaration is invalid, which the set-up of the test reports.
    """
    from cuassay.devices import backend, capabilities
    from cuassay.testing.reservations import Need

    device: Device = case["device"]
    with suppress(CuassayError, pytest.UsageError):
        total = int(capabilities(device).answer("memory").value)
        asked = [parse_requirement(word) for word in requirements(item)]
        nbytes = int(max((one.minimum or 0 for one in asked if one.name == "memory"), default=0))
        name = backend(device.kind).identity(device.index).get("uuid", str(device))
        is_run = nbytes <= total
        return Need(name, nbytes if is_run else 0, total, alone=is_run and _is_alone(item))
    return None


def _is_alone(item: pytest.Item) -> bool:
    """Whether other tests on the device would disturb this one: it is marked exclusive, or it is a benchmark."""
    if item.get_closest_marker(EXCLUSIVE) is not None:
        return True
    return "benchmark" in getattr(item, "fixturenames", ()) and not item.config.getoption("benchmark_disable", True)


def _release(device: Device) -> None:
    """Free the memory that this process caches, because the next test may run in another process."""
    from cuassay.devices import backend

    release = getattr(backend(device.kind), "release_cached", None)
    if release is not None:
        with suppress(CuassayError):  # the test may have lost the device
            release(device.index)
