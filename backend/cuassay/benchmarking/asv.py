"""Results in asv's format, so that ``asv publish``, ``show`` and ``compare`` work on what a GPU host measured.

The same series can be made in two ways. On a machine with asv, asv collects ``suites/benchmarks`` and runs it. On a
machine without asv or a network, ``cuassay run`` measures, and ``python -m cuassay.benchmarking.asv FILE... --out DIR``
converts its rows elsewhere by asv's own `Results`. Each operation is one series with dtype and case as parameters. The
axes are the device, the branch of the driver and the CUDA major version. They are few on purpose, because asv draws a
graph for every combination.

asv always treats smaller values as better, so seconds are stored. `cuassay_reports` computes throughput.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from cuassay.benchmarking.cases import DTYPES, case_labels, cases
from cuassay.benchmarking.ledger import Row, read, slug
from cuassay.benchmarking.timing import measure
from cuassay.core.device import HOST_KINDS, Device
from cuassay.errors import ResultError, SpecError
from cuassay.testing.opspec import OpSpec
from cuassay.testing.own_specs import own_specs
from cuassay.testing.presence import Presence
from cuassay_reports.intervals import is_cold_sample, net, offsets

__all__ = ["MODULE", "PARAM_NAMES", "main", "series", "series_name", "write"]

#: The module of ``suites/benchmarks`` that asv collects the same series from.
MODULE = "ops"

PARAM_NAMES = ("dtype", "case")

#: The longest time in seconds for one series of samples, as in ``cuassay run``.
SECONDS_A_CASE = 0.4

#: The longest time for everything that asv runs for one case, including drawing its inputs.
TIMEOUT_SECONDS = 60.0


def series_name(op: str) -> str:
    """Return the name of an op's series in asv. The prefix `track_` marks a benchmark that returns its own samples."""
    return f"{MODULE}.track_{op}"


def series(
    device: str | Device | None = None, specs: Iterable[OpSpec] | None = None
) -> dict[str, Callable[[str, str], dict[str, object]]]:
    """Return the functions that asv collects, by name: one for each op that has benchmark sizes.

    Parameters
    ----------
    device : Device, optional
        The device to measure. By default the first device that the setting ``CUASSAY_DEVICES`` names, else an
        accelerator, else the cpu.
    specs : iterable of OpSpec, optional
        Specs to measure in every dtype that they declare. By default this package's specs, in the dtypes that models
        are trained in.

    Raises
    ------
    SpecError
        If two specs have the same name, or two cases of a spec have the same label.
    """
    found = Presence.of_setting().devices[0] if device is None else Device(device)
    chosen = [(spec, DTYPES) for spec in own_specs()] if specs is None else [(spec, spec.dtypes) for spec in specs]
    measured = [(spec, dtypes) for spec, dtypes in chosen if spec.bench is not None]
    twice = [name for name, count in Counter(spec.name for spec, _ in measured).items() if count > 1]
    if twice:
        raise SpecError(f"several specs are named {twice[0]!r}, and a series is known by its name; give each its name=")
    return {f"track_{spec.name}": _function(spec, found, dtypes) for spec, dtypes in measured}


def _function(spec: OpSpec, device: Device, dtypes: Sequence[str]) -> Callable[[str, str], dict[str, object]]:
    """Return a benchmark in asv's form: a function with attributes."""

    def setup(dtype: str, case: str) -> None:
        reason = spec.why_unsupported(device, dtype)
        if reason is None and case not in case_labels(spec, device, dtype):
            reason = f"{spec.name} has no case {case} in {dtype}"
        if reason is not None:
            raise NotImplementedError(reason)  # asv records this as n/a

    def track(dtype: str, case: str) -> dict[str, object]:
        chosen = next(one for one in cases(spec, device, dtype) if one.label == case)
        timing = measure(chosen.run, device, cache="cold", max_seconds=SECONDS_A_CASE)
        return {"samples": list(timing.samples_s), "number": 1}

    labels = dict.fromkeys(label for dtype in dtypes for label in case_labels(spec, device, dtype))
    about = _about(spec.name)
    # Without these attributes asv would hash the source, which all series share, and give all of them one version.
    attributes = {"benchmark_name": about["name"], "pretty_source": about["code"], "setup": setup}
    attributes |= {name: about[name] for name in ("unit", "version", "timeout")}
    vars(track).update(attributes, params=[list(dtypes), list(labels)], param_names=list(PARAM_NAMES))
    vars(setup)["pretty_source"] = ""
    return track


def _about(op: str) -> dict[str, Any]:
    """Return the attributes of an op's series that do not depend on the machine."""
    return {
        "name": series_name(op),
        "code": f"cuassay op {op}",
        "timeout": TIMEOUT_SECONDS,
        "type": "track",
        "unit": "seconds",
        "version": hashlib.sha256(op.encode()).hexdigest(),
    }


