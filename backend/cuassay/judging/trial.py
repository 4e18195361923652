"""A trial makes the calls of a schedule and judges the outputs.

The right answer is computed only after the candidate's output was copied. A trial ends at the first finding. The
subject of a trial is a candidate, or one of the mutants that test a declaration.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name
from cuassay.judging.ahead import Ahead
from cuassay.judging.arena import bytes_of, words_of
from cuassay.judging.probes import Finding, Probe, elements_of
from cuassay.judging.results import Outputs
from cuassay.judging.schedule import WARM_UP, Schedule
from cuassay.judging.subject import Answer, Subject
from cuassay.judging.verdict import Evidence
from cuassay.testing.samples import HostArray, Sample, over_lists
from cuassay.testing.terms import arrays_of

__all__ = ["Trial", "given", "hear"]

#: The fraction of the slow timed calls of large arrays whose outputs are compared. All other timed calls are compared:
#: a candidate that gives wrong results in some calls to lower the median is faster in those calls.
_VERIFIED = 0.4
_LARGE = 2**17


@dataclass(slots=True)
class Trial:
    """The outcome of the calls.

    Attributes
    ----------
    finding : Finding or None
        The first probe that failed.
    passed : dict
        The number of passed probes, by check.
    times : dict
        The seconds of the calls of each case, without warm-up, by label and dtype.
    empty : dict
        The seconds of the empty calls of each case, by label and dtype.
    shapes : dict
        One sample of each case, by label and dtype.
    begun : dict
        The number of calls of each case, including warm-up, by label and dtype.
    calls, timed, verified : int
        The number of all calls, of timed calls, and of timed calls whose outputs were compared.
    headroom : float
        The worst error divided by its tolerance.
    ended : str
        Why some calls were not made although nothing was found; empty if all were made.
    seconds : float
        The seconds of all calls together.
    errors : dict
        Pairs of a sample and its outputs, by dtype, from which the precision is guessed.
    not_varied : set of str
        Scalar arguments varied by probes that the declared implementation fails as well as the candidate.
    """

    finding: Finding | None = None
    passed: dict[str, int] = field(default_factory=dict)
    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    empty: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    shapes: dict[tuple[str, str], Sample] = field(default_factory=dict)
    begun: dict[tuple[str, str], int] = field(default_factory=dict)
    calls: int = 0
    timed: int = 0
    verified: int = 0
    headroom: float = 0.0
    ended: str = ""
    seconds: float = 0.0
    errors: dict[str, list[tuple[Sample, Outputs]]] = field(default_factory=dict)
    not_varied: set[str] = field(default_factory=set)


def hear(subject: Subject, plan: Schedule, nonce: int, *, most_seconds: float = float("inf")) -> Trial:
    """Make the calls to `subject` in order, until a probe fails or the subject has taken `most_seconds`."""
    with Ahead(plan) as ahead:
        hearing = _Hearing(subject, plan, nonce, ahead)
        trial = hearing.trial
        for place in plan.order:
            if trial.seconds > most_seconds:
                trial.ended = f"the candidate's calls took {trial.seconds:.1f} s, and --seconds allows {most_seconds:g}"
                return trial
            trial.finding = hearing.ask(place)
            if trial.finding is not None:
                return trial
    if hearing.incomplete():
        trial.ended = f"{hearing.incomplete()} probes have not got all of their calls"
    return trial


class _Hearing:
    """The calls made so far, and the answers to incomplete probes."""

    def __init__(self, subject: Subject, plan: Schedule, nonce: int, ahead: Ahead) -> None:
        self._subject, self._plan, self._ahead = subject, plan, ahead
        self._chance = np.random.default_rng([nonce % 2**63, 1])
        self._begun: dict[int, tuple[list[Sample], list[Outputs]]] = {}
        self._dropped: set[int] = set()
        self._asked: set[int] = set()
        self._met = _Outputs()
        self.trial = Trial()

    def incomplete(self) -> int:
        """Return the number of probes that were begun and neither completed nor dropped."""
        return len(self._begun.keys() - self._dropped)

    def ask(self, place: int) -> Finding | None:
        """Make the next call of the probe at `place`; return what is wrong if it fails and its inputs were promised."""
        if place in self._dropped:
            return None
        self._asked.add(place)
        probe = self._plan.probes[place]
        samples, outputs = self._begun.setdefault(place, ([], []))
        sample = self._ahead.sample(place, len(samples))
        samples.append(sample)
        try:
            answer = _ask(self._subject, sample, probe, self.trial)
            self._ahead.begin()
            if len(samples) == len(probe.draws):
                del self._begun[place]
            finding = self._judged(probe, samples, outputs, answer)
        except Exception:
            if _is_promised(probe):
                raise
            self._drop(place)  # the reference rejects these inputs, which the candidate takes
            return None
        if finding is None:
            return None
        if answer.status in _EXCUSABLE and not answer.changed and not _is_promised(probe):
            self._drop(place)
            return None
        plain = self._plain_failure() if answer.status in _EXCUSABLE and finding.check not in _PLAIN else None
        found = _explained(finding, samples, outputs, self._met)
        if plain is not None:
            return replace(plain, cheat=tuple(dict.fromkeys((*plain.cheat, *found.cheat))))
        right_before = bool(self.trial.passed.get("values"))
        return replace(found, cheat=(*found.cheat, *_BY_CHECK.get(found.check, ()))) if right_before else found

    def _drop(self, place: int) -> None:
        """Make no further calls of the probe at `place`, whose inputs nobody promised."""
        self._dropped.add(place)
        self.trial.not_varied |= {self._plan.probes[place].varies} - {""}

    def _plain_failure(self) -> Finding | None:
        """Return how the candidate fails for a declared sample of ordinary numbers; None if it passes them all.

        Such a failure says more than one of, for example, a strided layout that was only drawn earlier.
        """
        for place in range(len(self._plan.probes)):
            probe = self._plan.probes[place]
            if probe.check != "values" or place in self._asked:
                continue
            sample = probe.draws[0]()
            answer = _ask(self._subject, sample, probe, self.trial)
            if answer.status not in _EXCUSABLE:
                return None
            outputs: list[Outputs] = []
            finding = self._judged(probe, [sample], outputs, answer)
            if finding is not None:
                return _explained(finding, [sample], outputs, self._met)
        return None

    def _judged(
        self, probe: Probe, samples: Sequence[Sample], outputs: list[Outputs], answer: Answer
    ) -> Finding | None:
        """Check the answer to the last of `samples`, and all outputs of the probe if they are complete."""
        is_chosen = bool(self._chance.random() < _VERIFIED) or not probe.optional or self._is_fast(probe)
        finding = _refused(answer, probe, samples[-1])
        if finding is not None:
            return finding
        outputs.append(answer.outputs)
        is_met = self._met.add(answer.outputs, samples[-1])
        is_small = sum(one.size for one in answer.outputs) + elements_of(samples[-1]) <= _LARGE
        is_complete = len(samples) == len(probe.draws)
        return (
            _judged(probe, samples, outputs, self.trial) if is_complete and (is_chosen or is_met or is_small) else None
        )

    def _is_fast(self, probe: Probe) -> bool:
        """Return whether the last call of a case took no longer than the median of its calls so far."""
        times = self.trial.times.get((probe.case, probe.dtype))
        return times is not None and times[-1] <= statistics.median(times)


#: Outcomes that are excused for inputs that the declaration does not promise.
_EXCUSABLE = ("ok", "raised", "unusable")

#: Checks whose failure says enough by itself.
_PLAIN = ("values", "inputs unchanged")


def _is_promised(probe: Probe) -> bool:
    return probe.promised is None or probe.promised()


def _ask(subject: Subject, sample: Sample, probe: Probe, trial: Trial) -> Answer:
    answer = subject.call(*given(sample))
    trial.calls += 1
    trial.seconds += answer.seconds + answer.waited
    if probe.case and answer.status == "ok":
        key = probe.case, probe.dtype
        trial.begun[key] = trial.begun.get(key, 0) + 1
        trial.timed += 1
        if trial.begun[key] > WARM_UP:
            trial.times.setdefault(key, []).append(answer.device_s or answer.seconds)
            empty = subject.empty()
            if empty is not None:
                trial.empty.setdefault(key, []).append(empty)
                trial.seconds += empty
        trial.shapes[key] = sample
    return answer


def given(sample: Sample) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call as arrays of the host, in their layouts; no subject writes them."""

    def put(value: Any) -> Any:
        if isinstance(value, HostArray):
            is_plain = value.layout == "contiguous" and value.values.flags.c_contiguous
            return value.values if is_plain else value.on("cpu")
        return value

    kwargs = {name: over_lists(one, put) for name, one in sample.kwargs.items()}
    return [over_lists(one, put) for one in sample.args], kwargs


