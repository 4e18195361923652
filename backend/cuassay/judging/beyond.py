"""Probes beyond the declared samples, each of which finds some known cheats.

Such a probe fails a candidate only if the reference accepts its inputs and the declared implementation passes it on the
same device, so that no candidate is rejected for something that was not promised. Aspects that cannot be varied are
noted, and the verdict names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cuassay.arrays.dtypes import as_dtype, is_complex, is_float
from cuassay.core.device import Device
from cuassay.judging.arguments import note_options_not_given, other_arguments
from cuassay.judging.influence import (
    exchanged,
    influences,
    moved_everywhere,
    scaled,
    special_values,
    spikes,
    unwrapped,
)
from cuassay.judging.probes import LARGE, Draw, Probe, declared_probe, elements_of, probe_of_chosen, same
from cuassay.judging.results import Results
from cuassay.testing.generated.extents import resized
from cuassay.testing.samples import LAYOUTS, HostArray, Sample
from cuassay.testing.terms import arrays_of

__all__ = ["Notes", "beyond", "where_measured"]

#: The aspects that a candidate is not probed for, by name, and why.
Notes = MutableMapping[str, str]

#: The number of hidden shapes per dtype, and the most elements of a sample that may be enlarged.
_SHAPES, _MOST_ELEMENTS = 6, 2**18

#: The number of hidden shapes in which no extent is a declared one.
_NEW_SHAPES = 2

#: The parts of a large array in which numbers are moved one at a time; it is small, because each call takes long.
_FEW_PLACES = 2


def beyond(
    results: Results,
    device: Device,
    dtype: str,
    samples: Sequence[Sample],
    chance: np.random.Generator,
    notes: Notes,
) -> Iterator[Probe]:
    """Yield probes beyond the declared samples of kind values, `samples`, without those that `OpSpec.without` names."""
    spec = results.spec
    probes: list[Probe] = []
    if "sizes" in spec.without:
        notes["shapes"] = f"the declaration leaves them out: {spec.without['sizes']}"
    else:
        shapes = list(_shapes(results, samples, chance))
        probes += _values(results, dtype, "hidden shapes", shapes)
        if not shapes:
            notes["shapes"] = "the reference takes no other shape"
    if "layouts" not in spec.without:
        probes += _values(results, dtype, "layouts", _layouts(samples, chance))
    if "second_call" in spec.without:
        notes["options"] = f"the declaration leaves them out: {spec.without['second_call']}"
    else:
        probes += other_arguments(results, dtype, samples, chance, notes)
        note_options_not_given(spec, samples, notes)
    if not any(True for _ in spec.draw(0, dtype, "extremal")):
        notes["special values"] = "no sample is of kind extremal"
    probes += _numbers(results, dtype, max(samples, key=elements_of), chance)
    small = [one for one in samples if elements_of(one) <= LARGE]
    if small and _is_inexact(dtype):
        probes += influences(results, dtype, max(small, key=elements_of), chance)
    if _is_inexact(dtype) and len(small) < len(samples):
        largest = max(samples, key=elements_of)
        probes += influences(results, dtype, largest, chance, bases=(False,), places=_FEW_PLACES)
    yield from _if_promised(results, device, probes)


def where_measured(
    results: Results,
    device: Device,
    dtype: str,
    sample: Sample,
    chance: np.random.Generator,
    notes: Notes,
) -> Iterator[Probe]:
    """Yield probes of a measured shape: a shortcut may apply only to the numbers and options measured with it."""
    probes = list(_numbers(results, dtype, sample, chance))
    if _is_inexact(dtype) and any(True for _ in results.spec.draw(0, dtype, "extremal")):
        probes += _values(results, dtype, "extremal", [special_values(sample, chance)])
    if elements_of(sample) <= LARGE:
        if "second_call" not in results.spec.without:
            probes += other_arguments(results, dtype, [sample], chance, notes)
        if _is_inexact(dtype):
            probes += influences(results, dtype, sample, chance, bases=(False,))
    yield from _if_promised(results, device, probes)


def _numbers(results: Results, dtype: str, sample: Sample, chance: np.random.Generator) -> Iterator[Probe]:
    """Yield the sample with other numbers: spikes, all moved in turn, other ranges, an offset, integers exchanged."""
    chosen: dict[str, Iterable[Draw]] = {
        "spikes": [partial(same, spikes(sample, chance))] if _is_inexact(dtype) else [],
        "moved everywhere": (partial(unwrapped, results, sample, one) for one in moved_everywhere(sample, chance)),
        "other ranges": (partial(unwrapped, results, sample, one) for one in scaled(sample, chance)),
        "offset": (partial(same, one) for one in _offset(results, sample, chance)),
        "exchanged integers": (partial(same, one) for one in exchanged(sample, chance)),
    }
    for check, draws in chosen.items():
        yield from (probe_of_chosen(results, dtype, check, draw) for draw in draws)


def _offset(results: Results, sample: Sample, chance: np.random.Generator) -> Iterator[Sample]:
    """Yield the sample with about 10,000 added to one array without a range, for each such array of floats.

    A variance computed as the mean of squares less the square of the mean loses all digits there. Only one array is
    moved at a time, because a difference of two moved arrays loses digits in honest candidates too. Results that are
    integers are left out: the offset makes close numbers equal, and a sort may order these either way. So are large
    samples, for which each call takes long.
    """
    if elements_of(sample) > LARGE or any(spec.expected(sample).dtype.kind not in "fc" for spec in results.of(sample)):
        return
    for place, given in enumerate(sample.args):
        if isinstance(given, HostArray) and given.is_free and given.dtype in (np.float32, np.float64):
            moved = HostArray((given.values + chance.uniform(8_000, 12_000)).astype(given.dtype))
            args = (*sample.args[:place], moved, *sample.args[place + 1 :])
            yield replace(sample, args=args, label=f"{sample.label}, about 10,000 added to input {place}")


def _is_inexact(dtype: str) -> bool:
    return is_float(as_dtype(dtype)) or is_complex(as_dtype(dtype))


def _values(results: Results, dtype: str, check: str, samples: Iterable[Sample]) -> Iterator[Probe]:
    return (declared_probe(results, dtype, check, partial(same, sample)) for sample in samples)


def _if_promised(results: Results, device: Device, probes: Sequence[Probe]) -> Iterator[Probe]:
    return (replace(probe, promised=partial(_is_promised, results, device, probe)) for probe in probes)


def _is_promised(results: Results, device: Device, probe: Probe) -> bool:
    """Return whether the reference accepts a probe's samples and the declared implementation passes it on `device`."""
    samples = [draw() for draw in probe.draws]
    if not all(map(results.takes, samples)):
        return False
    try:
        outputs = [results.run(device, sample) for sample in samples]
    except Exception:  # noqa: BLE001  the implementation may reject them with any exception
        return False
    return probe.judge(samples, outputs, {}) is None


