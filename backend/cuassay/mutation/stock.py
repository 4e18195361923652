"""Stock mutants: functions that are wrong in the ways that reward most, whatever the function is.

Each takes the right function and gives a wrong one for the same arguments. A declaration that lets one pass is too weak
to judge by. Where the mutation tool changes the text of a function, these replace what it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name, is_float
from cuassay.testing.samples import each, over_lists

__all__ = ["STOCK", "Function", "Mutation", "replaced"]

#: A function of arrays of any device that gives one.
Function = Callable[..., Any]
Mutation = Callable[[Function], Function]

#: Name to mutation, in the order in which they are tried.
STOCK: dict[str, Mutation] = {}


def replaced(name: str) -> Mutation:
    """The stock mutation of that name, as a decorator: the wrong function bears the name and signature of the right."""
    return lambda right: wraps(right)(STOCK[name](right))


def _stock(name: str) -> Callable[[Mutation], Mutation]:
    def register(mutation: Mutation) -> Mutation:
        STOCK[name] = mutation
        return mutation

    return register


@_stock("zeros")
def _zeros(right: Function) -> Function:
    """Nothing at all."""
    return lambda *args, **kwargs: np.zeros_like(right(*args, **kwargs))


@_stock("copy of an input")
def _copy(right: Function) -> Function:
    """The first input that has the shape of the result; a part of it, where none has."""

    def copied(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        arrays = [one for one in each(args, kwargs) if _is_array(one) and one.size]
        fitting = next((one for one in arrays if one.shape == out.shape), None)
        if fitting is None and arrays:
            fitting = np.resize(arrays[0], out.shape)
        return np.zeros_like(out) if fitting is None else _cast(fitting, out.dtype)

    return copied


@_stock("first half for all")
def _half_mean(right: Function) -> Function:
    """The second half of each array is taken to be like the first: the mean of half of the numbers."""

    def mirrored(array: Any) -> Any:
        half = array.shape[-1] // 2
        array[..., array.shape[-1] - half :] = array[..., :half].copy()
        return array

    return _on_changed(right, mirrored)


@_stock("half of the terms")
def _half(right: Function) -> Function:
    """The second half of each array is left out."""

    def emptied(array: Any) -> Any:
        array[..., (array.shape[-1] + 1) // 2 :] = 0
        return array

    return _on_changed(right, emptied)


@_stock("rounded to 16 bits")
def _sixteen(right: Function) -> Function:
    """Results of 32 bits or more in the precision of float16, or of bfloat16 where they are beyond its range."""

    def rounded(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        if not is_float(out.dtype) or out.dtype.itemsize <= 2:
            return out
        with np.errstate(all="ignore"):
            narrow = out.astype(np.float16)
            if bool((np.isinf(narrow) & np.isfinite(out)).any()):
                narrow = out.astype(as_dtype("bfloat16"))
        return narrow.astype(out.dtype)

    return rounded


@_stock("stale answer")
def _stale(right: Function) -> Function:
    """The first answer of each shape, for ever."""
    kept: dict[Any, Any] = {}

    def stale(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        key = out.shape, dtype_name(out.dtype)
        if key not in kept:
            kept[key] = out
        return kept[key].copy()

    return stale


@_stock("constant")
def _constant(right: Function) -> Function:
    """The mean of the first right answer, everywhere and for ever."""
    means: list[Any] = []

    def constant(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        wide = out.astype(np.complex128 if np.iscomplexobj(out) else np.float64)
        finite = wide[np.isfinite(wide)]
        if not means and finite.size:
            means.append(complex(finite.mean()) if np.iscomplexobj(out) else float(finite.mean()))
        return _cast(np.zeros_like(wide) + (means[0] if means else 0.0), out.dtype)

    return constant


def _on_changed(right: Function, change: Callable[[Any], Any]) -> Function:
    """The right function of changed arrays."""

    def put(value: Any) -> Any:
        is_changed = _is_array(value) and value.ndim > 0 and value.shape[-1] > 1
        return change(value.copy()) if is_changed else value

    def changed(*args: Any, **kwargs: Any) -> Any:
        named = {name: over_lists(one, put) for name, one in kwargs.items()}
        return right(*(over_lists(one, put) for one in args), **named)

    return changed


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _cast(array: Any, dtype: np.dtype[Any]) -> Any:
    real = array.real if np.iscomplexobj(array) and dtype.kind != "c" else array
    with np.errstate(all="ignore"):
        return real.astype(dtype)
