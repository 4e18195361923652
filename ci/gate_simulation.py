"""Simulate the promises of the A/B gate: false alarms of unchanged suites, and how often a slow-down is found.

    python ci/gate_simulation.py [--null 5000000] [--found 20000] [--seed 0]
    python ci/gate_simulation.py --suites 1000 [--seed 0]

With --suites, whole comparisons of 30 benchmarks are simulated, whose processes share a part of their times; ten of the
benchmarks are slower by what their noise class promises. Without it, each benchmark has a drawn profile of 20
processes, then pairs until the gate decides, and, if it is a suspect, the confirming pairs. Prints the tables of
reports/docs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import compare
from cuassay.benchmarking.arms import Arm
from cuassay.benchmarking.comparison import Comparison, Side
from cuassay.benchmarking.noise import Profile

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]

SUITE = 300
PROFILED = 20
CHUNK = 250_000


@dataclass(frozen=True)
class Noise:
    """The distribution of a process's median: a name, and a function that draws it in its standard deviations."""

    name: str
    draw: Draw


def gaussian(random: np.random.Generator, benchmarks: int, processes: int) -> Floats:
    """Draw from the normal distribution."""
    return random.standard_normal((benchmarks, processes))


def heavy(random: np.random.Generator, benchmarks: int, processes: int) -> Floats:
    """Draw from Student's t with 4 degrees of freedom and unit variance, for occasionally disturbed processes."""
    return np.asarray(random.standard_t(4, (benchmarks, processes)) / np.sqrt(2.0))


def two_states(random: np.random.Generator, benchmarks: int, processes: int) -> Floats:
    """Draw two clock states with unit variance, three of ten processes in the slower one; a fifth of it is normal."""
    state = (random.random((benchmarks, processes)) < 0.3) - 0.3
    return np.asarray(state / np.sqrt(0.21) * np.sqrt(0.8) + random.standard_normal(state.shape) * np.sqrt(0.2))


NOISES = (Noise("normal", gaussian), Noise("heavy tails", heavy), Noise("two states", two_states))


@dataclass
class Counts:
    """The outcomes of benchmarks."""

    benchmarks: int = 0
    slower: int = 0
    faster: int = 0
    ambiguous: int = 0
    pairs: int = 0

    @property
    def any_alarm(self) -> float:
        """The chance of an alarm in a suite of 300 such benchmarks; if no alarm was seen, its upper 95 % bound."""
        alarms = self.slower + self.faster
        return 1 - (1 - max(alarms, 3 if alarms == 0 else alarms) / self.benchmarks) ** SUITE


def simulate(draw: Draw, spread: float, effect: float, benchmarks: int, seed: int) -> Counts:
    """Pass `benchmarks` through the gate; the noise `spread` of a process and the slow-down `effect` are fractions."""
    counts = Counts()
    for chunk in range(0, benchmarks, CHUNK):
        random = np.random.default_rng((seed, chunk))
        _simulate(counts, draw, spread, effect, min(CHUNK, benchmarks - chunk), random)
    return counts


def _simulate(
    counts: Counts, draw: Draw, spread: float, effect: float, number: int, random: np.random.Generator
) -> None:
    def pairs_of(benchmarks: int, pairs: int) -> Floats:
        processes = draw(random, benchmarks, 2 * pairs) * spread
        return np.asarray(processes[:, ::2] - processes[:, 1::2] + np.log1p(effect))

    noise = (draw(random, number, PROFILED) * spread).std(axis=1, ddof=1)
    degrees = np.full(number, PROFILED - 1.0)
    kinds = _classes(noise)
    floor = np.array([one.floor for one in gate.CLASSES])[kinds]
    most = np.array([one.pairs for one in gate.CLASSES])[kinds]
    all_pairs = pairs_of(number, gate.LOOKS[-1])
    open_, before = np.arange(number), 0
    suspects: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    for count in gate.LOOKS:
        counts.pairs += (count - before) * len(open_)
        found = gate.look(all_pairs[open_, :count], noise[open_], degrees[open_], floor[open_])
        accused = np.abs(found) == 1
        suspects.append((open_[accused], found[accused]))
        undecided = open_[found == 2]
        open_, before = undecided[most[undecided] > count], count
        counts.ambiguous += len(undecided) - len(open_)
    who = np.concatenate([one for one, _ in suspects])
    side = np.concatenate([one for _, one in suspects])
    for kind, one in enumerate(gate.CLASSES):
        mine = kinds[who] == kind
        fresh = pairs_of(int(mine.sum()), one.confirming)
        if len(fresh):
            kept = _confirmed(side[mine], fresh, noise[who[mine]], one)
            counts.slower += int((kept & (side[mine] == 1)).sum())
            counts.faster += int((kept & (side[mine] == -1)).sum())
            counts.ambiguous += int((~kept).sum())
    counts.benchmarks += number


def _classes(noise: Floats) -> NDArray[np.int64]:
    """Return the place in `gate.CLASSES` of each noise."""
    edges = np.array([one.noise * gate.ESTIMATE_ALLOWANCE for one in gate.CLASSES])
    return np.searchsorted(edges, noise)


def _confirmed(side: NDArray[np.int8], pairs: Floats, noise: Floats, kind: gate.NoiseClass) -> NDArray[np.bool_]:
    degrees, floor = np.full(len(side), PROFILED - 1.0), np.full(len(side), kind.floor)
    level, kept = gate.confirmation_level(SUITE), np.zeros(len(side), bool)
    for count in (one for one in gate.CONFIRMING_LOOKS if one <= kind.confirming):
        part = gate.level_at(level, count, kind.confirming)
        kept |= gate.confirmed(side, pairs[:, :count], noise, degrees, floor, part)
    return kept


