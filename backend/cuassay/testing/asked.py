"""What ``make`` was asked for: errors that name its arguments and the operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.nearest import did_you_mean
from cuassay.errors import DTypeError, SpecError

__all__ = ["asked_dtype", "refuse_unknown"]


def refuse_unknown(given: Sequence[Any], unknown: Mapping[str, Any], owner: str) -> None:
    """Raise `SpecError` if ``make`` got arguments that it does not have, in the samples of `owner`.

    `given` are those without a name, of which the first one is the shape.
    """
    if len(given) > 1:
        all_given = ", ".join(map(repr, given))
        is_shape = all(isinstance(one, int) for one in given)
        remedy = f"write make(({all_given}))" if is_shape else "give low=, high=, dtype= and layout= by name"
        raise SpecError(f"{_call_of(owner)} takes the shape as one int or tuple; got make({all_given}); {remedy}")
    if unknown:
        name = next(iter(unknown))
        raise SpecError(
            f"{_call_of(owner)} has no argument {name!r}{did_you_mean(name, _MADE)}; it takes a shape, low= and high= "
            f"(the range of the numbers), dtype= and layout="
        )


def asked_dtype(dtype: Any, owner: str) -> np.dtype[Any]:
    """The dtype that ``make`` was asked for; for an unknown one, raise `SpecError`, which names `owner`."""
    try:
        return as_dtype(dtype)
    except DTypeError as error:
        raise SpecError(f"{_call_of(owner)}: {error}") from None


def _call_of(owner: str) -> str:
    return f"{owner}: make" if owner else "make"


#: What ``make`` takes by name.
_MADE = ("low", "high", "dtype", "layout")
