"""``cuassay fleet judge`` with two local workers: the verdicts of ``cuassay judge``, even if workers are lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="distributed is not installed; install it with: pip install distributed")

import psutil

from cuassay import Device
from cuassay.cli import main
from cuassay.errors import StateError
from cuassay.fleet import clusters, forks
from cuassay.fleet.code import FOLDER, digest_of
from cuassay.fleet.driver import Job
from cuassay.fleet.verdicts import LOST, AskedVerdicts, FleetVerdict, judge_on_fleet
from cuassay.judging.referee import JudgeOptions
from cuassay.results.record import new_run_id

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a jail, and /proc")

DATA = Path(__file__).parents[2] / "data" / "judging"

SPEC = "spec.py::rms_norm"

#: A right candidate that does not end for a while.
SLOW = """
import time
time.sleep({seconds})


def run(xp, a):
    return a / xp.sqrt((a * a).mean(axis=-1, keepdims=True) + 1e-6)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the workers, with a declaration and candidates."""
    here = Path.cwd()
    found = tmp_path_factory.mktemp("project")
    shutil.copy(DATA / "spec.py", found)
    shutil.copy(DATA / "honest" / "plain.py", found / "honest.py")
    shutil.copy(DATA / "cheats" / "T14_no_time.py", found / "wrong.py")
    (found / "broken.py").write_text("import absent\n")
    (found / "slow.py").write_text(SLOW.format(seconds=4))
    os.chdir(found)
    yield found
    os.chdir(here)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with clusters.local_cluster(("cpu", "sim"), 2, is_forked=forks.start()) as found:
        yield found


def judged(
    client: Any, *candidates: str, spec: str = SPEC, nonce: int | None = None, **options: Any
) -> list[FleetVerdict]:
    job = Job(run=new_run_id(), code=FOLDER, digest=digest_of(FOLDER), wait_s=30.0)
    told = {"device": Device("sim"), "times": False, "allow_unjailed": True, **options}
    asked = AskedVerdicts(
        spec=spec,
        candidates=tuple(map(Path, candidates)),
        options=JudgeOptions(**told),
        nonces=(nonce,) * len(candidates),
    )
    return judge_on_fleet(client, job, asked, lambda name, weak: None, lambda verdict: None)


def judges(candidate: str = "") -> list[Any]:
    """The processes below this one that judge a candidate."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, FileNotFoundError):
            lists = [word for word in one.cmdline() if word.startswith("--candidates=")]
            if lists and candidate in Path(lists[0].partition("=")[2]).read_text():
                found.append((one, one.ppid()))
    ids = {one.pid for one, _ in found}
    return [one for one, parent in found if parent not in ids]  # a fork shows the words of its parent at first


class Watcher(threading.Thread):
    """Calls a function with the processes that judge `candidate`, many times a second, until it returns True."""

    def __init__(self, see: Callable[[list[Any]], bool], candidate: str = "") -> None:
        super().__init__(daemon=True)
        self._see, self._candidate = see, candidate
        self.start()

    def run(self) -> None:
        while not self._see(judges(self._candidate)):
            time.sleep(0.05)


class Killer:
    """Ends the judges of a candidate, or their workers, as soon as the candidate's own process runs."""

    def __init__(self, candidate: str, times: int, *, ends_worker: bool) -> None:
        self._times, self._ends_worker = times, ends_worker
        self._seen: list[Any] = []
        self._below: list[Any] = []
        self._watcher = Watcher(self._see, candidate)

    def _see(self, found: list[Any]) -> bool:
        for judge in found:
            below = judge.children(recursive=True)
            if judge not in self._seen and len(below) >= 3:  # the warm process, the supervisor and the candidate
                self._seen.append(judge)
                self._below += [judge, *below]
                os.kill(judge.ppid() if self._ends_worker else judge.pid, signal.SIGKILL)
        return len(self._seen) >= self._times

    def left(self) -> list[Any]:
        """Those of the processes that run ten seconds after the last was ended."""
        self._watcher.join()
        return psutil.wait_procs(self._below, timeout=10)[1]


