"""The facts of a fingerprint: which of them forbid a comparison, and which only weaken it.

If a *hard* fact differs, two timings answer different questions: another GPU model, driver branch, CUDA major version
or clock policy. If a *soft* fact differs (the individual device, its host, a patch level), the question is the same and
the answer is less certain. This module needs only the standard library and accesses no file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = ["FINGERPRINT", "Fact", "Kind", "difference", "digest", "soft_difference"]

Kind = Literal["str", "time", "int", "float", "bool", "object", "list"]
"""The types of JSON values that a column or a fact may have."""

Weight = Literal["hard", "soft", "told"]


@dataclass(frozen=True)
class Fact:
    """One key of a fingerprint.

    Attributes
    ----------
    weight : str
        ``hard``: timings are compared only if it is equal, and it is part of the digest. ``soft``: a difference is
        reported and weakens the verdict. ``told``: recorded, and never compared.
    parts : int
        The number of dotted parts of its text that count, such as 1 for the branch of a driver; 0 for all of it.
    kind : str or None
        The type of its values; None for any type.
    default : str or None
        The value for a run that did not record it; None for unknown.
    """

    name: str
    meaning: str
    weight: Weight = "hard"
    parts: int = 0
    kind: Kind | None = None
    default: str | None = None


# If a measured clock, an uptime or a host name were part of the digest, every run would be its own baseline and
# nothing could be compared.
FINGERPRINT: tuple[Fact, ...] = (
    Fact("system", "operating system"),
    Fact("architecture", "machine type, such as x86_64"),
    Fact("kernel", "release of the operating system", "told"),
    Fact("cpu", "model of the processor", "soft"),
    Fact("cores", "logical processors this process may use", "soft"),
    Fact("python", "implementation and version of the interpreter", "soft"),
    Fact("versions", "package or library name to version, of those that can change a result", "soft", kind="object"),
    Fact("kind", "kind of device"),
    Fact("name", "what the maker calls the device"),
    Fact("uuid", "which specimen of the model", "soft"),
    Fact("capability", "compute capability"),
    Fact("memory", "bytes of device memory", "soft", kind="int"),
    Fact("driver", "version of the driver; its branch is hard", parts=1),
    Fact("cuda", "version of CUDA that the driver serves; its major is hard", parts=1),
    Fact("clocks", "clock policy: boost to a clock within a power limit, or locked at a clock"),
    Fact("mig", "profile of the MIG instance, such as 1g.18gb", default="none"),
    Fact("mps", "whether processes share the device by MPS, and the part of its threads that each gets", default="off"),
    Fact("without", "modules that were hidden as if not installed", default="nothing"),
    Fact("blas", "BLAS library of the host"),
    Fact("threads", "threads that BLAS may use"),
    Fact("simd", "vector instructions NumPy uses"),
    Fact("profile", "capability profile of a simulated device"),
    Fact("sm_clock", "streaming-multiprocessor clock when asked, MHz", "told"),
    Fact("temperature", "degrees Celsius when asked", "told"),
    Fact("ecc", "error correction on or off"),
)
"""The facts of a fingerprint that are compared. Others may be recorded; they are never compared."""

_FACTS: Mapping[str, Fact] = MappingProxyType({fact.name: fact for fact in FINGERPRINT})

_DEFAULTS = {fact.name: fact.default for fact in FINGERPRINT if fact.default is not None}

_HOSTS_OWN = ("cpu", "cores")
"""Soft for an accelerator; hard if the host itself computes, which a fingerprint without a driver shows."""


def digest(fingerprint: Mapping[str, object]) -> str:
    """Return twelve hex digits that change if and only if a hard fact changes.

    Parameters
    ----------
    fingerprint : mapping
        Facts by the names in ``FINGERPRINT``; other facts, None and defaults are not part of the digest.
    """
    facts = {key: value for key, value in _of("hard", fingerprint).items() if value != _DEFAULTS.get(key)}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def difference(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Name each hard fact that differs, such as ``'driver 570.86 -> 580.65'``.

    A fact that one of the two did not record does not count as a difference, unless it has a default.
    """
    before, after = ({**_DEFAULTS, **_of("hard", facts)} for facts in (old, new))
    changed = [key for key in before if key in after and before[key] != after[key]]
    return [f"{key} {old.get(key) or before[key]} -> {new.get(key) or after[key]}" for key in changed]


def soft_difference(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Name each soft fact that differs, or that only one of the two recorded, such as ``'cores 16 -> 32'``.

    The patch level of a hard fact is a soft fact: ``'driver 580.65 -> 580.95'``.
    """
    before, after = _softly(old), _softly(new)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key} {_shown(key, before)} -> {_shown(key, after)}" for key in keys]


def _shown(key: str, facts: Mapping[str, object]) -> str:
    """Return the value for a sentence; for a uuid only its first part."""
    text = str(facts.get(key, "unknown"))
    return text.removeprefix("GPU-").partition("-")[0] if key == "uuid" else text


def _of(weight: Weight, fingerprint: Mapping[str, object]) -> dict[str, object]:
    return {
        key: _counted(key, value)
        for key, value in fingerprint.items()
        if value is not None and _weight(key, fingerprint) == weight
    }


def _weight(key: str, fingerprint: Mapping[str, object]) -> Weight:
    if key in _HOSTS_OWN and not fingerprint.get("driver"):
        return "hard"
    return _FACTS[key].weight if key in _FACTS else "told"


def _counted(key: str, value: object) -> object:
    parts = _FACTS[key].parts
    return ".".join(str(value).split(".")[:parts]) if parts else value


def _softly(fingerprint: Mapping[str, object]) -> dict[str, object]:
    """Return the soft facts, with each version by its name, and the patch levels of hard facts."""
    flat: dict[str, object] = {}
    for key, value in _of("soft", fingerprint).items():
        flat |= value if isinstance(value, Mapping) else {key: value}
    patched = {key: fingerprint[key] for key in _of("hard", fingerprint) if _FACTS[key].parts}
    return {**flat, **patched}
