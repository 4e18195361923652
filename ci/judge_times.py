"""The accuracy of the judge's times, and its verdicts per second; the results are printed and can be kept as JSON.

For each candidate of ``suites/data/judging/timed`` and each of some nonces, this measures its time by the judge
and, just before, the median by `cuassay.benchmarking.measure` of the same work in an unguarded process. The times of
any two verdicts on a candidate give a ratio of the candidate against itself. Verdicts per second are measured with many
copies of one candidate, which are only checked. Empty calls show what the protocol takes.

    python ci/judge_times.py --device cuda:0 [--tier program] [--nonces 12] [--copies 48] [--jobs 8] [--empty 200]
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "suites" / "shared"))

from referees import DATA, Referees  # type: ignore[import-not-found]  # in suites, which is not a package

from cuassay import Device
from cuassay.benchmarking.timing import measure
from cuassay.cli import main as cuassay
from cuassay.judging.clocks import busy_seconds
from cuassay.judging.limits import Limits
from cuassay.judging.plan import KERNEL
from cuassay.judging.process import CandidateProcess
from cuassay.judging.runner import load
from cuassay.judging.spec_file import load_declaration
from cuassay.judging.verdict import CaseTime
from cuassay.testing.presence import sizes_for

__all__ = ["main"]

TIMED = DATA / "timed"

#: The candidates of each tier: a file, or a folder with a kernel and its plan.
CANDIDATES: Mapping[str, Sequence[str]] = {
    "program": ("sorted_rows", "waved", "scaled"),
    "kernel": ("scaled", "iterated"),
}


def _file(tier: str, name: str) -> Path:
    return Path(TIMED, name, KERNEL) if tier == "kernel" else Path(TIMED, f"{name}.py")


def _measured(tier: str, name: str, device: Device, nonce: int) -> float:
    """Return the seconds of the same work by `measure`: a candidate's planned kernels, or the declared function."""
    spec = load_declaration(f"{TIMED}/spec.py::{name}").spec
    (sample,) = spec.draw_bench(nonce, "float32", sizes_for(device))
    if tier == "program":
        args, options = sample.on(device)
        return measure(partial(spec.run, device, args, options), device).median_s
    runner = load(TIMED / name, device)
    prepared = runner._prepare([np.asarray(one) for one in sample.host()[0]], sample.kwargs)  # noqa: SLF001
    timing = measure(prepared.launch, device)
    return timing.median_s - timing.empty_s  # a verdict's time does not contain the empty interval


def _judge_once(referees: Referees, tier: str, name: str, device: Device) -> dict[str, Any]:
    nonce = secrets.randbits(64)
    measured = _measured(tier, name, device, nonce)
    began = time.monotonic()
    verdict = referees.of(name).judge(_file(tier, name), nonce=nonce)
    took = time.monotonic() - began
    cases: Sequence[CaseTime] = verdict.cases
    found = {"tier": tier, "name": name, "verdict": verdict.verdict, "reason": verdict.reason, "measured": measured}
    if cases:
        one = cases[0]
        found |= {"judged": one.time_s, "error": one.error_s, "offset": one.offset, "withheld": one.withheld}
    return {**found, "seconds": took}


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    timed = [row for row in rows if row.get("judged")]
    head = f"{rows[0]['tier']} {rows[0]['name']}: {len(rows)} verdicts, {len(rows) - len(timed)} without a time, "
    head += f"{statistics.median(row['seconds'] for row in rows):.1f} s each"
    if not timed:
        return f"{head}; {rows[0]['reason']} {rows[0].get('withheld', '')}"
    agree = sorted(row["judged"] / row["measured"] for row in timed)
    itself = sorted(one["judged"] / other["judged"] for place, one in enumerate(timed) for other in timed[:place])
    within = sum(0.97 <= one <= 1.03 for one in itself)
    judged = statistics.median(row["judged"] for row in timed) * 1e6
    return (
        f"{head}; judged {judged:.4g} us, of measured {_spread(agree)}; "
        f"against itself {_spread(itself)}, 0.97 to 1.03 in {within} of {len(itself)}"
    )


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4f} ({values[0]:.4f} to {values[-1]:.4f})" if values else "none"


#: The array of an empty call: 8 MiB.
EMPTY_SHAPE = (256, 8192)


def _empty_calls(device: Device, count: int) -> str:
    """Return the time of empty calls by the judge's clock, without the device's work in them.

    The first half of `count` calls does not count.
    """
    busy = busy_seconds(device)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text("def run(xp, a):\n    return a\n", encoding="utf-8")
        array, asked = np.ones(EMPTY_SHAPE, np.float32), [(EMPTY_SHAPE, "float32")]
        with CandidateProcess(file, device=device, limits=Limits(processes=512, memory_nbytes=16 << 30)) as process:
            process.load()
            process.time((array,), {}, asked, limit_s=60.0)
            times = [process.empty(limit_s=60.0) for _ in range(count)]
    low, middle, high = statistics.quantiles([1e6 * ((one or 0.0) - busy) for one in times[count // 2 :]], n=4)
    return f"an empty call, {array.nbytes:,} bytes: {middle:.0f} us ({low:.0f} to {high:.0f})"


def _throughput(device: str, copies: int, jobs: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{place}.py" for place in range(copies)]
        for file in files:
            shutil.copy(DATA / "honest" / "plain.py", file)
        began = time.monotonic()
        asked = [f"{DATA}/spec.py::rms_norm", *map(str, files), "--device", device, "--jobs", str(jobs)]
        status = cuassay(["judge", *asked, "--allow-unjailed", "--no-times"])
        took = time.monotonic() - began
    return f"{copies} verdicts with --jobs {jobs} in {took:.1f} s, status {status}: {copies / took:.2f} a second"


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status, which is 0."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--device", default="sim", help="where (default: %(default)s)")
    parser.add_argument(
        "--nonces",
        type=int,
        default=12,
        help="verdicts for each candidate; 0 counts verdicts only (default: %(default)s)",
    )
    parser.add_argument("--copies", type=int, default=48, help="candidates of the count (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=8, help="at a time (default: %(default)s)")
    parser.add_argument("--empty", type=int, default=0, help="empty calls (default: %(default)s)")
    parser.add_argument("--tier", choices=list(CANDIDATES), help="judge in this tier only")
    parser.add_argument("--out", type=Path, help="write the rows here, as JSON")
    options = parser.parse_args(words)
    device = Device(options.device)
    tiers = {tier: names for tier, names in CANDIDATES.items() if tier == "program" or device.kind == "cuda"}
    tiers = {tier: names for tier, names in tiers.items() if options.tier in (None, tier)}
    made = {tier: Referees(str(device), data=TIMED, tier=tier, allow_unjailed=True) for tier in tiers}
    rows: list[dict[str, Any]] = []
    if options.empty:
        print(_empty_calls(device, options.empty), flush=True)
    if options.copies:
        print(_throughput(str(device), options.copies, options.jobs), flush=True)
    try:
        for _ in range(options.nonces):  # in turn, so that a change of the machine's clock affects all of them
            for tier, name in [(tier, name) for tier, names in tiers.items() for name in names]:
                rows.append(_judge_once(made[tier], tier, name, device))
                print(f"  {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
    finally:
        for one in made.values():
            one.close()
    for tier, names in tiers.items() if rows else ():
        for name in names:
            print(_summary([row for row in rows if (row["tier"], row["name"]) == (tier, name)]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
