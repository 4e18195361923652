"""What a candidate is asked: declared samples, and probes that find known cheats, each with how it is judged.

A probe is one or several calls that are judged together. One beyond the declared samples fails a candidate only if the
declared implementation passes it on the same device: what nobody promised refuses nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, epsilon, is_complex, is_float
from cuassay.core.device import Device
from cuassay.judging.subject import differs
from cuassay.judging.verdict import Evidence
from cuassay.testing.compare import collecting
from cuassay.testing.generated.comparison import compare, result_dtype
from cuassay.testing.generated.execution import run_sample
from cuassay.testing.generated.extents import resized
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import LAYOUTS, HostArray, Sample, is_sorted
from cuassay.testing.terms import arrays_of

__all__ = ["LARGE", "Finding", "Probe", "beyond", "declared_probe", "equal_runs", "judged_values", "where_measured"]

_HOST = Device("cpu")

#: How far a spike is, in ranges of an input; less in 16 bits, where squares must stay in range.
_SPIKE, _SMALL_SPIKE = 2.0**10, 2.0**4

#: Parts of a flattened array, in each of which one number is moved; of one so large that each call takes long fewer.
_PLACES, _FEW_PLACES = 8, 2

#: Spikes in an array, and in a large one: of what leaves out a fourteenth of it, one in a hundred escapes.
_SPIKES, _MANY_SPIKES = 3, 64

#: Part of a result by which a moved number must change the reference, to be seen.
_SEEN = 2.0**-6

#: Hidden shapes a dtype, and elements up to which a sample is made longer.
_SHAPES, _MOST_ELEMENTS = 6, 2**18

#: Elements of a large sample: numbers of smaller ones are moved one at a time, in every part and among zeros.
LARGE = 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """A probe that failed: the check, the inputs, what was found, and the cheats that it speaks of."""

    check: str
    sample: str
    text: str
    cheat: tuple[Evidence, ...] = ()


Draw = Callable[[], Sample]
Judge = Callable[[Sequence[Sample], Sequence[NDArray[Any]], dict[str, float]], Finding | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """Calls that are judged together.

    Attributes
    ----------
    check : str
        What is probed.
    dtype : str
        In which dtype.
    draws : tuple of callable
        One for each call: draws its sample, when its turn comes.
    judge : callable
        From the samples and the outputs to what was found; leaves ``headroom`` in the mapping that it is given.
    case : str
        The label of the case whose time is taken; empty where none is.
    optional : bool
        A timed call, of which only some are judged.
    promised : callable, optional
        Tells whether the declared implementation passes it; asked where a candidate does not. None: it is declared.
    """

    check: str
    dtype: str
    draws: tuple[Draw, ...]
    judge: Judge
    case: str = ""
    optional: bool = field(default=False, kw_only=True)
    promised: Callable[[], bool] | None = field(default=None, kw_only=True)


def declared_probe(spec: OpSpec, dtype: str, check: str, draw: Draw, *, case: str = "") -> Probe:
    """One call, compared with the reference within the declared tolerance."""
    return Probe(check, dtype, (draw,), partial(judged_values, spec, dtype, check), case, optional=bool(case))


def judged_values(
    spec: OpSpec,
    dtype: str,
    check: str,
    samples: Sequence[Sample],
    outputs: Sequence[NDArray[Any]],
    told: dict[str, float],
) -> Finding | None:
    """What is wrong with the values, dtype or shape of the outputs."""
    for sample, output in zip(samples, outputs, strict=True):
        found: dict[str, Any] = {}
        try:
            with collecting(found), np.errstate(all="ignore"):
                compare(spec, _HOST, as_dtype(dtype), sample, output)
        except AssertionError as error:
            return Finding(check, sample.label, str(error))
        finally:
            told["headroom"] = max(told.get("headroom", 0.0), float(found.get("headroom", 0.0)))
    return None


def equal_runs(spec: OpSpec, dtype: str, sample: Sample) -> Probe:
    """Three calls with the same numbers give the same bits."""

    def judge(samples: Sequence[Sample], outputs: Sequence[NDArray[Any]], told: dict[str, float]) -> Finding | None:
        first, *others = outputs
        if all(one.shape == first.shape and one.dtype == first.dtype and not differs(one, first) for one in others):
            return judged_values(spec, dtype, "equal runs", samples[:1], outputs[:1], told)
        seen = Evidence(id="C16", certainty="indicated", evidence="equal calls gave different bits")
        return Finding("equal runs", sample.label, "three calls with the same inputs differ in their bits", (seen,))

    return Probe("equal runs", dtype, (lambda: sample,) * 3, judge)


def beyond(
    spec: OpSpec, device: Device, dtype: str, samples: Sequence[Sample], chance: np.random.Generator
) -> Iterator[Probe]:
    """Probes beyond the declared samples, `samples` of kind values; those that `OpSpec.without` leaves out are not."""
    probes: list[Probe] = []
    if "sizes" not in spec.without:
        probes += [_values(spec, dtype, "hidden shapes", one) for one in _shapes(spec, samples, chance)]
    if "layouts" not in spec.without:
        probes += [_values(spec, dtype, "layouts", one) for one in _layouts(samples, chance)]
    chosen = max(samples, key=_elements)
    if is_float(as_dtype(dtype)) or is_complex(as_dtype(dtype)):
        probes += [_values(spec, dtype, "spikes", one) for one in _spikes(chosen, chance)]
        if small := [one for one in samples if _elements(one) <= LARGE]:
            probes += influences(spec, dtype, max(small, key=_elements), chance)
        if _elements(chosen) > LARGE:
            probes += influences(spec, dtype, chosen, chance, bases=(False,), places=_FEW_PLACES)
    yield from _if_promised(spec, device, probes)


def where_measured(
    spec: OpSpec, device: Device, dtype: str, sample: Sample, chance: np.random.Generator
) -> Iterator[Probe]:
    """Probes of the shapes that are measured: a shortcut may hold only for the numbers that are drawn there."""
    if not (is_float(as_dtype(dtype)) or is_complex(as_dtype(dtype))):
        return
    probes = [_values(spec, dtype, "spikes", one) for one in _spikes(sample, chance)]
    if any(True for _ in spec.draw(0, dtype, "extremal")):
        probes.append(_values(spec, dtype, "extremal", _special(sample, chance)))
    if _elements(sample) <= LARGE:
        probes += influences(spec, dtype, sample, chance, bases=(False,))
    yield from _if_promised(spec, device, probes)


def _if_promised(spec: OpSpec, device: Device, probes: Sequence[Probe]) -> Iterator[Probe]:
    return (replace(probe, promised=partial(_is_promised, spec, device, probe)) for probe in probes)


def _values(spec: OpSpec, dtype: str, check: str, sample: Sample) -> Probe:
    return declared_probe(spec, dtype, check, lambda: sample)


def _is_promised(spec: OpSpec, device: Device, probe: Probe) -> bool:
    """Whether the reference takes the samples of a probe, and the declared implementation passes it on `device`."""
    samples = [draw() for draw in probe.draws]
    if not all(_is_taken(spec, sample) for sample in samples):
        return False
    try:
        outputs = [_on_host(run_sample(spec, device, sample)) for sample in samples]
    except Exception:  # noqa: BLE001  it refuses them in its own way
        return False
    return probe.judge(samples, outputs, {}) is None


def _is_taken(spec: OpSpec, sample: Sample) -> bool:
    """Whether the reference takes inputs that nobody declared, and so does the schema of an op."""
    try:
        spec.expected(sample)
        result_dtype(spec, sample)
    except Exception:  # noqa: BLE001  libraries refuse by errors of their own
        return False
    return True


def _on_host(result: Any) -> NDArray[Any]:
    return np.asarray(devices.to_host(result) if hasattr(result, "shape") else result)


# ------------------------------------------------------------------------------------------------ shapes, layouts


def _shapes(spec: OpSpec, samples: Sequence[Sample], chance: np.random.Generator) -> Iterator[Sample]:
    """Some samples with one extent one longer or shorter, or a random length."""
    choices = [
        (sample, extent, extent + step)
        for sample in samples
        for extent in {extent for array in arrays_of(*sample.host()) for extent in array.shape if extent > 1}
        for step in (-1, 1, int(chance.integers(2, 40)))
    ]
    found = 0
    for place in chance.permutation(len(choices)):
        sample, extent, length = choices[int(place)]
        if found < _SHAPES and _elements(sample) <= _MOST_ELEMENTS:
            other = resized(sample, {extent: length})
            if _is_taken(spec, other):
                found += 1
                yield replace(other, label=other.label.replace("made larger", "another shape"))


def _layouts(samples: Sequence[Sample], chance: np.random.Generator) -> Iterator[Sample]:
    names = [name for name in LAYOUTS if name != "contiguous"]
    for place in chance.permutation(len(samples))[:3]:
        sample = samples[int(place)]
        if _elements(sample) <= _MOST_ELEMENTS:
            yield sample.laid_out(str(chance.choice(names)))


def _elements(sample: Sample) -> int:
    return sum(array.size for array in arrays_of(*sample.host()))


# ------------------------------------------------------------------------------------------------ spikes, influence


def _spikes(sample: Sample, chance: np.random.Generator) -> Iterator[Sample]:
    """Some numbers in random places much larger than all others."""

    def put(value: Any) -> Any:
        if not _is_movable(value):
            return value
        flat = value.copy().reshape(-1)
        count = _SPIKES if flat.size <= LARGE else _MANY_SPIKES
        places = chance.integers(0, flat.size, min(count, flat.size))
        flat[places] = (_far(value) * chance.choice((-1.0, 1.0), places.size)).astype(value.dtype)
        return HostArray(flat.reshape(value.shape))

    args, kwargs = sample.changed(put)
    yield replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, spikes")


def _special(sample: Sample, chance: np.random.Generator) -> Sample:
    """NaN and both infinities in random places."""

    def put(value: Any) -> Any:
        if not _is_movable(value) or value.size < 3:
            return value
        flat = value.copy().reshape(-1)
        with np.errstate(all="ignore"):  # formats without infinities have NaN there
            flat[chance.permutation(flat.size)[:3]] = np.array([np.nan, np.inf, -np.inf]).astype(value.dtype)
        return HostArray(flat.reshape(value.shape))

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, special values")


def influences(
    spec: OpSpec,
    dtype: str,
    sample: Sample,
    chance: np.random.Generator,
    *,
    bases: Sequence[bool] = (True, False),
    places: int = _PLACES,
) -> Iterator[Probe]:
    """For each array of floats: numbers moved a lot, among zeros and among others; the output must follow."""
    arrays = arrays_of(*sample.host())
    for place, array in enumerate(arrays):
        if _is_movable(array):
            bounds = np.unique(np.linspace(0, array.size, places + 1).astype(np.int64))
            spots = [int(chance.integers(low, high)) for low, high in pairwise(bounds)]
            for among_zeros in bases:
                base = _with(sample, place, array * 0) if among_zeros else sample
                moved = [_moved(base, place, spot) for spot in spots]
                draws = tuple(partial(_same, one) for one in (base, *moved))
                yield Probe("influence", dtype, draws, partial(_judged_influence, spec, dtype, among_zeros))


def _same(sample: Sample) -> Sample:
    return sample


def _with(sample: Sample, place: int, values: NDArray[Any]) -> Sample:
    """The sample with other numbers in the array at `place` among its arrays."""
    count = iter(range(len(arrays_of(*sample.host()))))

    def put(value: Any) -> Any:
        return HostArray(values) if isinstance(value, np.ndarray) and next(count) == place else value

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs)


def _moved(sample: Sample, place: int, spot: int) -> Sample:
    array = arrays_of(*sample.host())[place]
    flat = array.copy().reshape(-1)
    flat[spot] = np.asarray(_far(array)).astype(array.dtype)
    return replace(_with(sample, place, flat.reshape(array.shape)), label=f"{sample.label}, number {spot} moved")


def _is_movable(value: Any) -> bool:
    """An array of floats in no order: sorted ones, such as edges, must stay so."""
    is_number = isinstance(value, np.ndarray) and value.size > 0 and (is_float(value.dtype) or is_complex(value.dtype))
    return bool(is_number and not is_sorted(value)) or bool(is_number and not value.any())


def _far(array: NDArray[Any]) -> float:
    most = _SPIKE if epsilon(array.dtype) < 2.0**-12 else _SMALL_SPIKE
    finite = np.abs(np.nan_to_num(array, posinf=0.0, neginf=0.0).astype(np.complex128))
    return most * (float(np.max(finite, initial=0.0)) or 1.0)


def _judged_influence(
    spec: OpSpec,
    dtype: str,
    among_zeros: bool,
    samples: Sequence[Sample],
    outputs: Sequence[NDArray[Any]],
    told: dict[str, float],
) -> Finding | None:
    """Where a moved number changes the reference visibly, it changes the output by a quarter of that at least."""
    base, right = _wide(outputs[0]), _wide(spec.expected(samples[0]))
    if base.shape != right.shape:
        return judged_values(spec, dtype, "influence", samples[:1], outputs[:1], told)
    for sample, output in zip(samples[1:], outputs[1:], strict=True):
        want, got = _wide(spec.expected(sample)), _wide(output)
        if not got.shape == want.shape == base.shape:
            return judged_values(spec, dtype, "influence", (sample,), (output,), told)
        with np.errstate(all="ignore"):
            change = np.abs(want - right)
            far = np.isfinite(change) & (change > _SEEN * np.maximum(np.abs(want), np.abs(right)))
            ignored = far & ((np.abs(got - base) < change / 4) if among_zeros else (got == base))
        if ignored.any():
            return _ignored(sample, ignored, want, right, got)
    return None


def _ignored(sample: Sample, ignored: NDArray[Any], want: Any, right: Any, got: Any) -> Finding:
    place = tuple(int(at) for at in np.argwhere(ignored)[0])
    text = (
        f"a number has no part in the result: once it is moved, the reference goes from {right[place]:.6g} to "
        f"{want[place]:.6g} at {place}, and the output to {got[place]:.6g}"
    )
    seen = Evidence(id="C5", certainty="indicated", evidence="an input number that counts was not used")
    return Finding("influence", sample.label, text, (seen,))


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array).astype(np.complex128 if np.iscomplexobj(array) else np.float64)
