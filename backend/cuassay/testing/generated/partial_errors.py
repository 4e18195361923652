"""Part of the check of errors: next to what is refused. One row of many must raise, an option one step away must not.

The row is taken from the declared bad input, where that is one number throughout, as weights of 0 are. An ordinary
input in which one number is wrong, or two, must raise as well: whoever tests the sum and the ends alone lets pass what
is not a permutation. The reference decides: only where it refuses the call by the declared exception must the function
refuse it. An integer option that is declared to be refused, such as k of -1, says that the next one, 0, was thought of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.declared import ErrorInput
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, refusal_of, run_sample
from cuassay.testing.generated.extents import elements_of
from cuassay.testing.generated.options import options_of
from cuassay.testing.generated.selection import generator, samples_of, seed
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of

__all__ = [
    "assert_taken",
    "check_nearly_right",
    "check_next_to_errors",
    "check_partial_errors",
    "declared_refusals",
    "ordinary_samples",
]

Array = NDArray[Any]

#: Elements of an ordinary call, and how many of them are tried.
_MOST_ELEMENTS, _MOST_SAMPLES = 9000, 4


def check_partial_errors(
    spec: OpSpec, device: Device, dtype: Any, bad: Sample, error: type[BaseException], ordinary: list[Sample]
) -> None:
    """Ordinary calls with one row of an input as in `bad`: what the reference refuses by `error` must be refused."""
    for sample in _with_one_row(bad, ordinary):
        if isinstance(refusal_of(spec, sample), error):
            where = "where one row of many is as in the declared bad input: look at each row"
            _must_refuse(spec, device, sample, error, where)


def check_nearly_right(spec: OpSpec, device: Device, dtype: Any, declared: Collection[ErrorInput]) -> None:
    """Ordinary calls with two numbers exchanged, one copied onto another, or 1 moved from one to another.

    What the reference refuses with the message of a declared error must be refused. Where it has another message, such
    as one of NumPy's, nothing is asked.
    """
    small = (one for one in samples_of(spec, device, dtype, "values") if elements_of(one) <= _MOST_ELEMENTS)
    for sample in islice(small, _MOST_SAMPLES):
        for near, where in _nearly_right(sample):
            refusal = refusal_of(spec, near)
            for bad in declared:
                if isinstance(refusal, bad.error) and bad.match and re.search(bad.match, str(refusal)):
                    _must_refuse(spec, device, near, bad.error, f"where {where} in an ordinary input: look at each")
                    break


def declared_refusals(spec: OpSpec, dtype: Any) -> list[ErrorInput]:
    """The declared bad inputs that have a message."""
    return [bad for bad in spec.draw_errors(seed(), dtype_name(dtype)) if bad.match]


def assert_taken(spec: OpSpec, sample: Sample, declared: Collection[ErrorInput], *, is_ordinary: bool) -> None:
    """Fail where the function, on the host, refuses a call by a declared message, and the reference takes the call.

    Many references check nothing: theirs must refuse each declared bad input that has this message. It is asked about
    them last, as a reference may never end on a bad input. Without `is_ordinary`, which says that the arrays are those
    of a sample, the reference must also refuse the call without its options: then it knows what the options change.
    """
    if not declared or refusal_of(spec, sample) is not None:
        return
    try:
        with np.errstate(all="ignore"):
            spec.run("cpu", *sample.copied())
    except Exception as error:
        alike = [bad for bad in declared if isinstance(error, bad.error) and _says(str(error), bad.match)]
        if not alike or not (is_ordinary or _needs_options(spec, sample)):
            return
        if all(refusal_of(spec, bad.sample) is not None for bad in alike):
            raise AssertionError(
                f"the function refuses this call ({type(error).__name__}: {error}), and the reference takes it, which "
                "refuses the bad input that is declared with this message: is one of the two bounds off?"
            ) from error


def _needs_options(spec: OpSpec, sample: Sample) -> bool:
    return bool(sample.kwargs) and refusal_of(spec, replace(sample, kwargs={})) is not None


def _says(message: str, match: str) -> bool:
    """Whether `match` is found in the message, or would be with other numbers in it, if it is plain text."""
    if re.search(match, message):
        return True
    plain, wanted = (re.sub(r"\d+", "0", text) for text in (message, match))
    return not _SPECIAL & set(match) and wanted in plain


#: What means something else than itself in a regular expression.
_SPECIAL = frozenset(r"\.^$*+?{}[]|()")


def _nearly_right(sample: Sample) -> Iterator[tuple[Sample, str]]:
    chance = generator()
    for place, given in enumerate(sample.args):
        if not isinstance(given, HostArray) or given.values.size < 3 or given.dtype.kind not in "iuf":
            continue
        for word, change in _CHANGES.items():
            for _ in range(_DRAWS):
                flat = given.values.reshape(-1).copy()
                one, other = chance.choice(flat.size, 2, replace=False)
                change(flat, one, other)
                args = (*sample.args[:place], HostArray(flat.reshape(given.shape)), *sample.args[place + 1 :])
                yield replace(sample, args=args, label=f"{sample.label}, {word} in input {place}: {one}, {other}"), word


def _exchanged(flat: Array, one: int, other: int) -> None:
    flat[[one, other]] = flat[[other, one]]


def _copied(flat: Array, one: int, other: int) -> None:
    flat[one] = flat[other]


def _moved(flat: Array, one: int, other: int) -> None:
    """The sum stays, and the ends mostly do."""
    flat[one], flat[other] = flat[one] + 1, flat[other] - 1


_CHANGES = {
    "two numbers are exchanged": _exchanged,
    "one number is copied onto another": _copied,
    "1 is moved from one number to another": _moved,
}

#: Times that each change is drawn: of ten numbers, most moves leave the least and the largest as they were.
_DRAWS = 6


def _must_refuse(spec: OpSpec, device: Device, sample: Sample, error: type[BaseException], where: str) -> None:
    with on_sample(sample):
        try:
            run_sample(spec, device, sample)
        except Exception:  # noqa: BLE001  which one, and what it says, is declared of the whole input
            return
        raise AssertionError(f"no error, but the reference raises {error.__name__} {where}\n  sample: {sample.label}")


def ordinary_samples(spec: OpSpec, device: Device, dtype: Any) -> list[Sample]:
    """Ordinary calls with an axis of rows."""
    found = []
    for sample in samples_of(spec, device, dtype, "values"):
        has_rows = any(array.ndim > 1 for array in arrays_of(*sample.host()))
        if has_rows and elements_of(sample) <= _MOST_ELEMENTS:
            found.append(sample)
    return found[:_MOST_SAMPLES]


def _with_one_row(bad: Sample, ordinary: list[Sample]) -> Iterator[Sample]:
    for sample in ordinary:
        if len(sample.args) != len(bad.args) or sample.kwargs != bad.kwargs:
            continue
        for place, (wrong, right) in enumerate(zip(bad.host()[0], sample.host()[0], strict=True)):
            if not all(isinstance(one, np.ndarray) for one in (wrong, right)) or right.ndim < 2 or len(right) < 2:
                continue
            if wrong.size and wrong.dtype == right.dtype and (wrong == wrong.reshape(-1)[0]).all():
                rows = right.copy()
                rows[-1] = wrong.reshape(-1)[0]
                args = (*sample.args[:place], HostArray(rows), *sample.args[place + 1 :])
                label = f"{sample.label}, the last row of input {place} is {wrong.reshape(-1)[0]}"
                yield replace(sample, args=args, label=label)


def check_next_to_errors(spec: OpSpec, device: Device, dtype: Any, bad: Sample) -> None:
    """A declared bad input with an integer option one step nearer to ordinary ones, where the reference takes it."""
    ordinary = list(samples_of(spec, device, dtype, "values"))
    for name, value in bad.kwargs.items():
        given = [one for sample in ordinary if type(one := options_of(spec, sample).get(name)) is int]
        if type(value) is not int or not given or min(given) <= value <= max(given) or "axis" in name:
            continue
        nearer = value + 1 if value < min(given) else value - 1
        sample = replace(bad, kwargs={**bad.kwargs, name: nearer}, label=f"{bad.label}, {name}={nearer}")
        if is_safely_taken(spec, sample):
            with on_sample(sample), explained(f"{name}={value} is refused, and {name}={nearer} is wrong"):
                compare(spec, device, dtype, sample, run_sample(spec, device, sample))
