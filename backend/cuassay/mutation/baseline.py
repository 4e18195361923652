"""Run the tests without a mutant, and record which pass, their durations, their lines, and the declared functions.

This is a pytest plugin, which is loaded in a separate process with ``-p cuassay.mutation.baseline``. It writes one JSON
file, which `read` loads. coverage.py records the lines, with one context per test.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cuassay.errors import MutationError
from cuassay.testing.skips import parameters_of

__all__ = ["Baseline", "Declared", "pytest_load_initial_conftests", "read"]

#: Environment variables: the file to write, the folder of watched files, and for how many seconds tests may start.
OUT, ROOT, SECONDS = "CUASSAY_MUTATION_BASELINE", "CUASSAY_MUTATION_ROOT", "CUASSAY_MUTATION_SECONDS"

#: An environment variable with the name of a file that lists the files to watch, one per line. Without it all files of
#: the folder are watched, which is slower.
WATCHED = "CUASSAY_MUTATION_WATCHED"


@dataclass(frozen=True, slots=True)
class Declared:
    """A function that an `OpSpec` declares: its file, relative to the root, its name and its lines."""

    path: str
    name: str
    first: int
    last: int


@dataclass(slots=True)
class Baseline:
    """The results of the run without a mutant. Files and folders are relative to the root.

    Attributes
    ----------
    durations : dict
        From the id of a test that passed to its duration in seconds.
    failed : list of str
        The ids of the tests that failed.
    lines : dict
        From a file to its lines, and from each line to the ids of the tests that run it.
    outside : dict
        From a file to the lines that were run outside of tests: by imports, collection and plugins.
    early : list of str
        Files that were loaded before lines were recorded, so that more of their lines may have run outside of tests.
    launches : dict
        From the name expression of a kernel, such as ``add<float>``, to the ids of the tests that launch it.
    declared : list of Declared
        The functions of the collected specs that are defined below the root.
    paths : list of str
        The folders of ``sys.path`` below the root.
    modules : list of str
        Modules from outside of the project that the tests loaded, in the order of import.
    left_out : int
        The number of tests that were not started because the time was up.
    """

    durations: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    outside: dict[str, list[int]] = field(default_factory=dict)
    early: list[str] = field(default_factory=list)
    launches: dict[str, list[str]] = field(default_factory=dict)
    declared: list[Declared] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    left_out: int = 0

    def covering(self, path: str, first: int, last: int) -> set[str]:
        """Return the tests that run one of these lines."""
        lines = self.lines.get(path, {})
        return {test for line in range(first, last + 1) for test in lines.get(line, ())}

    def touching(self, path: str) -> set[str]:
        """Return the tests that run any line of a file."""
        return {test for tests in self.lines.get(path, {}).values() for test in tests}

    def is_run_outside(self, path: str, first: int, last: int) -> bool:
        """Return whether one of these lines was run outside of tests."""
        return any(first <= line <= last for line in self.outside.get(path, ()))

    def may_be_run_before(self, path: str, first: int, last: int) -> bool:
        """Return whether one of these lines may have been run before the tests began."""
        return path in self.early or self.is_run_outside(path, first, last)

    def merge(self, other: Baseline) -> None:
        """Add the results of another part of the tests."""
        self.durations |= other.durations
        self.failed += other.failed
        for path, by_line in other.lines.items():
            lines = self.lines.setdefault(path, {})
            for line, tests in by_line.items():
                lines[line] = [*lines.get(line, ()), *tests]
        for path, outside in other.outside.items():
            self.outside[path] = sorted({*self.outside.get(path, ()), *outside})
        self.early = sorted({*self.early, *other.early})
        for name, tests in other.launches.items():
            self.launches[name] = [*self.launches.get(name, ()), *tests]
        self.declared = list(dict.fromkeys([*self.declared, *other.declared]))
        self.paths = list(dict.fromkeys([*self.paths, *other.paths]))
        self.modules = list(dict.fromkeys([*self.modules, *other.modules]))
        self.left_out += other.left_out


def read(path: Path) -> Baseline:
    """Read the file that a run of the tests wrote.

    Raises
    ------
    MutationError
        If the file cannot be read, because the test session did not finish.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MutationError(
            f"the run of the tests without a mutant left no result ({error}); run the tests by themselves first"
        ) from error
    lines = {
        name: {int(line): [found["tests"][index] for index in tests] for line, tests in by_line.items()}
        for name, by_line in found["lines"].items()
    }
    declared = [Declared(**row) for row in found["declared"]]
    facts = ("durations", "failed", "outside", "early", "launches", "paths", "modules", "left_out")
    return Baseline(lines=lines, declared=declared, **{name: found[name] for name in facts})


# ------------------------------------------------------------------------------------------------ in the child