def test_the_command_writes_what_the_judge_writes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, rows, of_judge, page = (tmp_path / name for name in ("v.json", "fleet.jsonl", "judge.jsonl", "p.html"))
    words = [SPEC, "honest.py", "wrong.py", "broken.py", "--no-times", "--allow-unjailed"]

    status = main(["fleet", "judge", *words, "--local", "2", "--json", str(verdicts), "--record", str(rows)])
    shown = [line for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    replayed = main(["judge", *words, "--replay", str(verdicts), "--record", str(of_judge)])
    told = capsys.readouterr().out
    main(["report", str(rows), "--html", str(page)])

    found = json.loads(verdicts.read_text())
    assert status == replayed == 1
    assert [line.split(":")[0] for line in shown] == ["correct  honest.py", "wrong  wrong.py", "wrong  broken.py"]
    assert told.count("replay: the same verdict") == 3
    assert required(capsys) <= found[0].keys()
    assert {one["is_nonce_given"] for one in found} == {False}
    assert len({one["nonce"] for one in found}) == 3
    assert [plain(row) for row in judgements(rows)] == [plain(row) for row in judgements(of_judge)]
    assert {row["worker"] for row in judgements(rows)} <= {"local-0", "local-1"}
    assert "honest.py" in page.read_text()


def required(capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The fields that the schema of verdicts requires."""
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["judge", "--schema"])
    return set(json.loads(capsys.readouterr().out)["items"]["required"])


def judgements(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in found if row["record"] == "verdict"]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """What a repetition of a verdict has, too."""
    return {name: value for name, value in row.items() if name not in ("run", "duration", "worker")}


def test_a_chosen_nonce_is_that_of_the_whole_batch(client: Any, folder: Path) -> None:
    found = judged(client, "honest.py", "wrong.py", nonce=0xABC)

    assert [(one.verdict.nonce, one.verdict.is_nonce_given) for one in found] == [("abc", True)] * 2


def test_a_candidate_whose_worker_is_lost_is_judged_again(client: Any, folder: Path) -> None:
    killer = Killer("slow.py", 1, ends_worker=True)

    slow, honest = judged(client, "slow.py", "honest.py")

    assert [slow.verdict.verdict, honest.verdict.verdict] == ["correct", "correct"]
    assert killer.left() == []


def test_a_candidate_whose_workers_are_lost_twice_is_undecided(client: Any, folder: Path) -> None:
    client.wait_for_workers(2, timeout=60)
    killer = Killer("slow.py", 2, ends_worker=True)

    honest, slow = judged(client, "honest.py", "slow.py")

    assert honest.verdict.verdict == "correct"
    assert (slow.verdict.verdict, slow.verdict.failing_check, slow.worker) == ("undecided", LOST, None)
    assert slow.verdict.reason.startswith("2 workers were lost while they judged it: local-")
    assert "cuassay judge spec.py::rms_norm slow.py --device sim:0" in slow.verdict.reproduce
    assert killer.left() == []


def test_a_candidate_that_ends_its_judge_is_undecided_and_the_others_are_judged(client: Any, folder: Path) -> None:
    client.wait_for_workers(2, timeout=60)
    killer = Killer("slow.py", 1, ends_worker=False)

    slow, *others = judged(client, "slow.py", *["honest.py"] * 7)  # the first shard has several

    assert (slow.verdict.verdict, slow.verdict.failing_check) == ("undecided", LOST)
    assert slow.verdict.reason == f"its judge on {slow.worker} was ended by signal 9 while it ran"
    assert {one.verdict.verdict for one in others} == {"correct"}
    assert others[0].worker != slow.worker
    assert killer.left() == []


def test_timed_candidates_of_one_host_run_one_after_the_other(client: Any, folder: Path) -> None:
    (folder / "slow_too.py").write_text(SLOW.format(seconds=2))
    at_once: list[int] = []
    is_over = threading.Event()
    watcher = Watcher(lambda found: bool(at_once.append(len(found))) or is_over.is_set())

    judged(client, "slow_too.py", "slow_too.py", times=True)
    is_over.set()
    watcher.join()

    assert max(at_once) == 1


def test_a_declaration_that_cannot_be_loaded_is_shown(client: Any, folder: Path) -> None:
    client.wait_for_workers(2, timeout=60)

    with pytest.raises(StateError, match=r"(?s)loading spec.py::absent on local-\d ended with status 2:.*absent"):
        judged(client, "honest.py", spec="spec.py::absent")


def test_a_worker_with_another_file_decides_nothing(client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuassay.fleet.verdicts.digest_of", lambda path, tier: "0" * 16)

    (found,) = judged(client, "honest.py")

    assert found.verdict.verdict == "undecided"
    assert found.verdict.reason.startswith(f"{found.worker} has another honest.py: digest ")
