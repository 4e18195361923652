"""The ``cuassay`` command: how it is started, and what it says of settings that nobody reads."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cuassay
from cuassay import cli
from cuassay.cli import main
from cuassay.commands.parsing import painted
from cuassay.results.record import Recorder, begin


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert (ended.value.code, capsys.readouterr().out) == (0, f"cuassay {cuassay.__version__}\n")


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "cuassay", "settings"], capture_output=True, text=True, check=True)

    assert "CUASSAY_SEED" in done.stdout


def test_a_misspelt_setting_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SEEDS", "7")

    assert main(["settings"]) == 0

    assert capsys.readouterr().err == "cuassay: CUASSAY_SEEDS is not a setting; did you mean CUASSAY_SEED?\n"


# ------------------------------------------------------------------------------------------------ written files


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("judge spec.py::norm candidate.py", "--json"),
        ("judge spec.py::norm candidate.py", "--record"),
        ("mutate tests", "--record"),
        ("ab main HEAD", "--json"),
        ("aa", "--json"),
        ("aa", "--out"),
        ("bisect add --good main", "--json"),
        ("fleet ab main HEAD --local 1", "--json"),
        ("fleet judge spec.py::norm candidate.py --local 1", "--json"),
        ("fleet run tests --local 1", "--out"),
    ],
)
def test_a_file_of_another_kind_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, option: str
) -> None:
    source = tmp_path / "spec.py"
    source.write_text("import numpy\n")

    with pytest.raises(SystemExit) as ended:
        main([*words.split(), option, str(source)])

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"argument {option}: {source} is not " in said
    assert said.endswith("name another file, or remove this one first\n")


# ------------------------------------------------------------------------------------------------ help, mistakes


def test_a_run_of_neither_tests_nor_times_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--device", "sim", "--no-tests", "--no-times", "--out", str(tmp_path / "results")])

    assert ended.value.code == 2
    assert "argument --no-times: not allowed with argument --no-tests" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


@pytest.mark.parametrize("parser", list(parsers(cli.parser())), ids=lambda parser: parser.prog)
def test_help_has_an_example_that_parses(parser: argparse.ArgumentParser) -> None:
    _, _, examples = parser.format_help().partition("example:\n")
    lines = [line.partition("  #")[0].split() for line in examples.strip().splitlines()]

    assert lines
    assert all(words[: len(parser.prog.split())] == parser.prog.split() for words in lines)
    for words in lines:
        cli.parser().parse_args(words[1 : words.index(">") if ">" in words else None])


def test_short_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["-V"])

    assert capsys.readouterr().out == f"cuassay {cuassay.__version__}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["devcies"], "devices"),
        (["devices", "--jsn"], "--json"),
        (["memory", "replya"], "replay"),
        (["completion", "bsh"], "bash"),
    ],
    ids=["command", "option", "below", "choice"],
)
def test_misspelt_word_is_answered_with_the_one_meant(
    capsys: pytest.CaptureFixture[str], words: list[str], meant: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)

    assert capsys.readouterr().err.endswith(f"(did you mean {meant!r}?)\n")


@pytest.mark.parametrize(
    ("words", "command"),
    [(["report", "results", "--htlm", "x"], "report"), (["memory", "viz", "s.json", "-x"], "memory viz")],
)
def test_unknown_option_shows_the_usage_of_its_command(
    capsys: pytest.CaptureFixture[str], words: list[str], command: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)

    assert capsys.readouterr().err.startswith(f"usage: cuassay {command} [-h]")


@pytest.mark.parametrize("words", [["run", "--ops", "foo"], ["devices", "--device"]])
def test_option_of_another_command_is_not_suggested(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)

    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["-v"], ["memory"]], ids=["nothing", "option", "below"])
def test_missing_command_is_answered_with_the_help(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)

    told = capsys.readouterr().err
    assert "example:" in told
    assert re.search(r"error: no command was given; choose one of (devices|replay), .*\n\Z", told)


@pytest.mark.parametrize(("words", "usage"), [([], ""), (["report"], " report"), (["memory", "viz"], " memory viz")])
def test_help_of_a_command_is_its_help(capsys: pytest.CaptureFixture[str], words: list[str], usage: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["help", *words])

    assert capsys.readouterr().out.startswith(f"usage: cuassay{usage} [-h]")


def test_message_names_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "replay", "nowhere.csv.gz"]) == 2

    assert capsys.readouterr().err.startswith("cuassay memory replay: nowhere.csv.gz does not exist")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--device", "sim:7"], "sim:7 does not exist: the last is sim:"),
        (
            ["run", "--device", "sim", "--out", "{file}/results"],
            "--out {file}/results cannot be written: Not a directory",
        ),
        (["report", "{results}", "--html", "{folder}"], "{folder} is a folder; name a file in it"),
        (["report", "{results}", "--html", "{results}/file/x.html"], "cannot be written"),
        (["tune", "--shapes", "nope"], "--shapes has no list 'nope'; choose one of"),
        (["tune"], "tune needs either a file or --shapes NAME; got neither"),
        (["tune", "x", "--shapes", "llama3_8b"], "tune needs either a file or --shapes NAME; got both"),
        (["memory", "viz", "{file}", "-o", "page.html"], "holds no snapshot"),
    ],
    ids=["device", "out", "html", "parent", "shapes", "neither", "both", "snapshot"],
)
def test_mistake_is_one_line_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with Recorder(tmp_path / "results.jsonl") as recorder:
        begin(recorder, "pytest")
    names = {name: str(tmp_path / name) for name in ("file", "folder")} | {"results": str(tmp_path / "results.jsonl")}

    assert main([word.format(**names) for word in words]) == 2

    [line] = capsys.readouterr().err.splitlines()
    assert message.format(**names) in line


@pytest.mark.parametrize("option", ["--html", "--md"])
def test_dash_is_standard_output(capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str) -> None:
    with Recorder(tmp_path / "results.jsonl") as recorder:
        begin(recorder, "pytest")

    main(["report", str(tmp_path), option, "-"])

    assert capsys.readouterr().out.startswith("<!DOCTYPE html>" if option == "--html" else "#")
    assert not (Path.cwd() / "-").exists()


# ------------------------------------------------------------------------------------------------ completion, colour


def test_completion_script_knows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")

    assert main(["completion", "bash"]) == 0

    script = capsys.readouterr().out
    assert all(name in script for name in ("devices", "settings", "run", "report", "memory", "tune", "--html"))


def test_completion_without_its_library_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert main(["completion", "zsh"]) == 2

    assert "install it with: pip install shtab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({}, False)],
    ids=["forced", "refused", "no terminal"],
)
def test_colour_follows_the_variables_that_users_know(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert (painted("sim:0", "bold", io.StringIO()) != "sim:0") == coloured


def test_help_is_as_wide_as_the_terminal_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    _, _, options = cli.parser().format_help().partition("example:")[0].partition("COMMAND\n")

    assert 40 < max(map(len, options.splitlines())) <= 60
