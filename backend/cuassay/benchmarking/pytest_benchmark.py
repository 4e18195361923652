"""The bridge to pytest-benchmark: our samples appear in its table, JSON, comparison and history, and in a report.

The plugin offers it to tests as the fixture ``device_benchmark``. By default a benchmark runs once, as a test. It is
measured with ``--benchmark-only``, ``--benchmark-enable``, an option that saves or compares figures
(``--benchmark-json``, ``--benchmark-save``, ``--benchmark-autosave``, ``--benchmark-compare``), or
``--cuassay-record``, which saves ``time`` rows. ``--benchmark-max-time`` limits the seconds of each call. A worker of
xdist does not measure. With ``--cuassay-record`` its benchmarks are errors, so that no run succeeds without figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cuassay import devices
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.timing import Cache, Timing, interleave
from cuassay.core.device import Device
from cuassay.errors import ArgumentError
from cuassay.testing.opspec import Work

__all__ = ["DeviceBenchmark", "device_benchmark", "is_measuring"]

#: The name in a report of a call that was given no name.
_OURS = "cuassay"

#: Options that request measurements; see `pytest_benchmark.plugin.pytest_addoption`.
_ASKING = (
    "benchmark_only",
    "benchmark_enable",
    "benchmark_json",
    "benchmark_save",
    "benchmark_autosave",
    "benchmark_compare",
    "cuassay_record",
)


def is_measuring(config: pytest.Config) -> bool:
    """Return whether benchmarks are measured in this session rather than run once as tests."""
    if config.getoption("benchmark_disable", default=False) or config.getoption("benchmark_skip", default=False):
        return False
    return any(config.getoption(name, default=None) for name in _ASKING)


class DeviceBenchmark:
    """The value of the fixture `device_benchmark`. Call it once with the functions to measure.

    Attributes
    ----------
    enabled : bool
        Whether to measure. If False, calls run once, and there are no timings.
    write : callable or None
        Called with the columns of a ``time`` row for each timing. If None, no rows are written.
    """

    def __init__(
        self,
        fixture: BenchmarkFixture,
        *,
        enabled: bool,
        most_seconds: float = math.inf,
        write: Callable[..., None] | None = None,
        named: Mapping[str, str] | None = None,
        look: Callable[[Device], None] | None = None,
    ) -> None:
        self._fixture = fixture
        self._look = look
        self._most_seconds = most_seconds
        self._named = {} if named is None else named
        self._done: set[tuple[object, object]] = set()
        self.write = write
        self.enabled = enabled and fixture.enabled

    def __repr__(self) -> str:
        return f"DeviceBenchmark({self._fixture.name}, {'measuring' if self.enabled else 'once'})"

    def __call__(
        self,
        calls: Callable[[], Any] | Mapping[str, Callable[[], Any]],
        device: str | Device,
        *,
        cache: Cache = "cold",
        queued: bool = True,
        joined: bool = True,
        work: Work | None = None,
        max_seconds: float = 0.5,
        group: str | None = None,
        before_sample: Callable[[], None] | None = None,
        **extra: object,
    ) -> dict[str, Timing]:
        """Measure one call, or several side by side. The first is yours, and pytest-benchmark's table shows it.

        Parameters
        ----------
        calls : callable or mapping
            The function to measure, or several by name. A report compares the others with the first.
        device : Device
            The device to measure on.
        cache : str
            ``cold`` or ``warm``.
        queued, joined : bool
            See `timing.measure`. Set `queued` to False to measure the host's own time, and `joined` to False for calls
            that leave work on other streams.
        work : Work, optional
            Adds bytes/s and flop/s to ``extra_info``.
        max_seconds : float
            The longest time for each call; ``--benchmark-max-time`` may reduce it.
        group : str, optional
            The group in pytest-benchmark's tables; by default that of its mark.
        before_sample : callable, optional
            Called before each sample, outside of its time and before the cache is flushed; it may, for example, give
            the call other inputs.
        **extra
            Further entries for ``extra_info``. `op`, `case` and `dtype` name the rows of a report; by default they are
            the name of the test, the rest of its id, and its dtype.

        Returns
        -------
        dict
            From names to `Timing`; empty if nothing is measured.

        Raises
        ------
        ArgumentError
            If `calls` is neither a function nor a mapping to functions, `work` is not a `Work`, or this test
            has already measured the same `op` and `case`.
        DeviceError
            If there is no such device.
        """
        self._used("once")
        named = calls if isinstance(calls, Mapping) else {_OURS: calls}
        if not named or not all(map(callable, named.values())):
            raise ArgumentError(
                f"device_benchmark takes a function, or several by name; got {calls!r}; write device_benchmark(lambda: "
                "..., device)"
            )
        if work is not None and not isinstance(work, Work):
            raise ArgumentError(f"work= takes a Work; got {work!r}; write Work(bytes=..., flops=...)")
        self._admit({**self._named, **extra})
        found = devices.find(device)
        if not self.enabled:
            for call in named.values():
                call()
            return {}
        most = min(max_seconds, self._most_seconds)
        if self._look is not None and self.write is not None:
            self._look(found)
        timings = interleave(
            named,
            device,
            cache=cache,
            queued=queued,
            joined=joined,
            max_seconds=most,
            before_sample=before_sample,
        )
        first, *peers = timings
        self._fixture.group = group or self._fixture.group
        self._enter(timings[first], {"device": str(device), **extra, **_rates(work, timings[first])})
        self._fixture.extra_info |= {f"{peer}_median_s": timings[peer].median_s for peer in peers}
        if self.write is not None:
            self._record(self.write, timings, device, {**self._named, **extra}, work)
        return timings

    def _admit(self, named: Mapping[str, object]) -> None:
        """Raise if a series of this name was measured already, because it would replace the first."""
        name = named.get("op"), named.get("case")
        if name in self._done:
            raise ArgumentError(
                f"device_benchmark has measured {' '.join(map(str, filter(None, name)))} in this test; give calls that "
                "belong together by name, {'mine': ..., 'other': ...}, or a case= of its own"
            )
        self._done.add(name)

    @staticmethod
    def _record(
        write: Callable[..., None],
        timings: Mapping[str, Timing],
        device: str | Device,
        named: Mapping[str, object],
        work: Work | None,
    ) -> None:
        columns = {name: str(named[name]) for name in ("case", "dtype") if name in named}
        work_columns = {} if work is None else work.columns()
        for place, (name, timing) in enumerate(timings.items()):
            first = {"ours": True} if place == 0 else {}
            write(**timing_row(str(named["op"]), device, name, timing, **first, **columns, **work_columns))

    def note(self, **extra: object) -> None:
        """Add entries to ``extra_info``. Values of None are omitted."""
        self._fixture.extra_info |= {name: value for name, value in extra.items() if value is not None}

    def _used(self, mode: str) -> None:
        self._fixture._mode = mode  # noqa: SLF001  pytest-benchmark warns if a benchmark fixture was not used

    def _enter(self, timing: Timing, extra: Mapping[str, object]) -> None:
        """Pass the samples to pytest-benchmark, as `BenchmarkFixture` does with its own."""
        self._used("device_benchmark(...)")
        how = {"clock": timing.clock, "cache": timing.cache, "mode": timing.mode, "launches": timing.launches}
        how |= {"unit": None if timing.unit == "s" else timing.unit}
        self._fixture.extra_info |= {**extra, **{name: value for name, value in how.items() if value is not None}}
        stats: Any = self._fixture._make_stats(1)  # type: ignore[no-untyped-call]  # noqa: SLF001  no public way in
        for sample in timing.samples_s:
            stats.update(sample)


def _rates(work: Work | None, timing: Timing) -> dict[str, object]:
    if work is None or not timing.net_s or timing.unit != "s":
        return {}
    rates = {"bytes_per_s": work.bytes / timing.net_s, "flop_per_s": work.flops / timing.net_s}
    return {name: value for name, value in rates.items() if value}


def device_benchmark(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> DeviceBenchmark:
    """Make the value of the fixture of this name for the test of `request`."""
    config = request.config
    if is_measuring(config) and hasattr(config, "workerinput"):
        benchmark._mode = "refused"  # noqa: SLF001  pytest-benchmark's warning that it is unused would be a second error
        pytest.fail(
            "--cuassay-record asks for the figures of this benchmark, and workers of xdist measure none, since they "
            "would disturb each other; add -n0 to measure it, or --benchmark-disable to run it once as a test",
            pytrace=False,
        )
    recording = config.pluginmanager.get_plugin("cuassay_recording")
    return DeviceBenchmark(
        benchmark,
        enabled=is_measuring(config),
        most_seconds=float(config.getoption("benchmark_max_time")),
        write=getattr(recording, "write_time", None),
        named=_names(request.node),
        look=getattr(recording, "look", None),
    )


def _names(test: pytest.Item) -> dict[str, str]:
    """Return the columns that identify a test's rows: op, case and, if it has one, dtype."""
    name, _, _ = test.nodeid.partition("[")
    callspec = getattr(test, "callspec", None)
    if callspec is None:
        return {"op": name, "case": ""}
    shown = {key: _shown(callspec.params[key]) for key in ("device", "dtype") if key in callspec.params}
    case = "-".join(part for part in callspec.id.split("-") if part not in shown.values())
    return {"op": name, "case": case, **{key: value for key, value in shown.items() if key == "dtype"}}


def _shown(value: object) -> str:
    """Format a parameter as in a test id."""
    return str(getattr(value, "name", value))
