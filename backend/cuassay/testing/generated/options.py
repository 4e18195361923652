"""Choose options for a call: those of other samples, alone and combined, and values near them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any, TypeGuard

import numpy as np

from cuassay.core.device import Device
from cuassay.errors import RaceError
from cuassay.testing.generated.execution import is_safely_taken, refusal_of, run_sample
from cuassay.testing.generated.extents import elements_of, longest_axis, resized
from cuassay.testing.generated.inputs import parameters_of
from cuassay.testing.generated.selection import axes_of, by_options, generator, options_key, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, each
from cuassay.testing.terms import arrays_of

__all__ = [
    "MOST_OF_OPTIONS",
    "check_axis_beyond",
    "is_number",
    "is_plain",
    "keeps_bounds",
    "names_axis",
    "options_of",
    "runs",
    "with_each_axis",
    "with_mixed_options",
    "with_near_options",
    "with_one_other_option",
    "with_options_of",
    "with_other_options",
]

#: The most elements of a call with other options.
MOST_OF_OPTIONS = 2048


def _are_plain(options: Mapping[str, Any]) -> bool:
    return all(map(is_plain, options.values()))


def is_plain(value: Any) -> bool:
    """Whether the value is a number, a string, None, or a tuple of these."""
    return all(map(is_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str | None)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether the value is a real number of Python or NumPy; truth values are not numbers here."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def names_axis(name: str) -> bool:
    """Whether an option of this name selects axes, so that its number is not a size."""
    return any(word in name for word in ("axis", "axes", "dim"))


def _is_axes(name: str, value: Any) -> bool:
    """Whether an option is a tuple of axes, judged by its name."""
    return (
        name in ("axis", "axes", "dim", "dims") and isinstance(value, tuple) and all(type(one) is int for one in value)
    )


def with_other_options(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """Ordinary samples with the options of other samples, if these are plain values that the function accepts."""
    several = by_options(spec, device, dtype, most=MOST_OF_OPTIONS)
    for sample, other in permutations(several, 2):
        if _are_plain(sample.kwargs) and _are_plain(other.kwargs):
            swapped = replace(sample, kwargs=other.kwargs, label=f"{sample.label}, options {dict(other.kwargs)}")
            if keeps_bounds(spec, several, swapped) and is_safely_taken(spec, swapped):
                yield from (sample, swapped)


#: An integer option below this is also quadrupled, because its square may then exceed the range of a small integer.
_MOST_TIMES_FOUR = 64

#: Factors for a float option. A cache key that rounds to an integer may confuse one of them with the original.
_NEAR = (0.9, 0.7)


def with_near_options(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """Ordinary samples with one numeric option changed, if function and reference accept it.

    A float becomes a little smaller. An integer becomes larger by one, and four times as large. A float or a seed also
    becomes 0, which code may mistake for an option that is not given. Another integer becomes 0 only if it is negative
    in one sample and positive in another, because a count may not be 0. Two float options also become the ends of the
    range from which an input was drawn.
    """
    if spec.is_its_own_reference:
        return
    several = by_options(spec, device, dtype, most=MOST_OF_OPTIONS)
    for sample in several:
        yield from _at_ends(spec, device, sample)
        for name, value in sample.kwargs.items():
            is_signed = _is_signed(name, several)
            for other in _near_values(name, value, is_signed=is_signed, may_be_larger=_may_be_larger(sample, value)):
                if other in _numbers_of_others(spec, sample, name):
                    continue  # a range whose two ends are equal is meaningless
                near = replace(sample, kwargs={**sample.kwargs, name: other}, label=f"{sample.label}, {name}={other:g}")
                is_meant = is_safely_taken(spec, near) and (other or is_signed or _has_result_like(spec, near, sample))
                if is_meant and runs(spec, device, near):
                    yield near


def _at_ends(spec: OpSpec, device: Device, sample: Sample) -> Iterator[Sample]:
    """The call with its two float options at the ends of an input's range, if they lie within that range."""
    names = [name for name, value in sample.kwargs.items() if isinstance(value, float)]
    for given in each(sample.args):
        if not isinstance(given, HostArray) or given.span is None or len(names) != 2:
            continue
        low, high = (float(end) for end in given.span)
        if not all(low <= sample.kwargs[name] <= high for name in names):
            continue
        names.sort(key=lambda name: sample.kwargs[name])
        ends = dict(zip(names, (low, high), strict=True))
        label = f"{sample.label}, {names[0]}={low:g} and {names[1]}={high:g}, the ends of an input's range"
        wide = replace(sample, kwargs={**sample.kwargs, **ends}, label=label)
        if is_safely_taken(spec, wide) and runs(spec, device, wide):
            yield wide
            return


