"""What NumPy's functions, methods and operators do to simulated arrays: tables, and one entry point for each form.

By default a function reads all its arrays and makes a new one. The tables name functions that do something else. A
function that writes although no table says so raises, because it gets read-only views (see `calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import setitem
from typing import Any

import numpy as np

from cuassay.devices.sim import calls
from cuassay.devices.sim.device_array import DeviceArray
from cuassay.devices.sim.functional import FUNCTIONAL
from cuassay.devices.sim.memory import poison

__all__ = [
    "WRITING_METHODS",
    "attribute",
    "call_function",
    "call_ufunc",
    "get_item",
    "is_like",
    "set_item",
    "written",
]

#: Functions that use only shapes and dtypes; they run on the array itself and return plain values.
_FACTS = frozenset(
    "shape ndim size result_type can_cast min_scalar_type iscomplexobj isrealobj may_share_memory shares_memory "
    "common_type".split()
)
#: Functions that make an array like another, without reading it.
_LIKE = frozenset("empty_like zeros_like ones_like full_like".split())


def _poisoned_like(*args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.empty_like` does, and poison the memory: reused memory would hide that nobody writes it."""
    made = np.empty_like(*args, **kwargs)
    raw = np.full(made.size * made.itemsize, poison(made.dtype), np.uint8)
    made[...] = raw.view(made.dtype).reshape(made.shape)
    return made


#: Replacements of functions. NumPy 2.3 and newer return `unique_values` in the order of a hash table, which the
#: standard allows; CuPy sorts them, and scikit-learn relies on that.
_INSTEAD: Mapping[str, Callable[..., Any]] = {
    "empty_like": _poisoned_like,
    "unique_values": partial(np.unique, equal_nan=False),
}
#: Functions that use only shapes, and make arrays from them.
_SHAPES = frozenset("diag_indices_from tril_indices_from triu_indices_from".split())
#: Functions whose number stays on the device, where NumPy returns a Python number.
_NUMBERS = frozenset(("count_nonzero",))
#: Functions and methods that may return a view; they have read the array only if they had to copy.
_VIEWS = frozenset(
    "getitem T mT real imag reshape transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis squeeze "
    "expand_dims ravel view broadcast_to broadcast_arrays atleast_1d atleast_2d atleast_3d split array_split hsplit "
    "vsplit dsplit unstack diagonal flip fliplr flipud rot90 sliding_window_view".split()
)
#: Functions that write one of their arguments: its position and name.
_WRITES: Mapping[str, tuple[int, str]] = {
    "copyto": (0, "dst"),
    "put": (0, "a"),
    "place": (0, "arr"),
    "putmask": (0, "a"),
    "fill_diagonal": (0, "a"),
    "put_along_axis": (0, "arr"),
}
#: Functions whose result's shape depends on values, so that the host has to wait for it, as on a real device.
_WAITS = frozenset(
    "nonzero argwhere flatnonzero unique unique_all unique_counts unique_inverse unique_values compress extract "
    "union1d intersect1d setdiff1d setxor1d trim_zeros histogram_bin_edges bincount delete roots".split()
)
#: Functions that would expose the memory itself to a file, or to the caller's function.
_ESCAPES = frozenset("save savez savez_compressed savetxt".split())
#: Methods of numpy.ndarray that simulated arrays have, by what they do to the array itself.
_READING_METHODS = frozenset(
    "all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod cumsum "
    "diagonal dot flatten max mean min nonzero prod ravel repeat reshape round searchsorted squeeze std sum swapaxes "
    "take trace transpose var view".split()
)
#: The methods that write the array itself; pinned arrays have them too.
WRITING_METHODS = frozenset("fill sort put partition".split())
_ATTRIBUTES = frozenset("T mT real imag".split())


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call ``ufunc.method(*inputs, **kwargs)``.

    An input that represents an array, as in `autograd`, handles it instead.
    """
    if any(hasattr(type(one), "represents") for one in inputs):
        return NotImplemented
    function = ufunc if method == "__call__" else getattr(ufunc, method)
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    outs = [one for one in kwargs.get("out", ()) if one is not None]
    return calls.call(name, function, inputs, kwargs, writes=[inputs[0]] if method == "at" else outs)


def call_function(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a NumPy function that dispatches by ``__array_function__``."""
    name = function.__name__
    if name in _FACTS:
        return function(*calls.unwrapped(args, DeviceArray), **calls.unwrapped(kwargs, DeviceArray))
    if name in _ESCAPES:
        raise TypeError(
            f"numpy.{name} would give access to device memory that is not tracked; give it the copy of .get()"
        )
    if name in FUNCTIONAL:
        return FUNCTIONAL[name](*args, **kwargs)
    return calls.call(
        name,
        partial(_kept, function) if name in _NUMBERS else _INSTEAD.get(name, function),
        args,
        kwargs,
        writes=written(name, args, kwargs),
        reads=name not in _LIKE and name not in _SHAPES,
        views=name in _VIEWS,
        waits=_is_waited_for(name, args, kwargs),
    )


