"""How a verdict is decided: what is missing, indicated or proven, and what is not possible, with a subject of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from referees import DATA

from cuassay import Device
from cuassay.errors import CandidateLostError
from cuassay.judging import candidates as candidates_module
from cuassay.judging import missing
from cuassay.judging import referee as referee_module
from cuassay.judging.referee import JudgeOptions, Referee
from cuassay.judging.reply import Output, Reply
from cuassay.judging.scan import parse_policy
from cuassay.judging.spec_file import Declaration, load_declaration
from cuassay.judging.subject import LocalSubject
from cuassay.judging.verdict import CaseTime, Evidence, Verdict
from cuassay.testing import OpSpec

CPU = Device("cpu")
ON = {"net": "on", "files": "on"}


@pytest.fixture(scope="module")
def declaration() -> Declaration:
    return load_declaration(f"{DATA}/spec.py::rms_norm")


class Started(LocalSubject):
    """A right function as a started candidate, with whatever its process is said to be."""

    def __init__(self, run: Callable[..., Any], jail: Mapping[str, str], problem: str, seen: list[Evidence]) -> None:
        super().__init__(run)
        self.source, self.jail, self.problem = b"def run(xp, a): ...", jail, problem
        self.group = "on"
        self.is_confined = bool(jail) and set(jail.values()) == {"on"}
        self._seen = seen
        self.calls = 0

    def call(self, args: Any, kwargs: Any) -> Any:
        self.calls += 1
        return super().call(args, kwargs)

    def evidence(self) -> list[Evidence]:
        return self._seen


def judged(
    declaration: Declaration,
    *,
    jail: Mapping[str, str] = ON,
    problem: str = "",
    seen: tuple[Evidence, ...] = (),
    run: Callable[..., Any] | None = None,
    path: str = "candidate.py",
    nonce: int = 7,
    **options: Any,
) -> tuple[Verdict, Started]:
    function = run or (lambda a: declaration.spec.run("cpu", (a,), {}))
    started = Started(function, jail, problem, list(seen))

    @contextmanager
    def start(path: Path) -> Iterator[Started]:
        yield started

    asked = JudgeOptions(device=CPU, **{"policy": parse_policy(""), "times": False, **options})
    return Referee(declaration, asked, start).judge(Path(path), nonce=nonce), started


def test_a_right_candidate_in_a_whole_jail_is_correct(declaration: Declaration) -> None:
    verdict, started = judged(declaration)

    assert (verdict.verdict, verdict.failing_check, verdict.nonce) == ("correct", "", "7")
    assert verdict.is_nonce_given
    assert verdict.calls == started.calls > 0


def test_what_a_benchmark_declares_is_checked_without_times_too(declaration: Declaration) -> None:
    verdict, _ = judged(declaration, times=False)

    assert verdict.probes["bench"] > 0


def test_a_candidate_that_is_timed_apart_keeps_the_nonce_of_its_checks(declaration: Declaration) -> None:
    verdict, _ = judged(declaration, apart=True, times=True)

    assert (verdict.verdict, verdict.nonce) == ("correct", "7")


def test_a_candidate_whose_time_ended_in_its_checks_is_not_timed_apart(declaration: Declaration) -> None:
    verdict, started = judged(declaration, apart=True, times=True, seconds=1e-9)

    assert (verdict.verdict, verdict.failing_check, verdict.nonce) == ("undecided", "time limit", "7")
    assert started.calls == 1


@pytest.mark.parametrize("jail", [{**ON, "net": "no namespaces here"}, {}], ids=["a part is missing", "none"])
def test_without_a_whole_jail_nothing_is_asked_and_nothing_decided(
    declaration: Declaration, jail: Mapping[str, str]
) -> None:
    verdict, started = judged(declaration, jail=jail)

    assert (verdict.verdict, verdict.status, started.calls) == ("undecided", 3, 0)
    assert "--allow-unjailed" in verdict.reason
    assert judged(declaration, jail=jail, allow_unjailed=True)[0].verdict == "correct"


def test_a_candidate_that_could_not_be_started_is_undecided_even_where_no_jail_is_needed(
    declaration: Declaration,
) -> None:
    verdict, started = judged(declaration, jail={"start": "no supervisor"}, allow_unjailed=True)

    assert (verdict.verdict, started.calls) == ("undecided", 0)


@pytest.mark.parametrize(
    ("certainty", "word"), [("proven", "refused"), ("indicated", "undecided"), ("hint", "correct")]
)
def test_what_was_seen_decides_by_its_certainty(declaration: Declaration, certainty: Any, word: str) -> None:
    seen = Evidence(id="T2", certainty=certainty, evidence="written late")

    verdict, _ = judged(declaration, seen=(seen,))

    assert verdict.verdict == word
    assert verdict.cheat == (seen,)


def test_a_wrong_candidate_with_a_proven_cheat_is_refused(declaration: Declaration) -> None:
    seen = Evidence(id="T2", certainty="proven", evidence="written late")

    assert judged(declaration, run=lambda a: a)[0].verdict == "wrong"
    assert judged(declaration, run=lambda a: a, seen=(seen,))[0].verdict == "refused"


def test_bits_that_no_arithmetic_makes_are_wrong_where_warnings_are_errors(declaration: Declaration) -> None:
    def signalling(a: Any) -> Any:
        return np.full(a.shape, 0x7F800001, np.uint32).view(np.float32)

    assert judged(declaration, run=signalling)[0].verdict == "wrong"


def test_a_file_that_cannot_be_loaded_is_wrong(declaration: Declaration) -> None:
    verdict, started = judged(declaration, problem="load: SyntaxError")

    assert (verdict.verdict, verdict.failing_check, started.calls) == ("wrong", "load", 0)
    assert verdict.reason == "it cannot be loaded: SyntaxError"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("No module named 'no_gpu_here'", "undecided"), ("No module named 'no_gpu_here.lib'", "undecided"),
        ("No module named 'numpy'", "wrong"), ("No module named 'anything'", "wrong"),
    ],
)  # fmt: skip
def test_a_candidate_whose_gpu_library_is_missing_here_is_undecided(
    declaration: Declaration, monkeypatch: pytest.MonkeyPatch, error: str, word: str
) -> None:
    monkeypatch.setattr(missing, "LIBRARIES", frozenset(["no_gpu_here", "numpy"]))

    def imports(a: Any) -> Any:
        raise ModuleNotFoundError(error)

    loaded, _ = judged(declaration, problem=f"load: ModuleNotFoundError: {error}")
    called, _ = judged(declaration, run=imports)

    assert (loaded.verdict, called.verdict) == (word, word)


def test_a_candidate_whose_gpu_library_is_missing_is_told_where_to_be_judged(
    declaration: Declaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "LIBRARIES", frozenset(["no_gpu_here"]))

    verdict, _ = judged(declaration, problem="load: ModuleNotFoundError: No module named 'no_gpu_here'")

    assert (verdict.failing_check, verdict.status) == ("missing library", 3)
    assert verdict.reason.startswith("it imports no_gpu_here, which is not installed here; judge it on a machine")


def test_a_candidate_without_xp_is_told_how_run_is_called(declaration: Declaration) -> None:
    def run() -> None: ...

    run.__qualname__ = "run"
    verdict, _ = judged(declaration, run=run)

    assert verdict.reason.startswith("the candidate raised an exception: TypeError: run() takes 0 positional arguments")
    assert verdict.reason.endswith("def run(xp, ...)")


def test_a_wrong_candidate_is_told_in_which_dtype(declaration: Declaration) -> None:
    of_values, _ = judged(declaration, run=np.ones_like)

    assert of_values.dtype == "float32"
    assert Verdict.from_json(of_values.as_json()).dtype == "float32"
    assert judged(declaration, run=lambda: None)[0].dtype == "float32"
    assert judged(declaration, problem="load: no")[0].dtype == ""


def test_a_refused_candidate_is_told_its_cheat_first(declaration: Declaration) -> None:
    kept: list[Any] = []

    def stale(a: Any) -> Any:
        kept.append(a if not kept else kept[0])
        return declaration.spec.run("cpu", (kept[0],), {}) if kept[0].shape == a.shape else a

    verdict, _ = judged(declaration, run=stale)

    assert verdict.verdict == "refused"
    assert verdict.reason.startswith("T9 (a result is cached by the identity or address of the inputs), proven")
    assert "out of tolerance" in verdict.worst


@pytest.mark.parametrize("nonce", range(6))
def test_a_candidate_that_fails_everywhere_fails_for_a_declared_sample(declaration: Declaration, nonce: int) -> None:
    verdict, _ = judged(declaration, run=np.ones_like, nonce=nonce)

    assert verdict.failing_check == "values"


@pytest.mark.parametrize("nonce", range(6))
def test_a_candidate_that_is_right_for_declared_samples_fails_where_it_does(
    declaration: Declaration, nonce: int
) -> None:
    def small(a: Any) -> Any:
        if np.abs(a).max(initial=0) > 1000:
            raise ValueError("too large a number")
        return declaration.spec.run("cpu", (a,), {})

    verdict, _ = judged(declaration, run=small, nonce=nonce)

    assert verdict.reason == "the candidate raised an exception: ValueError: too large a number"
    assert verdict.failing_check not in ("", "values")


def reproduced(declaration: Declaration, path: str, **options: Any) -> str:
    return judged(replace(declaration, given="specs/spec.py"), problem="load: no", path=path, **options)[0].reproduce


@pytest.mark.parametrize("path", ["a/candidate.py", "../candidate.py", "/home/me/candidate.py"])
def test_the_line_to_reproduce_names_files_as_they_were_given(declaration: Declaration, path: str) -> None:
    line = reproduced(declaration, path, times=True)

    assert line == f"cuassay judge specs/spec.py::rms_norm {path} --device cpu:0 --nonce 7"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"times": False}, "--no-times"), ({"allow_weak": True}, "--allow-weak"), ({"tier": "kernel"}, "--tier kernel"),
        ({"allow_unjailed": True}, "--allow-unjailed"), ({"seconds": 0.5}, "--seconds 0.5"),
        ({"policy": parse_policy("library=refuse")}, "--policy library=refuse"), ({"apart": True}, "--jobs 2"),
        ({"apart": True, "times": False}, "--no-times"),
    ],
)  # fmt: skip
def test_the_line_to_reproduce_has_the_options_that_are_not_the_defaults(
    declaration: Declaration, options: dict[str, Any], words: str
) -> None:
    line = reproduced(declaration, "a.py", **{"times": True, "policy": parse_policy(""), **options})

    assert f" --device cpu:0 {words} --nonce 7" in line


def test_a_long_or_unprintable_path_is_escaped_and_whole_in_the_line_to_reproduce(declaration: Declaration) -> None:
    folders = "/".join(["f" * 200] * 4)

    line = reproduced(declaration, f"{folders}/a\x1b[31m.py")

    assert f"{folders}/a\\x1b[31m.py" in line
    assert line.isprintable()


def test_a_time_below_the_floor_is_refused(declaration: Declaration, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CaseTime(label="16x129", dtype="float32", time_s=1e-6, q25=1e-6, q75=1e-6, n=9, error_s=0.0, floor_s=2e-6)
    monkeypatch.setattr(referee_module, "case_times", lambda *args, **kwargs: (case,))

    verdict, _ = judged(declaration, times=True)

    assert verdict.verdict == "refused"
    assert [(one.id, one.certainty) for one in verdict.cheat] == [("T14", "proven")]
    assert verdict.cases == ()


def test_calls_that_take_longer_than_is_allowed_leave_it_undecided(declaration: Declaration) -> None:
    verdict, _ = judged(declaration, seconds=1e-9)

    assert (verdict.verdict, verdict.failing_check) == ("undecided", "time limit")
    assert "--seconds" in verdict.reason


def test_without_a_nonce_each_verdict_has_its_own(declaration: Declaration) -> None:
    started = Started(lambda a: declaration.spec.run("cpu", (a,), {}), ON, "", [])

    @contextmanager
    def start(path: Path) -> Iterator[Started]:
        yield started

    asked = JudgeOptions(device=CPU, policy=parse_policy(""), times=False)
    referee = Referee(declaration, asked, start)

    first, second = referee.judge(Path("a.py")), referee.judge(Path("a.py"))
    assert first.nonce != second.nonce
    assert not first.is_nonce_given


def test_no_time_is_taken_while_another_candidate_is_checked(declaration: Declaration) -> None:
    begun, go_on = threading.Event(), threading.Event()
    started: list[str] = []

    def slow(a: Any) -> Any:
        begun.set()
        go_on.wait(60)
        return declaration.spec.run("cpu", (a,), {})

    @contextmanager
    def start(path: Path) -> Iterator[Started]:
        started.append(path.stem)
        function = slow if path.stem == "slow" else lambda a: declaration.spec.run("cpu", (a,), {})
        yield Started(function, ON, "", [])

    referee = Referee(declaration, JudgeOptions(device=CPU, policy=parse_policy(""), apart=True), start)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(referee.judge, Path("slow.py"))
        begun.wait(60)
        timed = pool.submit(referee.judge, Path("quick.py"))
        with pytest.raises(TimeoutError):
            timed.result(timeout=1)  # it was checked in that time, or is still being checked
        assert started in (["slow"], ["slow", "quick"])
        go_on.set()
        verdicts = other.result(60), timed.result(60)

    assert [one.verdict for one in verdicts] == ["correct", "correct"]
    assert sorted(started) == ["quick", "quick", "slow", "slow"]


class Process:
    """Keeps how a candidate's process was asked for, and starts none."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, path: Path, **asked: Any) -> None:
        self.asked.append(asked)
        self.tier, self.jail, self.late_writes, self.source = asked["tier"], {}, 0, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self) -> None:
        pass

    def call(self, args: Sequence[Any], kwargs: Any, asked: Sequence[Any], *, limit_s: float) -> Reply:
        """Takes 2 s, after 1 s until it was ready, and says that what it was given is too small for the result."""
        due = args[0][args[0] > 0]
        is_large = due.size <= asked[0][0][0]
        output = Output(due if is_large else None, due.shape, "float32", "" if is_large else "too large", due, b"")
        return Reply((output,), 0, 0, 10**9, 3 * 10**9, (), 0.0, False, None)


