"""Tables of known skips and expected failures: what they do, what is refused in them, which entries are told."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from cuassay.errors import SettingError
from cuassay.testing.skips_table import read_tables

TODAY = date(2026, 11, 23)

TESTS = """
    from cuassay.testing import dtypes
    @dtypes("float16", "float32")
    def test_cast(device, dtype):
        assert not (device.kind == "sim" and dtype.name == "float16")
    def test_plain():
        assert True
"""


def entry(action: str = "skip", **changed: str | list[str] | None) -> str:
    """One entry as TOML; None leaves a key out."""
    keys = {"test": "test_it.py::test_cast", "owner": "ana", "reason": "it rounds down", "since": "2026-03-01"}
    given = {name: value for name, value in (keys | changed).items() if value is not None}
    return f"[[{action}]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items())


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose tables are `skips.toml`."""
    pytester.makepyfile(test_it=TESTS)
    pytester.makeini("[pytest]\ncuassay_skips = skips.toml")
    return pytester


def run(suite: pytest.Pytester, table: str, *arguments: str) -> pytest.RunResult:
    (suite.path / "skips.toml").write_text(table)
    return suite.runpytest("--device", "cpu,sim", "-rs", *arguments)


def test_a_skip_holds_for_its_device_kind_and_dtype_and_tells_owner_date_and_line(suite: pytest.Pytester) -> None:
    result = run(suite, "# ours\n" + entry(device="sim", dtype="float16"))

    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * it rounds down (ana, since 2026-03-01; skips.toml:2)"])


def test_the_record_tells_the_reason_and_the_expected_failure(suite: pytest.Pytester) -> None:
    run(
        suite,
        entry(device="cpu") + entry("xfail", device="sim", dtype="float16", reason="no halves"),
        "--cuassay-record=r.jsonl",
    )

    rows = [json.loads(line) for line in (suite.path / "r.jsonl").read_text().splitlines()]
    told = {row["nodeid"].partition("[")[2]: (row["outcome"], row.get("reason")) for row in rows if "outcome" in row}
    assert told["cpu:0-float16]"] == ("skipped", "it rounds down (ana, since 2026-03-01; skips.toml:1)")
    assert told["sim:0-float16]"] == ("xfailed", "no halves (ana, since 2026-03-01; skips.toml:7)")
    assert told["sim:0-float32]"][0] == "passed"


def test_an_unexpected_pass_fails_and_says_which_entry_to_remove(suite: pytest.Pytester) -> None:
    result = run(suite, entry("xfail", device="sim"))

    result.assert_outcomes(passed=3, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*the test passes now; remove the entry at skips.toml:1: it rounds down"])


@pytest.mark.parametrize(
    ("test", "skipped"),
    [
        ("test_it.py", 4),
        ("test_it.py::test_plain", 1),
        ("test_it.py::test_c*", 3),
        ("*::test_?ast", 3),
        ("test_it.py::test_cast[cpu:0-float16]", 1),
        ("test_it.py::test_cast[*float32]", 2),
    ],
    ids=["file", "function", "star", "question mark", "case", "parameters"],
)
def test_an_entry_names_a_file_a_test_or_cases_by_a_glob(suite: pytest.Pytester, test: str, skipped: int) -> None:
    result = run(suite, entry(test=test), "--deselect", "test_it.py::test_cast[sim:0-float16]")

    result.assert_outcomes(passed=4 - skipped, skipped=skipped, deselected=1)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (entry(owner=None), "skips.toml:1: it has no owner; add owner = ...: who removes the entry"),
        ("\n\n" + entry(reason=None), "skips.toml:3: it has no reason; add reason"),
        (entry(reason=" "), "skips.toml:1: reason must be text; got ' '"),
        (entry(since=None), "skips.toml:1: it has no since"),
        (entry(since="spring"), "skips.toml:1: since is neither a date nor a commit; got 'spring'"),
        (entry(until="4f2a91c"), "skips.toml:1: until is not a date; got '4f2a91c'"),
        (entry(dtypes="float16"), "skips.toml:1: 'dtypes' is not a key (did you mean 'dtype'?)"),
        (entry(dtype="float61"), "skips.toml:1: 'float61' is not a dtype that cuassay knows (did you mean"),
        (entry(device=["cpu", "cudo"]), "skips.toml:1: device 'cudo' is not a kind (did you mean 'cuda'?)"),
        (entry(device="cpu") + entry("xfail"), "skips.toml:7: test_it.py::test_cast is at skips.toml:1 already"),
        (entry().replace("[[skip]]", "[[skips]]"), "skips.toml: 'skips' is not an entry; write [[skip]] or [[xfail]]"),
        ("[[skip]\n", "skips.toml cannot be read: Expected ']]'"),
        ('[[skip]]\nreason = """\n[[skip]]\n"""\n' + entry(owner=None), "skips.toml:5: it has no owner"),
    ],
    ids=[
        "no owner", "no reason", "empty reason", "no since", "since", "until", "unknown key", "dtype", "kind",
        "duplicate", "section", "syntax", "header in a text",
    ],
)  # fmt: skip
def test_a_faulty_entry_ends_the_session_with_its_file_and_line(suite: pytest.Pytester, table: str, told: str) -> None:
    result = run(suite, table)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in result.stderr.str()


def test_every_fault_of_a_table_is_told_at_once(suite: pytest.Pytester) -> None:
    result = run(suite, entry(owner=None) + entry(since="x"))

    result.stderr.fnmatch_lines(["*skips.toml:1: it has no owner*", "*skips.toml:5: since is neither*"])


