"""A card of the report for each device: its properties and what ran on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuassay_reports import units
from cuassay_reports.frames import pd
from cuassay_reports.load import Results, records

__all__ = ["DeviceCard", "cards", "outcomes_of"]


@dataclass(frozen=True, kw_only=True)
class DeviceCard:
    """The properties of one device, and what ran on it."""

    subject: str
    device: str
    name: str
    present: bool
    reason: str
    brief: str
    facts: Sequence[tuple[str, str]]
    limits: Sequence[tuple[str, str]]
    missing: Sequence[tuple[str, str]]
    outcomes: Mapping[str, int]
    digest: str


def cards(latest: Results) -> list[DeviceCard]:
    """Return a card for each subject; equal devices of a fleet share one."""
    return [_card(row, latest) for row in records(latest.devices.drop_duplicates("subject", keep="last"))]


def _card(row: dict[str, Any], latest: Results) -> DeviceCard:
    facts = row["fingerprint"] or {}
    count = len({_uuid(one) for one in latest.devices.loc[latest.devices["subject"] == row["subject"], "fingerprint"]})
    name = str(facts.get("name") or facts.get("cpu") or row["device"])
    tests = latest.tests[latest.tests["subject"] == row["subject"]]
    limits = latest.limits[latest.limits["subject"] == row["subject"]].drop_duplicates(["limit", "dtype"], keep="last")
    return DeviceCard(
        subject=row["subject"],
        device=row["device"],
        name=name if count == 1 else f"{count} × {name}",
        present=bool(row["present"]),
        reason=row["reason"],
        brief=_brief(row, facts),
        facts=_facts(row, facts),
        limits=[_limit(limit) for limit in records(limits)],
        missing=sorted((row["missing"] or {}).items()),
        outcomes=outcomes_of(tests),
        digest=row["digest"],
    )


def _uuid(facts: object) -> object:
    return facts.get("uuid") if isinstance(facts, Mapping) else None


# From the name in the fingerprint to the label on the card, in order; other facts are only in the file.
_SHOWN = {
    "capability": "compute capability",
    "driver": "driver",
    "clocks": "clocks",
    "profile": "profile",
    "cores": "cores",
    "blas": "BLAS",
    "threads": "threads",
    "simd": "SIMD",
    "uuid": "uuid",
}


def _brief(row: dict[str, Any], facts: Mapping[str, Any]) -> str:
    words = [("capability", "capability {}"), ("driver", "driver {}"), ("cores", "{} cores"), ("blas", "{}")]
    if facts.get("driver"):
        words = words[:2]  # the host's cores do not describe a device with its own memory
    known = [form.format(facts[key]) for key, form in words if facts.get(key)]
    return " · ".join([text for text in (_memory(row, facts),) if text] + known)


def _memory(row: dict[str, Any], facts: Mapping[str, Any]) -> str:
    size = facts.get("memory") if pd.isna(row["memory"]) else row["memory"]
    return "" if size is None else units.nbytes(float(size))


def _facts(row: dict[str, Any], facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = [(label, str(facts[key])) for key, label in _SHOWN.items() if facts.get(key) not in (None, "")]
    if memory := _memory(row, facts):
        shown.insert(0, ("memory", memory))
    if facts.get("name") and facts.get("cpu") and facts["name"] != facts["cpu"]:
        shown.append(("host", str(facts["cpu"])))
    versions = facts.get("versions") or {}
    return [*shown, *((name, str(version)) for name, version in versions.items())]


def _limit(row: dict[str, Any]) -> tuple[str, str]:
    label = f"{row['limit']} {row['dtype']}".strip()
    return label, units.quantity(row["value"], row["unit"]) + (f" ({row['how']})" if row["how"] else "")


def outcomes_of(tests: pd.DataFrame) -> dict[str, int]:
    """Return how many tests passed, failed, failed as expected, and were skipped."""
    counts = tests["outcome"].replace("error", "failed").value_counts()
    return {name: int(counts.get(name, 0)) for name in ("passed", "failed", "xfailed", "skipped")}
