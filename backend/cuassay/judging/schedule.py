"""The schedule of a trial: a candidate's probes and the order of its calls. It depends only on the nonce.

Checks, warm-up and timed calls are mixed in random order and number, and use the same messages, so that a candidate
cannot tell which of them it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np

from cuassay.benchmarking.cases import DTYPES, case_label, case_labels
from cuassay.core.device import Device
from cuassay.errors import SpecError
from cuassay.judging.beyond import Notes, beyond, where_measured
from cuassay.judging.probes import LARGE, Probe, declared_probe, elements_of, equal_runs, same
from cuassay.judging.results import Results
from cuassay.judging.unrepeated import unrepeated
from cuassay.testing.generated.selection import why_absent
from cuassay.testing.opspec import OpSpec
from cuassay.testing.presence import sizes_for
from cuassay.testing.samples import Kind, Sample

__all__ = ["WARM_UP", "Schedule", "by_size", "claimed", "schedule"]

#: Calls of a case whose time does not count, because of compilation, tuning and first touch.
WARM_UP = 2

#: The least and the most timed calls of a case, without warm-up.
_TIMED = 16, 24

#: The least and the most timed calls of a case one after another.
_RUN = 3, 5

#: The number of samples that are run three times; in a single one, noise in the last bits may be equal by chance.
_EQUAL = 4

#: Calls of a case if it is not timed.
_CHECKED = 6

#: The most declared samples of a kind, and how often those of kind values are drawn.
_SAMPLES, _ROUNDS = 6, 2

#: The kinds of declared samples for candidates. Promotion and Python numbers concern only array libraries.
_KINDS: tuple[Kind, ...] = ("values", "empty", "scalar", "broadcast", "extremal")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The probes, the index of the probe for each call, and what is not probed, by name and with the reason."""

    probes: tuple[Probe, ...]
    order: tuple[int, ...]
    not_probed: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Schedule({len(self.probes)} probes, {len(self.order)} calls)"


def schedule(
    results: Results,
    device: Device,
    nonce: int,
    *,
    dtypes: Sequence[str],
    layouts: bool,
    times: bool,
    bench: bool = True,
) -> Schedule:
    """Make the schedule that follows from `nonce`.

    Parameters
    ----------
    dtypes : sequence of str
        The declared dtypes that the device supports.
    layouts, times : bool
        Whether arrays may be non-contiguous, and whether calls are timed.
    bench : bool
        Whether the samples to be measured are checked even without timing.

    Raises
    ------
    SpecError
        If the declaration has no samples on this device, or if two samples to be timed have the same label.
    """
    spec, chance = results.spec, np.random.default_rng(nonce)
    probes: list[Probe] = []
    notes: dict[str, str] = {}
    for dtype in dtypes:
        probes += _checks(results, device, dtype, chance, notes, layouts=layouts)
    if not probes:
        raise SpecError(f"{spec.name} has no samples that {device} can hold; declare dtypes that it has")
    if times or (bench and spec.bench is not None):
        measured = [dtype for dtype in DTYPES if dtype in dtypes] or list(dtypes[:1])
        for dtype in measured:
            probes += _timed(results, device, dtype, chance, notes, times=times)
    return Schedule(tuple(probes), _order(probes, chance), notes)


def _order(probes: Sequence[Probe], chance: np.random.Generator) -> tuple[int, ...]:
    """Return the places of all calls in random order. Timed calls of a case come in short runs.

    The first call of a run takes longer than the others if a call of another kind came before it.
    """
    runs: list[list[int]] = []
    open_runs: dict[tuple[str, str], list[int]] = {}
    for place, probe in enumerate(probes):
        if not probe.case:
            runs += [[place] for _ in probe.draws]
            continue
        key = probe.case, probe.dtype
        run = open_runs.get(key, [])
        if not run or len(run) >= chance.integers(_RUN[0], _RUN[1] + 1):
            open_runs[key] = run = []
            runs.append(run)
        run += [place] * len(probe.draws)
    return tuple(place for run in chance.permutation(len(runs)) for place in runs[run])