def _refused(answer: Answer, probe: Probe, sample: Sample) -> Finding | None:
    """Return what is wrong with a call before its values are compared."""
    if answer.status != "ok":
        text = _FAILED[answer.status].format(answer.text)
        if answer.status == "raised" and _OTHER_PARAMETERS.match(answer.text):
            text += "; run is called with the device's array module and the declared arguments: def run(xp, ...)"
        return Finding(probe.check, sample.label, text, _SEEN.get(answer.status, ()), dtype=probe.dtype)
    if answer.changed:
        which = ", ".join(map(str, answer.changed))
        seen = Evidence(id="C7", certainty="proven", evidence=f"input array {which} differs after the call")
        text = f"the call changed its input array {which}"
        return Finding("inputs unchanged", sample.label, text, (seen,), dtype=probe.dtype)
    return None


#: Python's error if ``run`` has other parameters than the call has arguments.
_OTHER_PARAMETERS = re.compile(r"TypeError: run\(\) (takes|missing|got)\b")

_FAILED = {
    "raised": "the candidate raised an exception: {}",
    "unusable": "the candidate's output cannot be compared: {}",
    "died": "the candidate's process ended: {}",
    "hung": "the candidate did not answer in time: {}",
    "malformed": "the candidate's answer does not follow the protocol: {}",
}

