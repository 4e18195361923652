"""A check of benchmark samples: a speed is worthless if the function is wrong at the sizes that are measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.answers import one_on
from cuassay.testing.generated.comparison import on_host
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

__all__ = ["DrawnResults", "check_timed"]

#: A benchmark's sample is compared up to this many input elements, and seconds of the reference on the host.
_MOST_ELEMENTS = 2**24
_PATIENCE_S = 2.0
#: Elements of the smaller call from which that time is extrapolated: enough for a loop over them to show.
_FEW_ELEMENTS = 2**14

#: How many results of timed calls are kept besides the last, and how many bytes each may have.
_DRAWN = 3
_MOST_BYTES = 2**26


@check(lambda spec: spec.bench is not None and spec.op is None)
def check_bench(spec: OpSpec, device: Device) -> None:
    """The samples of `bench` agree with the reference; one for which it needs over two seconds or so is left out."""
    dtype = plainest(spec, device)
    base = one(spec, device, dtype)
    make = _Samples(seed(), dtype_name(dtype), spec.name)
    for sample in normalized(spec.bench(make, sizes_for(device)) if spec.bench is not None else ()):
        if _is_affordable(spec, base, sample):
            check_larger(spec, device, dtype, sample, base)


def check_timed(spec: OpSpec, device: Device, dtype: Any, place: int, case: Case, results: DrawnResults) -> None:
    """Check results of timed calls, the last and some drawn at random, and a call with other numbers in their arrays.

    This finds a function that is right where it is checked and wrong where it is timed, or that returns a kept result.
    """
    name = dtype_name(dtype)
    sample = next(islice(spec.draw_bench(seed(), name, sizes_for(device)), place, None))
    base = one(spec, device, dtype)
    if spec.op is not None or case.keywords or not _is_affordable(spec, base, sample):
        return
    with explained("wrong in the timed call"):
        check_larger(spec, device, dtype, sample, base, result=one_on(device, results.last))
    last = on_host(one_on(device, results.last)).tobytes()
    for number, result in results.drawn():
        one_result = one_on(device, result)
        if on_host(one_result).tobytes() != last:
            with explained(f"wrong in call {number:,} of {results.count:,} of the benchmark, but not in the last one"):
                check_larger(spec, device, dtype, sample, base, result=one_result)
    other = turned(sample)
    if any(isinstance(one, HostArray) and one.layout != "contiguous" for one in sample.args):
        return
    overwrite(device, case.arguments, other)
    with explained("wrong once the timed arrays hold other numbers: is a result kept?"):
        check_larger(spec, device, dtype, other, base, result=one_on(device, case.run()))


class DrawnResults:
    """Keeps the last result of a call, and some of earlier ones drawn at random, so that they can be compared.

    Attributes
    ----------
    run : callable
        Makes the call and returns its result. It is a function without attributes, because its time is measured too.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._chance = random.Random()  # noqa: S311  a function cannot know it, because nobody seeds it
        self._picks = [1] * _DRAWN
        self._kept: list[tuple[int, Any]] = [(0, None)] * _DRAWN
        last: Any = None
        count, pick, keep = 0, 1, self._keep

        def run() -> Any:
            nonlocal last, count, pick
            last = call()
            count += 1
            if count == pick:
                pick = keep(count, last)
            return last

        def read() -> tuple[Any, int]:
            return last, count

        self.run, self._read = run, read

    @property
    def last(self) -> Any:
        """The result of the last call."""
        return self._read()[0]

    @property
    def count(self) -> int:
        """The number of calls."""
        return self._read()[1]

    def drawn(self) -> list[tuple[int, Any]]:
        """Return the kept results with the numbers of their calls; each call is as likely as any other."""
        return sorted({number: result for number, result in self._kept if number}.items())

    def _keep(self, count: int, result: Any) -> int:
        """Keep the result of this call in each place that it was drawn for; return the number of the next such call.

        A place takes call n with probability 1 / n. Then no later call up to m is taken with probability n / m, so that
        the next one can be drawn at once, which takes no time in the calls between.
        """
        parts = result if isinstance(result, tuple | list) else (result,)
        if sum(getattr(one, "nbytes", 0) for one in parts) > _MOST_BYTES:
            self._kept = []
            return 0
        for place, pick in enumerate(self._picks):
            if pick == count:
                self._kept[place] = count, result
                self._picks[place] = int(count / (1.0 - self._chance.random())) + 1
        return min(self._picks)


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
