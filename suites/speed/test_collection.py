"""What collecting 50,000 cases costs with the plugin, compared with bare pytest collecting as many plain ones.

Also what the plugin costs a project that does not use it: collecting 5,000 tests without and with it, pytest-benchmark
in both.

``python suites/speed/test_collection.py`` prints the ratios of medians of interleaved runs, in processor time, which a
busy machine disturbs less than a clock on the wall; the goals are 1.3 and 1.1 at most.
As tests, both are measured once under pytest-benchmark and their count is checked, never their time.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = 50_000
FOREIGN = 5_000

FUNCTIONS = 500
DTYPES = ("bool", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64", "complex64")
NUMBERS = CASES // FUNCTIONS // len(DTYPES)

BARE = f"""
import pytest
CASES = [("cpu:0", dtype) for dtype in {DTYPES!r}]
IDS = ["-".join(case) for case in CASES]
"""
BARE_TEST = """
@pytest.mark.parametrize("n", range({numbers}))
@pytest.mark.parametrize(("device", "dtype"), CASES, ids=IDS)
def test_{i}(device, dtype, n): pass
"""
OURS = """
import pytest
from cuassay.testing import dtypes
"""
OURS_TEST = """
@dtypes(*{dtypes!r})
@pytest.mark.parametrize("n", range({numbers}))
def test_{i}(device, dtype, n): pass
"""


def write_suites(folder: Path) -> dict[str, list[str]]:
    """Two test files of as many cases with the same ids; the command that collects each."""
    for name, head, body in (("bare", BARE, BARE_TEST), ("cuassay", OURS, OURS_TEST)):
        tests = (body.format(i=i, numbers=NUMBERS, dtypes=DTYPES) for i in range(FUNCTIONS))
        (folder / f"test_{name}.py").write_text(head + "".join(tests))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    return {
        "bare": [*command, "-p", "no:cuassay", str(folder / "test_bare.py")],
        "cuassay": [*command, "--device", "cpu", str(folder / "test_cuassay.py")],
    }


def write_foreign_suite(folder: Path) -> dict[str, list[str]]:
    """A project's tests that use nothing of ours; the commands that collect them without the plugin and with it."""
    tests = "".join(f"def test_{number}(): pass\n" for number in range(FOREIGN // 10))
    for file in range(10):
        (folder / f"test_foreign_{file}.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(folder)]
    return {"without": [*command, "-p", "no:cuassay"], "with": command}


def collect(command: list[str]) -> int:
    """Run one collection in a process of its own; how many cases it found."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum("::" in line for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.benchmark(group="collecting 50,000 cases")
@pytest.mark.parametrize("suite", ["bare", "cuassay"])
def test_fifty_thousand_cases_are_collected(benchmark: Callable[..., Any], tmp_path: Path, suite: str) -> None:
    command = write_suites(tmp_path)[suite]

    found = benchmark.pedantic(collect, args=(command,), rounds=1)  # type: ignore[attr-defined]

    assert found == CASES


@pytest.mark.benchmark(group="collecting 5,000 foreign tests")
@pytest.mark.parametrize("plugin", ["without", "with"])
def test_five_thousand_foreign_tests_are_collected(benchmark: Callable[..., Any], tmp_path: Path, plugin: str) -> None:
    command = write_foreign_suite(tmp_path)[plugin]

    found = benchmark.pedantic(collect, args=(command,), rounds=1)  # type: ignore[attr-defined]

    assert found == FOREIGN


def children_seconds() -> float:
    """Processor time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(rounds: int = 5) -> None:
    """Measure each pair in turns and print the ratios."""
    for write in (write_suites, write_foreign_suite):
        with tempfile.TemporaryDirectory() as folder:
            report(write(Path(folder)), rounds)


def report(commands: dict[str, list[str]], rounds: int) -> None:
    """Run the two commands in turns and print the second's processor time over the first's."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            start = children_seconds()
            collect(command)
            seconds[name].append(children_seconds() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        sys.stdout.write(f"{name:8} {median:6.2f} s   {' '.join(f'{one:.2f}' for one in sorted(seconds[name]))}\n")
    first, second = medians.values()
    sys.stdout.write(f"ratio    {second / first:6.3f}\n")


if __name__ == "__main__":
    main()
