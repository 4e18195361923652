"""The noise profile of a runner, which ``cuassay aa`` writes: how much the medians of fresh processes vary."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.benchmarking.shifts import common_shift
from cuassay.errors import ResultError
from cuassay_reports.facts import difference

__all__ = ["Noise", "Profile"]

_FORM = "facts of noise profile 1"


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one benchmark.

    Attributes
    ----------
    noise : float
        The standard deviation of the median of one process, as a fraction of it.
    processes : int
        How many processes it was estimated from.
    """

    noise: float
    processes: int

    @property
    def degrees(self) -> float:
        """Degrees of freedom."""
        return self.processes - 1.0


@dataclass(frozen=True)
class Profile:
    """The noise of every benchmark on one kind of machine.

    Attributes
    ----------
    facts : mapping
        The fingerprint of the device.
    noises : mapping
        By the benchmark's name.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    noises: Mapping[str, Noise] = field(default_factory=dict)

    @classmethod
    def of(cls, processes: list[dict[str, float]], facts: Mapping[str, Any]) -> Profile:
        """Make a profile from the medians of fresh processes of the same code, without their common shift."""
        names = sorted(set.intersection(*(set(one) for one in processes)))
        logs = np.array([[math.log(one[name]) for one in processes] for name in names])
        means = logs.mean(axis=1, keepdims=True)
        everyone = np.full(len(names), fill_value=True)
        offsets = common_shift(logs - means, np.exp(means[:, 0]), unchanged=everyone).offsets
        scatter = (logs - offsets).std(axis=1, ddof=1)
        return cls(facts, {name: Noise(float(one), len(processes)) for name, one in zip(names, scatter, strict=True)})

    def save(self, path: Path) -> None:
        """Write the profile as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        noises = {name: asdict(one) for name, one in self.noises.items()}
        path.write_text(json.dumps({_FORM: dict(self.facts), "noises": noises}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a profile.

        Raises
        ------
        ResultError
            If the file is not a profile.
        """
        try:
            stored = json.loads(path.read_text())
            return cls(stored[_FORM], {name: Noise(**one) for name, one in stored["noises"].items()})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultError(f"{path} is not a noise profile: {error!r}; write one with: cuassay aa") from error

    def require(self, facts: Mapping[str, Any], path: Path) -> None:
        """Check that this profile was made on the kind of machine with these `facts`.

        Raises
        ------
        ResultError
            If a hard fact differs.
        """
        changed = difference(self.facts, facts)
        if changed:
            raise ResultError(f"{path} was made on another kind of machine: {'; '.join(changed)}; run cuassay aa here")
