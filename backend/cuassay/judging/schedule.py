"""The schedule of a trial: which probes a candidate gets, and the order of its calls. All of it follows from the nonce.

Checks, warm-up and timed calls are mixed, random in order and number, and sent by the same messages: a candidate cannot
tell which of them it answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np

from cuassay.benchmarking.cases import DTYPES, case_label
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

__all__ = ["WARM_UP", "Schedule", "by_size", "claimed", "schedule", "timed_calls"]

#: Calls of a case whose time does not count: compilation, tuning, first touch.
WARM_UP = 2

#: Least and most timed calls of a case, warm-up not counted.
_TIMED = 12, 20

#: Samples that are run three times. Noise in a few last bits can be equal by chance in one of them.
_EQUAL = 4

#: Calls of a case if no time is taken.
_CHECKED = 6

#: Most declared samples of a kind, and how often those of kind values are drawn.
_SAMPLES, _ROUNDS = 6, 2

#: Kinds of declared samples that a candidate gets. Promotion and Python numbers concern array libraries only.
_KINDS: tuple[Kind, ...] = ("values", "empty", "scalar", "broadcast", "extremal")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The probes, for each call the place of its probe among them, and by name what is not probed, with the reason."""

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
    """The probes and the order that follow from `nonce`.

    Parameters
    ----------
    dtypes : sequence of str
        The declared dtypes that the device has.
    layouts, times : bool
        Whether arrays may be other than contiguous, and whether time is taken.
    bench : bool
        Whether the samples that would be measured are checked if no time is taken.

    Raises
    ------
    SpecError
        The declaration gives no samples on this device.
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
    places = np.repeat(np.arange(len(probes)), [len(probe.draws) for probe in probes])
    return Schedule(tuple(probes), tuple(int(place) for place in chance.permutation(places)), notes)


def _checks(
    results: Results, device: Device, dtype: str, chance: np.random.Generator, notes: Notes, *, layouts: bool
) -> Iterator[Probe]:
    spec = results.spec
    values: list[Sample] = []
    for _ in range(_ROUNDS):
        drawn = list(_drawn(results, device, dtype, chance))
        for kind in _KINDS if not values else ("values",):
            some = _some([one for one in drawn if one.kind == kind], chance)
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
    """Samples drawn from a seed that follows from the nonce, if the reference takes them and the device holds them."""
    spec = results.spec
    for sample in spec.draw(int(chance.integers(2**62)), dtype, *_KINDS):
        if why_absent(spec, device, sample) is None and results.refusal(sample) is None:
            yield sample


def _some(samples: Sequence[Sample], chance: np.random.Generator) -> list[Sample]:
    places = sorted(int(place) for place in chance.permutation(len(samples))[:_SAMPLES])
    return [samples[place] for place in places]


# ------------------------------------------------------------------------------------------------ timed calls


def _timed(
    results: Results, device: Device, dtype: str, chance: np.random.Generator, notes: Notes, *, times: bool
) -> Iterator[Probe]:
    """The timed calls of each case, or a few calls if no time is taken; each has new numbers."""
    spec, seed = results.spec, int(chance.integers(2**62))
    for place, sample in _cases(results, device, dtype, seed):
        if why_absent(spec, device, sample) is not None:
            continue
        count = WARM_UP + int(chance.integers(_TIMED[0], _TIMED[1] + 1)) if times else _CHECKED
        for _ in range(count):
            draw = partial(_case, spec, device, dtype, int(chance.integers(2**62)), place)
            label = case_label(sample) if times else ""
            yield declared_probe(results, dtype, "timed calls" if times else "bench", draw, case=label)
        if spec.bench is not None:  # otherwise it is one of the samples, which have such probes
            yield from where_measured(results, device, dtype, sample, chance, notes)


def _cases(results: Results, device: Device, dtype: str, seed: int) -> list[tuple[int, Sample]]:
    """The samples that are measured, with their places among `_measured`: those of `bench`, else the largest."""
    spec = results.spec
    drawn = list(enumerate(_measured(spec, device, dtype, seed)))
    if spec.bench is not None:
        return drawn
    taken = [(place, sample) for place, sample in drawn if results.refusal(sample) is None]
    return sorted(taken, key=lambda one: elements_of(one[1]))[-1:]


def _measured(spec: OpSpec, device: Device, dtype: str, seed: int) -> Iterator[Sample]:
    """The samples of `bench`, whose large arrays repeat no numbers; those of kind values where there is none."""
    if spec.bench is not None:
        yield from (unrepeated(sample, seed) for sample in spec.draw_bench(seed, dtype, sizes_for(device)))
    else:
        yield from spec.draw(seed, dtype, "values")


def _case(spec: OpSpec, device: Device, dtype: str, seed: int, place: int) -> Sample:
    return next(islice(_measured(spec, device, dtype, seed), place, None))


def by_size(plan: Schedule) -> Schedule:
    """The same calls, those of the smallest arrays first; for a plan without timed calls."""
    sizes = [max(elements_of(draw()) for draw in probe.draws) for probe in plan.probes]
    order = sorted(plan.order, key=lambda place: (sizes[place], place))
    return Schedule(plan.probes, tuple(order), plan.not_probed)


def timed_calls(plan: Schedule, shapes: Mapping[tuple[str, str], Sample]) -> Schedule:
    """The timed calls of `plan`. A case whose sample in `shapes` is large has few, because each takes long."""
    large = {key for key, sample in shapes.items() if elements_of(sample) > LARGE}
    met: Counter[tuple[str, str]] = Counter()
    chosen = []
    for place in plan.order:
        probe = plan.probes[place]
        met[key := (probe.case, probe.dtype)] += 1
        if probe.case and (met[key] <= WARM_UP + _FEW_TIMED or key not in large):
            chosen.append(place)
    return Schedule(plan.probes, tuple(chosen), plan.not_probed)


#: Calls of a case of large arrays from which our own candidates are timed.
_FEW_TIMED = 8


def claimed(spec: OpSpec, device: Device) -> tuple[str, ...]:
    """The declared dtypes that are judged on `device`.

    Raises
    ------
    SpecError
        There is none.
    """
    found = spec.claims(device)
    if not found:
        raise SpecError(f"{spec.name} declares {', '.join(spec.dtypes)}, and {device} has none of them")
    return found
