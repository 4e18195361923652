"""The command line of the plugin, and what it leaves to the projects of its environment."""

from __future__ import annotations

import pytest

THREE_LINES = """
    def test_add(device, xp):
        assert float((xp.ones(2) + xp.ones(2)).sum()) == 4
"""

OWN_OPTION = """
    def pytest_addoption(parser):
        parser.addoption("--device", default="mine")
"""

READS_OWN_OPTION = """
    def test_option(pytestconfig):
        assert pytestconfig.getoption("--device") == "theirs"
"""


def ids(result: pytest.RunResult) -> list[str]:
    return [line.partition("::")[2] for line in result.outlines if "::" in line and "ran nowhere" not in line]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--device", "cpu"), ["test_add[cpu:0]"]),
        (("--device=cpu:0",), ["test_add[cpu:0]"]),
        (("--cuassay-device", "cpu:*"), ["test_add[cpu:0]"]),
        (("--device", "cpu", "--device", "cpu:0"), ["test_add[cpu:0]"]),
    ],
    ids=["short", "equals", "long", "repeated"],
)
def test_a_selector_names_the_devices_of_the_cases(
    pytester: pytest.Pytester, arguments: tuple[str, ...], expected: list[str]
) -> None:
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest("--collect-only", "-q", *arguments)

    assert ids(result) == expected


def test_a_comma_list_gives_each_device_its_cases_in_that_order(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest_subprocess("--collect-only", "-q", "--device", "toy,cpu")

    assert ids(result) == ["test_add[toy:0]", "test_add[cpu:0]"]


def test_the_setting_chooses_devices_where_no_option_does(
    pytester: pytest.Pytester, toy_kind: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_DEVICES", "cpu")
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest_subprocess("--collect-only", "-q")

    assert ids(result) == ["test_add[cpu:0]"]


@pytest.mark.parametrize(
    ("devices", "said"), [("foo", "there is no device kind 'foo'"), ("sim,cpu:7", "cpu:7 does not exist")]
)
def test_an_error_in_the_setting_names_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, devices: str, said: str
) -> None:
    monkeypatch.setenv("CUASSAY_DEVICES", devices)
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*CUASSAY_DEVICES: {said}*"])


def test_an_error_in_the_option_does_not_name_the_setting(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_DEVICES", "cpu")
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest("--device", "foo")

    result.stderr.no_fnmatch_line("*CUASSAY_DEVICES*")


def test_all_is_every_kind_present(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest_subprocess("--collect-only", "-q", "--device", "all")

    assert {"test_add[cpu:0]", "test_add[toy:0]"} <= set(ids(result))


def test_an_accelerator_is_the_default_where_one_is_present(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest_subprocess("-q")

    result.stdout.fnmatch_lines(["cuassay: devices *toy:0;*", "toy:0: 1 passed"])


def test_a_test_that_names_its_devices_gets_them_where_no_option_does(
    pytester: pytest.Pytester, toy_kind: object
) -> None:
    pytester.makepyfile("""
        from cuassay.testing import devices
        @devices("cpu")
        def test_host(device): pass
        def test_any(device): pass
    """)

    result = pytester.runpytest_subprocess("--collect-only", "-q")

    assert {"test_host[cpu:0]", "test_any[toy:0]"} <= set(ids(result))


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("gpu", "*there is no device kind 'gpu' (did you mean 'cuda'?); known: cpu, sim, cuda*"),
        ("CUDA:0", "*'CUDA:0' does not name a device (did you mean 'cuda:0'?); give *"),
        ("cpu:5", "*cpu:5 does not exist*the last is cpu:0*"),
        ("cpu:1", "*cpu:1 does not exist*the last is cpu:0*"),
        ("cuda:*", "*cuda:[*] selects no device: *"),
        ("Cpu!", "*'Cpu!' does not name a device*"),
    ],
)
def test_a_device_that_does_not_exist_is_a_usage_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, selector: str, message: str
) -> None:
    monkeypatch.setattr("cuassay.devices.cuda.driver.runtime.device_count", lambda: 0)
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest("--device", selector)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_help_shows_the_short_names_where_they_are_free(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--help")

    result.stdout.fnmatch_lines(["*--cuassay-device=D*", "*--device=D*", "*--require-device=D*"])


def test_a_conftests_own_option_keeps_its_name_and_value(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OWN_OPTION)
    pytester.makepyfile(READS_OWN_OPTION, test_ours="def test_ours(device): pass")

    result = pytester.runpytest("--device", "theirs", "--cuassay-device", "cpu", "-v")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_ours.py::test_ours?cpu:0? PASSED*"])


def test_a_conftest_found_during_collection_may_add_the_short_name(pytester: pytest.Pytester) -> None:
    package = pytester.mkdir("checks")
    (package / "conftest.py").write_text('def pytest_addoption(parser):\n    parser.addoption("--device")\n')
    (package / "test_late.py").write_text("def test_late(): pass\n")
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest("--device", "cpu")

    result.assert_outcomes(passed=2)


def test_the_value_of_a_short_name_is_no_path_to_look_for_conftests(pytester: pytest.Pytester) -> None:
    suite = pytester.mkdir("checks")
    (suite / "conftest.py").write_text('def pytest_addoption(parser):\n    parser.addoption("--flavour")\n')
    (suite / "test_one.py").write_text('def test_one(pytestconfig): assert pytestconfig.getoption("flavour") == "x"\n')
    pytester.makeini("[pytest]\ntestpaths = checks")

    result = pytester.runpytest("--device", "cpu", "--flavour=x")

    result.assert_outcomes(passed=1)


def test_a_setting_that_cannot_be_read_is_a_usage_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SEED", "many")
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest("--device", "cpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*CUASSAY_SEED must be a whole number, 0 or more; got 'many'*"])


def test_a_misspelt_setting_is_told_at_the_start(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_MEMRY", "1GiB")
    pytester.makepyfile(THREE_LINES)

    result = pytester.runpytest("--device", "cpu")

    result.stdout.fnmatch_lines(["cuassay: CUASSAY_SIM_MEMRY is not a setting; did you mean CUASSAY_SIM_MEMORY?"])
    result.assert_outcomes(passed=1)


def test_a_record_that_cannot_be_written_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(THREE_LINES)
    folder = pytester.mkdir("results")

    result = pytester.runpytest("--device", "cpu", f"--cuassay-record={folder}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--cuassay-record: results cannot be written to *Is a directory*"])


def test_a_record_is_not_appended_to_the_source_that_follows_the_option(pytester: pytest.Pytester) -> None:
    source = pytester.makepyfile(THREE_LINES)
    before = source.read_bytes()

    result = pytester.runpytest("--device", "cpu", "--cuassay-record", source.name)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    advice = "is not a record of results, so nothing is appended to it; name another file, or remove this one first"
    result.stderr.fnmatch_lines([f"*--cuassay-record: {source.name} {advice}"])
    assert source.read_bytes() == before


def test_a_record_is_appended_to_one_whose_first_writer_was_killed(pytester: pytest.Pytester) -> None:
    source = pytester.makepyfile(THREE_LINES)
    record = source.with_name("rows.jsonl")
    record.write_text('{"record":"run","schem')

    result = pytester.runpytest("--device", "cpu", "--cuassay-record", record.name)

    assert result.ret == pytest.ExitCode.OK
    assert record.read_text().startswith('{"record":"run","schema":')
