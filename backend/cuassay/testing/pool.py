"""Assign devices to xdist workers by UUID, within what the caller's own mask leaves visible.

A worker gets its device before it imports anything, through the variable that masks devices of that kind. In the worker
the device has index 0, so that all workers collect the same tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pytest

from cuassay.core.device import HOST_KINDS

if TYPE_CHECKING:
    from cuassay.testing.presence import Presence

__all__ = ["DevicePool", "pools_of"]


class DevicePool:
    """The devices of one kind that workers can get.

    Parameters
    ----------
    kind : str
        The kind.
    variable : str
        The environment variable that masks its devices in a new process, such as CUDA_VISIBLE_DEVICES.
    words : sequence of str
        The devices, by their names in `variable`.
    shares : bool
        Whether several workers may have the same device.
    """

    def __init__(self, kind: str, variable: str, words: Sequence[str], *, shares: bool) -> None:
        self.kind = kind
        self.variable = variable
        self.words = tuple(words)
        self._shares = shares
        self._taken: dict[str, str] = {}
        self._failures: Counter[str] = Counter()
        self._lost: set[str] = set()

    def __repr__(self) -> str:
        return f"DevicePool({self.kind}, {len(self.words)} devices, {len(set(self._taken.values()))} taken)"

    def word_of(self, worker: str) -> str | None:
        """The device of `worker`, or None."""
        return self._taken.get(worker)

    def take(self, worker: str, avoid: Collection[str] = ()) -> str | None:
        """Give `worker` a device with the fewest users, and among these the fewest failures; None if none is free.

        A lost device is given only if all are lost. A device of `avoid` is given only if no other is free.
        """
        users = Counter(self._taken.values())
        free = self._free(users)
        if not free:
            return None
        self._taken[worker] = min(free, key=lambda word: (word in avoid, users[word], self._failures[word]))
        return self._taken[worker]

    def _free(self, users: Counter[str]) -> list[str]:
        return [word for word in self._usable if self._shares or not users[word]]

    @property
    def _usable(self) -> Sequence[str]:
        return [word for word in self.words if word not in self._lost] or self.words

    def has_other(self, failed: str) -> bool:
        """Whether a test that failed on `failed` can run again on another device."""
        return any(word != failed for word in self._usable)

    def is_other_free(self, failed: str) -> bool:
        """Whether a new worker could get such a device now."""
        return any(word != failed for word in self._free(Counter(self._taken.values())))

    def give_back(self, worker: str) -> None:
        """Free the device of a worker that has ended."""
        self._taken.pop(worker, None)

    def fail(self, worker: str, *, is_lost: bool) -> None:
        """Count a failure of the worker's device, and remember whether it is lost."""
        word = self._taken.get(worker)
        if word is not None:
            self._failures[word] += 1
            self._lost |= {word} if is_lost else set()


def pools_of(presence: Presence, mode: str) -> list[DevicePool]:
    """A pool for each selected kind whose devices can be assigned to workers.

    Raises
    ------
    pytest.UsageError
        If a selected device does not have index 0, or no selected device can be assigned.
    """
    from cuassay.devices import backend

    other = next((device for device in presence.devices if device.index), None)
    if other is not None:
        raise pytest.UsageError(
            f"--cuassay-workers {mode} gives each worker one device, which has index 0 there; {other} is chosen; "
            "choose a kind, such as --device cuda, and leave devices out by the variable that masks them"
        )
    backends = [backend(device.kind) for device in presence.devices]
    pools = [
        DevicePool(one.kind, *ask(), shares=mode == "share")
        for one in backends
        if (ask := getattr(one, "visibility", None)) is not None
    ]
    if not pools:
        chosen = ", ".join(map(str, presence.devices))
        raise pytest.UsageError(
            f"--cuassay-workers {mode} gives devices to workers; none of {chosen} can be given; "
            f"choose an accelerator, such as --device {next(iter(HOST_KINDS[1:]))}, or leave the option out"
        )
    return pools
