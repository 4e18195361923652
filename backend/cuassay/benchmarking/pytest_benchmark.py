"""The bridge to pytest-benchmark: our samples in its table, JSON, comparison and history.

Use it by importing the fixture into a conftest::

    from cuassay.benchmarking.pytest_benchmark import device_benchmark

By default a benchmark runs once, as a test. It is measured when pytest-benchmark is told to: by
``--benchmark-only``, ``--benchmark-enable``, or an option that keeps or compares figures (``--benchmark-json``,
``--benchmark-save``, ``--benchmark-autosave``, ``--benchmark-compare``), or when ``--cuassay-record`` keeps them.
``--benchmark-max-time`` bounds the seconds of each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cuassay.benchmarking.timing import Cache, Timing, interleave
from cuassay.core.device import Device
from cuassay.testing.opspec import Work

__all__ = ["DeviceBenchmark", "device_benchmark", "is_measuring"]

#: Options that ask for figures; see `pytest_benchmark.plugin.pytest_addoption`.
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
    """Whether benchmarks are measured in this session, rather than run once as tests."""
    if config.getoption("benchmark_disable", default=False) or config.getoption("benchmark_skip", default=False):
        return False
    return any(config.getoption(name, default=None) for name in _ASKING)


class DeviceBenchmark:
    """What the fixture `device_benchmark` gives: call it once with what is to be measured.

    Attributes
    ----------
    enabled : bool
        False: calls run once, and there are no timings.
    """

    def __init__(self, fixture: BenchmarkFixture, *, enabled: bool, most_seconds: float = math.inf) -> None:
        self._fixture = fixture
        self._most_seconds = most_seconds
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
        work: Work | None = None,
        max_seconds: float = 0.5,
        **extra: object,
    ) -> dict[str, Timing]:
        """Measure one call, or several side by side; the first is what pytest-benchmark's table shows.

        Parameters
        ----------
        calls : callable or mapping
            What is measured; by name where there are peers.
        device : Device
            Where.
        cache : str
            ``cold`` or ``warm``.
        queued : bool
            See `timing.measure`: False for the host's own time.
        work : Work, optional
            Gives bytes/s and flop/s in ``extra_info``.
        max_seconds : float
            For each call, and no more than ``--benchmark-max-time``.
        **extra
            More for ``extra_info``.

        Returns
        -------
        dict
            Name to `Timing`; empty where nothing is measured.
        """
        named = calls if isinstance(calls, Mapping) else {"cuassay": calls}
        if not self.enabled:
            for call in named.values():
                call()
            self._used("once")
            return {}
        most = min(max_seconds, self._most_seconds)
        timings = interleave(named, device, cache=cache, queued=queued, max_seconds=most)
        first, *peers = timings
        self._enter(timings[first], {"device": str(device), **extra, **_rates(work, timings[first])})
        self._fixture.extra_info |= {f"{peer}_median_s": timings[peer].median_s for peer in peers}
        return timings

    def note(self, **extra: object) -> None:
        """Add to ``extra_info``."""
        self._fixture.extra_info |= {name: value for name, value in extra.items() if value is not None}

    def _used(self, mode: str) -> None:
        self._fixture._mode = mode  # noqa: SLF001  it warns of a benchmark fixture that nobody used

    def _enter(self, timing: Timing, extra: Mapping[str, object]) -> None:
        """Hand the samples over, as `BenchmarkFixture` does its own."""
        self._used("device_benchmark(...)")
        how = {"clock": timing.clock, "cache": timing.cache, "mode": timing.mode, "launches": timing.launches}
        self._fixture.extra_info |= {**extra, **{name: value for name, value in how.items() if value is not None}}
        stats: Any = self._fixture._make_stats(1)  # type: ignore[no-untyped-call]  # noqa: SLF001  no public way in
        for sample in timing.samples_s:
            stats.update(sample)


def _rates(work: Work | None, timing: Timing) -> dict[str, object]:
    if work is None or not timing.median_s:
        return {}
    rates = {"bytes_per_s": work.bytes / timing.median_s, "flop_per_s": work.flops / timing.median_s}
    return {name: value for name, value in rates.items() if value}


@pytest.fixture
def device_benchmark(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> DeviceBenchmark:
    """Measure on a device, with pytest-benchmark's reports; see `DeviceBenchmark`."""
    most = float(request.config.getoption("benchmark_max_time"))
    return DeviceBenchmark(benchmark, enabled=is_measuring(request.config), most_seconds=most)