# ------------------------------------------------------------------------------------------------ shapes, layouts


def _shapes(results: Results, samples: Sequence[Sample], chance: np.random.Generator) -> Iterator[Sample]:
    """Yield samples in which no extent is a declared one, and samples with one extent that is longer or shorter."""
    small = [sample for sample in samples if elements_of(sample) <= _MOST_ELEMENTS]
    known = {extent for sample in samples for extent in _extents(sample)}
    new = [(sample, _all_other(sample, known, chance)) for sample in small]
    single = [
        (sample, {extent: extent + step})
        for sample in small
        for extent in _extents(sample)
        for step in (-1, 1, int(chance.integers(2, 40)))
    ]
    for choices, most in ((new, _NEW_SHAPES), (single, _SHAPES)):
        found = 0
        for place in chance.permutation(len(choices)):
            sample, extents = choices[int(place)]
            other = resized(sample, extents)
            if found < most and extents and results.takes(other):
                found += 1
                yield replace(other, label=other.label.replace("resized to", "another shape:"))


def _extents(sample: Sample) -> list[int]:
    return sorted({extent for array in arrays_of(*sample.host()) for extent in array.shape if extent > 1})


def _all_other(sample: Sample, known: set[int], chance: np.random.Generator) -> dict[int, int]:
    """Return, for each extent of the sample, another one near it that no sample has."""
    found: dict[int, int] = {}
    for extent in _extents(sample):
        near = [one for one in range(max(2, extent - 3), extent + 12) if one not in known and one not in found.values()]
        if near:
            found[extent] = int(chance.choice(near))
    return found


def _layouts(samples: Sequence[Sample], chance: np.random.Generator) -> Iterator[Sample]:
    names = [name for name in LAYOUTS if name != "contiguous"]
    for place in chance.permutation(len(samples))[:3]:
        sample = samples[int(place)]
        if elements_of(sample) <= _MOST_ELEMENTS:
            yield sample.laid_out(str(chance.choice(names)))
