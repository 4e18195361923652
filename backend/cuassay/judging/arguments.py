"""Other values for the scalar arguments of a call: a candidate may hard-code those of the declared samples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from cuassay.judging.probes import LARGE, Probe, declared_probe, elements_of, judged_values, same
from cuassay.judging.results import Results
from cuassay.testing.generated.options import is_number, keeps_bounds, names_axis, options_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["note_options_not_given", "other_arguments"]

#: The number of other values of an argument, and the number of samples in which they are tried.
_VALUES, _BASES = 2, 2

#: Factors for a float, tried in this order until the result depends visibly on the argument.
_FACTORS = (1.0, 1e2, 1e4, 1e6)

#: Whole numbers stay below this bound, which every integer dtype can represent.
_MOST = 128

#: An argument by its position or name, and its value in one sample.
_Argument = tuple[int | str, Any]


def other_arguments(
    results: Results,
    dtype: str,
    samples: Sequence[Sample],
    chance: np.random.Generator,
    notes: MutableMapping[str, str],
) -> Iterator[Probe]:
    """Yield probes in which one scalar argument of a sample has another value that the reference accepts.

    A value is used only if the result for the declared value would be judged wrong, and if it keeps the bounds that the
    samples suggest (`_is_meant`). An argument without such a value is noted by its name.
    """
    small = sorted((one for one in samples if elements_of(one) <= LARGE), key=elements_of)
    given = list(dict.fromkeys(place for sample in samples for place, _ in _scalars(sample)))
    for place in given:
        giving = [sample for sample in samples if _gives(sample, place)]
        bases = [sample for sample in small if _gives(sample, place)]
        bases = [bases[int(at)] for at in chance.permutation(len(bases))[:_BASES]]
        found = [
            other for base in bases for other in islice(_others(results, dtype, base, place, giving, chance), _VALUES)
        ]
        yield from (
            declared_probe(results, dtype, "options", partial(same, other), varies=_name(place)) for other in found
        )
        if not found:
            notes[_name(place)] = (
                "the reference takes no other value that changes the result and keeps the bounds of the samples"
            )


def note_options_not_given(spec: OpSpec, samples: Sequence[Sample], notes: MutableMapping[str, str]) -> None:
    """Note each option that no sample gives, neither by name nor by position."""
    by_place = list(options_of(spec, Sample(())))[1:]  # without the array module
    given = {name for sample in samples for name in (*by_place[: len(sample.args)], *sample.kwargs)}
    for name in _defaults(spec):
        if name not in given:
            notes.setdefault(name, "no sample gives it")


def _name(place: int | str) -> str:
    return f"argument {place}" if isinstance(place, int) else place


def _scalars(sample: Sample) -> Iterator[_Argument]:
    """Yield the arguments that are a number, a truth value or a string."""
    given: list[_Argument] = [*enumerate(sample.args), *sample.kwargs.items()]
    for place, value in given:
        if isinstance(value, bool | int | float | str | np.generic) or value is None:
            yield place, value


def _gives(sample: Sample, place: int | str) -> bool:
    return any(one == place for one, _ in _scalars(sample))


def _values_of(place: int | str, samples: Sequence[Sample]) -> list[Any]:
    return [value for sample in samples for one, value in _scalars(sample) if one == place]


def _others(
    results: Results, dtype: str, base: Sample, place: int | str, giving: Sequence[Sample], chance: np.random.Generator
) -> Iterator[Sample]:
    value = dict(_scalars(base))[place]
    declared = _values_of(place, giving)
    right = results.right(*base.host())
    for other in _near(place, value, declared, chance):
        changed = _with(base, place, other)
        if not _is_meant(results.spec, place, giving, base, changed) or not results.takes(changed):
            continue
        if judged_values(results, dtype, "options", (changed,), (right,), {}) is not None:
            yield changed


def _is_meant(spec: OpSpec, place: int | str, giving: Sequence[Sample], base: Sample, changed: Sample) -> bool:
    """Return whether an argument of `base` keeps, in `changed`, the bounds that it has in all samples of `giving`.

    A count that exceeds all integers of an array still does, a number that is less or greater than another one stays
    so, and a number from 0 to 1 stays there. A number that is at most an extent of `base` does not exceed this extent.
    """
    if _is_axis(place):
        return True
    value, other = dict(_scalars(base))[place], dict(_scalars(changed))[place]
    return (
        keeps_bounds(spec, [_by_name(one, place) for one in giving], _by_name(changed, place))
        and all(_order(spec, changed, place, one) == order for one, order in _orders(spec, giving, place))
        and (not _are_fractions(_values_of(place, giving)) or 0 <= other <= 1)
        and not _passes_extent(base, value, other)
    )


def _is_axis(place: int | str) -> bool:
    return isinstance(place, str) and names_axis(place)


def _by_name(sample: Sample, place: int | str) -> Sample:
    """Return the sample with the argument at `place` as an option, as `keeps_bounds` takes it."""
    if isinstance(place, str):
        return sample
    args = (*sample.args[:place], None, *sample.args[place + 1 :])
    return replace(sample, args=args, kwargs={**sample.kwargs, _name(place): sample.args[place]})


def _orders(spec: OpSpec, giving: Sequence[Sample], place: int | str) -> Iterator[tuple[int | str, int]]:
    """Yield the other numbers that the argument is less than (-1), or greater than (1), in all samples."""
    for other in _numbers(spec, giving[0]):
        met = {_order(spec, sample, place, other) for sample in giving}
        if other != place and not _is_axis(other) and met in ({-1}, {1}):
            yield other, met.pop()


def _order(spec: OpSpec, sample: Sample, place: int | str, other: int | str) -> int:
    """Return -1 if the argument is less than another number of its type, 1 if it is greater, else 0."""
    numbers = _numbers(spec, sample)
    one, two = numbers.get(place), numbers.get(other)
    return 0 if one is None or two is None or type(one) is not type(two) else int(one > two) - int(one < two)


def _numbers(spec: OpSpec, sample: Sample) -> dict[int | str, Any]:
    """Return the scalar arguments that are numbers, with the defaults of those that are not given."""
    given: dict[int | str, Any] = dict(_scalars(sample))
    for name, default in options_of(spec, sample).items():
        given.setdefault(name, default)
    return {place: one for place, one in given.items() if is_number(one)}


def _are_fractions(values: Sequence[Any]) -> bool:
    return all(isinstance(one, float | np.floating) and 0 <= one <= 1 for one in values)


def _passes_extent(base: Sample, value: Any, other: Any) -> bool:
    """Return whether a whole number exceeds an extent of an array that the declared number does not exceed."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return False
    return any(value <= extent < other for array in arrays_of(*base.host()) for extent in array.shape)


