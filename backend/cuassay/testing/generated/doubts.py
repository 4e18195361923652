"""Signs in a failed comparison that the reference, and not the function, is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.answers import as_one, members
from cuassay.testing.failures import index_text, place_of
from cuassay.testing.generated.inputs import input_name
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["counts_of_results", "doubts", "places_in_list"]


def doubts(spec: OpSpec, sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Say why the reference, and not the function, may be wrong; None if nothing suggests that."""
    if spec.is_its_own_reference or spec.op is not None:
        return None
    if got.shape != expected.shape:
        return "the expected shape is that of reference="
    if (lost := _nan_of_numbers(sample, got, expected)) is not None:
        place, said = np.argwhere(lost)[0], "the reference gives nan where all inputs and the result are finite"
        if masked := _all_alike(spec, sample, tuple(map(int, place)), got.shape):
            return (
                f"{said}; {masked}: if that leaves no number, let the reference give what is meant, or raise an error"
            )
        return (
            f"{said}; it may overflow on the way: "
            "subtract the maximum before an exponential, or give samples= that it takes"
        )
    if got.dtype.kind in "iu" and _wraps(spec, sample, got):
        return (
            f"the reference, given the same integers in int64, agrees with the result: in {_names(sample)} it wraps "
            "around; let it compute in int64, as reference=lambda a: f(a.astype(np.int64))"
        )
    return None


def places_in_list(spec: OpSpec, sample: Sample) -> str | None:
    """Say at which index each array of a list starts in the joined result; None if the result is a single array."""
    answer = spec.answers(sample) if spec.op is None and spec.has_lists else None
    if not isinstance(answer, list | tuple):
        return None
    begins = np.cumsum([0, *(np.size(one) for one in members(answer)[:-1])])[:_SHOWN]
    each = ", ".join(f"{np.shape(one)} from {at}" for one, at in zip(answer, begins, strict=False))
    more = f" and {len(answer) - _SHOWN} more" if len(answer) > _SHOWN else ""
    return f"the result is a {type(answer).__name__}, joined into one array, with shapes {each}{more}"


def counts_of_results(spec: OpSpec, sample: Sample) -> str | None:
    """Say that the function gives another number of arrays than its reference; None if it does not.

    The function is called on the host. If it does not run there, nothing is known.
    """
    if spec.op is not None or spec.is_its_own_reference:
        return None
    try:
        with np.errstate(all="ignore"):
            given = len(members(spec.apply(Device("cpu"), *sample.copied())))
            due = len(members(spec.answers(sample)))
    except Exception:  # noqa: BLE001  a function for one device may fail in any way on the host
        return None
    return None if given == due else f"fn gives {_arrays(given)}, and reference= gives {_arrays(due)}"


def _arrays(count: int) -> str:
    return "1 array" if count == 1 else f"{count} arrays"


#: The most arrays of a list that are printed.
_SHOWN = 6


def _nan_of_numbers(sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Where the reference gives NaN and the function a number; None if it does so nowhere, or inputs are not finite."""
    if not got.dtype.kind == expected.dtype.kind == "f":
        return None
    finite = all(np.isfinite(array).all() for array in arrays_of(*sample.host()) if array.dtype.kind in "fc")
    lost = np.isnan(expected) & np.isfinite(got)
    return lost if finite and lost.any() else None


def _all_alike(spec: OpSpec, sample: Sample, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Name a mask whose line through an index of the result has one truth value only; empty if there is none."""
    args, kwargs = sample.host()
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for key, value in given:
        if not isinstance(value, np.ndarray) or value.dtype != np.bool_:
            continue
        place = place_of(value.shape, index, shape)
        for axis in reversed(range(value.ndim)):
            line = (*place[:axis], slice(None), *place[axis + 1 :])
            if (found := value[line]).size > 1 and (found == found.flat[0]).all():
                return f"{input_name(spec, key)} is {bool(found.flat[0])} in all of [{index_text(line)}]"
    return ""


def _wraps(spec: OpSpec, sample: Sample, got: NDArray[Any]) -> bool:
    """Whether the reference gives the function's result if its integers are converted to int64."""
    args, kwargs = sample.changed(
        lambda value: value.astype(np.int64) if isinstance(value, np.ndarray) and value.dtype.kind in "iu" else value
    )
    try:
        with np.errstate(all="ignore"):
            wide = np.asarray(as_one(spec.reference(*args, **kwargs))) if spec.reference is not None else None
    except Exception:  # noqa: BLE001  the reference was declared for other dtypes and may fail in any way
        return False
    return wide is not None and wide.shape == got.shape and bool((wide == got).all())


def _names(sample: Sample) -> str:
    return " and ".join(dict.fromkeys(str(array.dtype) for array in arrays_of(*sample.host())))
