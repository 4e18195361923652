"""Which workers a machine offers: one for each device, or a number of local ones; what each announces and may see.

A worker announces its device to dask as resources: its kind, model, uuid and memory. In it the device has index 0, by
the variable that masks the devices of its kind.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuassay import devices
from cuassay.core.device import HOST_KINDS, VALUELESS_KINDS, Device
from cuassay.errors import DeviceError

__all__ = ["KIND", "MODEL", "UUID", "Offer", "default_kinds", "local_offers", "offers"]

#: How the resources of a worker begin that tell the kinds of its devices.
KIND = "kind-"

#: What a worker imports as it starts, to be ready for its first shard.
_SHARD = "cuassay.fleet.shard"

#: And those that tell the model and the uuid of a device.
MODEL = "model-"
UUID = "uuid-"


@dataclass(frozen=True, slots=True)
class Offer:
    """One worker to be started.

    Attributes
    ----------
    name : str
        Unlike that of any other worker.
    resources : dict
        What it announces.
    environment : dict
        Variables that mask the devices of others.
    """

    name: str
    resources: dict[str, float]
    environment: dict[str, str]

    def options(self) -> dict[str, Any]:
        """For ``distributed.Nanny``. The tests run in a process of their own, so that the worker needs one thread."""
        return {
            "name": self.name,
            "nthreads": 1,
            "resources": self.resources,
            "env": self.environment,
            "silence_logs": logging.ERROR,
            "preload": [_SHARD],
            "memory_limit": 0,  # dask would watch the worker's memory, and the tests' is elsewhere
        }


def offers(kinds: Sequence[str]) -> list[Offer]:
    """A worker for each device of the `kinds` on this machine.

    Raises
    ------
    DeviceError
        A kind has no device here.
    """
    host = f"{socket.gethostname()}-{os.getpid()}"
    return [_offer(f"{host}-{kind}-{index}", [(kind, index)]) for kind in kinds for index in range(_count(kind))]


def local_offers(kinds: Sequence[str], number: int) -> list[Offer]:
    """`number` workers on this machine, each with a device of every kind; several may share one.

    Raises
    ------
    DeviceError
        A kind has no device here.
    """
    counts = {kind: _count(kind) for kind in kinds}
    return [_offer(f"local-{at}", [(kind, at % count) for kind, count in counts.items()]) for at in range(number)]


def _count(kind: str) -> int:
    if kind not in devices.kinds():
        raise DeviceError(devices.unknown_kind(kind))
    if kind in VALUELESS_KINDS:
        raise DeviceError(f"arrays of kind {kind} hold no values, so no tests run there; got {kind!r}; choose another")
    owner = devices.backend(kind)
    why = owner.why_absent()
    if why:
        raise DeviceError(f"this machine has no device of kind {kind}: {why}; choose another with --device")
    return int(owner.count())


def _offer(name: str, chosen: Sequence[tuple[str, int]]) -> Offer:
    resources: dict[str, float] = {}
    environment: dict[str, str] = {}
    for kind, index in chosen:
        resources |= _resources(kind, index)
        environment |= _mask(kind, index)
    return Offer(name, resources, environment)


def _resources(kind: str, index: int) -> dict[str, float]:
    identity = devices.backend(kind).identity(index)
    found = {f"{KIND}{kind}": 1.0, f"{MODEL}{identity['name']}": 1.0}
    if identity.get("uuid"):
        found[f"{UUID}{identity['uuid']}"] = 1.0
    memory = devices.capabilities(Device(kind, index)).answer("memory")
    return {**found, f"memory-{kind}": float(memory.value)} if memory else found


def _mask(kind: str, index: int) -> dict[str, str]:
    ask = getattr(devices.backend(kind), "visibility", None)
    if ask is None:
        return {}
    variable, words = ask()
    return {variable: words[index]}


def default_kinds() -> list[str]:
    """The kinds of the accelerators here, or else the cpu."""
    others = (*HOST_KINDS, *VALUELESS_KINDS)
    found = [kind for kind in devices.kinds() if kind not in others and not devices.backend(kind).why_absent()]
    return found or ["cpu"]
