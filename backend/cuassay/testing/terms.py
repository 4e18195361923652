"""Find out how many numbers go into one element of a function's result, by changing some of them.

The effect of rounding on a user's function depends on whether it works element by element or adds up whole arrays. To
find out, its reference is called again with one input changed a little, and the elements of the result that change are
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.once import once_if_large
from cuassay.testing.samples import each, over_arguments

__all__ = ["arrays_of", "count_terms", "is_elementwise", "terms_of"]

#: The positions in each array at which a number is changed, as fractions of its size.
_PLACES = (0.0, 0.4, 1.0)

#: The relative and the absolute change. They are small, so that the function stays defined.
_OF_IT, _ADDED = 2.0**-10, 2.0**-20

Call = Callable[[Sequence[Any], Mapping[str, Any]], NDArray[Any]]


def arrays_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[NDArray[Any]]:
    """The arrays among a call's arguments, including the members of lists."""
    return [one for one in each(args, kwargs) if isinstance(one, np.ndarray)]


def terms_of(spec: Any, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], expected: NDArray[Any]) -> int:
    """As `count_terms`, but cached for large calls of `spec` with equal shapes, dtypes and options."""
    return once_if_large(spec, "terms", args, kwargs, lambda: count_terms(call, args, kwargs, expected))


def count_terms(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], expected: NDArray[Any]) -> int:
    """The average number of inputs that affect an element of ``call(args, kwargs)``, which is `expected`; at least 1.

    If the function rejects a changed input, all numbers of the largest array are assumed.
    """
    arrays = [one for one in arrays_of(args, kwargs) if one.size and one.dtype.kind in "fc"]
    if not arrays or not expected.size:
        return 1
    total = 0.0
    for array in arrays:
        changed = [_changed(call, args, kwargs, array, int(part * (array.size - 1)), expected) for part in _PLACES]
        if None in changed:
            return max(one.size for one in arrays)
        total += max(filter(None, changed), default=0) * array.size / expected.size
    return max(1, round(total))


def _changed(
    call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], array: NDArray[Any], place: int, expected: NDArray[Any]
) -> int | None:
    """The number of elements that change with the number at `place` of `array`; None if the call fails."""
    other = array.copy()
    flat = other.reshape(-1)
    flat[place] += flat[place] * _OF_IT + _ADDED

    def put(value: Any) -> Any:
        return other if value is array else value.copy() if isinstance(value, np.ndarray) else value

    try:
        answer = call(*over_arguments(args, kwargs, put))
    except Exception:  # noqa: BLE001  any error means that there is no result
        return None
    if answer.shape != expected.shape:
        return None
    return int(np.count_nonzero((answer != expected) & ~(np.isnan(answer) & np.isnan(expected))))


def is_elementwise(terms: int, arrays: Sequence[NDArray[Any]], expected: NDArray[Any]) -> bool:
    """Whether each element seems to depend only on those at its own index, of arrays that broadcast to the result."""
    if terms > len(arrays):
        return False
    try:
        return np.broadcast_shapes(*(one.shape for one in arrays)) == expected.shape
    except ValueError:
        return False
