"""Checks close to declared bad inputs: one bad row among good ones must raise, an option one step away must not.

The bad row comes from a declared bad input that holds a single number throughout, such as weights of 0. An ordinary
input with one or two wrong numbers must raise as well: code that tests only the sum and the ends accepts inputs that
are not permutations. The function must raise only where the reference raises the declared exception.

If an integer option is declared to be rejected, such as k=-1, the author has considered the next value, 0, so the
function must be right for it, and must not reject it as it rejects -1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from dis import get_instructions
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.declared import ErrorInput
from cuassay.testing.generated.comparison import compare, compare_values
from cuassay.testing.generated.execution import (
    explained,
    is_raised_on_purpose,
    is_safely_taken,
    on_sample,
    refusal_of,
    run_sample,
)
from cuassay.testing.generated.extents import elements_of
from cuassay.testing.generated.named import codes_of
from cuassay.testing.generated.options import options_of
from cuassay.testing.generated.selection import generator, options_key, samples_of, seed
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import FEWER_DIGITS, largest_size

__all__ = [
    "assert_taken",
    "check_nearly_right",
    "check_next_to_errors",
    "check_partial_errors",
    "declared_refusals",
    "ordinary_samples",
]

Array = NDArray[Any]

#: The most elements of an ordinary call, and the most ordinary calls that are tried.
_MOST_ELEMENTS, _MOST_SAMPLES = 9000, 4


def check_partial_errors(
    spec: OpSpec, device: Device, bad: Sample, error: type[BaseException], ordinary: list[Sample]
) -> None:
    """Put one row of `bad` into ordinary calls: the function must reject what the reference rejects with `error`."""
    for sample in _with_one_row(bad, ordinary):
        if isinstance(refusal_of(spec, sample), error):
            where = "where one row of many is as in the declared bad input: look at each row"
            _must_reject(spec, device, sample, error, where)


def check_nearly_right(spec: OpSpec, device: Device, dtype: Any, declared: Collection[ErrorInput]) -> None:
    """Try ordinary calls with two numbers exchanged, one copied onto another, or 1 moved from one to another.

    The function must reject what the reference rejects with the message of a declared error. A reference that raises
    another message, such as one of NumPy, requires nothing.
    """
    small = (one for one in samples_of(spec, device, dtype, "values") if elements_of(one) <= _MOST_ELEMENTS)
    for sample in islice(small, _MOST_SAMPLES):
        for near, where in _nearly_right(sample):
            refusal = refusal_of(spec, near)
            for bad in declared:
                if isinstance(refusal, bad.error) and bad.match and re.search(bad.match, str(refusal)):
                    _must_reject(spec, device, near, bad.error, f"where {where} in an ordinary input: look at each")
                    break


def declared_refusals(spec: OpSpec, dtype: Any) -> list[ErrorInput]:
    """The declared bad inputs that have an error message."""
    return [bad for bad in spec.draw_errors(seed(), dtype_name(dtype)) if bad.match]


def assert_taken(spec: OpSpec, sample: Sample, declared: Collection[ErrorInput], *, is_ordinary: bool = False) -> None:
    """Fail if the function rejects a call on the host with a declared message, and the reference accepts the call.

    Many references validate nothing. This one counts only if it rejects each declared bad input with that message; it
    is asked about them last, as a reference may never return for a bad input. Unless `is_ordinary`, which means that
    the arrays are those of a sample, it must also be shown that the reference knows how the options limit the arrays:
    it raises these errors itself, or it rejects the call without its options.
    """
    if not declared or refusal_of(spec, sample) is not None:
        return
    try:
        with np.errstate(all="ignore"):
            spec.run("cpu", *sample.copied())
    except Exception as error:
        alike = [bad for bad in declared if isinstance(error, bad.error) and _says(str(error), bad.match)]
        is_shown = is_ordinary or _needs_options(spec, sample)
        if not alike or not (is_shown or _seems_to_end(spec.reference)):
            return
        refusals = [refusal_of(spec, bad.sample) for bad in alike]
        if None in refusals:
            return
        if is_shown or all(map(is_raised_on_purpose, filter(None, refusals))):
            raise AssertionError(
                f"the function rejects this call ({type(error).__name__}: {error}), but the reference accepts it and "
                "rejects the bad input declared with this message: is one of the two bounds off by one?"
            ) from error


def _needs_options(spec: OpSpec, sample: Sample) -> bool:
    return bool(sample.kwargs) and refusal_of(spec, replace(sample, kwargs={})) is not None


def _seems_to_end(reference: Any) -> bool:
    """Whether a reference seems to end for a declared bad input: it raises errors itself, or has no Python loop."""
    found = {step.opname for code in codes_of(reference) for step in get_instructions(code)}
    return "RAISE_VARARGS" in found or not any(name == "FOR_ITER" or "JUMP_BACKWARD" in name for name in found)


def _says(message: str, match: str) -> bool:
    """Whether `match` is found in the message; plain text may also differ from it in its numbers."""
    if re.search(match, message):
        return True
    plain, wanted = (re.sub(r"-?\d+", "0", text) for text in (message, match))
    return not _SPECIAL & set(match) and wanted in plain


#: Characters with a special meaning in a regular expression.
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
    """Move 1 from one number to another: the sum stays the same, and the extrema mostly do."""
    flat[one], flat[other] = flat[one] + 1, flat[other] - 1


_CHANGES = {
    "two numbers are exchanged": _exchanged,
    "one number is copied onto another": _copied,
    "1 is moved from one number to another": _moved,
}

#: How often each change is drawn: among ten numbers, most moves do not change the smallest and the largest.
_DRAWS = 6


def _must_reject(spec: OpSpec, device: Device, sample: Sample, error: type[BaseException], where: str) -> None:
    try:
        run_sample(spec, device, sample)
    except Exception:  # noqa: BLE001  type and message are declared only for the whole bad input
        return
    raise AssertionError(f"no error, but the reference raises {error.__name__} {where}\n  sample: {sample.label}")


def ordinary_samples(spec: OpSpec, device: Device, dtype: Any) -> list[Sample]:
    """Ordinary calls with an array that has rows."""
    found = []
    for sample in samples_of(spec, device, dtype, "values"):
        has_rows = any(array.ndim > 1 for array in arrays_of(*sample.host()))
        if has_rows and elements_of(sample) <= _MOST_ELEMENTS:
            found.append(sample)
    return found[:_MOST_SAMPLES]


def _with_one_row(bad: Sample, ordinary: list[Sample]) -> Iterator[Sample]:
    for sample in ordinary:
        if len(sample.args) != len(bad.args) or options_key(sample) != options_key(bad):
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


def check_next_to_errors(spec: OpSpec, device: Device, dtype: Any, bad: ErrorInput) -> None:
    """Move an integer option of a declared bad input one step towards ordinary values, if the reference accepts it."""
    ordinary = [options_of(spec, sample) for sample in samples_of(spec, device, dtype, "values")]
    for name, value in bad.sample.kwargs.items():
        given = [options[name] for options in ordinary if name in options]
        for nearer in _nearer(value, given) if "axis" not in name else ():
            options = {**bad.sample.kwargs, name: nearer}
            sample = replace(bad.sample, kwargs=options, label=f"{bad.sample.label}, {name}={nearer}")
            with on_sample(sample), explained(f"{name}={value} raises as declared, but {name}={nearer} is wrong"):
                if is_safely_taken(spec, sample):
                    _compare_roughly(spec, device, dtype, sample, run_sample(spec, device, sample))
                elif bad.match:
                    assert_taken(spec, sample, [bad])


def _compare_roughly(spec: OpSpec, device: Device, dtype: Any, sample: Sample, actual: Any) -> None:
    """`compare`, but half of the digits of float64 suffice, because an unusual option may amplify rounding errors."""
    __tracebackhide__ = True
    expected = spec.expected(sample)
    with suppress(AssertionError):
        compare(spec, device, dtype, sample, actual)
        return
    limit = FEWER_DIGITS * largest_size(expected) if expected.dtype.kind in "fc" else 0.0
    compare_values(spec, device, dtype, sample, actual, limit=limit)


def _nearer(value: Any, given: list[Any]) -> Iterator[Any]:
    """The value one step towards the integers of ordinary calls, if it is beyond them; in a tuple, one at a time."""
    if type(value) is int:
        numbers = [one for one in given if type(one) is int]
        if numbers and not min(numbers) <= value <= max(numbers):
            yield value + 1 if value < min(numbers) else value - 1
    elif isinstance(value, tuple):
        tuples = [one for one in given if isinstance(one, tuple) and len(one) == len(value)]
        for place, one in enumerate(value):
            for nearer in _nearer(one, [other[place] for other in tuples]):
                yield (*value[:place], nearer, *value[place + 1 :])
