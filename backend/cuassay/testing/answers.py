"""Results of calls and references as one NumPy array that can be compared, and the magnitude of their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import reference_dtype
from cuassay.core.device import Device
from cuassay.errors import SpecError
from cuassay.ops import functional, registry
from cuassay.ops.operation import Op
from cuassay.testing.samples import Sample, over_arguments
from cuassay.testing.terms import arrays_of, is_elementwise
from cuassay.testing.tolerance import finite_size

__all__ = [
    "LastAnswers",
    "as_arrays",
    "as_one",
    "called",
    "magnitude_of",
    "members",
    "one_on",
    "single",
    "widened",
    "written",
]


def written(
    op: Op,
    device: str | Device,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    meaning: Callable[..., Sequence[Any]] | None = None,
) -> Any:
    """Call an op that returns nothing, or several arrays, on copies, and return what it wrote, joined into one array.

    The array has the dtype of the first array that is written. With `meaning`, its arrays are returned instead, in the
    dtype of the op's first array.

    If the arguments are lists of two arrays, the copies for the second written list start one element into their
    memory, those for the third two elements, and so on, because a kernel must not rely on alignment.
    """
    if op.schema.functional_of:
        made = [devices.to_host(one).ravel() for one in functional.each(op(*args, **kwargs))]
        return devices.from_host(np.concatenate([one.astype(made[0].dtype) for one in made]), device)
    bound = op.schema.bind(args, kwargs)
    params = [param for param in op.schema.arrays if param.access != "read"]
    found = Device(device)
    with devices.backend(found.kind).activate(found.index):  # an array's copy() allocates on the current device
        copies = {param.name: _copied(bound[param.name], device, place) for place, param in enumerate(params)}
        outs = {name: _copied(one, device, place) for place, (name, one) in enumerate(_sevens(op, bound, device))}
    op(**{**bound, **copies}, out=tuple(outs.values()) if outs else None)
    if meaning is not None:
        every = {**bound, **copies, **outs}
        host = {name: devices.to_host(x) if hasattr(x, "dtype") else x for name, x in every.items()}
        meant = meaning(**{name: _wide(value) for name, value in host.items()})
        dtype = host[op.schema.arrays[0].name].dtype
        return devices.from_host(np.concatenate([np.ravel(one).astype(dtype) for one in meant]), device)
    written_to = [array for param in params for _, array in param.members(copies[param.name])]
    arrays = [devices.to_host(array) for array in (*written_to, *outs.values())]
    flat = [array.ravel().astype(arrays[0].dtype) for array in arrays]
    return devices.from_host(np.concatenate(flat), device)


def _sevens(op: Op, bound: Mapping[str, Any], device: str | Device) -> Iterator[tuple[str, Any]]:
    """Each of several outputs by name, filled with 7, so that one that is not written is found."""
    if op.schema.result_type is not None:
        for name, meta in op.meta(**bound)._asdict().items():
            yield name, devices.full(meta.shape, 7, meta.dtype, device)


def _copied(value: Any, device: str | Device, shift: int) -> Any:
    if isinstance(value, list | tuple):
        return [_copied(one, device, shift if len(value) == 2 else 0) for one in value]
    if not hasattr(value, "dtype"):
        return value
    if not shift or value.ndim == 0:
        return value.copy()
    copied = devices.empty((value.size + shift,), value.dtype, device)[shift:].reshape(value.shape)
    return registry.op("copy")(value, out=copied)


def widened(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A sample's arguments with every array upcast, which is exact."""
    return over_arguments(*sample.host(), _wide)


