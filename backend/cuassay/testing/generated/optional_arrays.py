"""Calls with several optional arrays at once, such as two kinds of weights, of which each sample gives one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.execution import is_safely_taken
from cuassay.testing.generated.extents import elements_of
from cuassay.testing.generated.inputs import parameters_of
from cuassay.testing.generated.options import MOST_OF_OPTIONS, runs
from cuassay.testing.generated.selection import samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample

__all__ = ["with_several_optional_arrays"]


def with_several_optional_arrays(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """Ordinary samples with a further array, for a parameter whose default is None and which another sample gives.

    Only pairs of parameters that no sample gives together are tried. The array is that of the other sample, repeated or
    cut to the extents of this one.
    """
    if spec.is_its_own_reference or not (optional := _optional(spec)):
        return
    several = [one for one in samples_of(spec, device, dtype, "values") if elements_of(one) <= MOST_OF_OPTIONS]
    given = [_given(spec, sample) for sample in several]
    for one, other in combinations(optional, 2):
        if any(_has(call, one) and _has(call, other) for call in given):
            continue
        mixed = _mixed(spec, several, given, one, other)
        if mixed is not None and is_safely_taken(spec, mixed) and runs(spec, device, mixed):
            yield mixed


def _optional(spec: OpSpec) -> list[str]:
    """The parameters of the function whose default is None."""
    return [one.name for one in parameters_of(spec.fn)[1:] if one.default is None]


def _given(spec: OpSpec, sample: Sample) -> dict[str, Any]:
    """The arguments of a call by the names of their parameters; of any number of arrays, only the first."""
    return {**dict(zip(_by_position(spec), sample.args, strict=False)), **sample.kwargs}


def _by_position(spec: OpSpec) -> list[str]:
    """The parameters that take positional arguments, without the array module."""
    return [one.name for one in parameters_of(spec.fn)[1:] if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)]


def _has(call: Mapping[str, Any], name: str) -> bool:
    return isinstance(call.get(name), HostArray)


def _mixed(
    spec: OpSpec, several: Sequence[Sample], given: Sequence[dict[str, Any]], kept: str, added: str
) -> Sample | None:
    """A call that gives the array `kept`, with the array `added` of another call; None if there are no such calls."""
    base = next((place for place, call in enumerate(given) if _has(call, kept)), None)
    source = next((call for call in given if _has(call, added)), None)
    first = parameters_of(spec.fn)[1].name
    if base is None or source is None or not (_has(given[base], first) and _has(source, first)):
        return None
    array, sample = _fitted(source[added], source[first].shape, given[base][first].shape), several[base]
    label = f"{sample.label}, with {added} of another sample"
    places = _by_position(spec)[: len(sample.args)]
    if added not in places:
        return replace(sample, kwargs={**sample.kwargs, added: array}, label=label)
    place = places.index(added)  # the call gives None there
    return replace(sample, args=(*sample.args[:place], array, *sample.args[place + 1 :]), label=label)


def _fitted(array: HostArray, before: Sequence[int], after: Sequence[int]) -> HostArray:
    """The array with each extent that is one of `before` replaced by the one of `after` at the same place from the end.

    For example weights of 15 observations become weights of 18.
    """
    from_the_end = list(zip(reversed(before), reversed(after), strict=False))
    extents = dict(reversed(from_the_end))  # of equal extents the last one counts
    shape = tuple(extents.get(extent, extent) for extent in array.shape)
    return replace(array, values=np.resize(array.values, shape))
