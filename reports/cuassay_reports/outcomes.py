"""The report for programs: which findings fail a job, and the same findings as JSON and as JUnit's XML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any
from xml.etree import ElementTree as ET

from cuassay_reports.page import Page

__all__ = ["DEFAULT", "FINDINGS", "as_json", "as_junit", "as_suspects", "findings", "parse_fail_on"]

DEFAULT = ("failed", "slower", "vanished")
"""The findings in JUnit's XML if none are named."""

FINDINGS = (*DEFAULT, "uncompared", "skipped", "nowhere")
"""The words that ``--fail-on`` takes: failed tests, slow-downs that are new or not acknowledged, missing benchmarks, a
newest run without any compared time, tests that the previous run did not skip, and tests that no run of the newest
commits ran on any device.
"""


def parse_fail_on(text: str) -> tuple[str, ...]:
    """Parse words such as ``failed,slower``.

    Raises
    ------
    ValueError
        If a word is not one of ``FINDINGS``.
    """
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if word not in FINDINGS:
            raise ValueError(f"--fail-on {word!r} is not a finding; use one or more of: {', '.join(FINDINGS)}")
    return words


def findings(page: Page) -> dict[str, list[dict[str, str]]]:
    """Return the findings for each word of ``FINDINGS``, each with a `name` and a `reason`."""
    noted = page.attention
    slowdowns = [
        (f"{row.benchmark} {row.what} on {row.device}", f"{row.change} since {row.since}") for row in noted.slowdowns
    ]
    names = {name for name, _ in slowdowns}
    newly = [
        (f"{row.benchmark} {row.dtype} {row.case} on {device}", row.why)
        for device, row in page.changed
        if row.verdict == "slower"
    ]
    return {
        "failed": [{"name": failure.nodeid, "reason": failure.reason} for failure in page.failures],
        "slower": [_named(*one) for one in [*slowdowns, *(one for one in newly if one[0] not in names)]],
        "vanished": [_named(name, "the newest run lacks it") for name in noted.vanished],
        "uncompared": _uncompared(page),
        "skipped": [_named(*one) for one in page.new_skips],
        "nowhere": [_named(*one) for one in page.nowhere],
    }


def _uncompared(page: Page) -> list[dict[str, str]]:
    """Return the newest run if none of its times has a verdict."""
    rows = [row for section in page.timings for row in section.rows if row.run == page.newest.run]
    if any(row.verdict for row in rows):
        return []
    why = sorted({row.why for row in rows if row.why})
    reason = f"none of its times ({len(rows)}) was compared with an earlier run" + (f": {why[0]}" if why else "")
    return [_named(page.newest.run, reason)]


def _named(name: str, reason: str) -> dict[str, str]:
    return {"name": name, "reason": reason}


def as_json(page: Page) -> str:
    """Return the verdicts of the page: `headline`, `run`, `revision`, `incomplete`, the findings and the suspects."""
    noted = page.attention
    suspects = [
        _named(f"{row.benchmark} {row.what} on {row.device}", f"{row.change}, {row.kind}") for row in noted.suspects
    ]
    content: dict[str, Any] = {
        "headline": page.headline,
        "run": page.newest.run,
        "revision": page.newest.revision,
        "incomplete": [{"name": one.run, "reason": one.why} for one in page.unfinished],
        **findings(page),
        "suspects": suspects,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_suspects(page: Page) -> str:
    """Return the suspects of one device in the format of ``cuassay ab -``: `base`, `head`, `device` and `benchmarks`.

    They are our own implementations, slower by the device's clock, so that a paired comparison can confirm them.
    """
    ours = [row for row in page.attention.suspects if row.is_slower and row.is_ours]
    if not ours:
        return json.dumps({"base": "", "head": "", "device": "", "benchmarks": []}) + "\n"
    key = attrgetter("device", "before", "commit")
    device, base, head = key(ours[0])
    names = [f"{row.benchmark} {row.what}" for row in ours if key(row) == key(ours[0])]
    return json.dumps({"base": base, "head": head, "device": device, "benchmarks": names}, indent=2) + "\n"


def as_junit(page: Page, words: Sequence[str] = DEFAULT) -> str:
    """Return JUnit's XML with a test case for each finding named in `words`, or a passing one if there are none."""
    found = [(word, one) for word, ones in findings(page).items() if word in words for one in ones]
    suite = ET.Element("testsuite", name="cuassay report", tests=str(len(found) or 1), failures=str(len(found)))
    for word, one in found:
        case = ET.SubElement(suite, "testcase", classname=word, name=_printable(one["name"]))
        ET.SubElement(case, "failure", message=_printable(one["reason"]))
    if not found:
        ET.SubElement(suite, "testcase", classname="report", name=_printable(page.headline))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Replace control characters, which XML cannot contain even when escaped."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
