"""``cuassay mutate`` on small projects: what is found, what is missed, and what is left out of the score."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cuassay import cli

pytest.importorskip("coverage", reason="coverage.py is not installed")

POOL = '''\
"""A pool of numbers."""

LIMIT = 3


class Pool:
    def __init__(self):
        self.free = []

    def give(self, number, spare=0):
        if len(self.free) >= LIMIT:
            raise ValueError("full")
        self.free.append(number + spare)

    def take(self):
        number = 0
        while number < 2:
            number += 1
        return self.free.pop() if self.free else number

    def unused(self):
        return LIMIT + 1
'''

TESTS = """\
import pytest
from pool import Pool


def test_gives_back_what_it_was_given():
    pool = Pool()
    pool.give(5)
    assert pool.take() == 5


def test_empty_pool_counts():
    assert Pool().take() == 2


def test_fails_by_itself():
    assert Pool().take() == 7
"""


def mutate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuassay", "mutate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pool.py").write_text(POOL)
    (folder / "test_pool.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    return folder


@pytest.fixture(scope="module")
def done(project: Path) -> subprocess.CompletedProcess[str]:
    """All mutants of the project, in this process: its endless loops, of which there are three, end sooner."""
    from cuassay.mutation import bench

    arguments = ["mutate", "test_pool.py", "--source", "pool.py", "--jobs", "2", "--record", "rows.jsonl"]
    told, handler = io.StringIO(), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
            patch.chdir(project)
            patch.setattr(bench, "_LEAST_IN_FORK", 1.0)
            status = cli.main(arguments)
    finally:
        signal.signal(signal.SIGTERM, handler)  # the command sets one of its own
    return subprocess.CompletedProcess(arguments, status, told.getvalue())


def test_a_test_that_fails_without_a_mutant_is_left_out(done: subprocess.CompletedProcess[str]) -> None:
    assert "2 tests pass" in done.stdout
    assert "1 fail without a mutant and are left out" in done.stdout


def test_survivors_are_shown_as_changed_lines(done: subprocess.CompletedProcess[str]) -> None:
    assert "-        self.free.append(number + spare)" in done.stdout
    assert "+        self.free.append((number - spare))" in done.stdout
    assert "pool.py:11 Pool.give: comparison" in done.stdout


def test_a_found_mutant_is_not_shown(done: subprocess.CompletedProcess[str]) -> None:
    assert "+        self.free.append((spare))" not in done.stdout


def test_lines_that_no_test_runs_are_uncovered(done: subprocess.CompletedProcess[str]) -> None:
    assert "uncovered  pool.py:22 Pool.unused: arithmetic" in done.stdout


def test_the_project_is_as_it_was(done: subprocess.CompletedProcess[str], project: Path) -> None:
    assert done.returncode == 0
    assert (project / "pool.py").read_text() == POOL


def test_scores_are_recorded_by_function(done: subprocess.CompletedProcess[str], project: Path) -> None:
    rows = [json.loads(line) for line in (project / "rows.jsonl").read_text().splitlines()]
    scores = {row.get("function"): row for row in rows if row["record"] == "mutation"}
    assert scores["Pool.unused"]["uncovered"] == 5
    assert scores["Pool.unused"]["killed"] == 0
    assert scores["Pool.take"]["killed"] >= 5  # an endless loop among them
    assert "number - spare" in scores["Pool.give"]["survivors"]


def test_equivalent_mutants_do_not_count(project: Path) -> None:
    listed = mutate(project, "test_pool.py", "--source", "pool.py::Pool.unused", "--list")
    identity = listed.stdout.split("[")[1].split("]")[0]
    (project / "equivalents.toml").write_text(f'[[equivalent]]\nmutant = "{identity}"\nreason = "as an example"\n')
    found = mutate(project, "test_pool.py", "--source", "pool.py::Pool.unused", "--equivalents", "equivalents.toml")
    assert "(0 of 4); 4 uncovered, 1 equivalent" in found.stdout


def test_a_score_below_the_limit_fails(project: Path) -> None:
    found = mutate(project, "test_pool.py", "--source", "pool.py::Pool.unused", "--fail-under", "50")
    assert found.returncode == 1


def test_without_anything_to_change_there_is_no_score_and_no_failure(project: Path) -> None:
    (project / "plain.py").write_text("def name():\n    return __name__\n")

    found = mutate(project, "test_pool.py", "--source", "plain.py", "--fail-under", "50")

    assert "no mutation score: there is nothing to change in the tested functions" in found.stdout
    assert found.returncode == 0


def test_an_endless_loop_costs_its_time_limit_and_counts_as_found(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuassay.mutation import bench, campaign
    from cuassay.mutation.project import find_mutants

    monkeypatch.setattr(bench, "_LEAST_SECONDS", 2.0)
    monkeypatch.setattr(bench, "_LEAST_IN_FORK", 1.0)
    plan = campaign.Campaign(project, ".", ("test_pool.py",))
    baseline = campaign.measure_baseline(plan)
    endless = [one for one in find_mutants(project, ["pool.py::Pool.take"], baseline) if "-= 1" in one.edit.replacement]
    (outcome,) = campaign.run_mutants(plan, endless, baseline, {})
    assert (outcome.verdict, outcome.note) == ("killed", "ended at its time limit")


def test_a_job_that_is_ended_shows_the_scores_until_then(project: Path) -> None:
    command = [sys.executable, "-m", "cuassay", "mutate", "test_pool.py", "--source", "pool.py", "--jobs", "1"]
    running = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    before = next(line for line in running.stdout if line.startswith(("survived", "uncovered")))

    running.terminate()
    out, err = running.communicate(timeout=60)

    assert before
    assert "mutation score:" in out
    assert "stopped early: " in err
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("test_pool.py",), "the tests declare no function"),
        (("test_pool.py", "--source", "nowhere.py"), "does not exist"),
        (("test_pool.py", "--source", "pool.py::nothing"), "no such function|function of that name"),
        (("test_pool.py", "--source", "/"), "outside of the project"),
        (("test_nowhere.py",), "test_nowhere.py does not exist in "),
        (("test_pool.py::test_nothing",), "no test passes"),
        (("test_pool.py", "--jobs", "0"), "--jobs is 0"),
        (("test_pool.py", "--limit", "0"), "--limit is 0"),
        (("test_pool.py", "--parts", "0"), "--parts is 0"),
        (("test_pool.py", "--source", "pool.py", "--equivalents", "test_pool.py"), "cannot be read as a list"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_call_is_told_in_words(project: Path, arguments: tuple[str, ...], told: str) -> None:
    found = mutate(project, *arguments)
    assert found.returncode == 2
    assert any(part in found.stderr for part in told.split("|")), found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    "arguments", [("test_nowhere.py",), ("test_pool.py", "--source", "nowhere.py")], ids=["test", "source"]
)
def test_a_wrong_name_is_told_before_any_test_runs(project: Path, arguments: tuple[str, ...]) -> None:
    assert "running the tests" not in mutate(project, *arguments).stdout


def test_missing_coverage_is_told_before_any_test_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "coverage", None)

    assert cli.main(["mutate", __file__]) == 2

    told = capsys.readouterr()
    assert "pip install coverage" in told.err
    assert told.out == ""


SPEC = """\
from cuassay.testing import OpSpec, conformance


