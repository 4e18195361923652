"""The origin of a result: the fingerprint of the machine, and separately the revision of the code.

A fingerprint is a flat mapping of facts by the names in `cuassay_reports.facts.FINGERPRINT`; its
digest covers the hard ones only. This module finds the host's facts. The caller passes a device's
facts, so that this module does not touch a driver.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cuassay.core import settings
from cuassay.devices.cpu.info import cpu_model
from cuassay.errors import ResultError
from cuassay_reports.facts import difference, digest

__all__ = [
    "HOST_PACKAGES",
    "Revision",
    "device_fingerprint",
    "difference",
    "digest",
    "host_fingerprint",
    "package_versions",
    "revision",
    "usable_cores",
]

HOST_PACKAGES: tuple[str, ...] = ("cuassay", "numpy", "ml_dtypes")
"""Distributions whose versions can change a host's result; a device adds its own."""

_REVISION = re.compile(r"(?P<commit>[0-9a-fA-F]{7,64})(?P<dirty>\+dirty)?")


def host_fingerprint(packages: Iterable[str] = HOST_PACKAGES) -> dict[str, object]:
    """Return the facts of this machine, by the names in ``FINGERPRINT``.

    The host name is omitted on purpose, because results are published and a container has a new name each time.

    Parameters
    ----------
    packages : iterable of str
        Distributions whose versions to include; those that are not installed are omitted.
    """
    hidden = ", ".join(sorted(settings.get("CUASSAY_WITHOUT")))
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": package_versions(packages),
        **({"without": hidden} if hidden else {}),
    }


def device_fingerprint(
    facts: Mapping[str, object], *, host: Mapping[str, object] | None = None, packages: Iterable[str] = ()
) -> dict[str, object]:
    """Return the host's facts, replaced by the device's where both have one.

    Parameters
    ----------
    facts : mapping
        The device's own facts: ``kind``, ``name``, ``uuid``, ``driver``, ``clocks``...; its
        ``versions`` are added to the host's. None means unknown and is omitted.
    host : mapping, optional
        A fingerprint from `host_fingerprint`; a new one by default.
    packages : iterable of str
        More distributions whose versions matter on this device, such as ``cupy-cuda13x``.
    """
    base = host_fingerprint() if host is None else host
    versions = {**_mapping(base.get("versions")), **package_versions(packages), **_mapping(facts.get("versions"))}
    known = {key: value for key, value in facts.items() if value is not None}
    return {**base, **known, "versions": versions}


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return name to version of the distributions that are installed."""
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class Revision:
    """Which code ran. `source` says where the commit was found; ``none`` if it is unknown."""

    commit: str | None = None
    dirty: bool | None = None
    committed: str | None = None
    source: Literal["environment", "file", "git", "none"] = "none"

    def columns(self) -> dict[str, object]:
        """Return it as columns of a run row."""
        source = None if self.source == "none" else self.source
        return {"commit": self.commit, "dirty": self.dirty, "committed": self.committed, "revision_source": source}


def revision(root: str | Path = ".") -> Revision:
    """Return the revision of the tree at `root`.

    These are tried in order: the setting ``CUASSAY_REVISION``; a file ``.revision`` in `root` (a copied
    tree has no history); git. The first two hold ``<commit>`` or ``<commit>+dirty``, the file
    optionally the date of the commit on a second line.

    Raises
    ------
    ResultError
        If the setting or the file holds something else.
    """
    named = str(settings.get("CUASSAY_REVISION"))
    if named:
        return _named(named, "environment", "CUASSAY_REVISION")
    file = Path(root) / ".revision"
    if file.is_file():
        return _named(file.read_text(encoding="utf-8"), "file", str(file))
    return _from_git(Path(root))


def _named(text: str, source: Literal["environment", "file"], where: str) -> Revision:
    commit, _, date = text.strip().partition("\n")
    match = _REVISION.fullmatch(commit.strip())
    if match is None:
        raise ResultError(
            f"{where} does not name a revision: got {commit!r}; write a commit's hash, 7 to 64 hexadecimal digits, "
            "or the hash and +dirty"
        )
    committed = _utc(date.strip(), where) if date.strip() else None
    return Revision(
        commit=match["commit"].lower(), dirty=match["dirty"] is not None, committed=committed, source=source
    )


def _from_git(root: Path) -> Revision:
    logged = _git(root, "log", "-1", "--format=%H%n%cI")
    if logged is None:
        return Revision()
    commit, _, date = logged.partition("\n")
    status = _git(root, "status", "--porcelain", "--untracked-files=no")  # as `git describe --dirty` sees it
    return Revision(commit=commit, dirty=bool(status), committed=_utc(date, "git log"), source="git")


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if git fails: not installed, no repository, or no commit."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _utc(date: str, where: str) -> str:
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        raise ResultError(
            f"{where} does not hold a date: got {date!r}; write ISO 8601, such as 2026-01-31T12:00:00Z"
        ) from None
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def usable_cores() -> int:
    """Return how many processors this process may use, which in a container is often fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
