"""The child process that measures every declared op with benchmark sizes on every selected device.

`cuassay.benchmarking.run` starts it. It prints how many cases there are, then writes a ``time`` row for each case and
the performance limits of the devices as ``limit`` rows. With ``--processes N`` it starts itself N times and merges the
rows. ``cuassay fleet`` divides the ops among workers: ``--list`` writes a line for each op and dtype, and ``--only-in``
measures those that a file names.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cuassay import devices
from cuassay.benchmarking.cases import DTYPES, cases, row
from cuassay.benchmarking.conditions import Watch
from cuassay.benchmarking.replicates import replicated
from cuassay.benchmarking.roofline import limits
from cuassay.benchmarking.timing import measure
from cuassay.core.device import Device
from cuassay.errors import DeviceError
from cuassay.results.part import TIMES, Part
from cuassay.results.record import Recorder
from cuassay.testing.device_facts import device_columns
from cuassay.testing.opspec import ModelSizes, OpSpec
from cuassay.testing.own_specs import own_specs
from cuassay.testing.presence import Presence

__all__ = ["main"]

#: The longest time in seconds for one case, so that the main job ends in minutes on two cores.
SECONDS_A_CASE = 0.4

#: Minimal sizes, which are used only to count the cases.
_TINY = ModelSizes(batch=1, length=8, width=1, heads=1, vocabulary=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record, and return the exit status."""
    asked = _parser().parse_args(argv)
    try:
        selected = Presence(asked.device).devices
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    work = [(device, spec, dtype) for device in selected for spec, dtype in _measurable(device)]
    if asked.only_in is not None:
        only = frozenset(asked.only_in.read_text(encoding="utf-8").splitlines())
        work = [one for one in work if _name(*one) in only]
    if asked.list is not None:
        _list(asked.list, work)
        return 0
    count = sum(_count(spec, dtype) for _, spec, dtype in work)
    print(f"measuring {count} cases", flush=True)
    with Recorder(asked.record, run=asked.run) as recorder:
        if asked.only_in is not None:
            for device in selected:
                recorder.write_device(**device_columns(device))
        part = Part(recorder, TIMES)
        part.plan(times=count)
        if asked.processes > 1:
            where = [f"--device={device}" for device in selected]
            for table, columns in replicated([__spec__.name, *where], asked.processes):
                part.write(table, **columns)
        else:
            _measure_all(part, selected, work, begins=asked.only_in is not None)
        part.end()
    if part.lost:
        print(part.told(), file=sys.stderr)
    return int(part.lost > 0)


def _list(path: Path, work: Sequence[tuple[Device, OpSpec, str]]) -> None:
    """Write what would be measured: names, numbers of cases, and the longest time that these take, in seconds."""
    counts = {_name(*one): _count(*one[1:]) for one in work}
    rows = [{"nodeid": name, "cases": count, "seconds": count * SECONDS_A_CASE} for name, count in counts.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _measure_all(
    part: Part, selected: Sequence[Device], work: Sequence[tuple[Device, OpSpec, str]], *, begins: bool
) -> None:
    for device in selected:
        for limit in limits(device, DTYPES):
            part.write("limit", **limit.columns())
    watch = Watch(part.write)
    for device, spec, dtype in work:
        if begins:
            part.begin(_name(device, spec, dtype))
        _measure(part, watch, device, spec, dtype)
    watch.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cuassay.benchmarking.measure", description="Measure the declared ops."
    )
    parser.add_argument("--device", action="append", default=[], metavar="D", help="as for pytest; may be repeated")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", metavar="FILE", help="result file that rows are appended to")
    what.add_argument(
        "--list", type=Path, metavar="FILE", help="write what would be measured to FILE, and measure nothing"
    )
    parser.add_argument(
        "--only-in", type=Path, metavar="FILE", help="measure only the lines of FILE, as --list names them"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="measure in N fresh processes")
    parser.add_argument("--run", metavar="ID", help="id of the run the rows belong to")
    return parser


def _name(device: Device, spec: OpSpec, dtype: str) -> str:
    return f"{spec.name} {dtype} on {device}"


def _measurable(device: Device) -> Iterator[tuple[OpSpec, str]]:
    for spec in own_specs():
        for dtype in DTYPES:
            if dtype in spec.dtypes and spec.why_unsupported(device, dtype) is None:
                yield spec, dtype


def _count(spec: OpSpec, dtype: str) -> int:
    """Return the number of cases."""
    return sum(1 for _ in spec.draw_bench(0, dtype, _TINY))


def _measure(part: Part, watch: Watch, device: Device, spec: OpSpec, dtype: str) -> None:
    for case in cases(spec, device, dtype):
        watch.look(device)
        timing = measure(case.run, device, cache="cold", max_seconds=SECONDS_A_CASE)
        part.write("time", **row(case, "cuassay", timing))
        print(f"{case.spec.name} {case.dtype} {case.label} on {device}: {timing!r}", flush=True)
        del case
    gc.collect()
    devices.backend(device.kind).synchronize(device.index)


if __name__ == "__main__":
    raise SystemExit(main())
