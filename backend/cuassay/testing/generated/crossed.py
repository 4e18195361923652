"""Checks that combine the integers of one sample with the rest of another, and that try very many integers of a range.

A fault may need the labels of one sample and the option of another, or one day in a thousand. Only integers drawn from
a requested range are combined. Other integers, such as positions, may have to fit the sample's other arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.broken import breaking
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import compare_filled, is_safely_taken, on_sample, refusal_of, run_sample
from cuassay.testing.generated.extents import elements_of
from cuassay.testing.generated.patterns import ends_of, may_be_filled
from cuassay.testing.generated.selection import generator, options_key, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, is_permutation

__all__ = ["check_crossed", "check_many_integers"]

Array = NDArray[Any]

#: The most elements of a sample, the most samples, and how often each pair of samples is tried.
_MOST_ELEMENTS, _MOST_SAMPLES, _ROUNDS = 9000, 6, 3

#: The most integers of each array, and the seconds that the reference may take for them.
_MANY, _PATIENCE_S = 2**14, 0.2


def check_crossed(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Put the integers of another sample into this one, where they lie outside the range that this one asks for.

    A sample that has a list of arrays is also called with the options of each other sample.
    """
    if spec.op is not None or spec.is_its_own_reference:
        return
    several = [one for one in samples_of(spec, device, dtype, "values") if elements_of(one) <= _MOST_ELEMENTS]
    chance = generator()
    for sample, other in permutations(several[:_MOST_SAMPLES], 2):
        for crossed in _of_list(sample, other):
            with on_sample(crossed):
                if refusal_of(spec, crossed) is None and (error := breaking(spec, crossed)) is not None:
                    raise AssertionError(
                        f"the reference gives a result, and the function breaks: {type(error).__name__}: {error}"
                    ) from error
                if is_safely_taken(spec, crossed):
                    compare(spec, device, dtype, crossed, run_sample(spec, device, crossed))
        for crossed in _crossed(sample, other, chance):
            compare_filled(spec, device, dtype, sample, crossed)


def _of_list(sample: Sample, other: Sample) -> Iterator[Sample]:
    """The call with the other's options, if it has a list: an empty member may meet an option only there."""
    if (
        any(isinstance(given, list) for given in sample.args)
        and other.kwargs
        and options_key(sample) != options_key(other)
    ):
        kwargs = {**sample.kwargs, **other.kwargs}
        yield replace(sample, kwargs=kwargs, label=f"{sample.label}, with the options of: {other.label}")


def _crossed(sample: Sample, other: Sample, chance: np.random.Generator) -> Iterator[Sample]:
    if len(sample.args) != len(other.args):
        return
    found = other.host()[0]
    places = [
        place for place, mine in enumerate(sample.args) if _is_drawn(mine) and _has_other_integers(mine, found[place])
    ]
    if not places:
        return
    label = f"{sample.label}, with the integers of input {', '.join(map(str, places))} of: {other.label}"
    for _ in range(_ROUNDS):
        args = [
            _host_array(chance.choice(found[place].reshape(-1), given.shape), given)
            if place in places
            else _redrawn(given, chance)
            for place, given in enumerate(sample.args)
        ]
        yield replace(sample, args=tuple(args), label=label)


def _is_drawn(given: Any) -> bool:
    """Whether it holds unordered integers drawn from a requested range."""
    return may_be_filled(given) and given.span is not None and given.dtype.kind in "iu" and given.values.size > 1


def _has_other_integers(mine: HostArray, theirs: Any) -> bool:
    """Whether the other sample's array at this index has integers outside the range of this one."""
    if not isinstance(theirs, np.ndarray) or theirs.dtype != mine.dtype or not theirs.size or mine.span is None:
        return False
    return not is_permutation(theirs) and bool(theirs.min() < mine.span[0] or theirs.max() > mine.span[1])


def _redrawn(given: Any, chance: np.random.Generator) -> Any:
    return _host_array(_drawn(given, given.shape, chance), given) if _is_drawn(given) else given


def _drawn(given: HostArray, shape: tuple[int, ...], chance: np.random.Generator) -> Array:
    """Integers of the range that was asked for `given`, in 64 bits."""
    low, high = ends_of(given)
    return chance.integers(low, high, shape, dtype=np.uint64 if given.dtype == np.uint64 else np.int64, endpoint=True)


def _host_array(values: Array, given: HostArray) -> HostArray:
    return HostArray(np.ascontiguousarray(values).astype(given.dtype))


# ------------------------------------------------------------------------------------------------ very many


def check_many_integers(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try as many integers of the ranges as the reference can compute in a fifth of a second.

    This applies to functions whose arguments are all integer arrays of one shape. For a single array, every integer of
    the range is tried if they are few enough.
    """
    arrays: list[HostArray] = [one for one in sample.args if _is_drawn(one)]
    if not arrays or len(arrays) < len(sample.args):
        return
    if len({one.shape for one in arrays}) > 1 or not is_safely_taken(spec, sample):
        return
    # Take the fastest of three runs: a garbage collection or a first call would make the count far too small.
    each_s = min(spec.timed(replace(sample))[1] for _ in range(3)) / arrays[0].values.size
    count = min(_MANY, int(_PATIENCE_S / max(each_s, 1e-9)))
    if count <= arrays[0].values.size:
        return
    chance = generator()
    shape = (count,) if len(arrays[0].shape) < 2 else (count // arrays[0].shape[-1] + 1, *arrays[0].shape[1:])
    if int(np.prod(shape)) > 2 * _MANY:
        return
    args = []
    for one in arrays:
        values, (low, high) = _drawn(one, shape, chance), ends_of(one)
        if len(arrays) == 1 and high - low < values.size:
            every = low + np.arange(high - low + 1, dtype=values.dtype)
            values.reshape(-1)[chance.permutation(values.size)[: every.size]] = every
        args.append(_host_array(values, one))
    many = replace(sample, args=tuple(args), label=f"{sample.label}, very many of its integers")
    compare_filled(spec, device, dtype, sample, many)