def scaled(xp, a, factor=2.0):
    return xp.maximum(a, 0) * factor


test_scaled = conformance(OpSpec(fn=scaled, dtypes=("float32",), reference=lambda a: a.clip(0) * 2.0))
"""


def test_declared_functions_are_the_default(tmp_path: Path) -> None:
    (tmp_path / "test_scaled.py").write_text(SPEC)
    found = mutate(tmp_path, "test_scaled.py", "--device", "cpu", "--jobs", "2", "--parts", "2")
    assert "mutation score: 100.0 %" in found.stdout, found.stdout + found.stderr
    assert "test_scaled.py scaled" in found.stdout


def test_tests_without_a_mutant_start_during_the_first_half_of_the_time_only(project: Path) -> None:
    from cuassay.mutation.campaign import Campaign, measure_baseline

    found = measure_baseline(Campaign(project, ".", ("test_pool.py",), budget=0.0))

    assert (len(found.durations), found.left_out) == (1, 2)


def test_a_line_is_not_uncovered_while_some_tests_did_not_start(project: Path) -> None:
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.campaign import Campaign, run_mutants
    from cuassay.mutation.project import find_mutants

    mutants = find_mutants(project, ["pool.py"], Baseline())
    plan = Campaign(project, ".", ("test_pool.py",))

    assert {one.verdict for one in run_mutants(plan, mutants, Baseline(), {})} == {"uncovered"}
    assert run_mutants(plan, mutants, Baseline(left_out=1), {}) == []


def test_mutants_are_judged_in_a_random_order_where_time_may_end_first(project: Path) -> None:
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.campaign import Campaign, run_mutants
    from cuassay.mutation.project import find_mutants

    mutants = find_mutants(project, ["pool.py"], Baseline())
    heard: list[str] = []
    plan = Campaign(project, ".", ("test_pool.py",), budget=600.0)

    outcomes = run_mutants(plan, mutants, Baseline(), {}, lambda outcome: heard.append(outcome.mutant.identity))

    in_order = [mutant.identity for mutant in mutants]
    assert (heard != in_order, sorted(heard)) == (True, sorted(in_order))
    assert [outcome.mutant.identity for outcome in outcomes] == in_order


def test_libraries_of_an_environment_within_the_project_are_loaded_once(tmp_path: Path) -> None:
    from cuassay.mutation.campaign import Campaign, measure_baseline

    libraries = tmp_path / ".venv" / "site-packages"
    libraries.mkdir(parents=True)
    (libraries / "library.py").write_text("")
    (tmp_path / "pool.py").write_text("")
    (tmp_path / "test_pool.py").write_text("import library, pool\n\n\ndef test_passes():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = . .venv/site-packages\n")

    found = measure_baseline(Campaign(tmp_path, ".", ("test_pool.py",))).modules

    assert ("library" in found, "pool" in found) == (True, False)


def test_mutants_of_one_length_are_not_taken_for_each_other(tmp_path: Path) -> None:
    from cuassay.mutation.campaign import Campaign, measure_baseline, run_mutants
    from cuassay.mutation.project import find_mutants

    lines = "".join(f"NUMBER_{index} = {index + 2}\n" for index in range(6))
    (tmp_path / "numbers_.py").write_text(lines + "\n\ndef third():\n    return NUMBER_2\n")
    (tmp_path / "test_numbers.py").write_text(
        "import numbers_\n\n\ndef test_even_ones():\n"
        "    assert (numbers_.NUMBER_0, numbers_.third(), numbers_.NUMBER_4) == (2, 4, 6)\n"
    )
    plan = Campaign(tmp_path, ".", ("test_numbers.py",))
    baseline = measure_baseline(plan)

    outcomes = run_mutants(plan, find_mutants(tmp_path, ["numbers_.py"], baseline), baseline, {})

    assert [outcome.verdict for outcome in outcomes][:6] == ["killed", "survived"] * 3


PRICES = '''\
"""Prices, some of them made when the module is imported."""


def price(number):
    if number > 9:
        return number - 1
    return number * 2


TABLE = [price(number) for number in range(3)]
NAMES = []


def register():
    NAMES.append(5)


register()


class Shop:
    discount = 4

    def cheap(self, number, least=0):
        return max(
            price(number) - self.discount,
            least)
'''

PRICE_TESTS = """\
from prices import NAMES, TABLE, Shop, price