def _numbers_of_others(spec: OpSpec, sample: Sample, name: str) -> list[float]:
    """The numeric values of the call's other options, including the defaults of omitted ones."""
    values = options_of(spec, sample)
    return [value for other, value in values.items() if other != name and type(value) in (int, float)]


def options_of(spec: OpSpec, sample: Sample) -> dict[str, Any]:
    """The keyword options of a call, including the defaults of omitted ones."""
    return {**{one.name: one.default for one in parameters_of(spec.fn)}, **sample.kwargs}


def _is_signed(name: str, several: Sequence[Sample]) -> bool:
    """Whether an option is a negative integer in one sample and positive in another, so that 0 is in its range."""
    given = [value for sample in several if type(value := sample.kwargs.get(name)) is int]
    return bool(given) and min(given) < 0 < max(given)


def _may_be_larger(sample: Sample, value: Any) -> bool:
    """Whether four times an integer option stays on the same side of the extents, so that none seems to limit it."""
    extents = [extent for array in arrays_of(*sample.host()) for extent in array.shape]
    if type(value) is not int or not 1 < value < _MOST_TIMES_FOUR:
        return False
    return value > max(extents, default=0) or 4 * value <= min(extents)


def _near_values(name: str, value: Any, *, is_signed: bool, may_be_larger: bool) -> list[float]:
    """Other values of a numeric option, except an axis, which `with_each_axis` changes."""
    if type(value) is int and not names_axis(name):
        has_zero = is_signed or ("seed" in name and value != 0)
        larger: list[float] = [value + 1, 4 * value] if may_be_larger else [value + 1]
        return [*larger, 0] if has_zero and value != -1 else larger
    return [*(value * factor for factor in _NEAR), 0.0] if isinstance(value, float) and value else []


def _has_result_like(spec: OpSpec, sample: Sample, base: Sample) -> bool:
    """Whether the reference gives finite numbers in the shape for `base`: it may divide by an option of 0."""
    expected = spec.expected(sample)
    return expected.shape == spec.expected(base).shape and bool(np.isfinite(expected).all())


def runs(spec: OpSpec, device: Device, sample: Sample) -> bool:
    """Whether the function accepts a call that nobody declared; it may reject it with any error."""
    try:
        run_sample(spec, device, sample)
    except RaceError:
        raise
    except Exception:  # noqa: BLE001  libraries reject calls with errors of different types
        return False
    return True