def test_a_call_that_is_made_again_with_more_room_counts_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(candidates_module, "CandidateProcess", Process)
    monkeypatch.setattr(candidates_module, "Zygote", lambda kind: nullcontext(kind))
    positive = OpSpec(fn=lambda xp, a: a[a > 0], name="positive", reference=lambda a: a[a > 0], dtypes=("float32",))
    declared = Declaration(positive, tmp_path / "spec.py", "positive", "0")
    arrays = [np.array(one, np.float32) for one in ([1, -1, -1], [1, 2, 3])]

    with (
        candidates_module.Candidates(declared, JudgeOptions(device=CPU, seconds=100.0)) as candidates,
        candidates.start(tmp_path / "candidate.py") as candidate,
    ):
        first, second = (candidate.call([array], {}) for array in arrays)

    assert (first.seconds, first.waited) == (2.0, 1.0)
    assert (second.seconds, second.waited) == (4.0, 2.0)


@pytest.mark.parametrize(
    ("jail", "confined"),
    [({}, False), ({"net": "on"}, True), ({"net": "on", "files": "no landlock"}, False)],
    ids=["none", "whole", "part"],
)
def test_a_candidate_is_confined_by_a_whole_jail_alone(
    declaration: Declaration, monkeypatch: pytest.MonkeyPatch, jail: Mapping[str, str], confined: bool
) -> None:
    with started(declaration, monkeypatch) as candidate:
        monkeypatch.setattr(candidate, "jail", jail)

        assert candidate.is_confined is confined


