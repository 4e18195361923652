"""Select the part of the collected cases that this process runs: one of N, or those that need their device alone.

N processes with the parts ``1/N`` to ``N/N`` run every case once, at the same time and on the same device. A test that
reads the device's free memory, or must finish within a time, would be disturbed. Such tests are marked by
`cuassay.testing.exclusive`. They belong to no part, and ``alone`` runs them afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from cuassay.testing.marks import EXCLUSIVE
from cuassay.testing.skips import case_of

__all__ = ["ALONE", "Shard", "Sharding", "parse_shard", "part_of_each"]

#: The name of the part with exclusive tests.
ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Shard:
    """The part `number` of `total`, counted from 1; 0 of 0 is the part with exclusive tests."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}" if self.total else ALONE


def parse_shard(text: str) -> Shard:
    """Parse ``2/8`` or ``alone``.

    Raises
    ------
    pytest.UsageError
        If the text has another form, or there is no such part.
    """
    if text == ALONE:
        return Shard(0, 0)
    number, slash, total = text.partition("/")
    if slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return Shard(int(number), int(total))
    raise pytest.UsageError(
        f"--cuassay-shard is I/N with I from 1 to N, such as 2/8, or {ALONE}; got {text!r}; "
        f"start N processes with 1/N to N/N, and one with {ALONE} afterwards"
    )


class Sharding:
    """A pytest plugin that deselects the cases of the other parts."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._left_out = 0

    def __repr__(self) -> str:
        return f"Sharding({self._shard}, {self._left_out} cases left out)"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the cases of this part, in order, after ``-k`` and ``-m`` have selected."""
        kept = self._kept(items)
        others = [item for item in items if item.nodeid not in kept]
        items[:] = [item for item in items if item.nodeid in kept]
        self._left_out = len(others)
        if others:
            config.hook.pytest_deselected(items=others)

    def _kept(self, items: Sequence[pytest.Item]) -> set[str]:
        alone = {item.nodeid for item in items if item.get_closest_marker(EXCLUSIVE) is not None}
        if not self._shard.total:
            return alone
        shared = [item for item in items if item.nodeid not in alone]
        parts = part_of_each(((_file(item), _bundle(item), item.nodeid) for item in shared), self._shard.total)
        return {nodeid for nodeid, part in parts.items() if part == self._shard.number}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let a part without tests succeed, because the other parts have them."""
        if self._left_out and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _bundle(item: pytest.Item) -> str:
    """The name of a group of cases that stay together: one process then compiles their common kernels once."""
    case = case_of(item)
    return f"{case['device']} {case['op'].name} {case.get('dtype')}" if "op" in case else item.nodeid


def part_of_each(cases: Iterable[tuple[str, str, str]], total: int) -> dict[str, int]:
    """Assign each case, by its name, to a part from 1 to `total`.

    Each file is spread over all parts separately, because cases of one file take similar times and those of two files
    do not. The largest bundles come first. Each goes to the part with the fewest cases of its file, and among these to
    the part with the fewest cases overall. The result does not depend on the order of the cases.

    Parameters
    ----------
    cases : iterable of (file, bundle, name)
        The cases. Those of one bundle go to the same part.
    total : int
        The number of parts.

    Returns
    -------
    dict
        Name to part.
    """
    files: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file, bundle, name in cases:
        files[file][bundle].append(name)
    parts: dict[str, int] = {}
    loads = [0] * total
    for _, bundles in sorted(files.items()):
        own = [0] * total
        for _, names in sorted(bundles.items(), key=lambda bundle: (-len(bundle[1]), bundle[0])):
            part = min(range(total), key=lambda at: (own[at], loads[at], at))
            own[part] += len(names)
            loads[part] += len(names)
            parts |= dict.fromkeys(names, part + 1)
    return parts
