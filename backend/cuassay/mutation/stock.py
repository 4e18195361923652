"""Stock mutants: generic wrong versions of a function, in the ways that pay off most for someone who cheats.

Each takes the right function and returns a wrong one with the same arguments. A declaration that lets one pass is too
weak. While other mutants change the text of a function, these replace its result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name, is_float
from cuassay.testing.samples import each, over_arguments

__all__ = ["STOCK", "Function", "Mutation", "replaced"]

#: A function from arrays of any device to an array.
Function = Callable[..., Any]
Mutation = Callable[[Function], Function]

#: From a name to a mutation, in the order in which they are tried.
STOCK: dict[str, Mutation] = {}


def replaced(name: str) -> Mutation:
    """Return the stock mutation of this name as a decorator that preserves the function's name and signature."""
    return lambda right: wraps(right)(STOCK[name](right))


def _stock(name: str) -> Callable[[Mutation], Mutation]:
    def register(mutation: Mutation) -> Mutation:
        STOCK[name] = mutation
        return mutation

    return register


@_stock("zeros")
def _zeros(right: Function) -> Function:
    """Return zeros."""
    return lambda *args, **kwargs: np.zeros_like(right(*args, **kwargs))


@_stock("copy of an input")
def _copy(right: Function) -> Function:
    """Return the first input with the shape of the result, or the first input resized if there is none."""

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
    """Compute with the second half of each array replaced by the first, as a mean of half of the numbers does."""

    def mirrored(array: Any) -> Any:
        half = array.shape[-1] // 2
        array[..., array.shape[-1] - half :] = array[..., :half].copy()
        return array

    return _on_changed(right, mirrored)


@_stock("half of the terms")
def _half(right: Function) -> Function:
    """Compute with the second half of each array replaced by zeros."""

    def emptied(array: Any) -> Any:
        array[..., (array.shape[-1] + 1) // 2 :] = 0
        return array

    return _on_changed(right, emptied)


@_stock("rounded to 16 bits")
def _sixteen(right: Function) -> Function:
    """Round results of 32 bits or more to float16, or to bfloat16 if they are out of its range."""

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
    """Always return the first result of each shape and dtype."""
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
    """Always return the mean of the first right result, in every element."""
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
    """Return the right function, applied to changed arrays."""

    def put(value: Any) -> Any:
        is_changed = _is_array(value) and value.ndim > 0 and value.shape[-1] > 1
        return change(value.copy()) if is_changed else value

    def changed(*args: Any, **kwargs: Any) -> Any:
        given, named = over_arguments(args, kwargs, put)
        return right(*given, **named)

    return changed


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _cast(array: Any, dtype: np.dtype[Any]) -> Any:
    real = array.real if np.iscomplexobj(array) and dtype.kind != "c" else array
    with np.errstate(all="ignore"):
        return real.astype(dtype)
