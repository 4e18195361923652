"""NumPy functions that call a function of the caller, rewritten for device arrays.

NumPy's versions would pass the memory itself to that function. Here it gets device arrays, and what it does with them
is tracked as anywhere else. They follow NumPy's ``lib/_shape_base_impl.py`` and ``lib/_function_base_impl.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from cuassay.arrays import layout
from cuassay.devices.sim import creation
from cuassay.devices.sim.device_array import DeviceArray
from cuassay.errors import ArgumentError

__all__ = ["FUNCTIONAL", "as_strided", "fromfunction"]

Array = Any


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Array, *args: Any, **kwargs: Any) -> Array:
    """Call ``func1d(row, *args, **kwargs)`` for each row of `arr` along `axis`; results are laid out as NumPy does."""
    axis = normalize_axis_index(axis, arr.ndim)
    rows = np.moveaxis(arr, axis, -1)
    outer = rows.shape[:-1]
    if 0 in outer:
        raise ValueError(
            f"apply_along_axis got an array of shape {arr.shape}: it has no row; give an array without an extent of 0"
        )
    maker = creation.Creation(arr.owner)
    gathered: Array = None
    for position in np.ndindex(outer):
        result = maker.asarray(func1d(rows[position], *args, **kwargs))
        if gathered is None:
            gathered = maker.empty(outer + result.shape, result.dtype)
        gathered[position] = result
    inner = tuple(range(len(outer), gathered.ndim))
    return np.moveaxis(gathered, inner, tuple(axis + step for step in range(len(inner))))


def apply_over_axes(func: Callable[..., Any], a: Array, axes: Any) -> Array:
    """Apply `func` over each of `axes` in turn, keeping the number of axes."""
    value = a
    for axis in (axes,) if np.ndim(axes) == 0 else axes:
        at = axis + a.ndim if axis < 0 else axis
        result = func(value, at)
        value = result if result.ndim == value.ndim else np.expand_dims(result, at)
        if value.ndim != a.ndim:
            raise ValueError(f"apply_over_axes needs a function that removes one axis; got {result!r} of {a!r}")
    return value


def piecewise(x: Array, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Select a value, or a function's result on `x`, where each condition holds; the host waits for each count."""
    maker = creation.Creation(x.owner)
    if _is_one_condition(condlist, x):
        condlist = [condlist]
    conditions: Array = maker.asarray(condlist, bool)
    if len(conditions) == len(funclist) - 1:
        conditions = np.concatenate([conditions, ~np.any(conditions, axis=0, keepdims=True)])
    if len(conditions) != len(funclist):
        raise ValueError(
            f"piecewise takes as many functions as conditions, or one more; got {len(funclist)} and {len(conditions)}"
        )
    made = np.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function
        if callable(function):
            chosen = x[condition]
            value = function(chosen, *args, **kw) if chosen.size else 0
        made[condition] = value
    return made


def _is_one_condition(condlist: Any, x: Array) -> bool:
    """Whether `condlist` is itself a condition, by NumPy's rule: a number, or numbers if `x` has axes."""
    if isinstance(condlist, DeviceArray):
        return condlist.ndim == 0 or (condlist.ndim == 1 and x.ndim > 0)
    is_listed = not np.isscalar(condlist) and isinstance(condlist[0], (list, tuple, DeviceArray))
    return np.isscalar(condlist) or (x.ndim > 0 and not is_listed)


#: The functions that serve NumPy's names if a simulated array is among the arguments.
FUNCTIONAL: Mapping[str, Callable[..., Any]] = {
    "apply_along_axis": apply_along_axis,
    "apply_over_axes": apply_over_axes,
    "piecewise": piecewise,
}


def fromfunction(indices: Array, function: Callable[..., Any], **kwargs: Any) -> Array:
    """Call `function` with the `indices` of each axis, which are device arrays."""
    return function(*indices, **kwargs)


def as_strided(x: Array, shape: Any = None, strides: Any = None) -> Array:
    """Return a view of the memory of `x` with that `shape` and `strides` (in bytes).

    Raises
    ------
    ArgumentError
        If it would leave the memory that `x` was made in, which belongs to another array.
    """
    extents = tuple(x.shape if shape is None else layout.as_shape(shape))
    steps = tuple(x.strides if strides is None else strides)
    start = x.raw.__array_interface__["data"][0] - x.owner.arena.base
    low, high = layout.byte_range(extents, steps, x.itemsize, start)
    if x.block is None or 0 in extents:
        return x.reshape(-1)[:0].reshape(extents)
    if low < x.block.low or high > x.block.high:
        raise ArgumentError(
            f"as_strided of {x!r} to shape {extents} and strides {steps} would touch bytes {low - start} to "
            f"{high - start} from its first element, outside its memory; give strides that stay within"
        )
    raw: np.ndarray[Any, Any] = np.ndarray(extents, x.dtype, x.owner.arena.buffer, start, steps)
    return x.owner.array(raw, x.block)
