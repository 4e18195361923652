"""The workers of a cluster as they come and go, and the task that each of them runs."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cuassay.core.device import HOST_KINDS
from cuassay.fleet.places import KIND, UUID
from cuassay.fleet.shard import stop_shard

__all__ = ["Place", "Workers"]

#: The topic under which dask's scheduler says which workers come and go.
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Place:
    """One worker.

    Attributes
    ----------
    name, address : str
        As dask knows it.
    kinds : frozenset of str
        The kinds of its devices.
    seats : frozenset of str
        What it occupies while it works: the uuids of its devices, and its host if one of them computes there. Workers
        with a common seat disturb one another's timings.
    """

    name: str
    address: str
    kinds: frozenset[str]
    seats: frozenset[str]


class Workers:
    """The workers of ours in a cluster; others, which announce no device, are left alone.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster.
    events : queue.Queue
        Takes ``("lost", (attempt, why))`` where a worker ended or a task raised, ``("freed", attempt)`` where a task
        returned, and ``("changed", None)`` where a worker came or went.
    """

    def __init__(self, client: Any, events: queue.Queue[tuple[str, Any]]) -> None:
        self._client = client
        self._events = events
        self._places: dict[str, Place] = {}
        self._busy: dict[str, int] = {}
        self._futures: dict[int, Any] = {}
        self._left_out: set[str] = set()
        self._lost: dict[str, tuple[Place, float]] = {}  # by name, and when
        self._changes: queue.Queue[dict[str, Any]] = queue.Queue()
        client.subscribe_topic(_ALL, self._note)
        self._refresh()

    def __repr__(self) -> str:
        return f"Workers({len(self._places)} here, {len(self._busy)} busy)"

    def close(self) -> None:
        """Listen no more."""
        self._client.unsubscribe_topic(_ALL)

    def _note(self, event: tuple[float, Any]) -> None:
        """What the scheduler tells, in a thread of the client."""
        told = event[1]
        if isinstance(told, dict) and told.get("action") in ("add-worker", "remove-worker"):
            self._changes.put(told)
            self._events.put(("changed", None))

    def update(self) -> None:
        """Take in who has come and gone."""
        is_new = False
        while not self._changes.empty():
            told = self._changes.get()
            is_new |= told["action"] == "add-worker"
            if told["action"] == "remove-worker":
                self._remove(told["worker"])
        if is_new:
            self._refresh()

    def _refresh(self) -> None:
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        for address in [address for address in self._places if address not in found]:
            self._remove(address)
        for address, told in found.items():
            kinds = frozenset(name.removeprefix(KIND) for name in told["resources"] if name.startswith(KIND))
            if kinds:
                self._places[address] = place = Place(str(told["name"]), address, kinds, _seats(told, kinds))
                self._lost.pop(place.name, None)

    def _remove(self, address: str) -> None:
        place = self._places.pop(address, None)
        number = self._busy.pop(address, None)
        if place is not None:
            self._lost[place.name] = (place, time.monotonic())
        if number is not None and place is not None:
            self._release(number)
            self._events.put(("lost", (number, f"worker {place.name} was lost")))

    def _release(self, number: int) -> None:
        if (future := self._futures.pop(number, None)) is not None:
            future.release()

    def idle(self) -> list[Place]:
        """Those that have nothing to do."""
        return [
            place
            for place in self._places.values()
            if place.address not in self._busy and place.name not in self._left_out
        ]

    def is_taken(self, place: Place) -> bool:
        """Whether a worker that occupies what `place` does has something to do."""
        busy = (self._places[address] for address in self._busy if address in self._places)
        return any(other.seats & place.seats for other in busy)

    def seats(self, kinds: Iterable[str]) -> frozenset[str]:
        """What the workers with a device of one of the `kinds` occupy."""
        kinds = frozenset(kinds)
        return frozenset[str]().union(*(place.seats for place in self._places.values() if place.kinds & kinds))

    def names(self, kinds: Iterable[str], lost_within_s: float = 0.0) -> frozenset[str]:
        """The names of those that have a device of one of the `kinds`.

        Parameters
        ----------
        kinds : iterable of str
            The kinds.
        lost_within_s : float
            Workers that were lost no longer ago count too: dask starts a worker again whose process has died.
        """
        kinds, since = frozenset(kinds), time.monotonic() - lost_within_s
        found = [*self._places.values(), *(place for place, when in self._lost.values() if when > since)]
        return frozenset(place.name for place in found if place.kinds & kinds and place.name not in self._left_out)

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._places)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of all their devices."""
        return frozenset[str]().union(*(place.kinds for place in self._places.values()))

    def leave_out(self, name: str) -> None:
        """Give a worker nothing more: its device is not well."""
        self._left_out.add(name)

    def start(self, place: Place, kind: str, number: int, function: Callable[..., None], words: dict[str, Any]) -> None:
        """Let a worker run attempt `number`, as a task of words alone."""
        future = self._client.submit(
            function,
            words,
            place.name,
            key=f"cuassay-{words['run']}-{number}",
            workers=[place.address],
            allow_other_workers=False,
            resources={f"{KIND}{kind}": 1},
            pure=False,
        )
        self._busy[place.address] = number
        self._futures[number] = future
        future.add_done_callback(lambda done: self._ended(number, done))

    def _ended(self, number: int, future: Any) -> None:
        """A task has returned or raised; called in a thread of the client."""
        if future.status == "error":
            self._events.put(("lost", (number, f"its task failed: {future.exception(timeout=5)!r}")))
        elif future.status == "finished":
            self._events.put(("freed", number))

    def finished(self, number: int) -> None:
        """The worker of attempt `number` is free again."""
        self._busy = {address: busy for address, busy in self._busy.items() if busy != number}
        self._release(number)

    def stop(self, number: int, run: str) -> None:
        """End attempt `number`: another one has ended first."""
        found = [address for address, busy in self._busy.items() if busy == number]
        if found:
            self._client.run(stop_shard, run, number, workers=found, on_error="ignore")


def _seats(told: Mapping[str, Any], kinds: frozenset[str]) -> frozenset[str]:
    """What a worker occupies; its name where it owns an accelerator that it does not name."""
    host = {str(told["host"])} if kinds & frozenset(HOST_KINDS) else set[str]()
    if kinds <= frozenset(HOST_KINDS):
        return frozenset(host)
    uuids = {name for name in told["resources"] if name.startswith(UUID)}
    return frozenset(host | (uuids or {str(told["name"])}))
