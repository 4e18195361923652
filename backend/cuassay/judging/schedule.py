"""Which probes a candidate gets, and in which order its calls come: all of it follows from the nonce.

Checks, warm-up and timed calls come mixed, in random order and number, by the same messages, so that a candidate cannot
tell which of them it answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from cuassay.benchmarking.cases import DTYPES, case_label
from cuassay.core.device import Device
from cuassay.errors import SpecError
from cuassay.judging.probes import LARGE, Probe, beyond, declared_probe, equal_runs, where_measured
from cuassay.testing.generated.selection import why_absent
from cuassay.testing.opspec import OpSpec
from cuassay.testing.presence import sizes_for
from cuassay.testing.samples import Kind, Sample
from cuassay.testing.terms import arrays_of

__all__ = ["WARM_UP", "Schedule", "by_size", "claimed", "schedule", "timed_calls"]

#: Calls of a case whose time does not count: compilation, tuning, first touch.
WARM_UP = 2

#: Least and most timed calls of a case, warm-up not counted.
_TIMED = 12, 20

#: Samples that are run three times: noise of a few steps can be the same once by chance.
_EQUAL = 4

#: Calls of a case where no time is taken.
_CHECKED = 6

#: Most declared samples of a kind, and how often those of kind values are drawn.
_SAMPLES, _ROUNDS = 6, 2

#: Kinds of declared samples that a candidate gets. Promotion and Python numbers are a matter of an array library.
_KINDS: tuple[Kind, ...] = ("values", "empty", "scalar", "broadcast", "extremal")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The probes, and for each call the place of its probe among them."""

    probes: tuple[Probe, ...]
    order: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Schedule({len(self.probes)} probes, {len(self.order)} calls)"


def schedule(
    spec: OpSpec, device: Device, nonce: int, *, dtypes: Sequence[str], layouts: bool, times: bool, bench: bool = True
) -> Schedule:
    """The probes and the order that follow from `nonce`.

    Parameters
    ----------
    dtypes : sequence of str
        Those that the device has, of the declared ones.
    layouts, times : bool
        Whether arrays may be other than contiguous, and whether time is taken.
    bench : bool
        Whether the samples that would be measured are checked where no time is taken.

    Raises
    ------
    SpecError
        The declaration gives no samples on this device.
    """
    chance = np.random.default_rng(nonce)
    probes: list[Probe] = []
    for dtype in dtypes:
        probes += _checks(spec, device, dtype, chance, layouts=layouts)
    if not probes:
        raise SpecError(f"{spec.name} has no samples that {device} can hold; declare dtypes that it has")
    if times or (bench and spec.bench is not None):
        measured = [dtype for dtype in DTYPES if dtype in dtypes] or list(dtypes[:1])
        for dtype in measured:
            probes += _timed(spec, device, dtype, chance, times=times)
    places = np.repeat(np.arange(len(probes)), [len(probe.draws) for probe in probes])
    return Schedule(tuple(probes), tuple(int(place) for place in chance.permutation(places)))


def _checks(spec: OpSpec, device: Device, dtype: str, chance: np.random.Generator, *, layouts: bool) -> Iterator[Probe]:
    values: list[Sample] = []
    for _ in range(_ROUNDS):
        drawn = list(_drawn(spec, device, dtype, chance))
        for kind in _KINDS if not values else ("values",):
            some = _some([one for one in drawn if one.kind == kind], chance)
            values += some if kind == "values" else []
            yield from (declared_probe(spec, dtype, kind, partial(_given, one)) for one in some)
    if not values:
        return
    if spec.deterministic and "deterministic" not in spec.without:
        ordered = sorted(values, key=_elements)
        repeated = [sample for sample in ordered if _elements(sample) <= LARGE][-_EQUAL:]
        for sample in (*repeated, *ordered[-1:]) if _elements(ordered[-1]) > LARGE else repeated:
            yield equal_runs(spec, dtype, sample)
    for probe in beyond(spec, device, dtype, values[:_SAMPLES], chance):
        if layouts or probe.check != "layouts":
            yield probe