def _is_waited_for(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the shape of the function's result depends on values of arrays."""
    if name == "where":
        return len(args) + len(kwargs) == 1
    if name == "repeat":
        return any(isinstance(one, DeviceArray) for one in (*args[1:2], kwargs.get("repeats")))
    return name in _WAITS


def _kept(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the number that `function` returns as an array without axes."""
    return np.asarray(function(*args, **kwargs))


def is_like(name: str) -> bool:
    """Whether the NumPy function of that name makes an array like another, which it does not read."""
    return name in _LIKE


def written(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that the NumPy function, or method, of that name writes."""
    out = kwargs.get("out")
    writes = [one for one in (out if isinstance(out, tuple) else (out,)) if one is not None]
    position, parameter = _WRITES.get(name, (0, "x"))
    if name in _WRITES or (name == "nan_to_num" and kwargs.get("copy", True) is False):
        writes.append(args[position] if len(args) > position else kwargs[parameter])
    return writes


def attribute(array: DeviceArray, name: str) -> Any:
    """Return ``array.name``: a NumPy method, tracked; anything else is rejected."""
    if name in _READING_METHODS or name in WRITING_METHODS:
        return partial(_method, array, name)
    if name in _ATTRIBUTES:
        return calls.call(name, partial(_get, name), (array,), {}, views=True)
    raise AttributeError(
        f"an array on {array.device} has no {name!r}: it would show device memory, or numpy.ndarray has none; "
        f"call .get() for a copy on the host"
    )


def _method(array: DeviceArray, name: str, *args: Any, **kwargs: Any) -> Any:
    writes = written(name, args, kwargs)
    if name in WRITING_METHODS:
        writes = [array]
    work = partial(_run_method, name)
    waits = _is_waited_for(name, (array, *args), kwargs)
    return calls.call(name, work, (array, *args), kwargs, writes=writes, views=name in _VIEWS, waits=waits)


def _run_method(method: str, array: np.ndarray[Any, Any], *args: Any, **kwargs: Any) -> Any:
    return getattr(array, method)(*args, **kwargs)


def _get(attribute: str, array: np.ndarray[Any, Any]) -> Any:
    return getattr(array, attribute)


def get_item(array: DeviceArray, index: Any) -> Any:
    """Return ``array[index]``, a view if NumPy gives one; a mask on the device makes the host wait for its count."""
    return calls.call("getitem", _item, (array, index), {}, views=True, waits=_has_mask(index))


def set_item(array: DeviceArray, index: Any, value: Any) -> None:
    """Assign ``array[index] = value``."""
    calls.call("setitem", setitem, (array, index, value), {}, writes=[array])


def _item(array: np.ndarray[Any, Any], index: Any) -> Any:
    found = array[index]
    # NumPy returns a scalar for a full index; here the array is kept, as a view.
    full = (*index, ...) if isinstance(index, tuple) else (index, ...)
    return found if isinstance(found, np.ndarray) else array[full]


def _has_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, DeviceArray) and part.dtype == np.bool_ for part in parts)
