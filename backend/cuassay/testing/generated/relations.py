"""Metamorphic relations: properties of several results of one function that need no reference.

Each word in `OpSpec.relations` is a key of `RELATIONS`. The docstring of its function states the relation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_complex, is_float
from cuassay.core.device import Device
from cuassay.testing.compare import assert_close, assert_same_bits
from cuassay.testing.generated.comparison import on_host
from cuassay.testing.generated.execution import check, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import is_general, refilled
from cuassay.testing.generated.halves import eighths
from cuassay.testing.generated.selection import few, one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import HostArray, Sample

__all__ = ["RELATIONS"]

Array = NDArray[Any]
Call = Callable[[Array], Array]

#: Allowed difference of two ways to compute a result, in units of the largest number, times the root of the terms.
_UNITS = 16.0


def even(call: Call, a: Array) -> None:
    """f(-a) = f(a)."""
    _close(call(-a), call(a), a)


def odd(call: Call, a: Array) -> None:
    """f(-a) = -f(a)."""
    _close(call(-a), -call(a), a)


def shift_invariant(call: Call, a: Array) -> None:
    """f(a + c) = f(a) for one number c, as for a softmax."""
    shifted = a + a.dtype.type(2)
    back = shifted - a.dtype.type(2)  # what the rounding of the sum has left of the numbers
    _close(call(shifted), call(back), shifted)


def permutation_of_axis(call: Call, a: Array) -> None:
    """Elements of the last axis in another order give the same result, as for a sum."""
    _close(call(np.ascontiguousarray(a[..., ::-1])), call(a), a)


def linear(call: Call, a: Array) -> None:
    """f(a + b) = f(a) + f(b), and f(2 a) = 2 f(a)."""
    other = np.roll(a, 1)
    whole = a + other
    _close(call(whole), call(whole - other) + call(other), a)
    _close(call(2 * a), 2 * call(a), a)


def batch_invariant(call: Call, a: Array) -> None:
    """A row of the first axis alone gives the same bits as within the batch."""
    if a.ndim < 2 or not a.shape[0]:
        return
    whole = call(a)
    for row in (0, a.shape[0] - 1):
        assert_same_bits(call(np.ascontiguousarray(a[row : row + 1])), whole[row : row + 1])


def idempotent(call: Call, a: Array) -> None:
    """f(f(a)) = f(a)."""
    once = call(a)
    _close(call(once), once, a)


#: Word of `OpSpec.relations` to its function.
RELATIONS: dict[str, Callable[[Call, Array], None]] = {
    found.__name__: found
    for found in (even, odd, shift_invariant, permutation_of_axis, linear, batch_invariant, idempotent)
}


def _close(got: Array, want: Array, given: Array) -> None:
    if not (is_float(got.dtype) or is_complex(got.dtype)):
        assert_close(got, want, rtol=0, atol=0)
        return
    unit = max(epsilon(got.dtype), epsilon(given.dtype) if is_float(given.dtype) or is_complex(given.dtype) else 0.0)
    sizes = [np.abs(np.nan_to_num(one.astype(np.complex128), posinf=0, neginf=0)) for one in (want, given)]
    largest = max(float(size.max(initial=0.0)) for size in sizes)
    bound = _UNITS * unit * np.sqrt(max(1, given.size / max(1, got.size))) * largest
    assert_close(got, want, tolerance=np.minimum(bound, 0.25 * max(float(sizes[0].max(initial=0.0)), unit * largest)))


@check(lambda spec: spec.op is None and bool(spec.relations))
def check_relations(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The declared relations hold between results on related inputs, whatever the reference says."""
    for sample, words in _cases(spec, device, dtype):
        a = sample.host()[0][0]
        if not isinstance(a, np.ndarray) or not a.size:
            continue

        def call(first: Array, sample: Sample = sample) -> Array:
            given = Sample((HostArray(first), *sample.args[1:]), sample.kwargs)
            return on_host(run_sample(spec, device, given))

        for word in words:
            with on_sample(sample):
                try:
                    RELATIONS[word](call, a)
                except AssertionError as error:
                    raise AssertionError(
                        f"relations= declares {word!r}, which does not hold: {_formula(word)}\n{error}"
                    ) from None


def _formula(word: str) -> str:
    """What the relation demands, as the end of a message."""
    return str(RELATIONS[word].__doc__).partition("\n")[0].rstrip(".")


#: Relations that hold at any magnitude, and a factor at which a clamp breaks them.
_OF_ANY_SIZE, _LARGE = ("even", "odd", "linear"), 2.0**16


def _cases(spec: OpSpec, device: Device, dtype: Any) -> Iterator[tuple[Sample, tuple[str, ...]]]:
    """Ordinary samples, one with ties of rounding, and one with large numbers, each with the relations to check."""
    for sample in few(spec, device, dtype):
        yield sample, spec.relations
    like = one(spec, device, dtype, most=_MOST_ELEMENTS)
    if not is_float(dtype) or is_coarse(dtype) or not is_general(spec, like):
        return
    ties = refilled(like, eighths, "multiples of 1/8")
    if is_safely_taken(spec, ties):
        yield ties, spec.relations
    large = refilled(like, lambda array: array * array.dtype.type(_LARGE), f"times {_LARGE:g}")
    if is_safely_taken(spec, large):
        yield large, tuple(word for word in spec.relations if word in _OF_ANY_SIZE)


#: The most elements of the samples whose numbers are replaced.
_MOST_ELEMENTS = 9000