def write(paths: Iterable[str | Path], results: str | Path) -> int:
    """Write the timings in result files into the asv results folder `results`.

    Runs without a commit are skipped. If several runs measured the same commit on the same kind of machine, each series
    comes from the newest run that has it. Files of an earlier call are replaced.

    Parameters
    ----------
    paths : iterable of path
        Files written by `cuassay.results.record`, or folders of them.
    results : path
        The ``results_dir`` of ``asv.conf.json``.

    Returns
    -------
    int
        The number of files written.

    Raises
    ------
    ResultError
        If a file holds anything but rows of the schema, no run has a commit, or no run has a timing for asv.
    """
    rows = read(paths)
    runs = {row["run"]: row for row in rows if row["record"] == "run" and row.get("commit")}
    if not runs:
        raise ResultError(
            "no run in these files names a commit, so they have no place in a history; record inside a git checkout, "
            "or set CUASSAY_REVISION"
        )
    devices = {(row["run"], row["device"]): row for row in rows if row["record"] == "device" and row["present"]}
    timed = _by_place(rows)
    if not timed:
        raise ResultError(
            "no timing in these files fits asv's series, which hold times of our own implementation in seconds, by a "
            "device's clock with a cold cache; virtual times of sim and the host's clock are left out; measure on a GPU"
        )
    places = [place for place in timed if place[0] in runs and place in devices]
    places.sort(key=lambda place: runs[place[0]]["started"])
    methods = _methods(timed, {place: devices[place] for place in places})
    shifts = _offsets(rows, {place: devices[place] for place in places}, runs)
    together: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for place in places:
        facts = devices[place].get("fingerprint", {})
        together[_machine_name(devices[place]), runs[place[0]]["commit"], _python(facts)].append(place)
    for (machine, _, _), same in together.items():
        alike = {
            (row["benchmark"], *_key(row)): _less(row, shifts[place])
            for place in same
            for row in timed[place]
            if row.get("launches") == methods[machine, row["benchmark"], _key(row)]
        }
        started = {place[0]: runs[place[0]]["started"] for place in same}
        _write_results(Path(results), runs[same[-1][0]], devices[same[-1]], list(alike.values()), started)
    _write_benchmarks(Path(results), [row for times in timed.values() for row in times])
    return len(together)


def _methods(
    timed: Mapping[tuple[str, str], Sequence[Row]], devices: Mapping[tuple[str, str], Row]
) -> dict[tuple[str, str, tuple[str, str]], Any]:
    """Return how the newest run launched each series, queued or live. Only rows that agree belong to the series."""
    return {
        (_machine_name(device), row["benchmark"], _key(row)): row.get("launches")
        for place, device in devices.items()
        for row in timed[place]
    }


def _machine_name(device: Row) -> str:
    return _machine(device, device.get("fingerprint", {}))["machine"]


def _offsets(
    rows: Sequence[Row], devices: Mapping[tuple[str, str], Row], runs: Mapping[str, Row]
) -> dict[tuple[str, str], float]:
    """Return the seconds to subtract from each place's cold samples, which makes series from different hosts equal."""
    timed: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["record"] == "time":
            timed[row["run"], row["device"]].append(net(row))
    machines: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for place in sorted(devices, key=lambda place: runs[place[0]]["started"]):
        machines[_machine_name(devices[place])].append(place)
    found: dict[tuple[str, str], float] = {}
    for places in machines.values():
        found |= zip(places, offsets([timed[place] for place in places]), strict=True)
    return found


def _less(row: Row, seconds: float) -> Row:
    """Return `row` without its empty interval, and minus `seconds` if its median is larger than that."""
    freed = net(row)
    if not is_cold_sample(row) or freed["median"] <= seconds:
        return freed
    samples = [sample - seconds for sample in freed.get("samples", [])]
    return {**freed, "median": freed["median"] - seconds, **({"samples": samples} if samples else {})}


