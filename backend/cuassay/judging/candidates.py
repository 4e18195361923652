"""Processes that answer calls: those of candidates, and trusted ones with the declared function."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.handle import Closing
from cuassay.errors import CandidateLostError
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.process import CandidateProcess
from cuassay.judging.referee import JudgeOptions
from cuassay.judging.reply import Output, Reply
from cuassay.judging.results import Results
from cuassay.judging.spec_file import Declaration
from cuassay.judging.subject import Answer, Status
from cuassay.judging.verdict import Evidence
from cuassay.judging.zygote import Zygote
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["Candidates"]

#: The status of a call whose process was lost, by the reason; for any other reason the process has died.
_LOST: Mapping[str, Status] = {"hang": "hung", "protocol": "malformed"}

#: The least time for loading a candidate's file, because the machine may have other work.
_LOAD_SECONDS = 10.0

#: The error that the runner of the kernel tier raises if a kernel wrote outside its arrays.
_OUTSIDE = "GuardBandError"

_REFERENCE = """\
from cuassay.judging.spec_file import load_declaration

spec = load_declaration({target!r}).spec


def run(xp, *args, **options):
    first = spec.op(*args, **options) if spec.op is not None else spec.fn(xp, *args, **options)
    return [first, *nothing(xp, *args, **options)[1:]] if {is_one_of_several} else first
"""

#: Returns arrays of the right shapes, made only once, so that the second of several results takes no time.
_NOTHING = """\
outputs = {table!r}
kept = {{}}


def nothing(xp, *args, **options):
    given = [one for arg in (*args, *options.values()) for one in (arg if isinstance(arg, list) else [arg])]
    key = tuple(tuple(one.shape) for one in given if hasattr(one, "shape"))
    if key not in kept:
        kept[key] = [xp.zeros(shape, dtype) for shape, dtype in outputs[key]]
    return kept[key]
"""

Key = tuple[Any, ...]

#: The shape and dtype of each result of a call.
Due = tuple[tuple[tuple[int, ...], Any], ...]


class Candidates(Closing):
    """Starts candidates for one declaration, all from one warm process.

    Parameters
    ----------
    declaration : Declaration
        The declaration that they are judged by. A confined candidate cannot read its file.
    options : JudgeOptions
        The device, the tier and the other options.
    """

    def __init__(self, declaration: Declaration, options: JudgeOptions) -> None:
        self._declaration, self._options = declaration, options
        self._held = ExitStack()
        self._zygote = self._held.enter_context(Zygote(options.device.kind))
        self._folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="cuassay-ours-")))
        self._rooms = _Rooms(declaration)

    def __repr__(self) -> str:
        return f"Candidates({self._declaration.spec.name} on {self._options.device})"

    def close(self) -> None:
        """End the warm process, and with it every candidate; a second call does nothing."""
        self._held.close()

    @property
    def zygote(self) -> int:
        """The id of the warm process, from which all candidates' processes descend."""
        return self._zygote.process

    @contextmanager
    def start(self, path: Path) -> Iterator[_Candidate]:
        """Start the candidate in a file, confined."""
        files = self._declaration.files
        compiled = (one for file in files for one in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))
        hidden = tuple(map(str, (*files, *compiled)))
        jail = JailOptions(hidden=hidden, required=not self._options.allow_unjailed)
        with self._started(path, jail) as candidate:
            yield candidate

    @contextmanager
    def reference(self, shapes: Mapping[Any, Sample]) -> Iterator[_Candidate]:
        """Start the declared function, unconfined, with the same protocol.

        If several results are declared one by one, only the function of the first is called, and is assumed to compute
        all: calling each would take several times as long as a single function that returns all results.
        """
        source = _NOTHING.format(table=self._table(shapes))
        source += _REFERENCE.format(target=self._declaration.target, is_one_of_several=len(self._declaration.specs) > 1)
        with self._of_ours("reference.py", source) as candidate:
            yield candidate

    def _table(self, shapes: Mapping[Any, Sample]) -> dict[Any, Any]:
        """Return a mapping from the shapes of each sample's arrays to the shapes and dtypes of its results."""
        table = {}
        for sample in shapes.values():
            args, kwargs = sample.host()
            due = self._rooms.of(args, kwargs)
            table[tuple(one.shape for one in arrays_of(args, kwargs))] = [
                (shape, dtype_name(dtype)) for shape, dtype in due
            ]
        return table

    def ours(self) -> Callable[[Mapping[Any, Sample]], AbstractContextManager[_Candidate]] | None:
        """Return what starts a trusted process; None for the kernel tier, which the device times."""
        return self.reference if self._options.tier == "program" else None

    @contextmanager
    def _of_ours(self, name: str, source: str) -> Iterator[_Candidate]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))  # several are started at the same time
        path = folder / name
        path.write_text(source, encoding="utf-8")
        with self._started(path, None) as candidate:
            yield candidate

    @contextmanager
    def _started(self, path: Path, jail: JailOptions | None) -> Iterator[_Candidate]:
        device, seconds = self._options.device, self._options.seconds
        limits = Limits(load_s=max(seconds, _LOAD_SECONDS), call_s=seconds)
        if device.kind == "cuda":  # its context has many threads, and takes much host memory
            limits = replace(limits, processes=512, memory_nbytes=16 << 30)
        tier: Literal["program", "kernel"] = self._options.tier if jail is not None else "program"
        with CandidateProcess(path, device=device, limits=limits, jail=jail, tier=tier, zygote=self._zygote) as process:
            yield _Candidate(process, self._rooms, seconds)