def test_prices():
    assert (price(0), TABLE, Shop().cheap(0)) == (0, [0, 2, 4], 0)
    assert NAMES == [5]
"""


def test_each_change_is_judged_as_if_the_process_were_new(tmp_path: Path) -> None:
    from cuassay.mutation.campaign import Campaign, measure_baseline, run_mutants
    from cuassay.mutation.project import find_mutants

    (tmp_path / "prices.py").write_text(PRICES)
    (tmp_path / "test_prices.py").write_text(PRICE_TESTS)
    plan = Campaign(tmp_path, ".", ("test_prices.py",), sources=("prices.py",))
    baseline = measure_baseline(plan)
    mutants = find_mutants(tmp_path, ["prices.py"], baseline)
    wanted = {
        "return number - 1": "uncovered",  # though a test runs the function
        "number * 2": "killed",  # by the table alone, which was there before the test
        "number in range(3)": "killed",
        "NAMES.append(5)": "killed",  # in a function that the import alone calls
        "discount = 4": "survived",  # in the body of a class
        "least=0": "killed",  # in the head of a function
        "price(number) - self.discount": "killed",
    }

    outcomes = run_mutants(plan, mutants, baseline, {})

    found: dict[str, set[str]] = {
        part: {
            one.verdict for one in outcomes
            if part in one.mutant.diff(PRICES) and one.mutant.edit.operator in {"constant", "arithmetic"}
        }
        for part in wanted
    }  # fmt: skip
    assert found == {part: {verdict} for part, verdict in wanted.items()}


FLAGS = "def double(number):\n    return number * 2\n\n\nNUMBERS = [double(number) for number in range(1)]\n"

FLAG_TESTS = """\
import pytest
from flags import NUMBERS, double

