"""The facts of a fingerprint: which ones forbid a comparison, and which ones only weaken it.

A *hard* fact that differs makes two timings answers to different questions: another GPU model, driver branch, CUDA
major or clock policy. A *soft* fact that differs (the specimen, its host, a patch level) leaves the question the same
and the answer less certain. Only the standard library is needed; no file is touched.
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
"""Words for the types of JSON values that a column or a fact may have."""

Weight = Literal["hard", "soft", "told"]


@dataclass(frozen=True)
class Fact:
    """One key of a fingerprint.

    Attributes
    ----------
    weight : str
        ``hard``: timings are compared only where it is equal; it enters the digest. ``soft``: a difference is
        reported and weakens the verdict. ``told``: recorded, never compared.
    parts : int
        How many dotted parts of its text count, such as 1 for the branch of a driver; 0 for all of it.
    kind : str or None
        The type of its values; without one it may be any.
    """

    name: str
    meaning: str
    weight: Weight = "hard"
    parts: int = 0
    kind: Kind | None = None


# What would change when a calibrated clock, an uptime or a host name joined the digest: every run
# would be its own baseline, and nothing could ever be compared.
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
    Fact("clocks", "clock policy: boost, or locked at so many MHz"),
    Fact("blas", "BLAS library of the host"),
    Fact("threads", "threads that BLAS may use"),
    Fact("simd", "vector instructions NumPy uses"),
    Fact("profile", "capability profile of a simulated device"),
    Fact("sm_clock", "streaming-multiprocessor clock when asked, MHz", "told"),
    Fact("temperature", "degrees Celsius when asked", "told"),
    Fact("ecc", "error correction on or off"),
)
"""The facts a fingerprint may hold. Others may be recorded; they are never compared."""

_FACTS: Mapping[str, Fact] = MappingProxyType({fact.name: fact for fact in FINGERPRINT})

_HOSTS_OWN = ("cpu", "cores")
"""Soft beside an accelerator, hard where the host itself computes: there a fingerprint names no driver."""


def digest(fingerprint: Mapping[str, object]) -> str:
    """Return twelve hex digits that change exactly when a hard fact does.

    Parameters
    ----------
    fingerprint : mapping
        Facts by the names in ``FINGERPRINT``; others and None are left out of the digest.
    """
    text = json.dumps(_of("hard", fingerprint), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def difference(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Name each hard fact that differs, such as ``'driver 570.86 -> 580.65'``.

    A fact that one of the two did not record is not taken for a difference.
    """
    before, after = _of("hard", old), _of("hard", new)
    return [f"{key} {old[key]} -> {new[key]}" for key in before if key in after and before[key] != after[key]]


def soft_difference(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Name each soft fact that differs, or that only one of the two recorded, such as ``'cores 16 -> 32'``.

    So is a patch level of a hard fact: ``'driver 580.65 -> 580.95'``.
    """
    before, after = _softly(old), _softly(new)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key} {_shown(key, before)} -> {_shown(key, after)}" for key in keys]


def _shown(key: str, facts: Mapping[str, object]) -> str:
    """As a sentence can hold it: of a uuid the first part."""
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
    """The soft facts, versions each by its name, and the patch levels of hard ones."""
    flat: dict[str, object] = {}
    for key, value in _of("soft", fingerprint).items():
        flat |= value if isinstance(value, Mapping) else {key: value}
    patched = {key: fingerprint[key] for key in _of("hard", fingerprint) if _FACTS[key].parts}
    return {**flat, **patched}