class _Candidate:
    """A started process. It loads the candidate's file, and answers calls."""

    def __init__(self, process: CandidateProcess, rooms: _Rooms, seconds: float) -> None:
        self._process, self._rooms = process, rooms
        self._seconds, self._left = seconds, seconds
        self.takes_layouts = process.tier == "program"  # kernels get contiguous arrays
        self.problem = ""
        self.jail: dict[str, str] = {}
        self._evidence: list[Evidence] = []
        try:
            process.load()
        except CandidateLostError as lost:
            if lost.reason == "jail":  # the candidate did not run, so this is not its fault
                self.jail["start"] = lost.detail
            else:
                self.problem = f"{lost.reason}: {lost.detail}"
                self._note(lost)
        self.jail |= process.jail

    def __repr__(self) -> str:
        return f"Candidate({self._process!r})"

    @property
    def source(self) -> bytes:
        """The files that were read, once, from the candidate."""
        return self._process.source

    @property
    def group(self) -> str:
        """Whether a control group limits its memory, or why not."""
        return self._process.group

    @property
    def is_confined(self) -> bool:
        """Whether there is a jail and every part of it is on."""
        return bool(self.jail) and all(state == "on" for state in self.jail.values())

    def evidence(self) -> Sequence[Evidence]:
        """Return what its process was observed to do, in addition to its answers."""
        count = self._process.late_writes
        if count:
            text = f"the outputs of {count} calls were written again after they had been taken"
            self._evidence.append(Evidence(id="T2", certainty="proven", evidence=text))
        return self._evidence

    def _note(self, lost: CandidateLostError) -> None:
        if lost.reason in ("memory", "processes"):
            self._evidence.append(Evidence(id="X8", certainty="proven", evidence=lost.detail))
        elif lost.reason == "hang" and self.problem:
            self._evidence.append(Evidence(id="X8", certainty="hint", evidence="its file was not loaded in time"))

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Make one call."""
        asked, before = self._rooms.of(args, kwargs), Answer(status="ok")
        try:
            reply = self._call(args, kwargs, asked)
            if any(one.problem == "too large" for one in reply.outputs) and self._rooms.grow(args, kwargs):
                before = _answer(reply, asked)  # the candidate has seen the inputs, so the first call's time counts too
                reply = self._call(args, kwargs, self._rooms.of(args, kwargs))
        except CandidateLostError as lost:
            self._note(lost)
            return Answer(status=_LOST.get(lost.reason, "died"), text=lost.detail)
        self._look_at(reply)
        answer = _answer(reply, asked)
        return replace(
            answer,
            seconds=before.seconds + answer.seconds,
            waited=before.waited + answer.waited,
            device_s=before.device_s + answer.device_s if self._process.tier == "kernel" else 0.0,
        )

    def time(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
        """Make one call of a trusted process; return its seconds, or None if it failed."""
        with suppress(CandidateLostError):
            return self._process.time(args, kwargs, self._rooms.of(args, kwargs), limit_s=self._seconds)
        return None

    def empty(self) -> float | None:
        """Make an empty call like the last call; return its seconds, or None if it failed or the device times calls."""
        if self._process.tier == "kernel":
            return None
        try:
            return self._process.empty(limit_s=self._seconds)
        except CandidateLostError as lost:
            self._note(lost)
            return None

    def _look_at(self, reply: Reply) -> None:
        """Record a cheat that a reply reveals."""
        is_kernel = self._process.tier == "kernel"
        if is_kernel and reply.raised is not None and reply.raised.kind == _OUTSIDE:
            self._evidence.append(Evidence(id="C17", certainty="proven", evidence=reply.raised.message))
        if not is_kernel and (reply.device_s or reply.is_queued):
            text = "a reply holds a time of the device, which only the runner of the kernel tier writes"
            self._evidence.append(Evidence(id="X3", certainty="proven", evidence=text))

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any], asked: Due) -> Reply:
        """Make one call within the remaining seconds for all calls, or within a tenth of the total if that is more."""
        reply = self._process.call(args, kwargs, asked, limit_s=max(self._left, self._seconds / 10))
        self._left -= (reply.ended_ns - reply.asked_ns) * 1e-9
        return reply


def _answer(reply: Reply, asked: Due) -> Answer:
    took = Answer(
        status="ok",
        seconds=(reply.ended_ns - reply.begun_ns) * 1e-9,
        waited=(reply.begun_ns - reply.asked_ns) * 1e-9,
        device_s=reply.device_s,
    )
    if reply.raised is not None:
        return replace(took, status="raised", text=f"{reply.raised.kind}: {reply.raised.message}")
    arrays = tuple(output.array for output in reply.outputs if output.array is not None)
    if len(arrays) < len(asked) or reply.extra:
        return replace(took, status="unusable", text=_unusable(reply, asked))
    return replace(took, outputs=arrays, changed=reply.changed)


def _unusable(reply: Reply, asked: Due) -> str:
    """Return why the outputs of a reply cannot be compared."""
    given = len(asked) + reply.extra - sum(output.problem == "missing" for output in reply.outputs)
    if reply.extra or (given != len(asked) and len(asked) > 1):
        return f"it gave {given} outputs, and the declaration compares {'one' if len(asked) == 1 else len(asked)}"
    place = next(place for place, output in enumerate(reply.outputs) if output.array is None)
    which = f"output {place}: " if len(asked) > 1 else ""
    return which + _problem_of(reply.outputs[place], asked[place])


def _problem_of(output: Output, asked: tuple[tuple[int, ...], Any]) -> str:
    texts = {
        "missing": "it returned nothing",
        "not an array": "it returned something that is not an array",
        "unknown dtype": "it returned something that is not an array of any known dtype",
    }
    if output.problem in texts:
        return texts[output.problem]
    shape, dtype = asked  # larger than the room that was made for it
    return f"its output is {output.shape} {output.dtype}; expected {shape} {dtype_name(dtype)}"


class _Rooms:
    """The shape and dtype of each expected result, by the shapes and dtypes of the arrays and the other arguments."""

    def __init__(self, declaration: Declaration) -> None:
        self._results = Results(declaration.specs)
        self._known: dict[Key, Due] = {}

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Due:
        """Return the expected results, from the right answer to the first call of this kind."""
        key = _key(args, kwargs)
        if key not in self._known:
            self._known[key] = self._due(args, kwargs)
        return self._known[key]

    def grow(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Record the results expected of this call; return whether they are larger than for the first such call."""
        before, due = self.of(args, kwargs), self._due(args, kwargs)
        self._known[_key(args, kwargs)] = due
        return len(due) > len(before) or any(
            prod(now) > prod(then) for (now, _), (then, _) in zip(due, before, strict=False)
        )

    def _due(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Due:
        return self._results.due(args, kwargs)


def _key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key:
    def described(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.shape, dtype_name(value.dtype)
        return tuple(map(described, value)) if isinstance(value, list | tuple) else repr(value)

    return tuple(map(described, args)), tuple((name, described(value)) for name, value in sorted(kwargs.items()))
