"""Results of tuning on disk: rows of several processes, kept whole; what is of elsewhere is refused, and left."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_rows import rows_of

from cuassay.errors import ArgumentError, TuningError
from cuassay.tune.results import Result, Results, append_untuned, read_untuned
from cuassay.tune.results_file import ResultsFile
from cuassay.tune.search import Outcome
from cuassay.tune.space import Candidate

HERE = {"gpu": "NVIDIA H200", "driver": "580.1", "cublaslt": "130100"}


def result(m: int = 1, gain: float = 0.1) -> Result:
    return Result(
        op="gemm",
        problem={"m": m, "a": {"dtype": "bfloat16", "leading": 8}},
        choice=Candidate.of("kernel", split=2),
        default_us=10.0,
        us=9.0,
        gain=gain,
        spread=0.01,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "results.jsonl"


@pytest.fixture
def written(path: Path) -> Path:
    for m in (1, 2):
        Results(HERE).append(result(m), path)
    return path


# ------------------------------------------------------------------------------------------------ there and back


def test_what_is_found_is_by_problem_whatever_the_order_of_its_fields() -> None:
    results = Results(HERE)
    results.add(result())

    assert results.find("gemm", {"a": {"leading": 8, "dtype": "bfloat16"}, "m": 1}) == result()
    assert results.find("gemm", {"a": {"leading": 9, "dtype": "bfloat16"}, "m": 1}) is None
    assert results.find("conv", result().problem) is None
    assert len(results) == 1


def test_a_file_gives_back_what_was_put_in(written: Path) -> None:
    results = Results(HERE)

    assert results.read(written) == 2
    assert results.all() == (result(1), result(2))


def test_a_file_begins_with_one_header(written: Path) -> None:
    header, *others = rows_of(written)

    assert header == {"format": "cuassay tuning results", "version": 1, "validators": HERE}
    assert [row["problem"]["m"] for row in others] == [1, 2]


def test_of_two_rows_for_a_problem_the_later_holds(written: Path) -> None:
    Results(HERE).append(result(1, gain=0.5), written)
    results = Results(HERE)
    results.read(written)

    assert [one.gain for one in results.all()] == [0.5, 0.1]


def test_what_is_read_is_added_to_what_is_known(written: Path) -> None:
    results = Results(HERE)
    results.add(result(7))

    results.read(written)

    assert results.all() == (result(7), result(1), result(2))


def test_a_result_has_the_figures_of_the_search() -> None:
    outcome = Outcome(
        choice=Candidate.of("kernel", split=2), reason="gain 25.0%", default_s=10e-6, chosen_s=8e-6, gain=0.25,
        spread=0.01, tried=2, untried=0, refused=(), seconds=0.1,
    )  # fmt: skip

    found = Result.of("gemm", {"m": 1}, outcome)

    assert (found.op, found.problem, found.choice) == ("gemm", {"m": 1}, outcome.choice)
    assert (found.default_us, found.us, found.gain, found.spread) == (10.0, 8.0, 0.25, 0.01)


def test_only_what_a_file_lacks_is_written(written: Path) -> None:
    results = Results(HERE)
    for one in (result(1), result(2, gain=0.3), result(3)):
        results.add(one)

    assert results.write(written) == 2
    assert results.write(written) == 0
    assert len(rows_of(written)) == 5


@pytest.mark.parametrize(
    ("reach", "left"),
    [
        (lambda results, path: results.append(result(2), path), (result(1),)),
        (lambda results, path: results.append(result(2, gain=0.5), path), (result(1), result(2))),
        (lambda results, path: results.write(path), ()),
        (lambda results, path: Results(HERE).append(result(2), path) or results.read(path), (result(1),)),
        (lambda results, path: results.clear(), ()),
    ],
    ids=["one is appended", "another one is", "all are written", "another's is read", "all are forgotten"],
)
def test_what_was_found_is_unwritten_until_it_reaches_a_file(path: Path, reach: Any, left: tuple[Result, ...]) -> None:
    results = Results(HERE)
    for one in (1, 2):
        results.add(result(one))
    assert results.unwritten() == (result(1), result(2))

    reach(results, path)

    assert results.unwritten() == left


@pytest.mark.parametrize("use", [Results.write, lambda results, path: results.append(result(2), path)])
def test_what_could_not_be_written_is_unwritten_still(written: Path, use: Any) -> None:
    results = Results({**HERE, "gpu": "another"})
    results.add(result(2))

    with pytest.raises(TuningError, match="is not of this machine"):
        use(results, written)

    assert results.unwritten() == (result(2),)


def test_what_is_forgotten_is_still_in_the_file(written: Path) -> None:
    results = Results(HERE)
    results.read(written)
    results.clear()

    assert results.all() == ()
    assert results.read(written) == 2


def test_processes_add_to_one_file(path: Path) -> None:
    program = (
        "import sys\n"
        "from cuassay.tune.results_file import ResultsFile\n"
        "for number in range(200):\n"
        "    ResultsFile(sys.argv[1], {'format': 'x'}).append({'by': sys.argv[2], 'number': number, 'y': 500 * 'y'})\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), str(name)]) for name in range(3)]

    assert [process.wait() for process in running] == [0, 0, 0]
    found = [row for _, row in ResultsFile(path, {"format": "x"}).read()]
    assert sorted((row["by"], row["number"]) for row in found) == [
        (str(name), number) for name in range(3) for number in range(200)
    ]


@pytest.mark.parametrize(
    ("lock", "use"),
    [
        (fcntl.LOCK_SH, lambda path: Results(HERE).append(result(3), path)),
        (fcntl.LOCK_EX, lambda path: Results(HERE).read(path)),
    ],
    ids=["append", "read"],
)
def test_who_reads_and_who_adds_wait_for_one_another(written: Path, lock: int, use: Callable[[Path], object]) -> None:
    thread = threading.Thread(target=use, args=(written,))
    with written.open() as file:
        fcntl.flock(file, lock)
        thread.start()
        thread.join(0.1)
        waits = thread.is_alive()
    thread.join()

    assert waits


# ------------------------------------------------------------------------------------------------ what is refused


def spoilt(path: Path, how: str) -> bytes:
    """The file, changed; gives what is in it then."""
    text = path.read_bytes()
    header, first, second = text.splitlines(keepends=True)
    other = json.loads(header)
    other["validators"]["gpu"] = "NVIDIA A100"
    more, fewer = json.loads(header), json.loads(header)
    more["validators"]["triton"] = "3.1"
    del fewer["validators"]["driver"]
    changed = {
        "gpu": f"{json.dumps(other)}\n".encode() + first,
        "more": f"{json.dumps(more)}\n".encode() + first,
        "fewer": f"{json.dumps(fewer)}\n".encode() + first,
        "version": header.replace(b'"version":1', b'"version":2') + first,
        "format": b'{"format":"something else"}\n',
        "header": first + second,
        "cut off": text[:-7],
        "no JSON": header + b"Validator,PT_VERSION,2.4\n" + second,
        "deep": header + b"[" * 200_000 + b"\n",
        "no object": header + b"[1]\n",
        "binary": b"\x80\x81\xff\x00" * 9 + b"\n",
        "text": b"notes of mine\n",
    }[how]
    path.write_bytes(changed)
    return changed


REFUSED = {
    "gpu": r"validators\.gpu is 'NVIDIA A100' there, and 'NVIDIA H200' here",
    "more": r"validators\.triton is '3\.1' there, and None here",
    "fewer": r"validators\.driver is None there, and '580\.1' here",
    "version": "version is 2 there, and 1 here",
    "format": "format is 'something else' there, and 'cuassay tuning results' here",
    "header": "format is None there",
    "cut off": r"is cut off: line 3 has no end and begins b'\{\"choice",
    "no JSON": "line 2 is not JSON",
    "deep": "line 2 is not JSON",
    "no object": "line 2 is a list; a row is an object",
    "binary": "line 1 is not JSON",
    "text": "line 1 is not JSON",
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_not_of_here_is_refused_and_left(written: Path, how: str) -> None:
    there, results = spoilt(written, how), Results(HERE)
    results.add(result(7))

    for use in (results.read, results.write, lambda path: results.append(result(8), path)):
        with pytest.raises(TuningError, match=REFUSED[how]):
            use(written)

    assert written.read_bytes() == there
    assert results.all() == (result(7),)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gain": "much"}, "line 2: field gain should be int or float; got 'much'"),
        ({"gain": True}, "field gain should be int or float; got True"),
        ({"op": None}, "field op should be str; got None"),
        ({"choice": {"implementation": "x"}}, "a candidate has an implementation and parameters"),
        ({"choice": {"implementation": "x", "parameters": {"y": [1]}}}, "must be a string, number, flag or None"),
        ({"problem": 3}, "field problem should be dict; got 3"),
    ],
    ids=["word", "flag", "missing", "candidate", "parameter", "problem"],
)
def test_a_row_that_is_no_result_is_told(path: Path, change: dict[str, Any], told: str) -> None:
    header = {"format": "cuassay tuning results", "version": 1, "validators": HERE}
    ResultsFile(path, header).append(result().plain() | change)

    with pytest.raises(TuningError, match=f"cannot be read: .*{told}"):
        Results(HERE).read(path)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="cannot be opened: No such file"):
        Results(HERE).read(tmp_path / "nothing")
    (tmp_path / "empty").touch()
    with pytest.raises(TuningError, match="is empty"):
        Results(HERE).read(tmp_path / "empty")


def test_an_empty_file_is_begun(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    Results(HERE).append(result(), tmp_path / "empty")

    assert Results(HERE).read(tmp_path / "empty") == 1


def test_a_line_that_is_written_in_part_is_taken_back(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, write = written.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:20]))

    with pytest.raises(TuningError, match=r"took only 20 of .* restored; name another file"):
        Results(HERE).append(result(3), written)

    assert written.read_bytes() == there


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="cannot be opened"):
        Results(HERE).append(result(), tmp_path)
    with pytest.raises(TuningError, match="cannot be read"):
        Results(HERE).read(tmp_path)


@pytest.mark.parametrize("use", ["read", "append"])
def test_a_file_that_cannot_be_locked_is_told_and_left(
    written: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    def refuse(file: int, lock: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    there, results = written.read_bytes(), Results(HERE)
    monkeypatch.setattr(fcntl, "flock", refuse)

    with pytest.raises(TuningError, match="cannot be locked: No locks available"):
        results.read(written) if use == "read" else results.append(result(3), written)

    assert written.read_bytes() == there


# ------------------------------------------------------------------------------------------------ untuned


def test_untuned_problems_are_read_once_each_from_all_files(tmp_path: Path) -> None:
    for name, extents in (("first", (1, 2, 1)), ("second", (2, 3))):
        for m in extents:
            append_untuned(tmp_path / name, "gemm", {"m": m})

    assert read_untuned([tmp_path / "first", tmp_path / "second"]) == tuple(("gemm", {"m": m}) for m in (1, 2, 3))


def test_results_are_no_untuned_problems(written: Path) -> None:
    with pytest.raises(TuningError, match="format is 'cuassay tuning results' there"):
        read_untuned([written])
    with pytest.raises(TuningError, match="format is 'cuassay tuning results' there"):
        append_untuned(written, "gemm", {"m": 1})


def test_a_result_is_checked_field_by_field() -> None:
    assert Result.from_plain(json.loads(json.dumps(result().plain()))) == result()
    with pytest.raises(ArgumentError, match="field us should be"):
        Result.from_plain({name: value for name, value in result().plain().items() if name != "us"})
