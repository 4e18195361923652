"""How many numbers go into one number of a function's result: found out by changing some and looking what follows.

Nothing is known of a user's function, and yet what rounding may do to it depends on whether it works element by element
or adds up whole arrays. Its reference tells: where an input is changed a little, the elements of the answer that change
with it are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.once import once_if_large
from cuassay.testing.samples import each, over_lists

__all__ = ["arrays_of", "count_terms", "is_elementwise", "terms_of"]

#: Where in each array a number is changed, as parts of its size.
_PLACES = (0.0, 0.4, 1.0)

#: By how much: a part of the number, and an amount. Small, so that what a function is defined for stays so.
_OF_IT, _ADDED = 2.0**-10, 2.0**-20

Call = Callable[[Sequence[Any], Mapping[str, Any]], NDArray[Any]]


def arrays_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[NDArray[Any]]:
    """The arrays among a call's arguments, those in lists one by one."""
    return [one for one in each(args, kwargs) if isinstance(one, np.ndarray)]


def terms_of(spec: Any, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], expected: NDArray[Any]) -> int:
    """As `count_terms`; of large calls of `spec` with equal shapes, dtypes and options the terms of the first one."""
    return once_if_large(spec, "terms", args, kwargs, lambda: count_terms(call, args, kwargs, expected))


def count_terms(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], expected: NDArray[Any]) -> int:
    """Numbers that go into an element of ``call(args, kwargs)``, which is `expected`, on average; 1 at least.

    All of them, where the function refuses a changed input.
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
    """Elements of the answer that another number at `place` of `array` changes; None where there is no answer."""
    other = array.copy()
    flat = other.reshape(-1)
    flat[place] += flat[place] * _OF_IT + _ADDED

    def put(value: Any) -> Any:
        return other if value is array else value.copy() if isinstance(value, np.ndarray) else value

    try:
        answer = call([over_lists(one, put) for one in args], {k: over_lists(one, put) for k, one in kwargs.items()})
    except Exception:  # noqa: BLE001  whatever it raises, it has no answer
        return None
    if answer.shape != expected.shape:
        return None
    return int(np.count_nonzero((answer != expected) & ~(np.isnan(answer) & np.isnan(expected))))


def is_elementwise(terms: int, arrays: Sequence[NDArray[Any]], expected: NDArray[Any]) -> bool:
    """Whether each element seems to come from those at its own place, of arrays that broadcast to the answer."""
    if terms > len(arrays):
        return False
    try:
        return np.broadcast_shapes(*(one.shape for one in arrays)) == expected.shape
    except ValueError:
        return False
