"""A check that draws sizes, options and patterns of numbers together: a fault may need three of them at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, floats_of, host_rounding, on_host
from cuassay.testing.generated.execution import check, explained, is_function, on_sample, run_sample
from cuassay.testing.generated.extents import MOST_OF_SMALL, elements_of, has_expected_shape, resized
from cuassay.testing.generated.numbers import last_digit_moves
from cuassay.testing.generated.options import with_options_of
from cuassay.testing.generated.patterns import may_be_filled, patterned
from cuassay.testing.generated.selection import generator, samples_of
from cuassay.testing.generated.sizes import limit_of_larger
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of

Array = NDArray[Any]
Chance = np.random.Generator

#: Calls that are compared, and drawn at most; seconds that they and their references may take; elements of one.
_CALLS, _MOST_CALLS, _PATIENCE_S, _MOST_ELEMENTS = 96, 192, 1.5, 2**13

#: Extents that are drawn: small ones, and those around powers of two.
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 300, 520)


@check(is_function)
def check_combined(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Sizes, options and patterns of numbers drawn together, within what the samples ask for.

    Patterns are numbers that are equal, in order or in runs, and truth values in blocks. Only what the reference takes,
    and what the function on the host gives a result of the same shape for, is compared.
    """
    if spec.is_its_own_reference or is_coarse(dtype):
        return
    bases = [one for one in samples_of(spec, device, dtype, "values") if elements_of(one) <= MOST_OF_SMALL]
    chance, began = generator(), time.thread_time()
    compared = 0
    for _ in range(_MOST_CALLS if bases else 0):
        base = bases[int(chance.integers(len(bases)))]
        sample = _drawn(spec, bases, base, chance)
        if elements_of(sample) <= _MOST_ELEMENTS and has_expected_shape(spec, sample):
            _compare(spec, device, dtype, base, sample)
            compared += 1
        if compared == _CALLS or time.thread_time() - began > _PATIENCE_S:
            return


def _drawn(spec: OpSpec, bases: Sequence[Sample], base: Sample, chance: Chance) -> Sample:
    """The call with some extents changed, options of other calls, and numbers in patterns."""
    chosen = with_options_of(spec, bases, base, chance)
    other = resized(chosen, _extents(base, chance))
    args, labels = list(other.args), []
    for place, given in enumerate(base.args):
        if may_be_filled(given):
            args[place], label = patterned(given, other.args[place].shape, chance)
            labels.append(f"input {place}: {label}")
    shapes = ", ".join("x".join(map(str, one.shape)) for one in args if isinstance(one, HostArray))
    options = f", options {dict(chosen.kwargs)}" if chosen.kwargs else ""
    return replace(other, args=tuple(args), label="; ".join((f"arrays of {shapes}{options}", *labels)))


def _extents(base: Sample, chance: Chance) -> dict[int, int]:
    """What some of the extents become: another number, or another one of the call's extents."""
    found = sorted({extent for array in arrays_of(*base.host()) for extent in array.shape if extent > 1})
    changes = {}
    for extent in found:
        way = chance.integers(4)
        if way == 0:
            changes[extent] = int(chance.choice(found))
        elif way == 1:
            changes[extent] = int(chance.choice(_EXTENTS))
    return changes


def _compare(spec: OpSpec, device: Device, dtype: Any, base: Sample, sample: Sample) -> None:
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    limit = limit_of_larger(spec, dtype, sample, base, expected)
    if limit is None:
        return
    if expected.dtype.kind in "fc":
        expected = _where_finite(expected, result)
    try:
        compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)
    except AssertionError:
        if floats_of(sample):
            moves, got = last_digit_moves(spec, sample), on_host(result)
            if expected.dtype.kind in "fc":
                limit = (
                    limit
                    + _TIMES * host_rounding(spec, sample)
                    + _TIMES * float(np.max(moves, initial=0.0, where=~np.isnan(moves)))
                )
            elif got.shape == expected.shape:
                expected = np.where(moves != 0, got, expected)
        with on_sample(sample), explained("right for the declared samples, wrong for a mixture of them"):
            compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)


#: How many times as wrong a result may be as it is on the host, and as moving each input by its last digit makes it.
_TIMES = 4.0


def _where_finite(expected: Array, result: Any) -> Array:
    """The expected numbers; where there is none, as of zero divided by zero, whatever was got."""
    got = on_host(result)
    return np.where(np.isfinite(expected), expected, got) if got.shape == expected.shape else expected
