"""What is recorded of a device: the facts of it and of this machine, and what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from cuassay.core.capability import DTYPE_NAMES, FEATURES, OP_CLASSES, QUANTITIES
from cuassay.core.device import Device
from cuassay.results.fingerprint import device_fingerprint, digest, host_fingerprint

__all__ = ["device_columns", "fingerprint_of"]

#: What a kind's `identity` calls a fact, where the fingerprint has another name for it.
_FACTS = {"blas_threads": "threads"}


@cache
def fingerprint_of(device: Device) -> Mapping[str, object]:
    """The facts of this machine and `device`; asked once a process."""
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
    """Columns of a ``device`` row: what a device that is here is, and what it can do."""
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
    """What `device` has, what it lacks and why, and its memory in bytes."""
    from cuassay.devices import capabilities

    asked = capabilities(device)
    names = [*FEATURES, *QUANTITIES, *(f"{op_class}:{dtype}" for op_class in OP_CLASSES for dtype in DTYPE_NAMES)]
    answers = {name: asked.answer(name) for name in names}
    has: dict[str, object] = {name: answer.value or True for name, answer in answers.items() if answer}
    memory = int(answers["memory"].value) if answers["memory"] else None
    return has, {name: answer.reason for name, answer in answers.items() if not answer}, memory
