"""Run a mutation campaign: first the tests without a mutant, then each mutant in a copy of the project, in parallel."""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from cuassay.core import extras
from cuassay.errors import MutationError
from cuassay.mutation import baseline as first_run
from cuassay.mutation.baseline import Baseline
from cuassay.mutation.bench import QUIET, Bench
from cuassay.mutation.mutant import Mutant
from cuassay.mutation.outcome import Outcome
from cuassay.mutation.project import project_files

__all__ = [
    "Campaign",
    "measure_baseline",
    "require_coverage",
    "run_mutants",
    "sampled",
]


@dataclass(frozen=True, slots=True)
class Campaign:
    """The settings of a campaign.

    Attributes
    ----------
    root : path
        The root of the project.
    folder : str
        The folder in which pytest is started, relative to the root.
    tests : tuple of str
        Arguments of pytest that select tests.
    options : tuple of str
        Other arguments of pytest, such as ``--device sim``.
    jobs : int
        The number of mutants that are tested at the same time.
    parts : int
        The number of processes that run the tests without a mutant. With more than one, tests that need exclusive use
        of a device are skipped.
    budget : float
        The time for everything in seconds; infinite by default. Tests without a mutant only start during the first
        half. Mutants that are not reached do not count in the score.
    begun : float
        When the budget began, by `time.monotonic`.
    sources : tuple of str
        The files that mutants change, relative to the root. Lines are only recorded in these; by default in all files.
    """

    root: Path
    folder: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    jobs: int = 1
    parts: int = 1
    budget: float = float("inf")
    begun: float = field(default_factory=time.monotonic)
    sources: tuple[str, ...] = ()


def sampled(mutants: Sequence[Mutant], limit: int | None, seed: int) -> list[Mutant]:
    """Return at most `limit` mutants in their order, spread over functions and operators; the seed decides which."""
    if limit is None or limit >= len(mutants):
        return list(mutants)
    chance = random.Random(seed)  # noqa: S311  a sample, no secret
    groups: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault((mutant.path, mutant.function, mutant.edit.operator), []).append(mutant)
    for group in groups.values():
        chance.shuffle(group)
    turns = sorted(((turn, chance.random(), one) for group in groups.values() for turn, one in enumerate(group)),
                   key=lambda entry: entry[:2])  # fmt: skip
    chosen = {one.identity for *_, one in turns[:limit]}
    return [mutant for mutant in mutants if mutant.identity in chosen]


# ------------------------------------------------------------------------------------------------ without a mutant


def require_coverage() -> None:
    """Raise `MutationError` unless coverage.py is installed."""
    try:
        import coverage  # noqa: F401
    except ImportError:
        raise MutationError(
            f"mutation needs coverage.py, which is not installed; install it with: {extras.pip_install('mutate')}"
        ) from None


def measure_baseline(plan: Campaign) -> Baseline:
    """Run the tests without a mutant.

    Raises
    ------
    MutationError
        If no test passed.
    """
    with tempfile.TemporaryDirectory(prefix="cuassay-mutate-") as folder:
        runs = [_Run(plan, Path(folder) / f"{part}.json", part) for part in range(plan.parts)]
        found = Baseline()
        for run in runs:
            found.merge(run.finish())
    if not set(found.durations) - set(found.failed):
        raise MutationError(f"no test passes without a mutant, so none can judge one; {runs[0].said}")
    return found


class _Run:
    """The tests without a mutant, or one part of them, in a process that starts at once."""

    def __init__(self, plan: Campaign, out: Path, part: int) -> None:
        shard = [f"--cuassay-shard={part + 1}/{plan.parts}"] if plan.parts > 1 else []
        pytest = [sys.executable, "-m", "pytest", "-p", first_run.__name__, *QUIET]
        environment = {**os.environ, first_run.OUT: str(out), first_run.ROOT: str(plan.root)}
        environment[first_run.SECONDS] = str(plan.budget / 2)
        if plan.sources:
            watched = out.with_suffix(".watched")
            watched.write_text("\n".join(str(plan.root / source) for source in plan.sources), encoding="utf-8")
            environment[first_run.WATCHED] = str(watched)
        self._out = out
        self._log = out.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*pytest, *plan.options, *shard, *plan.tests],
                cwd=plan.root / plan.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.said = ""

    def finish(self) -> Baseline:
        """Wait for the process, and return its results."""
        self._process.wait()
        self.said = f"pytest said:\n{self._log.read_text(errors='replace')[-4000:]}"
        if not self._out.exists():
            raise MutationError(f"the tests could not be run without a mutant; {self.said}")
        return first_run.read(self._out)


# ------------------------------------------------------------------------------------------------ with mutants


def run_mutants(
    plan: Campaign,
    mutants: Sequence[Mutant],
    baseline: Baseline,
    equivalents: Mapping[str, str],
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Test each mutant. `tell` is called with each outcome as it arrives, in one thread at a time.

    After Ctrl-C, or when the time is up, the outcomes so far are returned. A mutant that was interrupted has no
    outcome, nor has one whose tests may be among those that were not started without a mutant.
    """
    files = project_files(plan.root)
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    outcomes: dict[str, Outcome] = {}
    lock = threading.Lock()

    def enter(outcome: Outcome) -> None:
        with lock:
            outcomes[outcome.mutant.identity] = outcome
            tell(outcome)

    for mutant in mutants if plan.budget == float("inf") else _shuffled(mutants):
        if mutant.identity in equivalents:
            enter(Outcome(mutant, "equivalent", note=equivalents[mutant.identity]))
        else:
            waiting.put(mutant)
    until = plan.begun + plan.budget
    stopping = threading.Event()
    benches: list[Bench] = []

    def serve() -> None:
        with ExitStack() as stack:
            bench = stack.enter_context(Bench(plan, files, baseline, until))
            benches.append(bench)
            while time.monotonic() < until and not stopping.is_set():
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = bench.judge(mutant)
                if outcome is not None and not stopping.is_set():
                    enter(outcome)

    def stop() -> None:
        stopping.set()
        for bench in benches:
            bench.stop()

    _in_threads(serve, min(plan.jobs, max(1, waiting.qsize())), stop)
    return [outcomes[mutant.identity] for mutant in mutants if mutant.identity in outcomes]


def _shuffled(mutants: Sequence[Mutant]) -> list[Mutant]:
    """Return all mutants in a fixed random order, so that those tested before the time is up sample every file."""
    return random.Random(0).sample(mutants, len(mutants))  # noqa: S311  an order, no secret


def _in_threads(work: Callable[[], None], count: int, stop: Callable[[], None]) -> None:
    """Run `work` in `count` threads, and raise the first error when all have ended. Ctrl-C calls `stop`."""
    errors: list[BaseException] = []
    stopped = False

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                stopped = True
                stop()
    if errors and not stopped:
        raise errors[0]