def as_arrays(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace Python numbers by 0-d arrays of the first array's dtype, as a reference may use any argument's dtype."""
    dtype = next(one.dtype for one in args if isinstance(one, np.ndarray))
    return tuple(np.asarray(one, dtype) if type(one) in (int, float) else one for one in args)


class LastAnswers:
    """A cache of the reference's results for the last few small samples, and of the time that they took.

    A check asks whether the reference accepts a sample, then for the result, then for the number of terms. For a
    reference with a loop in Python, that is most of a check's time. Cached arrays are read-only.
    """

    _MOST, _MOST_ELEMENTS = 4, 2**21

    def __init__(self) -> None:
        self._kept: tuple[tuple[Sample, tuple[NDArray[Any], float]], ...] = ()

    def of(self, sample: Sample, ask: Callable[[], NDArray[Any]], *, keeps: bool) -> tuple[NDArray[Any], float]:
        """The result for this sample object, and the CPU seconds it took; computed by `ask` if it is not cached."""
        known = next((found for one, found in self._kept if one is sample), None)
        if known is not None:
            return known
        began = time.thread_time()
        answer = ask()
        found = answer, time.thread_time() - began
        if keeps and answer.size + sum(one.size for one in arrays_of(*sample.host())) <= self._MOST_ELEMENTS:
            answer.flags.writeable = False
            self._kept = ((sample, found), *self._kept[: self._MOST - 1])
        return found


def called(function: Callable[..., Any], sample: Sample) -> Any:
    """Call one of a spec's functions with the sample's arguments in wide dtypes."""
    args, kwargs = widened(sample)
    return function(*args, **kwargs)


def _wide(value: Any) -> Any:
    return value.astype(reference_dtype(value.dtype)) if isinstance(value, np.ndarray) else value


def single(who: str, answer: Any) -> NDArray[Any]:
    """A result as one array; several arrays are joined. Raises `SpecError` for anything else."""
    array = np.array(as_one(answer, who))  # a copy, because the function may keep what it returned
    if array.dtype == np.object_:
        raise SpecError(
            f"{who} gives {answer!r:.200}; a spec compares one array or number, or a list of arrays: "
            "return one of these"
        )
    return array


def members(answer: Any) -> list[Any]:
    """The arrays of a result: those of a list or tuple, or the single one."""
    return list(answer) if isinstance(answer, list | tuple) else [answer]


def as_one(answer: Any, who: str = "the function") -> Any:
    """A result on the host; a list or tuple of arrays is joined into one array with their elements in order.

    Raises
    ------
    SpecError
        If a list is empty, has a member that is not an array or number, or mixes kinds of dtypes such as floats and
        integers: one array has one tolerance.
    """
    if not isinstance(answer, tuple | list):
        return answer
    arrays = [np.asarray(one) if not isinstance(one, tuple | list) else np.asarray(None) for one in answer]
    kinds = {one.dtype.kind for one in arrays}
    if len(kinds) == 1 and np.dtype(object) not in [one.dtype for one in arrays]:
        return np.concatenate([one.reshape(-1) for one in arrays])
    found = ", ".join(dict.fromkeys(_kind_of(one) for one in answer)) or "nothing"
    if answer and all(isinstance(one, list) for one in answer):
        raise SpecError(f"{who} gives a nested list of Python objects; give an array: omit .tolist()")
    raise SpecError(
        f"{who} gives a {type(answer).__name__} of {found}; a spec compares one array, or several of one kind of "
        "dtype: write a spec for each, as fn=lambda xp, a: f(xp, a)[0]"
    )


def _kind_of(value: Any) -> str:
    return str(value.dtype) if hasattr(value, "dtype") else type(value).__name__


def one_on(device: Device, answer: Any, *, in_place: bool = False) -> Any:
    """A function's result on `device`; a list or tuple of arrays is joined into one array, elements in order.

    They are joined on the current stream, without waiting. If one of them is on another device, they are joined on the
    host. `in_place` says that the function is declared to write to its input.

    Raises
    ------
    SpecError
        If the result is None.
    """
    if answer is None and in_place:
        raise SpecError(
            "the function returned None; it is declared to work in place, so return the input that it writes: "
            "fn=lambda xp, a: (f(a), a)[1]"
        )
    if answer is None:
        raise SpecError(
            "the function returned None; return the array that it makes: a kernel that writes into an array is called "
            "as `out = xp.empty_like(a); launch(a, out); return out`"
        )
    if not isinstance(answer, tuple | list):
        return answer
    backend = devices.backend(device.kind)
    arrays = [one for one in answer if hasattr(one, "shape")]
    if device.kind == "cpu" or not arrays or not all(backend.owns(type(one)) for one in arrays):
        return as_one([devices.to_host(one) if hasattr(one, "shape") else one for one in answer])
    xp = devices.namespace(device)
    parts = [xp.asarray(one, dtype=arrays[0].dtype) if not hasattr(one, "shape") else one for one in answer]
    join = getattr(xp, "concat", None) or xp.concatenate
    return join([xp.reshape(one, (-1,)) for one in parts])


def magnitude_of(arrays: Sequence[NDArray[Any]], size: NDArray[Any], terms: int) -> NDArray[Any]:
    """The magnitude that rounding errors are relative to, for a function of which nothing is known.

    The function may add its inputs up, with cancellation. An elementwise function may add small numbers to a 1 in an
    intermediate step.
    """
    found = [finite_size(one) for one in arrays if one.size]
    largest = max((float(np.max(one)) for one in found), default=0.0)
    if not is_elementwise(terms, arrays, size):
        return np.asarray(np.maximum(size, largest))
    for one in found:
        size = np.maximum(size, one)
    return np.asarray(np.maximum(size, min(1.0, 2**8 * largest)))  # a 1 would hide every error of tiny numbers