def _by_place(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return our timings by run and device: by the device's clock, in stream mode, with a cold cache.

    Live samples are excluded because they include gaps of the host, while a series is the same for every host.
    """
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        ours = row["record"] == "time" and _is_ours(row) and row["clock"] == "device" and row.get("launches") != "live"
        plain = (
            row.get("mode", "stream") == "stream" and row.get("cache", "cold") == "cold" and row.get("unit", "s") == "s"
        )
        if ours and plain:
            found[row["run"], row["device"]].append(row)
    return found


def _is_ours(row: Row) -> bool:
    return bool(row.get("ours", row["implementation"] == "cuassay"))


def _write_results(folder: Path, run: Row, device: Row, times: Sequence[Row], started: Mapping[str, str]) -> None:
    """Write the results of one commit on one machine. `started` has the start time of each run, for asv's feeds."""
    from asv.results import Results

    facts = device.get("fingerprint", {})
    machine = _machine(device, facts)
    python = _python(facts)
    stored = Results(
        {**machine, "python": python}, {}, run["commit"], _milliseconds(run), python, f"existing-py{python}", {}
    )
    for op, rows in _by_op(times).items():
        benchmark = _benchmark(op, rows)
        newest = max(datetime.datetime.fromisoformat(started[row["run"]]) for row in rows)
        stored.add_result(benchmark, _result(benchmark, rows), newest, record_samples=True)
    (folder / machine["machine"]).mkdir(parents=True, exist_ok=True)
    (folder / machine["machine"] / "machine.json").write_text(json.dumps({**machine, "version": 1}, indent=4))
    stored.save(str(folder))


def _machine(device: Row, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the machine as asv's axes: the device, the branch of the driver and the CUDA major version.

    All accelerators of one model share a series. Results of the host's own device belong to that host. A run with
    hidden libraries uses other kernels, so it has separate series.
    """
    name = str(facts.get("name", device["device"]))
    driver = str(facts.get("driver", "none")).partition(".")[0]
    cuda = str(facts.get("cuda", "none")).partition(".")[0]
    is_host = device["device"].partition(":")[0] in HOST_KINDS
    apart = device.get("digest", "unknown")[:6] if is_host else f"driver {driver} cuda {cuda}"
    without = f"without {facts['without']}" if facts.get("without") else ""
    return {
        "machine": slug(f"{name} {apart} {without}"),
        "gpu": name,
        "driver": driver,
        "cuda": cuda,
        "arch": str(facts.get("architecture", "")),
        "os": str(facts.get("system", "")),
    }


def _python(facts: Mapping[str, Any]) -> str:
    found = re.search(r"(\d+\.\d+)", str(facts.get("python", "")))
    return found[1] if found else f"{sys.version_info.major}.{sys.version_info.minor}"


def _milliseconds(run: Row) -> int:
    moment = datetime.datetime.fromisoformat(run.get("committed") or run["started"])
    return int(moment.timestamp() * 1000)


def _by_op(times: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in times:
        found[row["benchmark"]].append(row)
    return found


def _key(row: Row) -> tuple[str, str]:
    return str(row.get("dtype", "")), str(row["case"])


def _benchmark(op: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return what asv's discovery would find for the series."""
    keys = [_key(row) for row in rows]
    params = [sorted({repr(key[place]) for key in keys}) for place in range(len(PARAM_NAMES))]
    return {**_about(op), "param_names": list(PARAM_NAMES), "params": params}


def _result(benchmark: Mapping[str, Any], rows: Sequence[Row]) -> Any:
    """Return medians and samples in the order of `itertools.product`. asv represents a skipped case by NaN."""
    from asv.runner import BenchmarkResult

    known = {tuple(map(repr, _key(row))): row for row in rows}
    found = [known.get(key) for key in product(*benchmark["params"])]
    return BenchmarkResult(
        result=[math.nan if row is None else row["median"] for row in found],
        samples=[None if row is None else row.get("samples") or [row["median"]] for row in found],
        number=[None if row is None else 1 for row in found],
        errcode=0,
        stderr="",
        profile=None,
    )


def _write_benchmarks(folder: Path, times: Sequence[Row]) -> None:
    known: dict[str, Any] = {series_name(op): _benchmark(op, rows) for op, rows in sorted(_by_op(times).items())}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps({**known, "version": 2}, indent=4))


def _unknown_commits(paths: Iterable[str | Path]) -> list[str]:
    """Return the commits of runs that the current repository lacks; empty if there is no repository."""
    git = shutil.which("git")
    if git is None or subprocess.run([git, "rev-parse"], capture_output=True, check=False).returncode:
        return []
    commits = dict.fromkeys(row["commit"] for row in read(paths) if row["record"] == "run" and row.get("commit"))
    asked = "".join(f"{commit}^{{commit}}\n" for commit in commits)
    command = [git, "cat-file", "--batch-check"]
    found = subprocess.run(command, input=asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return [commit for commit, line in zip(commits, found, strict=False) if line.endswith(" missing")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default the arguments of the process, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m cuassay.benchmarking.asv", description="Write result files as asv's results."
    )
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="result files (*.jsonl), or folders of them")
    parser.add_argument("--out", required=True, metavar="DIR", help="asv's results_dir")
    options = parser.parse_args(argv)
    try:
        written = write(options.paths, options.out)
        unknown = _unknown_commits(options.paths)
    except ResultError as error:
        sys.stderr.write(f"asv: {error}\n")
        return 2
    sys.stdout.write(f"wrote {written} asv result files into {options.out}\n")
    for commit in unknown:
        sys.stderr.write(
            f"asv: commit {commit} is not in the repository here, so asv publish leaves it out; fetch it\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
