"""What README.md shows in Python runs as it stands there, on cpu and sim."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from cuassay.core import generators, syncdebug
from cuassay.errors import CuassayError

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.is_file() else ""
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
FILES = {name: block for block in BLOCKS for name in re.findall(r"\A# (\w+\.py)\n", block)}
LINES = [block for block in BLOCKS if block not in FILES.values()]

pytestmark = pytest.mark.skipif(not TEXT, reason="no README.md beside the suites")


def raised(line: str) -> type[Exception] | None:
    """The error that a line's comment begins with."""
    found = re.search(r"# (\w+Error): ", line)
    return None if found is None else next(one for one in subclasses(CuassayError) if one.__name__ == found[1])


def subclasses(base: type[Exception]) -> list[type[Exception]]:
    return [one for direct in base.__subclasses__() for one in (direct, *subclasses(direct))]


def test_the_lines_run_in_their_order(monkeypatch: pytest.MonkeyPatch):
    for name in ("_DEFAULTS", "_SEEDS"):  # they seed every device
        monkeypatch.setattr(generators, name, {})
    names: dict[str, object] = {}

    for statement in ast.parse("".join(LINES)).body:
        code = compile(ast.Module([statement], []), "README.md", "exec")
        error = raised("".join(LINES).splitlines()[statement.lineno - 1])
        if error is None:
            exec(code, names)  # noqa: S102  our own README
        else:
            with pytest.raises(error):
                exec(code, names)  # noqa: S102


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("test_norm.py", {"passed": 32}),
        ("test_rms.py", {"passed": 32}),
        ("test_roundtrip.py", {"passed": 4}),
        ("test_streams.py", {"failed": 1}),
        ("test_speed.py", {"passed": 2}),
    ],
)
def test_the_files_run(pytester: pytest.Pytester, name: str, outcomes: dict[str, int]):
    pytester.path.joinpath(name).write_text(FILES[name], encoding="utf-8")

    result = pytester.runpytest("-p", "no:cacheprovider", "--device", "cpu", "--device", "sim", name)

    result.assert_outcomes(**outcomes)
    assert ("RaceError" in result.stdout.str()) == ("failed" in outcomes)


def test_a_record_of_two_runs_is_compared(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the sessions inside are no worker's
    for name in ("test_rms.py", "slower.py"):
        pytester.path.joinpath(name).write_text(FILES[name], encoding="utf-8")
    for run in ("before", "after"):
        pytester.runpytest_subprocess("-k", "speed", "--device", "sim", f"--cuassay-record=results/{run}.jsonl")
    names: dict[str, Any] = {}

    exec(compile(FILES["slower.py"], "slower.py", "exec"), names)  # noqa: S102  our own README

    assert set(names["found"].benchmark) == {"rms_norm"}
    assert set(names["found"].verdict) == {"same"}  # sim's clock is virtual
    assert "Empty DataFrame" in capsys.readouterr().out


def test_a_series_of_asv_is_made_of_the_spec(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    for name in ("test_rms.py", "ops.py"):
        pytester.path.joinpath(name).write_text(FILES[name], encoding="utf-8")
    pytester.syspathinsert()
    monkeypatch.setenv("CUASSAY_DEVICES", "sim")
    names: dict[str, Any] = {}

    exec(compile(FILES["ops.py"], "ops.py", "exec"), names)  # noqa: S102  our own README

    assert names["track_rms_norm"].params == [["float16", "float32"], ["128x768"]]


def test_the_race_says_what_is_shown(pytester: pytest.Pytester):
    pytester.path.joinpath("test_streams.py").write_text(FILES["test_streams.py"], encoding="utf-8")

    result = pytester.runpytest("-p", "no:cacheprovider", "test_streams.py")

    (shown,) = re.findall(r"```text\n(RaceError: .*?)\n```", TEXT, re.DOTALL)
    said = re.sub(r"\d+|\S*/(?=test_streams)", "#", " ".join(result.stdout.str().split()))
    assert re.sub(r"\d+|(?=test_streams)", "#", shown.replace("\n", " ")) in said


def test_the_sync_debug_mode_is_as_it_says():
    import cuassay

    x = cuassay.zeros(4, "float32", "sim")
    syncdebug.set_mode("error")
    try:
        with pytest.raises(CuassayError, match="waits for the device"):
            float(x.sum())
    finally:
        syncdebug.set_mode("default")
