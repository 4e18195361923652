"""Several sets of numbers for the arrays of a benchmark, and the results of timed calls that are kept for comparison.

Without them each timed call has the same inputs, and a function that returns the result of its first call is right
in all of them. The numbers of a set are copied into the arrays of the call between two samples. The timed call does not
change: it has the same arrays at the same addresses, and each sample follows a call and a flush of the cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from cuassay import devices
from cuassay.core.device import Device
from cuassay.testing.answers import one_on
from cuassay.testing.generated.selection import seed
from cuassay.testing.opspec import OpSpec
from cuassay.testing.presence import sizes_for
from cuassay.testing.samples import HostArray, Sample, each
from cuassay.testing.terms import arrays_of

__all__ = ["DrawnResult", "DrawnResults", "InputSets", "bench_sample", "is_in_place"]

#: The number of sets, and the most bytes that their copies on the device take together.
_SETS, _MOST_BYTES_OF_SETS = 3, 2**26
#: The samples between two changes of the set, on average. A change takes a copy and a call that is not timed.
_SAMPLES = 8

#: How many results of timed calls are kept besides the last, and how many bytes each may have.
_DRAWN = 3
_MOST_BYTES = 2**26


class DrawnResult(NamedTuple):
    """The result of a timed call: the number of the call, the set of inputs that it had, and what it returned."""

    number: int
    inputs: int
    result: Any


class DrawnResults:
    """Keeps the last result of a call, and some of earlier ones drawn at random, so that they can be compared.

    Parameters
    ----------
    call : callable
        Makes the call and returns its result.
    sets : int
        The number of sets of inputs. If there are several, one result is drawn for each of them.

    Attributes
    ----------
    run : callable
        Makes the call and returns its result. It is a function without attributes, because its time is measured too.
    """

    def __init__(self, call: Callable[[], Any], sets: int = 1) -> None:
        self._chance = random.Random()  # noqa: S311  a function cannot know it, because nobody seeds it
        self._picks = [1] * max(_DRAWN, sets)
        self._kept: list[DrawnResult | None] = [None] * len(self._picks)
        self._sets, self._inputs, self._is_keeping = sets, 0, True
        self._calls = [0] * sets  # of each set, until the current one was given
        self._begun = 0  # the calls until then
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

        def aim(number: int) -> None:
            nonlocal pick
            pick = number

        self.run, self._read, self._aim = run, read, aim

    @property
    def last(self) -> DrawnResult:
        """The result of the last call."""
        result, count = self._read()
        return DrawnResult(count, self._inputs, result)

    @property
    def count(self) -> int:
        """The number of calls."""
        return self._read()[1]

    def drawn(self) -> list[DrawnResult]:
        """Return the kept results; of the calls with the same inputs, each is as likely as any other."""
        return sorted({one.number: one for one in self._kept if one is not None}.values())

    def take(self, inputs: int, copied: Callable[[Any], Any]) -> None:
        """Say that the calls from now on have another set of inputs.

        `copied` makes copies of what was kept since the last time: the result may be a view of an input, which gets
        other numbers now.
        """
        count = self.count
        self._kept = [
            one._replace(result=copied(one.result)) if one is not None and one.number > self._begun else one
            for one in self._kept
        ]
        self._calls[self._inputs] += count - self._begun
        self._inputs, self._begun = inputs, count
        if self._is_keeping:
            self._aim(self._next())

    def _next(self) -> int:
        """Return the number of the next call to keep, among all calls."""
        picks = self._picks[self._inputs :: self._sets]
        return self._begun - self._calls[self._inputs] + min(picks)

    def _keep(self, count: int, result: Any) -> int:
        """Keep the result of this call in each place that it was drawn for; return the number of the next such call.

        A place takes the n-th call with its inputs with probability 1 / n. Then no later call up to m is taken with
        probability n / m, so that the next one can be drawn at once, which takes no time in the calls between.
        """
        parts = result if isinstance(result, tuple | list) else (result,)
        if sum(getattr(one, "nbytes", 0) for one in parts) > _MOST_BYTES:
            self._kept, self._is_keeping = [], False
            return 0
        own = self._calls[self._inputs] + count - self._begun
        for place in range(self._inputs, len(self._picks), self._sets):
            if self._picks[place] == own:
                self._kept[place] = DrawnResult(count, self._inputs, result)
                self._picks[place] = int(own / (1.0 - self._chance.random())) + 1
        return self._next()


class InputSets:
    """Sets of numbers for the arrays of one benchmark, which take turns after one to fifteen samples.

    Three sets are drawn as the declaration says, from different seeds, if their copies on the device take no more than
    64 MiB together; two sets, if only these do. Their order and the samples between them are drawn at random. The first
    calls have the first set, and the first sample has another one.

    There is only one set, and nothing is copied, if

    - the function works in place, because it is measured on what its last call left;
    - an array is not contiguous, because numbers are copied into contiguous arrays only;
    - an array is a keyword argument, because results of calls with keywords are not compared;
    - the reference takes too long to compare a result, which the caller decides;
    - another seed gives the same numbers, or other shapes, dtypes or numbers that are not arrays.

    Calls with ``joined=False`` are not affected: no generated benchmark has them.

    Attributes
    ----------
    samples : list of Sample
        The sets. The first one is what the benchmark's arrays hold before.
    """

    def __init__(self, spec: OpSpec, device: Device, dtype: str, place: int, arrays: Sequence[Any]) -> None:
        first = bench_sample(spec, device, dtype, place, seed())
        self.samples = [first]
        self._arrays = list(each(arrays))
        self._staged: list[list[Any]] = []
        self._chance = random.Random()  # noqa: S311  a function cannot know it, because nobody seeds it
        self._left = 0  # samples until the next change
        nbytes = sum(array.nbytes for array in arrays_of(*first.host()))
        sets = min(_SETS, _MOST_BYTES_OF_SETS // max(1, nbytes))
        if sets < 2 or is_in_place(spec) or not _is_contiguous(first):
            return
        for other in range(1, sets):
            with suppress(Exception):  # a sample that cannot be drawn from this seed leaves fewer sets
                drawn = bench_sample(spec, device, dtype, place, seed() + other)
                if _is_same_call(first, drawn) and not any(_equal(drawn, one) for one in self.samples):
                    self.samples.append(replace(drawn, label=f"{first.label}, numbers from seed {seed() + other}"))
        if len(self.samples) > 1:
            self._device = device
            self._order = [0, *self._mixed(range(1, len(self.samples)))]
            self._staged = [[_on(value, device) for value in each(one.args)] for one in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def turn(self, results: DrawnResults) -> None:
        """Before some of the samples, give the arrays the numbers of another set, in the order of the current stream.

        Then the call is made once, so that a sample begins as all others do: after a call, not after a copy.
        """
        from cuassay import ops

        if self._left:
            self._left -= 1
            return
        self._left = self._chance.randrange(2 * _SAMPLES - 1)
        chosen = self._order.pop()
        if not self._order:
            self._order = self._mixed(range(len(self.samples)))
        results.take(chosen, self._copied)
        for array, staged in zip(self._arrays, self._staged[chosen], strict=True):
            if staged is not None:
                ops.copy(staged, out=array)
        results.run()

    def _mixed(self, places: range) -> list[int]:
        return self._chance.sample(places, len(places))

    def _copied(self, result: Any) -> Any:
        """Return a copy of a result of any type; a result that cannot be copied is returned itself."""
        from cuassay import ops

        with suppress(Exception):  # the comparison tells what is wrong with it
            one = one_on(self._device, result)
            return ops.copy(one) if devices.backend(self._device.kind).owns(type(one)) else np.array(one)
        return result


def is_in_place(spec: OpSpec) -> bool:
    """Whether the spec declares that its function writes to its inputs."""
    return "inputs_unchanged" in spec.without


def _is_same_call(first: Sample, other: Sample) -> bool:
    """Whether two samples differ only in the numbers of their arrays."""
    return [*map(_form, each(first.args))] == [*map(_form, each(other.args))] and first.kwargs == other.kwargs


def bench_sample(spec: OpSpec, device: Device, dtype: str, place: int, number: int) -> Sample:
    """The sample number `place` of `bench`, drawn from the seed `number`."""
    return next(islice(spec.draw_bench(number, dtype, sizes_for(device)), place, None))


def _form(value: Any) -> Any:
    """What must be equal in two calls of the same kind: all but the numbers of arrays."""
    if isinstance(value, HostArray | np.ndarray):
        return value.shape, value.dtype, getattr(value, "layout", "contiguous")
    return type(value), repr(value)


def _is_contiguous(sample: Sample) -> bool:
    return all(
        one.layout == "contiguous" if isinstance(one, HostArray) else one.flags.c_contiguous
        for one in each(sample.args)
        if isinstance(one, HostArray | np.ndarray)
    )


def _equal(first: Sample, other: Sample) -> bool:
    pairs = zip(arrays_of(*first.host()), arrays_of(*other.host()), strict=True)
    return all(one.tobytes() == two.tobytes() for one, two in pairs)


def _on(value: Any, device: Device) -> Any:
    """Return a new array on `device` that holds what an argument does; None if the argument is not an array."""
    if isinstance(value, np.ndarray):
        return devices.from_host(np.ascontiguousarray(value), device)
    return value.on(device) if isinstance(value, HostArray) else None