_SEEN = {
    "died": (Evidence(id="X5", certainty="hint", evidence="the process ended while it was asked"),),
    "hung": (Evidence(id="X8", certainty="hint", evidence="no answer within the limit"),),
    "malformed": (Evidence(id="X3", certainty="indicated", evidence="an answer that the protocol does not know"),),
}


def _judged(probe: Probe, samples: Sequence[Sample], outputs: Sequence[Outputs], trial: Trial) -> Finding | None:
    figures: dict[str, float] = {}
    finding = probe.judge(samples, outputs, figures)
    trial.headroom = max(trial.headroom, figures.get("headroom", 0.0))
    trial.verified += bool(probe.case)
    if probe.check == "values" or finding is not None:
        trial.errors.setdefault(probe.dtype, []).append((samples[0], outputs[0]))
    if finding is None:
        trial.passed[probe.check] = trial.passed.get(probe.check, 0) + 1
    return None if finding is None else replace(finding, dtype=probe.dtype)


class _Outputs:
    """The bits of all outputs so far. An output that repeats for other inputs may be cached from an earlier call."""

    def __init__(self) -> None:
        self._met: dict[bytes, bytes] = {}

    def add(self, outputs: Outputs, sample: Sample) -> bool:
        """Record the outputs of a call; return whether one of them repeats the bits of a call with other inputs."""
        inputs = _inputs_digest(sample)
        met = [self._met.setdefault(_digest(output), inputs) for output in outputs]
        return any(one != inputs for one in met)

    def is_stale(self, output: NDArray[Any], sample: Sample) -> bool:
        """Return whether an earlier call with other inputs gave these bits, which are not all the same number."""
        parts = np.ascontiguousarray(output).reshape(-1, 1).view(np.uint8)
        return bool((parts != parts[:1]).any()) and self._met.get(_digest(output)) != _inputs_digest(sample)


def _digest(array: NDArray[Any]) -> bytes:
    """Return a digest of an array's bits; for a large array, of the sum of all its words and of some of its rows."""
    found = hashlib.blake2b(f"{array.shape}{dtype_name(array.dtype)}".encode(), digest_size=16)
    if array.nbytes <= _HASHED:
        found.update(bytes_of(array).data)
        return found.digest()
    words, rest = words_of(array)
    rows = words[: words.size // _ROW * _ROW].reshape(-1, _ROW)
    for part in (np.add.reduce(words), rows[::_EVERY], rest):
        found.update(part.tobytes())
    return found.digest()


#: Arrays up to this many bytes are hashed as a whole; of larger ones, every 16th row of 512 words is hashed.
_HASHED, _ROW, _EVERY = 2**22, 512, 16


def _inputs_digest(sample: Sample) -> bytes:
    return b"".join(map(_digest, arrays_of(*sample.host())))


def _explained(finding: Finding, samples: Sequence[Sample], outputs: Sequence[Outputs], met: _Outputs) -> Finding:
    """Return the finding with the cheats that the wrong outputs indicate."""
    seen = list(finding.cheat)
    for sample, given in zip(samples, outputs, strict=False):  # a failed call has no output
        if finding.result >= len(given):
            break
        output = given[finding.result]
        if met.is_stale(output, sample):
            text = "the output is, bit for bit, that of an earlier call with other inputs"
            # Other inputs may rightly give equal integers, such as the order of a scaled array.
            is_integer = output.dtype.kind in "biu"
            seen.append(Evidence(id="T9", certainty="indicated" if is_integer else "proven", evidence=text))
            break
        if _is_input(output, sample):
            seen.append(Evidence(id="C14", certainty="indicated", evidence="the output is one of the inputs"))
            break
        if output.size and not output.any():
            seen.append(Evidence(id="C14", certainty="indicated", evidence="the output is zeros"))
            break
    return replace(finding, cheat=tuple(seen))


#: The cheats that a failed check indicates if declared samples were right before, and none of the others is wrong.
_BY_CHECK = {
    "bench": (Evidence(id="C11", certainty="indicated", evidence="right for samples, wrong for what is measured"),),
    "timed calls": (Evidence(id="C11", certainty="indicated", evidence="right where checked, wrong where timed"),),
    "options": (Evidence(id="C19", certainty="indicated", evidence="wrong for an option that is not declared"),),
    "hidden shapes": (Evidence(id="C10", certainty="indicated", evidence="wrong for a shape that is not declared"),),
    "extremal": (Evidence(id="C18", certainty="indicated", evidence="wrong for NaN, infinities or large numbers"),),
}


def _is_input(output: NDArray[Any], sample: Sample) -> bool:
    return any(
        array.shape == output.shape
        and array.dtype == output.dtype
        and output.size > 0
        and bool((array == output).all())
        for array in arrays_of(*sample.host())
    )
