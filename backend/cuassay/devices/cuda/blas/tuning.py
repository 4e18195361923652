"""The tuner of matrix products finds the best candidate for each problem once, and keeps it in memory and in a file.

While it is enabled, it is the selector of `plans`: a known problem gets the recorded choice; an unknown problem is
tuned when its first plan is made, or is recorded to be tuned later. A choice is valid for all problems of one
`representative`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import cupy

from cuassay.core import settings
from cuassay.devices.cuda.blas import agreement, controls, libraries, neighbours, plan_cache, plans, providers
from cuassay.devices.cuda.blas.bench import Bench
from cuassay.devices.cuda.blas.problem import Problem, representative
from cuassay.devices.cuda.driver import nvml, runtime
from cuassay.devices.cuda.driver.graph_driver import capture_status, relaxed
from cuassay.errors import CuassayError, TuningError
from cuassay.ops.explain import is_explaining, note
from cuassay.tune.results import Result, Results, append_untuned
from cuassay.tune.search import Limits, Outcome, search
from cuassay.tune.space import Candidate

__all__ = ["DEFAULT", "OP", "Options", "Report", "Tuner", "TunerStatistics", "tuner", "validators"]

#: The operation name in every result of this module.
OP = "gemm"

#: The name in results of the plan that is used without tuning, whichever that is.
DEFAULT = Candidate.of("default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a tuner does, and how.

    Attributes
    ----------
    enabled : bool
        Whether choices are used. If False, all other options have no effect.
    tuning : bool
        Whether an unknown problem is tuned.
    recording : bool
        Whether an unknown problem that is not tuned is written to `untuned`.
    limits : Limits
        Limits of one search.
    algorithms : int
        Number of algorithms requested from cuBLASLt at each workspace limit.
    rotating_nbytes : int or None
        See `Bench`.
    tolerances : (float, float) or None
        See `Bench`.
    checking : bool
        Whether a result must agree with the default's.
    path : str
        The file of results; ``%d`` is replaced by the device's index. Empty: a file in the cache folder, named by GPU
        and versions.
    untuned : str
        The file of problems to tune later.
    writing : bool
        Whether each result is added to the file when it is found.
    """

    enabled: bool = False
    tuning: bool = True
    recording: bool = False
    limits: Limits = field(default_factory=Limits)
    algorithms: int = 100
    rotating_nbytes: int | None = None
    tolerances: agreement.Tolerances | None = None
    checking: bool = True
    path: str = ""
    untuned: str = "cuassay_untuned.jsonl"
    writing: bool = True

    @classmethod
    def of_settings(cls) -> Options:
        """Read the options from the environment."""
        absolute_relative = settings.get("CUASSAY_TUNABLEOP_NUMERICAL_CHECK")
        megabytes = settings.get("CUASSAY_TUNABLEOP_ROTATING_BUFFER_SIZE")
        return cls(
            enabled=settings.get("CUASSAY_TUNABLEOP_ENABLED"),
            tuning=settings.get("CUASSAY_TUNABLEOP_TUNING"),
            recording=settings.get("CUASSAY_TUNABLEOP_RECORD_UNTUNED"),
            limits=Limits(
                seconds=settings.get("CUASSAY_TUNABLEOP_MAX_TUNING_DURATION_MS") * 1e-3,
                iterations=settings.get("CUASSAY_TUNABLEOP_MAX_TUNING_ITERATIONS"),
            ),
            algorithms=settings.get("CUASSAY_TUNABLEOP_CUBLASLT_REQUESTED_ALGO_COUNT"),
            rotating_nbytes=None if megabytes is None else megabytes * 2**20,
            tolerances=absolute_relative[::-1] if absolute_relative else None,
            checking=absolute_relative != (),
            path=settings.get("CUASSAY_TUNABLEOP_FILENAME"),
            untuned=settings.get("CUASSAY_TUNABLEOP_UNTUNED_FILENAME"),
        )

    def plain(self) -> dict[str, Any]:
        """Return the options as JSON data."""
        return asdict(self)

    @staticmethod
    def fields_of(data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields from the JSON data that `plain` made."""
        tolerances = data["tolerances"]
        return {**data, "limits": Limits(**data["limits"]), "tolerances": tolerances and tuple(tolerances)}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of tuning one problem: how it was found, and the plans' descriptions of the default and the choice."""

    problem: Problem
    result: Result
    outcome: Outcome
    default: str
    choice: str

    def row(self) -> dict[str, Any]:
        """Return the fields to show, as JSON data."""
        result, outcome = self.result, self.outcome
        figures = {name: getattr(result, name) for name in ("default_us", "us", "gain", "spread")}
        counts = {"tried": outcome.tried, "untried": outcome.untried, "refused": len(outcome.refused)}
        told = {"choice": self.choice, "default": self.default, "reason": outcome.reason}
        return {"problem": str(self.problem), **figures, **told, **counts, "seconds": round(outcome.seconds, 4)}


@dataclass(frozen=True, slots=True)
class TunerStatistics:
    """The state of a tuner.

    Attributes
    ----------
    results : int
        Problems with a known choice, over all devices, from this process or from a file.
    searches, seconds : int, float
        The number of searches in this process, and the seconds they took.
    failed : int
        Problems that could not be tuned.
    in_captures : int
        Times a problem was not tuned because its stream was being captured.
    """

    results: int
    searches: int
    seconds: float
    failed: int
    in_captures: int


class Tuner:
    """Finds and keeps the best candidate of each problem; thread-safe, with one search at a time on each device."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._state = threading.RLock()
        self._searches: dict[int, threading.RLock] = {}
        self._results: dict[int, Results] = {}
        self._carried: dict[int, list[Result]] = {}
        self._recorded: set[tuple[str, Problem]] = set()
        self._failed: set[tuple[int, Problem]] = set()
        self._refused: set[str] = set()
        self._searched_s: list[float] = []
        self._in_captures = 0

    def __repr__(self) -> str:
        state = "enabled" if self.options.enabled else "disabled"
        return f"Tuner({state}, {self.statistics()})"

    def statistics(self) -> TunerStatistics:
        """Return the current counts."""
        return TunerStatistics(
            results=sum(map(len, list(self._results.values()))),
            searches=len(self._searched_s),
            seconds=sum(self._searched_s),
            failed=len(self._failed),
            in_captures=self._in_captures,
        )

    def configure(self, **options: Any) -> None:
        """Change some of the options; plans that the change may affect are made again."""
        with self._state:
            was, self.options = self.options, replace(self.options, **options)
            if self.options.path != was.path:
                self._leave_files()
            if "path" in options or "untuned" in options:
                self._refused.clear()
        if self.options.enabled != was.enabled:
            plans.set_selector(self.select if self.options.enabled else None)
        elif self.options.enabled:
            controls.renew()

    # ------------------------------------------------------------------------------------ choosing

    def select(self, problem: Problem, device: int) -> Candidate | None:
        """Return the choice for `problem`; tune or record an unknown problem, as the options say."""
        key = representative(problem)
        found = self.results(device).find(OP, key.plain())
        if found is None and self.options.tuning:
            found = self._tuned_now(key, device)
        if found is None:
            self._record(key, device)
            return None
        return None if found.choice == DEFAULT else found.choice

    def _tuned_now(self, key: Problem, device: int) -> Result | None:
        if (device, key) in self._failed:
            return None
        if capture_status(cupy.cuda.get_current_stream().ptr) != "none":
            self._miss(key)
            return None
        with self._searching(device):
            found = self.results(device).find(OP, key.plain())  # another thread may have tuned it meanwhile
            if found is not None:
                return found
            try:
                return self.tune(key, device).result
            except CuassayError as error:  # the call continues without tuning
                self._failed.add((device, key))
                warnings.warn(f"not tuned: {key}: {error}", stacklevel=2)
                return None

    def _miss(self, key: Problem) -> None:
        """Report that a capture prevented tuning, and choose again at this thread's first call outside of captures."""
        if is_explaining():
            note("not tuned, as the stream is being captured")
        plan_cache.provisional()
        with self._state:
            self._in_captures += 1
            if self._in_captures > 1:
                return
        warnings.warn(f"not tuned, as the stream is being captured: {key}; call it before capturing", stacklevel=2)

    def _record(self, key: Problem, device: int) -> None:
        path = self.named(self.options.untuned, device)
        if not self.options.recording or (path, key) in self._recorded:
            return
        self._recorded.add((path, key))
        self._use(path, lambda path: append_untuned(path, OP, key.plain()))

    # ------------------------------------------------------------------------------------ searching

    def tune(self, problem: Problem, device: int) -> Report:
        """Search for the fastest way to compute `problem` on the current device `device`, and keep it.

        The search first waits for the current stream. Work on other streams disturbs the measurements.

        Parameters
        ----------
        problem : Problem
            The problem; it is replaced by its `representative`.
        device : int
            The index of the current device.

        Returns
        -------
        Report
            The result and how it was found.

        Raises
        ------
        CuassayError
            If not even the default can run.
        """
        key = representative(problem)
        with self._searching(device), relaxed():
            found = self._searched(key, device)
            self._searched_s.append(found.outcome.seconds)
            with self._state:  # so that no other thread changes the file meanwhile
                self._keep(self.results(device), found.result, device)
        return found

    def _keep(self, results: Results, result: Result, device: int) -> None:
        results.add(result)
        if self.options.writing:
            self._use(self.path(device), lambda path: results.append(result, path))

    def _searching(self, device: int) -> threading.RLock:
        """Return the lock to hold while candidates run on `device`."""
        return self._searches.setdefault(device, threading.RLock())

    def _searched(self, key: Problem, device: int) -> Report:
        cupy.cuda.get_current_stream().synchronize()
        options, default = self.options, _default(key, device)
        libraries.set_requested(options.algorithms)
        bench = Bench(
            key,
            device,
            default,
            lambda candidate: providers.plan(key, candidate, device),
            rotating_nbytes=options.rotating_nbytes,
            tolerances=options.tolerances,
        )
        outcome = search(
            default,
            providers.candidates(key, device),
            bench.sample,
            check=bench.check if options.checking else None,
            refine=lambda best: neighbours.near(key, best, device),
            rivals=libraries.first_choices(key, device),
            limits=options.limits,
        )
        result = Result.of(OP, key.plain(), outcome)
        if outcome.choice == default:
            result = replace(result, choice=DEFAULT)
        return Report(key, result, outcome, bench.describe(default), bench.describe(outcome.choice))

    # ------------------------------------------------------------------------------------ files

    def results(self, device: int) -> Results:
        """Return the results for `device`, including those its file held when it was first read.

        Results that were found before the file was named, and were written to no other file, are added as if found now.
        """
        found = self._results.get(device)
        if found is None:
            with self._state:
                found = self._results.get(device)
                if found is None:
                    found = Results(validators(device))
                    path = self.path(device)
                    if Path(path).exists():
                        self._use(path, found.read)
                    for result in self._carried.pop(device, ()):
                        self._keep(found, result, device)
                    self._results[device] = found
        return found

    def _leave_files(self) -> None:
        """Forget what the files held; results that no file holds are carried to the next file."""
        for device, results in self._results.items():
            self._carried.setdefault(device, []).extend(results.unwritten())
        self._results.clear()

    def reread(self) -> None:
        """Read what other processes have added to the files."""
        for device, found in list(self._results.items()):
            path = self.path(device)
            if Path(path).exists():
                self._use(path, found.read)
        controls.renew()

    def path(self, device: int) -> str:
        """Return the path of the results file for `device`."""
        return self.named(self.options.path, device) or _own_path(validators(device))

    @staticmethod
    def named(path: str, device: int) -> str:
        """Replace ``%d`` in `path` by the device's index."""
        return path.replace("%d", str(device))

    def _use(self, path: str, use: Callable[[str], object]) -> None:
        """Call `use` on a file; a rejected file is reported once, not changed, and not used again."""
        if path in self._refused:
            return
        try:
            use(path)
        except TuningError as error:
            self._refused.add(path)
            warnings.warn(f"tuning continues without its file: {error}", stacklevel=2)


def _default(problem: Problem, device: int) -> Candidate:
    """Return, as a candidate, the plan that `plans` uses without tuning."""
    plan = plans.default(problem, device)
    if plan is None or plan.algorithm is None:
        return Candidate.of("cublas")
    return libraries.candidate_of(plan.algorithm)


@cache
def _validators(device: int) -> dict[str, str]:
    properties = runtime.get_device_properties(device)
    gpu = f"{properties.name}, {properties.multi_processor_count} multiprocessors"
    return {"gpu": gpu, "driver": nvml.driver_release()}


def validators(device: int) -> dict[str, str]:
    """Return what results on `device` depend on: its model, the driver, and the version of every provider."""
    return _validators(device) | providers.versions()


def _own_path(validated: dict[str, str]) -> str:
    words = "-".join(f"{name}{value}" for name, value in validated.items())
    name = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in words)
    return str(Path(settings.get("CUASSAY_CACHE_DIR")) / "tuning" / f"{name}.jsonl")


@cache
def tuner() -> Tuner:
    """Return the tuner of this process; its first options come from the settings."""
    return Tuner(Options.of_settings())