def _drawn(spec: OpSpec, device: Device, dtype: str, chance: np.random.Generator) -> Iterator[Sample]:
    """Samples by a seed of the nonce's, of those that the reference takes and the device holds."""
    for sample in spec.draw(int(chance.integers(2**62)), dtype, *_KINDS):
        if why_absent(spec, device, sample) is None and spec.refusal(sample) is None:
            yield sample


def _some(samples: Sequence[Sample], chance: np.random.Generator) -> list[Sample]:
    places = sorted(int(place) for place in chance.permutation(len(samples))[:_SAMPLES])
    return [samples[place] for place in places]


def _given(sample: Sample) -> Sample:
    return sample


def _elements(sample: Sample) -> int:
    return sum(array.size for array in arrays_of(*sample.host()))


# ------------------------------------------------------------------------------------------------ timed calls


def _timed(spec: OpSpec, device: Device, dtype: str, chance: np.random.Generator, *, times: bool) -> Iterator[Probe]:
    """Timed calls of each case, or a few where no time is taken, every one with numbers of its own."""
    seed = int(chance.integers(2**62))
    for place, sample in _cases(spec, device, dtype, seed):
        if why_absent(spec, device, sample) is not None:
            continue
        count = WARM_UP + int(chance.integers(_TIMED[0], _TIMED[1] + 1)) if times else _CHECKED
        for _ in range(count):
            draw = partial(_case, spec, device, dtype, int(chance.integers(2**62)), place)
            label = case_label(sample) if times else ""
            yield declared_probe(spec, dtype, "timed calls" if times else "bench", draw, case=label)
        if spec.bench is not None:  # otherwise it is one of the samples, which have such probes
            yield from where_measured(spec, device, dtype, sample, chance)


def _cases(spec: OpSpec, device: Device, dtype: str, seed: int) -> list[tuple[int, Sample]]:
    """The samples that are measured, with their places among `_measured`: those of `bench`, else the largest."""
    drawn = list(enumerate(_measured(spec, device, dtype, seed)))
    if spec.bench is not None:
        return drawn
    taken = [(place, sample) for place, sample in drawn if spec.refusal(sample) is None]
    return sorted(taken, key=lambda one: _elements(one[1]))[-1:]


def _measured(spec: OpSpec, device: Device, dtype: str, seed: int) -> Iterator[Sample]:
    """The samples of `bench`; those of kind values where there is none."""
    if spec.bench is not None:
        yield from spec.draw_bench(seed, dtype, sizes_for(device))
    else:
        yield from spec.draw(seed, dtype, "values")


def _case(spec: OpSpec, device: Device, dtype: str, seed: int, place: int) -> Sample:
    return next(islice(_measured(spec, device, dtype, seed), place, None))


def by_size(plan: Schedule) -> Schedule:
    """The same calls, those of the smallest arrays first; for a plan without timed calls, whose samples are drawn."""
    sizes = [max(_elements(draw()) for draw in probe.draws) for probe in plan.probes]
    order = sorted(plan.order, key=lambda place: (sizes[place], place))
    return Schedule(plan.probes, tuple(order))


def timed_calls(plan: Schedule, shapes: Mapping[tuple[str, str], Sample]) -> Schedule:
    """The timed calls of `plan`; few of a case whose samples, one of which `shapes` has, are large: each takes long."""
    large = {key for key, sample in shapes.items() if _elements(sample) > LARGE}
    met: Counter[tuple[str, str]] = Counter()
    chosen = []
    for place in plan.order:
        probe = plan.probes[place]
        met[key := (probe.case, probe.dtype)] += 1
        if probe.case and (met[key] <= WARM_UP + _FEW_TIMED or key not in large):
            chosen.append(place)
    return Schedule(plan.probes, tuple(chosen))


#: Calls of a case of large arrays that our own candidates are timed by.
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