class _Watch:
    """Watches one test session."""

    def __init__(self, out: Path, root: Path, seconds: float) -> None:
        import coverage

        self._out, self._root = out, root
        self._until = time.monotonic() + seconds
        watched = os.environ.get(WATCHED)
        chosen: dict[str, Any] = {"source": [str(root)], "omit": ["*/.venv/*", "*/site-packages/*"]}
        if watched is not None:
            chosen = {"include": [*Path(watched).read_text(encoding="utf-8").splitlines(), "/nothing-else"]}
        self._coverage = coverage.Coverage(data_file=None, config_file=False, **chosen)
        # If only kernels are watched, no Python line is recorded, and a project may turn this warning into an error.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._early = list(_loaded_below(root))
        self._coverage.start()
        self._found = Baseline()
        self._declared: dict[Declared, None] = {}
        self._launches = _Launches()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Record the declared functions."""
        for item in items:
            spec = parameters_of(item).get("op")
            place = _place_of(getattr(spec, "fn", None), self._root)
            if place is not None:
                self._declared[Declared(place[0], getattr(spec, "name", place[0]), *place[1:])] = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Record the lines and the duration of this test."""
        begun = time.perf_counter()
        self._coverage.switch_context(item.nodeid)
        self._launches.test = item.nodeid
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")
            self._launches.test = ""
            self._found.durations[item.nodeid] = time.perf_counter() - begun
            if time.monotonic() >= self._until:
                item.session.shouldstop = "the time for the tests without a mutant is up"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record failed tests. A skipped test does not count, because it tests nothing."""
        if report.failed and report.nodeid not in self._found.failed:
            self._found.failed.append(report.nodeid)
        if report.skipped:
            self._found.durations[report.nodeid] = -1.0

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the results."""
        self._coverage.stop()
        durations = {test: spent for test, spent in self._found.durations.items() if spent >= 0}
        kept = {test: index for index, test in enumerate(durations)}
        written = {
            "durations": durations,
            "failed": self._found.failed,
            "tests": list(durations),
            "lines": dict(self._lines(kept)),
            "outside": dict(self._outside()),
            "early": self._early,
            "launches": self._launches.found,
            "declared": [{name: getattr(one, name) for name in one.__slots__} for one in self._declared],
            "paths": list(_paths_below(self._root)),
            "modules": _modules_outside(self._root),
            "left_out": max(0, len(session.items) - len(self._found.durations)),
        }
        self._out.write_text(json.dumps(written), encoding="utf-8")

    def _lines(self, kept: Mapping[str, int]) -> Iterator[tuple[str, dict[int, list[int]]]]:
        data = self._coverage.get_data()
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            lines = {line: [kept[test] for test in tests if test in kept] for line, tests in by_line.items()}
            yield self._relative(file), {line: tests for line, tests in lines.items() if tests}

    def _outside(self) -> Iterator[tuple[str, list[int]]]:
        data = self._coverage.get_data()
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            yield self._relative(file), [line for line, tests in by_line.items() if "" in tests]

    def _relative(self, file: str) -> str:
        return Path(file).relative_to(self._root).as_posix()


class _Launches:
    """Record which test launches which of our kernels."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}
        self.test = ""
        if find_spec("cupy") is not None:
            from cuassay.devices.cuda.launch.launch import Kernel

            for method in ("__call__", "bind"):
                setattr(Kernel, method, self._watched(getattr(Kernel, method)))
            setattr(Kernel, "prepare", self._watched_blocks(Kernel.prepare))  # noqa: B010  a method is replaced

    def _note(self, kernel: str) -> None:
        tests = self.found.setdefault(kernel, [])
        if self.test and self.test not in tests[-1:]:
            tests.append(self.test)

    def _watched(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        def watched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(kernel.name)
            return launch(kernel, *args, **kwargs)

        return watched

    def _watched_blocks(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `prepare`, because its argument block may be cached and launched by other tests."""

        def watched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            return _Block(prepare(kernel, *args, **kwargs), partial(self._note, kernel.name))

        return watched


class _Block:
    """An argument block that reports its launches."""

    def __init__(self, block: Any, tell: Callable[[], None]) -> None:
        self._block, self._tell = block, tell

    def __repr__(self) -> str:
        return repr(self._block)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def launch(self, grid: Any, threads: Any, shared: int, stream: int) -> Any:
        """Launch the block."""
        return self.bind(grid, threads, shared, stream)()

    def bind(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Return a function that launches the block."""
        fire = self._block.bind(*args, **kwargs)

        def launch() -> Any:
            self._tell()
            return fire()

        return launch


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Watch this session, if the environment variables ask for it, before a conftest.py is loaded."""
    if os.environ.get(OUT) and not hasattr(early_config, "workerinput"):
        watch = _Watch(Path(os.environ.pop(OUT)), Path(os.environ[ROOT]), float(os.environ.get(SECONDS, "inf")))
        early_config.pluginmanager.register(watch, "cuassay_mutation_baseline")


def _place_of(function: Any, root: Path) -> tuple[str, int, int] | None:
    """Return the file and lines of a function below `root`, or None."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if code is None:
        return None
    path = Path(code.co_filename).resolve()
    if not path.is_relative_to(root):
        return None
    last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
    return path.relative_to(root).as_posix(), code.co_firstlineno, last


def _paths_below(root: Path) -> Sequence[str]:
    found = (Path(entry or ".").resolve() for entry in sys.path)
    return [path.relative_to(root).as_posix() for path in dict.fromkeys(found) if path.is_relative_to(root)]


def _loaded_below(root: Path) -> Iterator[str]:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    for file in map(Path, filter(None, files)):
        if file.is_absolute() and _is_of_project(file.resolve(), root):
            yield file.resolve().relative_to(root).as_posix()


def _modules_outside(root: Path) -> list[str]:
    """Return modules outside of the project, which are loaded once for all mutants. coverage.py is excluded."""
    specs = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items())}
    origins = {name: Path(getattr(spec, "origin", None) or "") for name, spec in specs.items()}
    return [
        name
        for name, origin in origins.items()
        if origin.is_absolute() and not _is_of_project(origin.resolve(), root) and not name.startswith(_KEPT_OUT)
    ]


def _is_of_project(file: Path, root: Path) -> bool:
    """Return whether a file is below `root` and not in a virtual environment there."""
    return file.is_relative_to(root) and "site-packages" not in file.relative_to(root).parts


_KEPT_OUT = ("coverage", "cuassay.mutation", "conftest", "test_")