@pytest.mark.parametrize(("reason", "numbers"), [("memory", ["X8"]), ("processes", ["X8"]), ("died", [])])
def test_how_a_process_was_lost_is_evidence(
    declaration: Declaration, monkeypatch: pytest.MonkeyPatch, reason: str, numbers: list[str]
) -> None:
    def lose(*_: object, **__: object) -> Reply:
        raise CandidateLostError("lost", reason=reason, detail="it took all of it")

    with started(declaration, monkeypatch) as candidate:
        monkeypatch.setattr(candidate._process, "call", lose)
        answer = candidate.call([np.ones((3, 5), np.float32)], {})

        assert (answer.status, answer.text) == ("died", "it took all of it")
        assert [(one.id, one.certainty) for one in candidate.evidence()] == [(one, "proven") for one in numbers]


@contextmanager
def started(declaration: Declaration, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A candidate without a process."""
    monkeypatch.setattr(candidates_module, "CandidateProcess", Process)
    monkeypatch.setattr(candidates_module, "Zygote", lambda kind: nullcontext(kind))
    options = JudgeOptions(device=CPU, policy=parse_policy(""))
    with (
        candidates_module.Candidates(declaration, options) as candidates,
        candidates.start(Path("candidate.py")) as candidate,
    ):
        yield candidate


@pytest.mark.parametrize("allowed", [False, True])
def test_candidates_are_confined_and_what_is_ours_is_not(
    declaration: Declaration, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    monkeypatch.setattr(candidates_module, "CandidateProcess", Process)
    monkeypatch.setattr(candidates_module, "Zygote", lambda kind: nullcontext(kind))
    Process.asked.clear()
    asked = JudgeOptions(device=CPU, policy=parse_policy(""), allow_unjailed=allowed)

    with (
        candidates_module.Candidates(declaration, asked) as candidates,
        candidates.start(Path("candidate.py")),
        candidates.reference({}),
    ):
        theirs, ours = (one["jail"] for one in Process.asked)

    assert ours is None
    assert theirs.required is not allowed
    assert str(declaration.path) in theirs.hidden


def test_what_a_candidate_was_not_asked_about_is_in_its_verdict(tmp_path: Path) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(
        "from cuassay.testing import OpSpec, Sample\n"
        "scaled = OpSpec(fn=lambda xp, a, *, how, scale=2.0: a * scale,\n"
        "    reference=lambda a, *, how, scale=2.0: a * scale, name='scaled',\n"
        "    dtypes=('float32',), without={'sizes': 'one shape'},\n"
        "    samples=lambda make: [Sample((make((4, 9)),), {'how': 'fast'})])\n"
    )
    declared = load_declaration(str(spec))

    verdict, _ = judged(declared, run=lambda a, *, how: a * 2)

    assert verdict.verdict == "correct"
    assert verdict.not_probed == {
        "shapes": "the declaration leaves them out: one shape",
        "how": "the reference takes no other value that changes the result and keeps the bounds of the samples",
        "scale": "no sample gives it",
        "special values": "no sample is of kind extremal",
    }
    assert Verdict.from_json(verdict.as_json()).not_probed == verdict.not_probed
