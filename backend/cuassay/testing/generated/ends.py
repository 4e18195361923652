"""Calls with one array of integers or truth values at an end of its range, and ends that the reference refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.compare import REFUSED_ENDS
from cuassay.testing.generated.inputs import input_name
from cuassay.testing.generated.patterns import ends_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, is_permutation, is_sorted

__all__ = ["each_end", "note_refused_ends", "several_arrays", "with_input"]

Array = NDArray[Any]


def each_end(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """The call with each mask or integer array in turn filled with the least, then the largest number of its range.

    For a sorted index array, all but its ends are set to the first or the last number.
    """
    for place, array in several_arrays(sample):
        if array.dtype.kind in "iu" and is_sorted(array):
            for end, word in ((0, "first"), (-1, "last")) if array.ndim == 1 else ():
                inner = array.copy()
                inner[1:-1] = array[end]
                yield f"all of input {place} but its ends is the {word} one", with_input(sample, place, inner)
        elif array.size and array.dtype.kind in "biu" and not is_permutation(array):
            for end in _ends(sample.args[place], array):
                yield f"input {place} is {end} everywhere", with_input(sample, place, np.full_like(array, end))


def _ends(given: Any, array: Array) -> tuple[int, int]:
    """The least and largest number of the requested range or, without one, of the array itself."""
    if isinstance(given, HostArray) and array.dtype.kind in "iu":
        return ends_of(given)
    return int(array.min()), int(array.max())


def several_arrays(sample: Sample) -> list[tuple[int, Array]]:
    """The arrays among the arguments with their indices; empty if there is only one."""
    found = [(place, array) for place, array in enumerate(sample.host()[0]) if isinstance(array, np.ndarray)]
    return found if len(found) > 1 else []


def with_input(sample: Sample, place: int, array: Array) -> Sample:
    """The call with another array as argument number `place`."""
    given = sample.args[place]
    new = replace(given, values=array) if isinstance(given, HostArray) else HostArray(array)
    return replace(sample, args=(*sample.args[:place], new, *sample.args[place + 1 :]))


def note_refused_ends(spec: OpSpec, base: Sample, tried: Sequence[tuple[Sample, Exception | None]]) -> None:
    """Note for the summary which end of a declared range the reference refuses, from calls with one array at an end.

    Where it refuses both ends, it may refuse equal integers; then only an `IndexError` is noted.
    """
    noted = REFUSED_ENDS.get()
    if noted is None:
        return
    found = [(*_end_of(base, sample), error) for sample, error in tried]
    for place, which, number, error in found:
        others = [other for at, word, _, other in found if at == place and word != which]
        if error is not None and which and (isinstance(error, IndexError) or others == [None]):
            noted.append((f"{input_name(spec, place)} at {which}={number}", f"{type(error).__name__}: {error}"))


def _end_of(base: Sample, sample: Sample) -> tuple[int, str, int]:
    """The array that differs from `base`, its end (``low`` or ``high``; empty if it has no range) and the number."""
    place = next(at for at, (old, new) in enumerate(zip(base.args, sample.args, strict=True)) if new is not old)
    given, number = base.args[place], sample.args[place].values.flat[0]
    if not isinstance(given, HostArray) or given.span is None or given.dtype.kind not in "iu":
        return place, "", 0
    low, high = map(int, given.span)
    return place, "high" if number == high > low else "low" if number == low else "", int(number)
