"""Which subclasses of `numpy.ndarray` count as host arrays.

A kernel works on the elements in memory. A subclass that gives them another meaning (a mask, a unit, another ``*``)
would lose it in one operation and keep it in the next, so it is refused by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["host_array", "why_refused"]

#: Subclass to what a kernel would not do as it does, and what to give in its place.
_REFUSED: dict[type, str] = {
    np.ma.MaskedArray: "its mask would be ignored; give array.filled(value), or array.data with the masked values",
    np.matrix: "its * is a matrix product and it has always two axes; give numpy.asarray(matrix)",
}


def why_refused(array_type: type) -> str | None:
    """Why arrays of this type are refused, and what to give; None for `numpy.ndarray` and what computes as it does."""
    if not issubclass(array_type, np.ndarray):
        return None
    named = next((reason for refused, reason in _REFUSED.items() if issubclass(array_type, refused)), None)
    if named is None and _has_own_protocol(array_type):
        return "it computes by rules of its own, which would be ignored; give numpy.asarray(array)"
    return named


def _has_own_protocol(array_type: type) -> bool:
    return any(
        getattr(array_type, name) is not getattr(np.ndarray, name) for name in ("__array_ufunc__", "__array_function__")
    )


def host_array(array: Any) -> np.ndarray[Any, Any]:
    """`array` as `numpy.asarray` makes one of it.

    Raises
    ------
    ArgumentError
        If it is, or holds, an array of a refused subclass, or NumPy cannot make one array of it.
    """
    for one in (type(array), *({*map(type, array)} if isinstance(array, list | tuple) else ())):
        if (why := why_refused(one)) is not None:
            raise ArgumentError(f"from_host does not take {one.__module__}.{one.__qualname__}: {why}")
    try:
        return np.asarray(array)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"NumPy cannot make one array of the argument: {error!s:.200}; got {shown(array)}; "
            "give numbers, or sequences of equal length"
        ) from error