if NUMBERS:
    def test_it():
        assert double(1) == 2
"""


def test_a_mutant_with_which_no_test_is_collected_was_not_found(tmp_path: Path) -> None:
    from cuassay.mutation.campaign import Campaign, measure_baseline, run_mutants
    from cuassay.mutation.project import find_mutants

    (tmp_path / "flags.py").write_text(FLAGS)
    (tmp_path / "test_flags.py").write_text(FLAG_TESTS)
    plan = Campaign(tmp_path, ".", ("test_flags.py",), sources=("flags.py",))
    baseline = measure_baseline(plan)
    outcomes = run_mutants(plan, find_mutants(tmp_path, ["flags.py"], baseline), baseline, {})
    (emptied,) = (one for one in outcomes if "range(0)" in one.mutant.diff(FLAGS))

    assert (emptied.verdict, emptied.note) == ("survived", "its tests are no longer collected, and nothing failed")


def test_a_source_that_no_test_runs_is_uncovered_where_warnings_are_errors(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "other.py").write_text("def other(number):\n    return number + 1\n")
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert 1 + 1 == 2\n")

    done = mutate(tmp_path, "test_one.py", "--source", "other.py")

    assert "CoverageWarning" not in done.stderr
    assert "uncovered" in done.stdout


def test_a_sample_is_the_same_for_one_seed_and_spread_over_operators() -> None:
    from cuassay.mutation.campaign import sampled
    from cuassay.mutation.python import python_mutants

    mutants = python_mutants("pool.py", POOL)
    first, again = sampled(mutants, 8, 1), sampled(mutants, 8, 1)
    assert first == again != sampled(mutants, 8, 2)
    assert len(first) == 8
    assert len({mutant.edit.operator for mutant in first}) > 3
    assert sampled(mutants, None, 1) == mutants


LIMITS = "LIMIT = 3\n\n\ndef limit():\n    return LIMIT\n"

LIMIT_TESTS = """\
import pytest
from limits import LIMIT, limit

@pytest.mark.parametrize("number", [LIMIT])
def test_named_by_the_limit(number):
    assert number == limit()

def test_limit():
    assert limit() == 3
"""


def test_a_test_that_a_mutant_renames_hides_no_other_test(tmp_path: Path) -> None:
    from cuassay.mutation.campaign import Campaign, measure_baseline, run_mutants
    from cuassay.mutation.project import find_mutants

    (tmp_path / "limits.py").write_text(LIMITS)
    (tmp_path / "test_limits.py").write_text(LIMIT_TESTS)
    plan = Campaign(tmp_path, ".", ("test_limits.py",), sources=("limits.py",))
    baseline = measure_baseline(plan)
    outcomes = run_mutants(plan, find_mutants(tmp_path, ["limits.py"], baseline), baseline, {})

    assert {(one.verdict, one.tests) for one in outcomes} == {("killed", 2)}