SPREADS = (0.001, 0.0015, 0.003, 0.005, 0.01, 0.014)
EFFECTS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05)


def table(null: int, found: int, seed: int) -> list[str]:
    """Return the lines of a Markdown table."""
    head = ["noise", "r %", "any false alarm in 300, %", "ambiguous %", "pairs", *(f"{e:.2%}" for e in EFFECTS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for noise in NOISES:
        for spread in SPREADS:
            unchanged = simulate(noise.draw, spread, 0.0, null, seed)
            seen = [simulate(noise.draw, spread, effect, found, seed + 1) for effect in EFFECTS]
            sign = "< " if unchanged.slower + unchanged.faster == 0 else ""
            cells = [noise.name, f"{spread * 100:g}", f"{sign}{unchanged.any_alarm * 100:.3f}"]
            cells += [f"{unchanged.ambiguous / null * 100:.1f}", f"{unchanged.pairs / null:.1f}"]
            cells += [f"{one.slower / found * 100:.1f}" for one in seen]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


@dataclass(frozen=True)
class Common:
    """What the benchmarks of a process share, as standard deviations: a share of the time, and seconds."""

    share: float
    seconds: float


COMMONS = (Common(0.0, 0.0), Common(0.0, 5e-8), Common(0.01, 0.0), Common(0.003, 5e-8))
BENCHMARKS, CHANGED = 30, 10


class Drawn(Comparison):
    """A comparison with drawn processes: from 3 to 170 us, with noise from 0.1 % to 0.5 %, and 2 % for the last."""

    missing: list[str] = []  # noqa: RUF012

    def __init__(self, common: Common, folder: Path, seed: int, *, changed: bool) -> None:
        super().__init__({side: Side(Arm(side, side, [side], {})) for side in ("base", "head")}, folder)
        self._common, self._random = common, np.random.default_rng(seed)
        self._seconds = self._random.permutation(3e-6 * 1.15 ** np.arange(BENCHMARKS))
        self._noise = np.append(np.geomspace(0.001, 0.005, BENCHMARKS - 1), 0.02)
        promises = [gate.class_of(one).promise for one in self._noise]
        self.planted = [3 * place if changed else -1 for place in range(CHANGED)]
        self._slower = np.array([promises[place] if place in self.planted else 0.0 for place in range(BENCHMARKS)])

    def process(self) -> Floats:
        """Draw the medians of one process without a change."""
        common = self._common
        shared = np.exp(common.share * self._random.standard_normal())
        late = common.seconds * self._random.standard_normal()
        own = np.exp(self._noise * self._random.standard_normal(BENCHMARKS))
        return np.asarray(self._seconds * own * shared + late)

    def pair(self, stage: str, number: int, only: Sequence[str] = ()) -> dict[str, tuple[float, float]]:
        """Draw the medians of one pair."""
        base, head = self.process(), self.process() * (1 + self._slower)
        found = {str(place): (base[place], head[place]) for place in range(BENCHMARKS)}
        return {name: times for name, times in found.items() if not only or name in only}


def suites(number: int, seed: int) -> list[str]:
    """Return the lines of a Markdown table of whole comparisons."""
    head = ["shared share %", "shared ns", "false alarms, no change", "false alarms, ten changed"]
    head += ["ambiguous", "found", "pairs"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for common in COMMONS:
        counts = dict.fromkeys(("alarms", "among changes", "ambiguous", "found", "pairs"), 0.0)
        for one in range(2 * number):
            _suite(counts, common, seed + one, changed=one >= number)
        cells = [f"{common.share * 100:g}", f"{common.seconds * 1e9:g}", f"{counts['alarms']:.0f} of {number}"]
        cells += [f"{counts['among changes']:.0f} of {number}"]
        cells += [f"{counts['ambiguous'] / number / BENCHMARKS:.1%}", f"{counts['found'] / number / CHANGED:.1%}"]
        lines.append("| " + " | ".join([*cells, f"{counts['pairs'] / number / BENCHMARKS:.1f}"]) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _suite(counts: dict[str, float], common: Common, seed: int, *, changed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        comparison = Drawn(common, Path(folder), seed, changed=changed)
        processes = [dict(zip(map(str, range(BENCHMARKS)), comparison.process(), strict=True)) for _ in range(PROFILED)]
        outcome = compare(comparison, Profile.of(processes, {}))
    planted = {str(place) for place in comparison.planted}
    counts["among changes" if changed else "alarms"] += any(
        one.name not in planted for one in (*outcome.of("slower"), *outcome.of("faster"))
    )
    if changed:
        counts["found"] += sum(one.name in planted for one in outcome.of("slower"))
    else:
        counts["ambiguous"] += len(outcome.of("ambiguous"))
        counts["pairs"] += sum(one.pairs for one in outcome.verdicts)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=5_000_000, help="unchanged benchmarks a row")
    parser.add_argument("--found", type=int, default=20_000, help="benchmarks a slow-down")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suites", type=int, default=0, help="whole comparisons, unchanged ones and changed ones")
    options = parser.parse_args(argv)
    chosen = (
        suites(options.suites, options.seed) if options.suites else table(options.null, options.found, options.seed)
    )
    print("\n".join(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