def test_an_absent_table_ends_the_session(suite: pytest.Pytester) -> None:
    result = suite.runpytest("--device", "cpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*cuassay_skips: skips.toml cannot be read: *No such file*"])


def test_a_folder_stands_for_its_tables(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\ncuassay_skips = tables")
    suite.mkdir("tables")
    for kind in ("cpu", "sim"):
        (suite.path / "tables" / f"{kind}.toml").write_text(entry(device=kind))

    suite.runpytest("--device", "cpu,sim").assert_outcomes(passed=1, skipped=4)


@pytest.mark.parametrize("arguments", [(), ("test_it.py",), (".",), ("-k", "plain"), ("--collect-only",)], ids=str)
def test_an_entry_that_covers_no_collected_test_fails_the_session(
    suite: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    result = run(suite, entry() + entry(test="test_it.py::test_gone"), *arguments)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = "ERROR skips.toml:6: test_it.py::test_gone covers no collected test; correct or remove the entry (ana)"
    result.stdout.fnmatch_lines([told])


@pytest.mark.parametrize(
    "arguments",
    [("test_it.py::test_plain",), ("test_other.py",), ("--lf",), ("--ignore=test_other.py",)],
    ids=["one test", "another file", "last failed", "ignored"],
)
def test_an_entry_is_not_judged_where_its_tests_were_not_all_collected(
    suite: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    suite.makepyfile(test_other="def test_other(): pass")

    (suite.path / "skips.toml").write_text(entry(test="test_it.py::test_gone"))
    result = suite.runpytest("--device", "cpu", *arguments)

    assert result.ret == pytest.ExitCode.OK
    assert "covers no" not in result.stdout.str()


def test_an_entry_of_a_device_kind_that_is_not_tested_is_not_judged(suite: pytest.Pytester) -> None:
    (suite.path / "skips.toml").write_text(entry(device="sim"))

    assert suite.runpytest("--device", "cpu").ret == pytest.ExitCode.OK


def test_no_entry_is_judged_where_a_file_could_not_be_collected(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_broken="import nothing_of_this_name")

    result = run(suite, entry(test="test_broken.py::test_one"))

    assert "covers no" not in result.stdout.str()


def test_an_expired_entry_no_longer_applies_and_is_told(suite: pytest.Pytester) -> None:
    result = run(suite, entry(until="2020-01-01", device="cpu"))

    result.assert_outcomes(passed=4, failed=1)
    told = "skips.toml:1: test_it.py::test_cast expired on 2020-01-01 and no longer applies (ana)"
    result.stdout.fnmatch_lines([told])


@pytest.mark.parametrize(("until", "expired"), [("2026-11-22", True), ("2026-11-23", False)])
def test_an_entry_expires_after_its_last_day(tmp_path: Path, until: str, expired: bool) -> None:
    (tmp_path / "t.toml").write_text(entry(until=until))

    table = read_tables([tmp_path / "t.toml"], root=tmp_path, kinds=("cpu",), today=TODAY)

    assert bool(table.expired) is expired


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"holds no \*\.toml file"):
        read_tables([tmp_path], root=tmp_path, kinds=("cpu",), today=TODAY)


def test_entries_of_other_dtypes_or_kinds_are_no_duplicates(suite: pytest.Pytester) -> None:
    halves = entry(dtype="float16", device=["cpu", "cuda"]) + entry(dtype="float16", device="sim")

    run(suite, halves + entry(dtype="float32")).assert_outcomes(passed=1, skipped=4)


def test_check_skips_runs_what_is_skipped_and_tells_what_passes(suite: pytest.Pytester) -> None:
    table = entry(device="cpu") + entry(device="sim") + entry("xfail", test="test_it.py::test_gone", device="cuda")

    result = run(suite, table, "--check-skips")

    result.assert_outcomes(passed=1, xpassed=3, xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([
        "skips.toml:1: all 2 skipped tests of test_it.py::test_cast pass; remove the entry (ana)",
        "skips.toml:7: 1 of 2 skipped tests of test_it.py::test_cast pass; narrow the entry (ana)",
    ])  # fmt: skip


def test_check_skips_tells_that_nothing_passes(suite: pytest.Pytester) -> None:
    result = run(suite, entry(device="sim", dtype="float16"), "--check-skips")

    result.stdout.fnmatch_lines(["--check-skips: none of the 1 skipped tests that ran passes"])


def test_check_skips_does_not_count_what_the_device_cannot_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_it="""
        from cuassay.testing import requires
        @requires("race_detection")
        def test_cast(device): pass
    """
    )

    result = run(suite, entry(), "--check-skips")

    result.assert_outcomes(skipped=1, xpassed=1)
    result.stdout.fnmatch_lines(["skips.toml:1: all 1 skipped tests of *"])


def test_check_skips_without_tables_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--check-skips")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--check-skips: there are no tables; name them by the ini option cuassay_skips"])


def test_check_skips_stays_another_plugins_option(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        def pytest_addoption(parser):
            parser.addoption("--check-skips", action="store_true")
    """)
    pytester.makepyfile("def test_one(pytestconfig): assert pytestconfig.getoption('check_skips')")

    pytester.runpytest("--check-skips").assert_outcomes(passed=1)


def test_tables_are_judged_under_xdist_too(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    table = entry(device="cpu") + entry(test="*::test_gone") + entry("xfail", device="sim", dtype="float16")

    result = run(suite, table, "-n2", "--check-skips")

    result.assert_outcomes(passed=2, xpassed=2, xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["skips.toml:1: all 2 *", "ERROR skips.toml:7: [*]::test_gone covers no collected *"])