def _near(place: int | str, value: Any, declared: Sequence[Any], chance: np.random.Generator) -> Iterator[Any]:
    """Yield other values of the same type in random order; for strings, those of other samples."""
    if isinstance(value, bool | np.bool_):
        yield type(value)(not value)
    elif isinstance(value, int | np.integer):
        others = _whole_numbers(place, int(value))
        yield from (type(value)(others[int(at)]) for at in chance.permutation(len(others)))
    elif isinstance(value, float | np.floating):
        for factor in _FACTORS:
            near = [float(chance.uniform(0.3, 0.8)), float(chance.uniform(1.3, 2.5))]
            near = [near[int(at)] for at in chance.permutation(2)]
            yield from (type(value)((value or 0.5) * factor * one) for one in near)
    else:
        yield from (other for other in dict.fromkeys(declared) if other != value)


def _whole_numbers(place: int | str, value: int) -> list[int]:
    """Return whole numbers near `value`: for an axis those that arrays may have, for others those of the same sign."""
    if _is_axis(place):
        return [axis for axis in range(-3, 3) if axis != value]
    near = {value - 1, value + 1, value + 2, 2 * value, value // 2} - {value}
    return sorted(one for one in near if (one > 0 if value >= 0 else one < 0) and abs(one) < max(_MOST, abs(value)))


def _with(sample: Sample, place: int | str, value: Any) -> Sample:
    label = f"{sample.label}, {_name(place)}={value!r}"
    if isinstance(place, str):
        return replace(sample, kwargs={**sample.kwargs, place: value}, label=label)
    return replace(sample, args=(*sample.args[:place], value, *sample.args[place + 1 :]), label=label)


def _defaults(spec: OpSpec) -> list[str]:
    """Return the options for which the declared function has a default."""
    return [name for name, one in options_of(spec, Sample(())).items() if one is not inspect.Parameter.empty]