def _checks(
    results: Results, device: Device, dtype: str, chance: np.random.Generator, notes: Notes, *, layouts: bool
) -> Iterator[Probe]:
    spec = results.spec
    values: list[Sample] = []
    for _ in range(_ROUNDS):
        drawn = list(_drawn(results, device, dtype, chance))
        for kind in _KINDS if not values else ("values",):
            some = _choose([one for one in drawn if one.kind == kind], chance)
            values += some if kind == "values" else []
            yield from (declared_probe(results, dtype, kind, partial(same, one)) for one in some)
    if not values:
        return
    if spec.deterministic and "deterministic" not in spec.without:
        ordered = sorted(values, key=elements_of)
        repeated = [sample for sample in ordered if elements_of(sample) <= LARGE][-_EQUAL:]
        for sample in (*repeated, *ordered[-1:]) if elements_of(ordered[-1]) > LARGE else repeated:
            yield equal_runs(results, dtype, sample)
    for probe in beyond(results, device, dtype, values[:_SAMPLES], chance, notes):
        if layouts or probe.check != "layouts":
            yield probe


def _drawn(results: Results, device: Device, dtype: str, chance: np.random.Generator) -> Iterator[Sample]:
    """Yield samples drawn from a seed derived from the nonce that the reference accepts and the device can hold."""
    spec = results.spec
    for sample in spec.draw(int(chance.integers(2**62)), dtype, *_KINDS):
        if why_absent(spec, device, sample) is None and results.refusal(sample) is None:
            yield sample


def _choose(samples: Sequence[Sample], chance: np.random.Generator) -> list[Sample]:
    places = sorted(int(place) for place in chance.permutation(len(samples))[:_SAMPLES])
    return [samples[place] for place in places]


# ------------------------------------------------------------------------------------------------ timed calls


def _timed(
    results: Results, device: Device, dtype: str, chance: np.random.Generator, notes: Notes, *, times: bool
) -> Iterator[Probe]:
    """Yield the timed calls of each case, or a few calls without timing; each has new numbers."""
    spec, seed = results.spec, int(chance.integers(2**62))
    labels = case_labels(spec, device, dtype) if times else ()  # shapes may not distinguish samples of `bench`
    for place, sample in _cases(results, device, dtype, seed):
        if why_absent(spec, device, sample) is not None:
            continue
        count = WARM_UP + int(chance.integers(_TIMED[0], _TIMED[1] + 1)) if times else _CHECKED
        label = "" if not times else labels[place] if labels else case_label(sample)
        for _ in range(count):
            draw = partial(_case, spec, device, dtype, int(chance.integers(2**62)), place)
            yield declared_probe(results, dtype, "timed calls" if times else "bench", draw, case=label)
        if spec.bench is not None:  # otherwise it is one of the samples that have such probes
            yield from where_measured(results, device, dtype, sample, chance, notes)


def _cases(results: Results, device: Device, dtype: str, seed: int) -> list[tuple[int, Sample]]:
    """Return the samples to measure, with their places in `_measured`: those of `bench`, else the largest."""
    spec = results.spec
    drawn = list(enumerate(_measured(spec, device, dtype, seed)))
    if spec.bench is not None:
        return [(place, unrepeated(sample, seed)) for place, sample in drawn]
    taken = [(place, sample) for place, sample in drawn if results.refusal(sample) is None]
    return sorted(taken, key=lambda one: elements_of(one[1]))[-1:]


def _measured(spec: OpSpec, device: Device, dtype: str, seed: int) -> Iterator[Sample]:
    """Yield the samples of `bench`, else those of kind values."""
    if spec.bench is not None:
        yield from spec.draw_bench(seed, dtype, sizes_for(device))
    else:
        yield from spec.draw(seed, dtype, "values")


def _case(spec: OpSpec, device: Device, dtype: str, seed: int, place: int) -> Sample:
    """Return the sample at `place` of those to measure; large arrays of `bench` repeat no numbers."""
    sample = next(islice(_measured(spec, device, dtype, seed), place, None))
    return sample if spec.bench is None else unrepeated(sample, seed)


def by_size(plan: Schedule) -> Schedule:
    """Return the same calls with the smallest arrays first, for a plan without timed calls."""
    sizes = [max(elements_of(draw()) for draw in probe.draws) for probe in plan.probes]
    order = sorted(plan.order, key=lambda place: (sizes[place], place))
    return Schedule(plan.probes, tuple(order), plan.not_probed)


def claimed(spec: OpSpec, device: Device) -> tuple[str, ...]:
    """Return the declared dtypes that are judged on `device`.

    Raises
    ------
    SpecError
        If there are none.
    """
    found = spec.claims(device)
    if not found:
        raise SpecError(f"{spec.name} declares {', '.join(spec.dtypes)}, and {device} has none of them")
    return found
