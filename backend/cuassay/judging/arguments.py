"""Other values for the scalar arguments of a call: a candidate may hard-code those of the declared samples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from cuassay.judging.probes import LARGE, Probe, declared_probe, elements_of, judged_values, same
from cuassay.judging.results import Results
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["other_arguments"]

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

    A value is used only if the result for the declared value would be judged wrong. An argument without such a value is
    noted by its name, and so is an option that no sample gives.
    """
    small = sorted((one for one in samples if elements_of(one) <= LARGE), key=elements_of)
    given = {place: _values_of(place, samples) for sample in samples for place, _ in _scalars(sample)}
    for place, declared in given.items():
        bases = [sample for sample in small if any(one == place for one, _ in _scalars(sample))]
        bases = [bases[int(at)] for at in chance.permutation(len(bases))[:_BASES]]
        found = [
            other for base in bases for other in islice(_others(results, dtype, base, place, declared, chance), _VALUES)
        ]
        yield from (
            declared_probe(results, dtype, "options", partial(same, other), varies=_name(place)) for other in found
        )
        if not found:
            notes[_name(place)] = "the reference takes no other value that changes the result"
    for name in _defaults(results.spec):
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


def _values_of(place: int | str, samples: Sequence[Sample]) -> list[Any]:
    return [value for sample in samples for one, value in _scalars(sample) if one == place]


def _others(
    results: Results, dtype: str, base: Sample, place: int | str, declared: Sequence[Any], chance: np.random.Generator
) -> Iterator[Sample]:
    value = dict(_scalars(base))[place]
    right = results.right(*base.host())
    for other in _near(place, value, declared, chance):
        changed = _with(base, place, other)
        if results.takes(changed) and judged_values(results, dtype, "options", (changed,), (right,), {}) is not None:
            yield changed


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
    if isinstance(place, str) and any(word in place for word in ("axis", "dim")):
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
    try:
        found: Mapping[str, inspect.Parameter] = inspect.signature(spec.fn).parameters if spec.fn is not None else {}
    except (TypeError, ValueError):  # a function without a signature
        return []
    return [name for name, one in found.items() if one.default is not inspect.Parameter.empty]
