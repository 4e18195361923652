"""Compare this package's timer with NVBench's: ten operations, cold, on one GPU, with medians within 2 % or explained.

    python ci/nvbench_check.py [--device cuda:0] [--out FILE.json] [--seconds 1]

NVBench is the Python package cuda-bench, 0.3 or newer. Without it, or without a GPU, the check is skipped: the reason
is printed, and the exit status is 0. The status is 1 if a difference of more than 2 % has no explanation.

Both flush the cache before each sample and hold the stream until the sample is queued, and both samples contain the
empty interval of two events, so the compared medians contain it too. The control is an addition of one element.

NVBench flushes the cache by writing, and the operation then waits while those lines are written back. Our flush reads.
If the medians differ, ours is measured again after a flush by writing; if that agrees, it is the explanation.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from cuassay import devices, from_host, ops
from cuassay.benchmarking.cases import cases
from cuassay.benchmarking.timing import Timing, measure
from cuassay.core.device import Device
from cuassay.testing.own_specs import own_specs

#: Operations of one or a few kernels each: memory-bound ones, reductions, and a product.
NAMES = ("add", "mul", "exp", "relu", "gelu", "softmax", "layer_norm", "sum", "amax", "matmul")

#: Too small to depend on the cache: it shows what is measured in addition to the operation.
CONTROL = "one element"

TOLERANCE = 0.02

#: The event clock of an H200 has steps of half a microsecond; two medians may differ by a step each.
STEPS_S = 1e-6


def why_skipped(device: Device) -> str | None:
    """Return why nothing can be compared here, or None if it can."""
    if (reason := devices.backend(device.kind).why_absent()) is not None:
        return f"{device.kind} is absent: {reason}"
    if device.kind != "cuda":
        return f"NVBench measures CUDA devices; got {device}"
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bench") is None:
        return "NVBench is not installed; install cuda-bench"
    if importlib.util.find_spec("cuda.bench.results") is None:
        return "this cuda-bench does not read its own results; install cuda-bench 0.3 or newer"
    return None


def chosen(device: Device) -> dict[str, Callable[[], object]]:
    """Return the call of the first benchmark of each operation, and the control."""
    specs = {spec.name: spec for spec in own_specs()}
    one = from_host(np.ones(1, np.float32), device)
    return {CONTROL: lambda: ops.add(one, 1.0, out=one)} | {
        name: next(cases(specs[name], device, "float32")).run for name in NAMES
    }


def by_nvbench(ready: dict[str, Callable[[], object]], device: Device, seconds: float) -> dict[str, float]:
    """Return NVBench's median of each call in seconds."""
    bench, results = importlib.import_module("cuda.bench"), importlib.import_module("cuda.bench.results")
    for name, call in ready.items():
        bench.register(_benchmark(call, device)).set_name(name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nvbench.json"
        words = ["--devices", str(device.index), "--timeout", str(seconds), "--min-samples", "100"]
        bench.run_all_benchmarks([sys.argv[0], *words, "--jsonbin", str(file)])
        found = results.BenchmarkResult.from_json(file)
        return {name: _median(name, found.subbenches[name].states[0]) for name in ready}


def _median(name: str, state: Any) -> float:
    """Return the median of a state's samples; NVBench has none if all were throttled or the state was skipped."""
    if not state.samples:
        reason = state.skip_reason or "it discarded every sample as throttled"
        raise SystemExit(f"NVBench kept no sample of {name}: {reason}; check the clocks, or raise --seconds")
    return float(statistics.median(state.samples))


def _benchmark(call: Callable[[], object], device: Device) -> Callable[[Any], None]:
    backend = devices.backend(device.kind)

    def run(launch: Any) -> None:
        with backend.activate(device.index), backend.use_stream(launch.get_stream().addressof()):
            call()

    return lambda state: state.exec(run, batched=False)


@contextmanager
def flushed_by_writing(device: Device) -> Iterator[None]:
    """Measure with a cache full of lines that are not yet written back, as after NVBench's `memset`."""
    cupy = importlib.import_module("cupy")
    backend = devices.backend(device.kind)
    with backend.activate(device.index):
        buffer = cupy.empty(2 * cupy.cuda.Device().attributes["L2CacheSize"], np.uint8)

    def flush(_backend: object, _index: int) -> None:
        buffer.data.memset_async(0, buffer.nbytes)

    with mock.patch.object(type(backend), "flush_cache", flush):
        yield


def compared(name: str, ours: Timing, theirs_s: float, written: Callable[[], Timing]) -> dict[str, Any]:
    """Return one row of the table; `explanation` is empty within the tolerance, and None if there is none.

    `written` measures ours after a flush by writing; it is called if nothing else explains the difference.
    """
    difference = ours.median_s / theirs_s - 1
    columns = {"name": name, "ours_s": ours.median_s, "nvbench_s": theirs_s, "difference": difference}
    explanation = _explanation(ours, theirs_s)
    if explanation is None:
        columns["written_s"] = (found := written()).median_s
        if _agree(found, theirs_s):
            explanation = (
                f"NVBench's samples write back its flush; so flushed, ours takes {found.median_s * 1e6:.2f} µs"
            )
    return {**columns, "explanation": explanation}


def _agree(ours: Timing, theirs_s: float) -> bool:
    return abs(ours.median_s - theirs_s) <= max(TOLERANCE * theirs_s, STEPS_S)


def _explanation(ours: Timing, theirs_s: float) -> str | None:
    if abs(ours.median_s / theirs_s - 1) <= TOLERANCE:
        return ""
    if not ours.queued:
        return "our series is live: it contains gaps of the host"
    if _agree(ours, theirs_s):
        return "at most two steps of the event clock"
    if ours.throttled:
        return f"the GPU was throttled during {ours.throttled} of {len(ours.samples_s)} of our samples"
    if ours.settled is False:
        return "our series did not settle"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and compare; return the exit status."""
    options = _parser().parse_args(argv)
    device = Device(options.device)
    if (reason := why_skipped(device)) is not None:
        print(f"skipped: {reason}")
        return 0
    ready = chosen(device)
    ours = {name: measure(call, device, max_seconds=options.seconds) for name, call in ready.items()}
    theirs = by_nvbench(ready, device, options.seconds)

    def written(name: str) -> Timing:
        with flushed_by_writing(device):
            return measure(ready[name], device, max_seconds=options.seconds)

    rows = [compared(name, ours[name], theirs[name], partial(written, name)) for name in ready]
    for row in rows:
        text = "no explanation" if row["explanation"] is None else row["explanation"]
        figures = f"{row['ours_s'] * 1e6:9.2f} µs {row['nvbench_s'] * 1e6:9.2f} µs {row['difference']:+7.2%}"
        print(f"{row['name']:12} {figures}  {text}")
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(any(row["explanation"] is None for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", help="the table as JSON")
    parser.add_argument("--seconds", type=float, default=1.0, help="most time for each operation, by each timer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
