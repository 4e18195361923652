"""A check of benchmark samples: a speed is worthless if the function is wrong at the sizes that are measured."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.answers import one_on
from cuassay.testing.generated.execution import check, explained, overwrite, refusal_of, turned
from cuassay.testing.generated.extents import resized
from cuassay.testing.generated.selection import one, plainest, seed
from cuassay.testing.generated.sizes import check_larger
from cuassay.testing.opspec import OpSpec
from cuassay.testing.presence import sizes_for
from cuassay.testing.samples import BenchSamples, HostArray, Sample, each, normalized
from cuassay.testing.terms import arrays_of

if TYPE_CHECKING:
    from cuassay.benchmarking.cases import Case

__all__ = ["check_timed"]

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


def check_timed(spec: OpSpec, device: Device, dtype: Any, place: int, case: Case, result: Any) -> None:
    """Check the result of the last timed call, and a call with other numbers in the same arrays.

    This finds a function that is right where it is checked and wrong where it is timed, or that returns a kept result.
    """
    name = dtype_name(dtype)
    sample = next(islice(spec.draw_bench(seed(), name, sizes_for(device)), place, None))
    base = one(spec, device, dtype)
    if spec.op is not None or case.keywords or not _is_affordable(spec, base, sample):
        return
    with explained("wrong in the timed call"):
        check_larger(spec, device, dtype, sample, base, result=one_on(device, result))
    other = turned(sample)
    if any(isinstance(one, HostArray) and one.layout != "contiguous" for one in sample.args):
        return
    overwrite(device, case.arguments, other)
    with explained("wrong once the timed arrays hold other numbers: is a result kept?"):
        check_larger(spec, device, dtype, other, base, result=one_on(device, case.run()))


class _Samples(BenchSamples):
    """Makes samples in which arrays that are too large to compare take no memory."""

    def _values(self, shape: tuple[int, ...], dtype: np.dtype[Any], low: float, high: float) -> NDArray[Any]:
        if math.prod(shape) > _MOST_ELEMENTS:
            return np.broadcast_to(np.zeros((), dtype), shape)
        return super()._values(shape, dtype, low, high)


def _is_affordable(spec: OpSpec, base: Sample, sample: Sample) -> bool:
    """Whether the reference needs acceptable time and memory, extrapolated from a smaller call."""
    if _elements(sample) > _MOST_ELEMENTS:
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


def _elements(sample: Sample) -> int:
    return sum(math.prod(value.shape) for value in each(sample.args, sample.kwargs) if hasattr(value, "shape"))


def _times(spec: OpSpec, less: Sample, sample: Sample) -> float:
    """The factor by which `sample` is more work than `less`, in bytes or in flops."""
    before, after = spec.least_work(less), spec.least_work(sample)
    pairs = [(before.bytes, after.bytes), (before.flops, after.flops)]
    return max(now / max(1, then) for then, now in pairs)
