"""The child process of ``cuassay ab``, which measures declared benchmarks once and writes ``time`` rows.

It runs with the code of one of the two sides and does not know of the comparison. Its arguments say what it measures,
where, and for how long. ``--spin NAME=SECONDS`` keeps the device busy before each call of a benchmark, and
``--scatter`` multiplies the samples of a benchmark by a random factor; both are for tests of the gate. With
``--timeline FILE`` each benchmark is instead called once under a profile whose totals go to FILE, so that a slow-down
can be reported together with the launches that were added.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.benchmarking.cases import DTYPES, Case, case_labels, cases, row
from cuassay.benchmarking.timing import Timing, measure
from cuassay.core.device import Device
from cuassay.errors import CuassayError
from cuassay.observe.comparison import figures
from cuassay.observe.profile import profile
from cuassay.results.record import Recorder
from cuassay.testing.device_facts import device_columns
from cuassay.testing.opspec import OpSpec
from cuassay.testing.own_specs import own_specs

__all__ = ["benchmark_name", "is_wanted", "main"]

#: Seconds of `spin` that a benchmark named with ``--spin`` has on both sides, because the launch itself takes time.
SPIN_BASE_S = 1e-6

#: The clock rate of `spin` is measured with this many cycles and with twice as many.
_CYCLES = 4_000_000


def benchmark_name(columns: dict[str, Any]) -> str:
    """Return the name of a benchmark in a comparison, such as ``add float32 8x1024x768``."""
    parts = (columns["benchmark"], columns.get("dtype", ""), columns["case"], _peer(columns))
    return " ".join(filter(None, parts))


def is_wanted(name: str, only: Sequence[str]) -> bool:
    """Return whether a benchmark's name is in `only` or matches a pattern there. An empty `only` admits every name."""
    return not only or any(fnmatch(name, pattern) or name == pattern for pattern in only)


def _peer(columns: dict[str, Any]) -> str:
    return "" if columns["implementation"] == "cuassay" else str(columns["implementation"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record, and return the exit status."""
    asked = _parser().parse_args(argv)
    try:
        device = devices.find(asked.device)
        if asked.list is not None:
            _list(asked.list, device)
            return 0
        spins = {name: float(seconds) for name, _, seconds in (one.rpartition("=") for one in asked.spin)}
        with Recorder(asked.record) as recorder:
            recorder.write_device(**device_columns(device))
            if asked.timeline is None:
                _measure(recorder, device, asked, spins)
            else:
                asked.timeline.write_text(json.dumps(_timelines(device, asked, spins)), encoding="utf-8")
    except CuassayError as error:
        sys.stderr.write(f"cuassay ab: {error}\n")
        return 2
    return 0


def _measure(recorder: Recorder, device: Device, asked: argparse.Namespace, spins: dict[str, float]) -> None:
    random = np.random.default_rng(asked.seed)
    spun = _spinning(device) if spins else None
    for case in _cases(device, asked.only, asked.limit):
        name = f"{case.spec.name} {case.dtype} {case.label}"
        run = case.run if spun is None or name not in spins else spun(case, SPIN_BASE_S + spins[name])
        timing = measure(run, device, cache="cold", max_seconds=asked.seconds)
        factor = 1 + asked.scatter * random.standard_normal()
        recorder.write_time(**row(case, "cuassay", _scaled(timing, factor)))
        del run, case
    gc.collect()
    devices.backend(device.kind).synchronize(device.index)


def _timelines(device: Device, asked: argparse.Namespace, spins: dict[str, float]) -> dict[str, Any]:
    """Return the profile totals of one call of each benchmark by name. A first call prepares it."""
    found = {}
    spun = _spinning(device) if spins else None
    backend = devices.backend(device.kind)
    for case in _cases(device, asked.only, asked.limit):
        name = f"{case.spec.name} {case.dtype} {case.label}"
        run = case.run if spun is None or name not in spins else spun(case, SPIN_BASE_S + spins[name])
        run()
        backend.synchronize(device.index)
        with profile(device, memory=False) as recorded:
            run()
            backend.synchronize(device.index)
        found[name] = figures(recorded.timeline).columns()
    return found


def _list(path: Path, device: Device) -> None:
    """Write the names of all benchmarks, one per line."""
    labels = ((spec, dtype, case_labels(spec, device, dtype)) for spec, dtype in _measurable(device))
    names = (f"{spec.name} {dtype} {label}" for spec, dtype, found in labels for label in found)
    path.write_text("".join(f"{json.dumps({'nodeid': name})}\n" for name in names), encoding="utf-8")


def _scaled(timing: Timing, factor: float) -> Timing:
    return replace(timing, samples_s=tuple(sample * factor for sample in timing.samples_s))


def _cases(device: Device, only: Sequence[str], limit: int) -> Iterator[Case]:
    """Yield the first `limit` cases of those that are wanted."""
    left = limit
    for spec, dtype in _measurable(device):
        labels = [f"{spec.name} {dtype} {label}" for label in case_labels(spec, device, dtype)]
        wanted = [is_wanted(name, only) for name in labels]
        if not any(wanted) or not left:
            continue  # do not draw its inputs
        for case, chosen in zip(cases(spec, device, dtype), wanted, strict=True):
            if chosen and left:
                left -= 1
                yield case


def _measurable(device: Device) -> Iterator[tuple[OpSpec, str]]:
    for spec in own_specs():
        for dtype in DTYPES:
            if spec.bench is not None and dtype in spec.dtypes and spec.why_unsupported(device, dtype) is None:
                yield spec, dtype


def _spinning(device: Device) -> Callable[[Case, float], Callable[[], Any]]:
    """Return a function that makes calls of a case which first keep the device busy for some seconds."""
    backend: Any = devices.backend(device.kind)
    once, twice = (
        measure(partial(backend.spin, device.index, cycles), device, max_seconds=0.2).median_s
        for cycles in (_CYCLES, 2 * _CYCLES)
    )
    hertz = _CYCLES / (twice - once)

    def spun(case: Case, seconds: float) -> Callable[[], Any]:
        cycles = int(seconds * hertz)

        def run() -> None:
            backend.spin(device.index, cycles)
            case.run()

        return run

    return spun


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cuassay.benchmarking.sample", description=__doc__)
    parser.add_argument("--device", required=True, metavar="D")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", metavar="FILE")
    what.add_argument("--list", type=Path, metavar="FILE", help="write the benchmarks to FILE, and measure nothing")
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE", help="write what one call of each does to FILE instead"
    )
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="benchmarks by name; repeatable")
    parser.add_argument("--limit", type=int, default=-1, metavar="N", help="only the first N benchmarks")
    parser.add_argument("--seconds", type=float, default=0.1, help="longest time for each benchmark")
    parser.add_argument("--spin", action="append", default=[], metavar="NAME=SECONDS")
    parser.add_argument("--scatter", type=float, default=0.0, metavar="FRACTION")
    parser.add_argument("--seed", type=int)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