def with_mixed_options(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """Ordinary samples with one option omitted or taken from another sample, or with an axis counted from the end."""
    if spec.is_its_own_reference:
        return
    several = by_options(spec, device, dtype, most=MOST_OF_OPTIONS)
    seen = set(map(_axes_and_options, several))
    for sample in several:
        for mixed in with_one_other_option(spec, sample, several):
            key = _axes_and_options(mixed)
            if key not in seen and is_safely_taken(spec, mixed) and runs(spec, device, mixed):
                seen.add(key)
                yield mixed
    if several:
        yield from _combined(spec, device, several, seen)


def _axes_and_options(sample: Sample) -> tuple[int, str]:
    return axes_of(sample), options_key(sample)


#: The most combinations of declared option values that are tried.
_COMBINATIONS = 24


def _combined(spec: OpSpec, device: Device, several: Sequence[Sample], seen: set[tuple[int, str]]) -> Iterator[Sample]:
    """Combinations of the values that samples give to each option, for one sample and for one with a longer extent.

    Two options may fail only together, or only at an odd length. A combination that was tried already is tried only at
    the other length.
    """
    given = [sample.kwargs for sample in several if _are_plain(sample.kwargs)]
    names = sorted({name for options in given for name in options})
    values = [[_ABSENT, *dict.fromkeys(options[name] for options in given if name in options)] for name in names]
    combinations = [dict(zip(names, chosen, strict=True)) for chosen in product(*values)] if len(names) > 1 else []
    if len(combinations) > _COMBINATIONS:
        combinations = [combinations[at] for at in generator().permutation(len(combinations))[:_COMBINATIONS]]
    base = max(several, key=axes_of)
    extent = longest_axis(base)
    for combination in combinations:
        options = {name: value for name, value in combination.items() if value is not _ABSENT}
        longer = resized(base, {extent: extent + 1})
        for sample in (longer,) if _axes_and_options(replace(base, kwargs=options)) in seen else (base, longer):
            mixed = replace(sample, kwargs=options, label=f"{sample.label}, options {options}")
            if keeps_bounds(spec, several, mixed) and is_safely_taken(spec, mixed) and runs(spec, device, mixed):
                yield mixed


_ABSENT = object()


def with_options_of(spec: OpSpec, several: Sequence[Sample], sample: Sample, chance: np.random.Generator) -> Sample:
    """The call with some of its options omitted, or taken from other calls.

    The call itself is returned if an option of any call is not plain (`is_plain`).
    """
    options = dict(sample.kwargs)
    if not all(_are_plain(other.kwargs) for other in several):
        return sample
    for name in sorted({name for other in several for name in other.kwargs}):
        values = [other.kwargs.get(name, _ABSENT) for other in several]
        value = values[int(chance.integers(len(values)))]
        if value is _ABSENT and chance.integers(2):
            options.pop(name, None)
        elif value is not _ABSENT and chance.integers(2):
            options[name] = value if chance.integers(2) else _similar(name, value, chance)
    mixed = replace(sample, kwargs=options)
    return mixed if keeps_bounds(spec, several, mixed) else sample


def _similar(name: str, value: Any, chance: np.random.Generator) -> Any:
    """A similar value: a tuple of other positive integers, sorted if it was, or a slightly larger integer.

    Axes are returned unchanged.
    """
    if names_axis(name):
        return value
    if isinstance(value, tuple) and value and all(type(one) is int and one > 0 for one in value):
        drawn = [int(one) for one in chance.integers(1, 2 * max(value) + 8, len(value))]
        return tuple(sorted(drawn)) if len(set(value)) > 1 and list(value) == sorted(value) else tuple(drawn)
    return value + int(chance.integers(0, 9)) if type(value) is int and value > 1 else value


def keeps_bounds(spec: OpSpec, several: Sequence[Sample], mixed: Sample) -> bool:
    """Whether an option that exceeds all integers of an array in every sample, such as a row count, still does."""
    names = {name for sample in [*several, mixed] for name in sample.kwargs}
    return all(
        _is_above(spec, mixed, name, place) or not all(_is_above(spec, sample, name, place) for sample in several)
        for name in names
        for place in range(len(mixed.args))
    )


def _is_above(spec: OpSpec, sample: Sample, name: str, place: int) -> bool:
    """Whether an option, or its default, is an integer greater than all integers of an argument."""
    value = options_of(spec, sample).get(name)
    array = sample.host()[0][place] if place < len(sample.args) else None
    if type(value) is not int or not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        return False
    return not array.size or value > int(array.max())


def with_one_other_option(spec: OpSpec, sample: Sample, several: list[Sample]) -> Iterator[Sample]:
    """The call with one option omitted or taken from another call, and with an axis counted from the other end."""
    for options in _other_options(spec, sample, several):
        mixed = replace(sample, kwargs=options, label=f"{sample.label}, options {options}")
        if keeps_bounds(spec, several, mixed):
            yield mixed


def _other_options(spec: OpSpec, sample: Sample, several: list[Sample]) -> Iterator[dict[str, Any]]:
    own = dict(sample.kwargs)
    if not _are_plain(own):
        return
    for other in several:
        if _are_plain(other.kwargs) and len({**own, **other.kwargs}) > 1:
            yield from ({**own, name: value} for name, value in other.kwargs.items() if own.get(name) != value)
    for name in own:
        yield {other: value for other, value in own.items() if other != name}
    axis, axes = _axis(spec, sample), axes_of(sample)
    if axis is not None and 0 <= axis < axes:
        yield {**own, "axis": axis - axes}
    for name, value in own.items():
        if _is_axes(name, value):
            yield {**own, name: tuple(reversed(value))}
            yield {**own, name: tuple(one - axes if one >= 0 else one for one in value)}


def _axis(spec: OpSpec, sample: Sample) -> int | None:
    """The `axis` option of a call, or its default; None if it is not a single integer."""
    value = options_of(spec, sample).get("axis")
    return value if type(value) is int else None


def with_each_axis(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """Ordinary samples with their axis moved to each other position, counted from either end, if it is an integer.

    The samples are one for each set of options, and one with the most axes. The axis keeps its extent, because an
    option may be limited by it.
    """
    if spec.is_its_own_reference:
        return
    small = [sample for sample in samples_of(spec, device, dtype, "values") if elements_of(sample) <= MOST_OF_OPTIONS]
    chosen = by_options(spec, device, dtype, most=MOST_OF_OPTIONS)
    most = max(small, key=axes_of, default=None)
    if most is not None and all(axes_of(sample) < axes_of(most) for sample in chosen):
        chosen.append(most)
    for sample in chosen:
        own = _axis(spec, sample)
        if own is None or not _are_plain(sample.kwargs):
            continue
        for axis in range(-axes_of(sample), axes_of(sample)):
            along = _with_axis_moved(sample, own, axis)
            if axis != own and is_safely_taken(spec, along) and runs(spec, device, along):
                yield along


def _with_axis_moved(sample: Sample, own: int, axis: int) -> Sample:
    """The call with axis `own` moved to `axis` in those of its arrays that have the most dimensions."""
    axes = axes_of(sample)

    def put(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or array.ndim < axes or not -axes <= own < axes:
            return array
        return HostArray(np.ascontiguousarray(np.moveaxis(array, own, axis)))

    args, kwargs = sample.changed(put)
    options = {**kwargs, "axis": axis}
    return replace(sample, args=args, kwargs=options, label=f"{sample.label}, along axis {axis} instead of {own}")


def check_axis_beyond(spec: OpSpec, device: Device, dtype: Any) -> None:
    """An axis that the reference rejects as out of bounds must not be taken for another one."""
    if spec.is_its_own_reference:
        return
    for sample in by_options(spec, device, dtype, most=MOST_OF_OPTIONS)[:1]:
        if _axis(spec, sample) is None:
            continue
        for axis in (axes_of(sample), -axes_of(sample) - 1):
            beyond = replace(sample, kwargs={**sample.kwargs, "axis": axis})
            if isinstance(refusal_of(spec, beyond), np.exceptions.AxisError) and runs(spec, device, beyond):
                raise AssertionError(
                    f"axis={axis} of arrays of {axes_of(sample)} dimensions gives a result, but the reference raises "
                    f"AxisError: raise an error instead of using another axis\n  sample: {sample.label}"
                )
