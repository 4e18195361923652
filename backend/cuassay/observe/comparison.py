"""Compare two timelines of the same work: which ops got slower, and which launches were added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from cuassay.observe.spans import DEVICE_KINDS, Timeline
from cuassay.observe.totals import format_seconds, totals

__all__ = ["Comparison", "Figures", "LaunchChange", "OpChange", "compare", "figures"]

#: An op counts as slower if its time grew by more than this fraction.
_SHARE = 0.05

_Key = TypeVar("_Key")
_T = TypeVar("_T")

#: The op name shown for launches that no op made.
_OUTSIDE = "no op"


class _Op(NamedTuple):
    calls: int
    host: float
    device: float


class _Launches(NamedTuple):
    number: int
    seconds: float
    site: str


@dataclass(frozen=True)
class Figures:
    """The totals of a timeline that a comparison needs. `columns` converts them to plain data, and `of` reads it back.

    Attributes
    ----------
    ops : mapping
        From an op's name to its number of calls, its seconds on the host, and the seconds of its kernels and copies.
    launches : mapping
        From an op's name and the name of a kernel or copy to the number of launches, their seconds, and the source
        line of one of them.
    """

    ops: Mapping[str, _Op]
    launches: Mapping[tuple[str, str], _Launches]

    def columns(self) -> dict[str, Any]:
        """Return the totals as lists that JSON can hold."""
        return {
            "ops": [[name, *op] for name, op in self.ops.items()],
            "launches": [[*names, *found] for names, found in self.launches.items()],
        }

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """Read the result of `columns`."""
        return cls(
            {name: _Op(*rest) for name, *rest in columns["ops"]},
            {(op, name): _Launches(*rest) for op, name, *rest in columns["launches"]},
        )


class OpChange(NamedTuple):
    """The calls, host seconds and device seconds of one op, each as a pair of before and after."""

    name: str
    calls: tuple[int, int]
    host: tuple[float, float]
    device: tuple[float, float]

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds on the device, or on the host if the op launched no device work."""
        return self.device if any(self.device) else self.host

    @property
    def growth(self) -> float:
        """Seconds after minus seconds before."""
        return self.seconds[1] - self.seconds[0]

    def __str__(self) -> str:
        before, after = self.seconds
        where = "device" if any(self.device) else "host"
        share = f" ({after / before - 1:+.1%})" if before else ""
        calls = f", calls {self.calls[0]:,} -> {self.calls[1]:,}" if self.calls[0] != self.calls[1] else ""
        return f"{self.name}: {where} {format_seconds(before)} -> {format_seconds(after)}{share}{calls}"


class LaunchChange(NamedTuple):
    """A kernel or copy that `op` launches more or less often than before.

    `launches` and `seconds` are pairs of before and after; `site` is the source line of one launch.
    """

    op: str
    name: str
    launches: tuple[int, int]
    seconds: tuple[float, float]
    site: str

    def __str__(self) -> str:
        took = format_seconds(abs(self.seconds[1] - self.seconds[0]))
        where = f" at {self.site}" if self.site else ""
        return f"{self.name} in {self.op}: {self.launches[0]:,} -> {self.launches[1]:,} launches, {took}{where}"


@dataclass(frozen=True)
class Comparison:
    """The differences between two timelines that recorded the same work.

    Attributes
    ----------
    ops : tuple of OpChange
        Every op, the largest increase of time first.
    added, gone : tuple of LaunchChange
        The kernels and copies that are launched more often, and less often, than before.
    """

    ops: tuple[OpChange, ...]
    added: tuple[LaunchChange, ...]
    gone: tuple[LaunchChange, ...]

    def slower(self, by: float = _SHARE) -> list[OpChange]:
        """Return the ops whose time grew by more than the fraction `by`, the largest increase first."""
        return [op for op in self.ops if op.growth > by * op.seconds[0] and op.growth > 0]

    def faster(self, by: float = _SHARE) -> list[OpChange]:
        """Return the ops whose time shrank by more than the fraction `by`, the largest decrease first."""
        return [op for op in reversed(self.ops) if -op.growth > by * op.seconds[0]]

    def lines(self) -> Iterator[str]:
        """Yield one line per difference: slower ops, added launches, removed launches, then faster ops."""
        yield from (f"slower: {op}" for op in self.slower())
        yield from (f"added: {launch}" for launch in self.added)
        yield from (f"gone: {launch}" for launch in self.gone)
        yield from (f"faster: {op}" for op in self.faster())

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no op is slower or faster, and no launch was added"


def figures(timeline: Timeline) -> Figures:
    """Compute the totals that `compare` needs.

    Waits of the host are left out, because their duration is that of the work they wait for.
    """
    waits = {span.name for span in timeline.spans if span.kind == "wait"}
    found = (total for total in totals(timeline, "op") if total.calls and total.name not in waits)
    ops = {total.name: _Op(total.calls, total.host_total, total.device_total) for total in found}
    launches: dict[tuple[str, str], _Launches] = {}
    for _, span in timeline.of_kinds(DEVICE_KINDS):
        names = timeline.spans[span.parent].name if span.parent >= 0 else _OUTSIDE, span.name
        number, seconds, site = launches.get(names, _Launches(0, 0.0, span.site))
        launches[names] = _Launches(number + 1, seconds + span.seconds, site)
    return Figures(ops, launches)


def compare(before: Figures, after: Figures) -> Comparison:
    """Compare the totals of two timelines that recorded the same work, such as one step of a program."""
    ops = [
        OpChange(name, (one.calls, two.calls), (one.host, two.host), (one.device, two.device))
        for name, one, two in _pairs(before.ops, after.ops, _Op(0, 0.0, 0.0))
    ]
    launches = [
        LaunchChange(*names, (one.number, two.number), (one.seconds, two.seconds), two.site or one.site)
        for names, one, two in _pairs(before.launches, after.launches, _Launches(0, 0.0, ""))
    ]
    return Comparison(
        tuple(sorted(ops, key=lambda op: -op.growth)),
        _most_first(launches, lambda launch: launch.launches[1] > launch.launches[0]),
        _most_first(launches, lambda launch: launch.launches[1] < launch.launches[0]),
    )


def _most_first(launches: list[LaunchChange], is_wanted: Callable[[LaunchChange], bool]) -> tuple[LaunchChange, ...]:
    wanted = filter(is_wanted, launches)
    return tuple(sorted(wanted, key=lambda launch: -abs(launch.seconds[1] - launch.seconds[0])))


def _pairs(before: Mapping[_Key, _T], after: Mapping[_Key, _T], nothing: _T) -> Iterator[tuple[_Key, _T, _T]]:
    return ((key, before.get(key, nothing), after.get(key, nothing)) for key in dict.fromkeys([*before, *after]))
