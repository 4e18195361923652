"""Parts of a session: each case in one of them, what must be alone in none, and together the record of a whole."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.benchmarking import ledger
from cuassay.testing.sharding import part_of_each

SUITE = """
    import pytest
    from cuassay.testing import devices, dtypes, exclusive, ops, requires

    @ops("add", "mul", "sum")
    @dtypes("float32", "float64")
    def test_values(device, dtype, op): pass

    @ops("add", "mul", "sum")
    @dtypes("float32", "float64")
    def test_strides(device, dtype, op): pass

    @pytest.mark.parametrize("n", range(5))
    def test_plain(n): assert n != 3

    @requires("race_detection")
    @dtypes("float32", "float16")
    def test_needs(device, dtype): pass

    @devices("cuda")
    def test_elsewhere(device): pass

    @exclusive
    def test_alone(device): pass
"""

PARTS = ("1/3", "2/3", "3/3", "alone")


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest("--collect-only", "-q", "--device", "sim", *arguments)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return [line for line in result.outlines if "::" in line]


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_one=SUITE, test_two="def test_small(): pass\n")
    return pytester


def test_each_case_is_in_one_part_and_keeps_its_order(suite: pytest.Pytester) -> None:
    whole = collected(suite)

    parts = [collected(suite, "--cuassay-shard", part) for part in PARTS]

    assert Counter(nodeid for part in parts for nodeid in part) == Counter(whole)
    assert all(part == [nodeid for nodeid in whole if nodeid in part] for part in parts)


def test_what_must_be_alone_is_in_no_part(suite: pytest.Pytester) -> None:
    parts = [collected(suite, "--cuassay-shard", part) for part in PARTS]

    assert not any("test_alone" in nodeid for part in parts[:-1] for nodeid in part)
    assert parts[-1] == ["test_one.py::test_alone[sim:0]"]


def test_the_checks_of_one_op_in_one_dtype_are_in_one_part(suite: pytest.Pytester) -> None:
    parts = [collected(suite, "--cuassay-shard", part) for part in PARTS]

    for case in (f"[sim:0-{dtype}-{op}]" for op in ("add", "mul", "sum") for dtype in ("float32", "float64")):
        assert sorted(sum(case in nodeid for nodeid in part) for part in parts) == [0, 0, 0, 2]


def test_parts_are_of_what_the_selection_leaves(suite: pytest.Pytester) -> None:
    sizes = [len(collected(suite, "-k", "test_plain", "--cuassay-shard", part)) for part in PARTS]

    assert sizes == [2, 2, 1, 0]


def test_what_the_other_parts_run_is_deselected(suite: pytest.Pytester) -> None:
    whole = collected(suite)

    outcomes = suite.runpytest("--device", "sim", "-k", "test_plain", "--cuassay-shard", "3/3").parseoutcomes()

    assert (outcomes["passed"], outcomes["deselected"]) == (1, len(whole) - 1)


def recorded(pytester: pytest.Pytester, file: str, *arguments: str) -> pytest.RunResult:
    given = ("--device", "sim", "--require-device", "sim", "--cuassay-record", file, "--cuassay-run", "r")
    return pytester.runpytest(*given, *arguments)


def rows(path: Path) -> Counter[str]:
    """Every row but for how long it took."""
    found: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return Counter(json.dumps({**row, "duration": 0}) for row in found if row["record"] == "test")


def test_the_parts_write_the_record_of_the_whole(suite: pytest.Pytester) -> None:
    recorded(suite, "whole.jsonl")
    for part in PARTS:
        recorded(suite, "parts.jsonl", "--cuassay-shard", part)

    assert rows(suite.path / "parts.jsonl") == rows(suite.path / "whole.jsonl")


def test_a_required_device_is_asked_of_all_parts_together(
    suite: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [recorded(suite, "rows.jsonl", "-k", "needs", "--cuassay-shard", part) for part in PARTS]
    capsys.readouterr()

    assert [result.ret for result in results] == [0, 0, 0, 0]  # two cases: two of the parts hold nothing
    assert ledger.main(["check", str(suite.path / "rows.jsonl"), "--require-device", "sim"]) == 0
    assert capsys.readouterr().out == "sim:0: 2 passed\n"


def test_a_required_device_on_which_no_part_ran_anything_is_told(
    suite: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in PARTS:
        recorded(suite, "rows.jsonl", "-k", "elsewhere or plain", "--cuassay-shard", part)
    capsys.readouterr()

    status = ledger.main(["check", str(suite.path / "rows.jsonl"), "--require-device", "sim"])

    out = capsys.readouterr().out
    assert status == 1
    assert "ran nowhere (1):\n  test_one.py::test_elsewhere: needs a device of cuda" in out
    assert "ERROR required device sim:0: no test passed or failed on it" in out


def test_a_part_does_not_say_what_ran_nowhere(suite: pytest.Pytester) -> None:
    results = [recorded(suite, "rows.jsonl", "-k", "elsewhere", "--cuassay-shard", part) for part in ("1/1", "alone")]

    assert not any("ran nowhere" in result.stdout.str() for result in results)


def test_a_selection_of_nothing_stays_a_failure(suite: pytest.Pytester) -> None:
    assert recorded(suite, "rows.jsonl", "-k", "nothing", "--cuassay-shard", "1/2").ret == 5


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b", "1/0", "-1/2", "all"])
def test_a_part_that_is_none_is_a_usage_error(pytester: pytest.Pytester, text: str) -> None:
    result = pytester.runpytest(f"--cuassay-shard={text}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*I/N with I from 1 to N, such as 2/8, or alone; got '{text}'*"])


@pytest.mark.parametrize(
    ("files", "loads"),
    [({"a": [1, 1, 2]}, [2, 2]), ({"a": [3, 1], "b": [1]}, [3, 2])],
    ids=["the largest first", "where all files left least"],
)
def test_a_bundle_goes_where_least_is(files: dict[str, list[int]], loads: list[int]) -> None:
    cases = [
        (file, f"{file}{number}", f"{file}{number}:{case}")
        for file, sizes in files.items()
        for number, size in enumerate(sizes)
        for case in range(size)
    ]

    found = Counter(part_of_each(cases, 2).values())

    assert [found[1], found[2]] == loads


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.lists(st.integers(1, 9), max_size=8), max_size=5),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_parts_are_even_in_each_file_by_its_largest_bundle(files: dict[str, list[int]], total: int, order: Any) -> None:
    cases = [
        (file, f"{file}{number}", f"{file}{number}:{case}")
        for file, sizes in files.items()
        for number, size in enumerate(sizes)
        for case in range(size)
    ]
    shuffled = order.sample(cases, len(cases))

    parts = part_of_each(shuffled, total)

    assert parts == part_of_each(cases, total)
    assert parts.keys() == {name for _, _, name in cases}
    assert all(len({parts[name] for _, one, name in cases if one == bundle}) == 1 for _, bundle, _ in cases)
    for file, sizes in files.items():
        loads = Counter(dict.fromkeys(range(1, total + 1), 0))
        loads.update(parts[name] for one, _, name in cases if one == file)
        assert set(loads) == set(range(1, total + 1))
        assert max(loads.values()) - min(loads.values()) <= max(sizes, default=0)
