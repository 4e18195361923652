"""The facts about a device that are recorded: those of the device and this machine, and the device's capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from cuassay.core.capability import DTYPE_NAMES, FEATURES, OP_CLASSES, QUANTITIES
from cuassay.core.device import Device
from cuassay.results.fingerprint import device_fingerprint, digest, host_fingerprint

__all__ = ["device_columns", "fingerprint_of"]

#: Facts of a backend's `identity` that have another name in the fingerprint.
_FACTS = {"blas_threads": "threads"}


@cache
def fingerprint_of(device: Device) -> Mapping[str, object]:
    """The facts of this machine and `device`; computed once in a process."""
    from cuassay.devices import backend, capabilities

    identity = backend(device.kind).identity(device.index)
    compute = capabilities(device).answer("compute")
    facts = {"kind": device.kind, **{_FACTS.get(name, name): value for name, value in identity.items()}}
    if compute:
        facts["capability"] = f"{compute.value:.1f}"
    versions = {name: version for name, _, version, _ in getattr(backend(device.kind), "libraries", list)() if version}
    packages = getattr(backend(device.kind), "packages", ())
    return device_fingerprint({**facts, "versions": versions}, host=_host(), packages=packages)


@cache
def _host() -> Mapping[str, object]:
    return host_fingerprint()


def device_columns(device: Device) -> dict[str, object]:
    """Columns of a ``device`` row: the facts and capabilities of a device that is present."""
    facts = dict(fingerprint_of(device))
    can, missing, memory = _capabilities(device)
    return {
        "device": str(device),
        "present": True,
        "fingerprint": facts,
        "digest": digest(facts),
        "memory": memory,
        "capabilities": can,
        "missing": missing,
    }


def _capabilities(device: Device) -> tuple[dict[str, object], dict[str, object], int | None]:
    """The capabilities of `device`, those it lacks with the reasons, and its memory in bytes."""
    from cuassay.devices import capabilities

    asked = capabilities(device)
    names = [*FEATURES, *QUANTITIES, *(f"{op_class}:{dtype}" for op_class in OP_CLASSES for dtype in DTYPE_NAMES)]
    answers = {name: asked.answer(name) for name in names}
    has: dict[str, object] = {name: answer.value or True for name, answer in answers.items() if answer}
    memory = int(answers["memory"].value) if answers["memory"] else None
    return has, {name: answer.reason for name, answer in answers.items() if not answer}, memory
