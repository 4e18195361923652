"""A check of benchmark samples: a speed is worthless if the function is wrong at the sizes that are measured."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core.device import Device
from cuassay.testing.answers import one_on
from cuassay.testing.generated.comparison import on_host
from cuassay.testing.generated.execution import check, explained, overwrite, refusal_of, turned
from cuassay.testing.generated.extents import elements_of, resized
from cuassay.testing.generated.input_sets import DrawnResults, InputSets, bench_sample, is_in_place
from cuassay.testing.generated.selection import one, plainest, seed
from cuassay.testing.generated.sizes import check_larger
from cuassay.testing.opspec import OpSpec
from cuassay.testing.presence import sizes_for
from cuassay.testing.samples import BenchSamples, HostArray, Sample, normalized
from cuassay.testing.terms import arrays_of

if TYPE_CHECKING:
    from cuassay.benchmarking.cases import Case

__all__ = ["check_timed", "prepared_sets"]

#: A benchmark's sample is compared up to this many input elements, and seconds of the reference on the host.
_MOST_ELEMENTS = 2**24
_PATIENCE_S = 2.0
#: Elements of the smaller call from which that time is extrapolated: enough for a loop over them to show.
_FEW_ELEMENTS = 2**14


@check(lambda spec: spec.bench is not None and spec.op is None)
def check_bench(spec: OpSpec, device: Device) -> None:
    """The samples of `bench` agree with the reference; one for which it needs over two seconds or so is left out."""
    dtype = plainest(spec, device)
    base = one(spec, device, dtype)
    make = _Samples(seed(), dtype_name(dtype), spec.name)
    for sample in normalized(spec.bench(make, sizes_for(device)) if spec.bench is not None else ()):
        if _is_affordable(spec, base, sample):
            check_larger(spec, device, dtype, sample, base)


def prepared_sets(spec: OpSpec, case: Case, place: int) -> InputSets | None:
    """The sets of inputs for the timed calls of a benchmark; None if there is only one, or no result is compared."""
    if spec.op is not None or case.keywords or is_in_place(spec):
        return None
    sample = bench_sample(spec, case.device, case.dtype, place, seed())
    if not _is_affordable(spec, one(spec, case.device, as_dtype(case.dtype)), sample):
        return None
    sets = InputSets(spec, case.device, case.dtype, place, case.arguments)
    return sets if len(sets) > 1 else None


def check_timed(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    place: int,
    case: Case,
    results: DrawnResults,
    sets: InputSets | None = None,
) -> None:
    """Check results of timed calls, the last and some drawn at random, and a call with other numbers in their arrays.

    This finds a function that is right where it is checked and wrong where it is timed, or that returns a kept result.
    Timed results of a function that works in place are not compared, because each call began with what the one before
    it had left. `sets` are the inputs that the timed calls had in turn.
    """
    sample = bench_sample(spec, device, dtype_name(dtype), place, seed())
    base = one(spec, device, dtype)
    if spec.op is not None or case.keywords or not _is_affordable(spec, base, sample):
        return
    if not is_in_place(spec):
        _check_results(spec, device, dtype, base, results, [sample] if sets is None else sets.samples)
    other = turned(sample)
    if any(isinstance(one, HostArray) and one.layout != "contiguous" for one in sample.args):
        return
    overwrite(device, case.arguments, other)
    with explained("wrong once the timed arrays hold other numbers: is a result kept?"):
        check_larger(spec, device, dtype, other, base, result=one_on(device, case.run()))


def _check_results(
    spec: OpSpec, device: Device, dtype: Any, base: Sample, results: DrawnResults, samples: Sequence[Sample]
) -> None:
    """Compare the last result of the timed calls and the drawn ones, each with the reference for its own inputs."""
    last = results.last
    found = {number: (inputs, one_on(device, result)) for number, inputs, result in (last, *results.drawn())}
    held = {number: (inputs, _digest(result)) for number, (inputs, result) in found.items()}
    for number in sorted(found, key=lambda number: (number != last.number, number)):
        inputs, result = found[number]
        if number != last.number and held[number] == held[last.number]:
            continue
        same = [call for call, one in held.items() if one[1] == held[number][1] and one[0] != inputs]
        sentence = "wrong in the timed call"
        if same:
            sentence = (
                f"wrong in call {number:,} of {last.number:,} of the benchmark: its result is that of call "
                f"{min(same):,}, which had other inputs: is a result kept?"
            )
        elif number != last.number:
            sentence = f"wrong in call {number:,} of {last.number:,} of the benchmark, but not in the last one"
        with explained(sentence):
            check_larger(spec, device, dtype, samples[inputs], base, result=result)


def _digest(result: Any) -> bytes:
    return hashlib.blake2b(on_host(result).tobytes()).digest()


class _Samples(BenchSamples):
    """Makes samples in which arrays that are too large to compare take no memory."""

    def _values(self, shape: tuple[int, ...], dtype: np.dtype[Any], low: float, high: float) -> NDArray[Any]:
        if math.prod(shape) > _MOST_ELEMENTS:
            return np.broadcast_to(np.zeros((), dtype), shape)
        return super()._values(shape, dtype, low, high)


def _is_affordable(spec: OpSpec, base: Sample, sample: Sample) -> bool:
    """Whether the reference needs acceptable time and memory, extrapolated from a smaller call."""
    if elements_of(sample) > _MOST_ELEMENTS:
        return False
    less = _shrunk(sample)
    less = base if refusal_of(spec, less) is not None else less
    return spec.timed(less)[1] * _times(spec, less, sample) <= _PATIENCE_S


def _shrunk(sample: Sample) -> Sample:
    """The sample with its longest extents halved until it has few elements."""
    extents = {extent: extent for array in arrays_of(*sample.host()) for extent in array.shape}
    shapes = [array.shape for array in arrays_of(*sample.host())]
    while sum(math.prod(extents[extent] for extent in shape) for shape in shapes) > _FEW_ELEMENTS:
        longest = max(extents, key=lambda extent: extents[extent])
        extents[longest] = -(-extents[longest] // 2)
    return resized(sample, extents)


def _times(spec: OpSpec, less: Sample, sample: Sample) -> float:
    """The factor by which `sample` is more work than `less`, in bytes or in flops."""
    before, after = spec.least_work(less), spec.least_work(sample)
    pairs = [(before.bytes, after.bytes), (before.flops, after.flops)]
    return max(now / max(1, then) for then, now in pairs)
