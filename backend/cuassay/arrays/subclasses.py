"""Decide which subclasses of `numpy.ndarray` are accepted as host arrays.

A kernel works on the elements in memory. A subclass that gives them another meaning (a mask, a unit, another ``*``)
would lose that meaning in some operations and keep it in others, so it is rejected.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["host_array", "why_refused"]

#: From a rejected subclass to the behaviour that kernels would ignore, and what to pass instead.
_REFUSED: dict[type, str] = {
    np.ma.MaskedArray: "its mask would be ignored; give array.filled(value), or array.data with the masked values",
    np.matrix: "its * is a matrix product and it has always two axes; give numpy.asarray(matrix)",
}


def why_refused(array_type: type) -> str | None:
    """Return why arrays of this type are rejected and what to pass instead, or None if they are accepted."""
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
    """Convert `array` with `numpy.asarray`.

    Raises
    ------
    ArgumentError
        If it is or contains an array of a rejected subclass, or NumPy cannot make an array of it.
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
