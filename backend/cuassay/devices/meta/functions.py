"""NumPy's functions and operators on arrays without memory: views, arrays like others, and elementwise results.

NumPy itself decides the dtype of an elementwise function: it is called with a one of each dtype instead of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.arrays.layout import as_shape, broadcast_shapes
from cuassay.core.words import shown
from cuassay.devices.meta import headers
from cuassay.errors import ArgumentError, DTypeError, MissingNameError, ShapeError
from cuassay.ops import shapes

if TYPE_CHECKING:
    from cuassay.devices.meta.array import MetaArray

__all__ = ["ADVICE", "OFFERED", "call_function", "call_ufunc", "fits"]

ADVICE = (
    "kind meta has views, operators and NumPy's elementwise functions; call the op of cuassay.ops for anything else, "
    "such as cuassay.ops.sum"
)
"""Advice in the error for a NumPy name that is not offered."""

#: Functions that use only shapes and dtypes; they run on the header and return plain values.
_FACTS = frozenset("shape ndim size result_type can_cast iscomplexobj isrealobj common_type".split())

#: Functions that return a view of their first argument.
_VIEWS = frozenset(
    "transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis squeeze expand_dims broadcast_to flip fliplr "
    "flipud diagonal".split()
)

#: Functions that return an array like their first argument.
_LIKE = frozenset("empty_like zeros_like ones_like full_like".split())

OFFERED = _FACTS | _VIEWS | _LIKE | {"reshape"}
"""NumPy's functions, in addition to the ufuncs, that take arrays without memory."""


def call_function(made: type[MetaArray], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a NumPy function that dispatches by ``__array_function__``.

    Raises
    ------
    MissingNameError
        If the function is not in the tables above; the message says what to use instead.
    """
    name = function.__name__
    if not args:  # the array, which is the first parameter, may have been given by name
        first = next(iter(signature(function).parameters))
        args, kwargs = (kwargs[first],), {key: value for key, value in kwargs.items() if key != first}
    if name in _FACTS:
        return function(*(_header(made, one) for one in args), **kwargs)
    if name in _LIKE:
        return _like(made, *args, **kwargs)
    if name == "reshape":
        return _reshape(*args, **kwargs)
    if name in _VIEWS and isinstance(args[0], made):
        return args[0].viewed(function(headers.header_of(args[0]), *args[1:], **kwargs))
    raise MissingNameError(f"numpy.{name} is not offered for arrays without memory; {ADVICE}")


def _header(made: type[MetaArray], value: Any) -> Any:
    return headers.header_of(value) if isinstance(value, made) else value


def _reshape(a: MetaArray, shape: Any, order: str = "C", *, copy: bool | None = None) -> MetaArray:
    """`a` in another shape, its elements taken in C order."""
    if order != "C":
        raise MissingNameError(f"numpy.reshape is not offered with order={order!r}; {ADVICE}")
    return a.reshape(shape, copy=copy)


def _like(
    made: type[MetaArray], a: Any, fill_value: Any = 0, /, dtype: Any = None, *, shape: Any = None, **layout: Any
) -> MetaArray:
    """Return an array with the shape and the order of axes of `a`, or a C-contiguous one with `shape`."""
    del fill_value, layout
    wanted = a.dtype if dtype is None else as_dtype(dtype)
    return made(
        headers.kept_order(headers.header_of(a), wanted) if shape is None else headers.empty(as_shape(shape), wanted)
    )


def call_ufunc(
    made: type[MetaArray], ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return ``ufunc(*inputs)`` for an elementwise ufunc or matmul; defer to inputs that represent arrays.

    Raises
    ------
    MissingNameError
        If it is a reduction or another method of the ufunc, or has other keywords than ``out=``.
    ShapeError, DTypeError, ArgumentError
        If the inputs do not match, or `out` does not fit the result; NumPy's own error if it rejects the dtypes.
    """
    if any(hasattr(type(one), "represents") for one in inputs):
        return NotImplemented
    if method != "__call__" or kwargs.keys() - {"out"} or (ufunc.signature is not None and ufunc is not np.matmul):
        raise MissingNameError(f"numpy.{ufunc.__name__}.{method} is not offered with these arguments; {ADVICE}")
    for one in inputs:
        if isinstance(one, np.ndarray):
            raise ArgumentError(
                f"an operand of numpy.{ufunc.__name__} is on the host, and the others are on meta:0; got {shown(one)}; "
                "move it with cuassay.from_host(array, 'meta')"
            )
    shape = _product(inputs) if ufunc is np.matmul else broadcast_shapes(*(shapes.shape_of(one) for one in inputs))
    found = _dtypes(made, ufunc, inputs)
    outs = kwargs.get("out") or (None,) * len(found)
    results = tuple(
        made(headers.empty(shape, dtype)) if out is None else _fitting(made, out, shape, dtype)
        for out, dtype in zip(outs, found, strict=True)
    )
    return results if len(results) > 1 else results[0]


def _product(inputs: Sequence[Any]) -> tuple[int, ...]:
    return shapes.matmul({"a": inputs[0], "b": inputs[1]})


def _dtypes(made: type[MetaArray], ufunc: np.ufunc, inputs: Sequence[Any]) -> list[np.dtype[Any]]:
    """Return the dtype of each result, by a call with a one for each array; Python numbers stay as they are."""
    shape = (1, 1) if ufunc is np.matmul else (1,)
    ones = [np.ones(shape, one.dtype) if isinstance(one, made) else one for one in inputs]
    with np.errstate(all="ignore"):
        found = ufunc(*ones)
    return [one.dtype for one in (found if isinstance(found, tuple) else (found,))]


def _fitting(made: type[MetaArray], out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> MetaArray:
    """Return `out` after checking that it can take a result of `shape` and `dtype` by NumPy's rules."""
    if not isinstance(out, made):
        raise ArgumentError(f"out must be an array of meta:0, as the inputs; got {shown(out)}; give one, or omit out=")
    if not fits(shape, out.shape):
        raise ShapeError(f"a result of shape {shape} cannot be written to an out of shape {out.shape}; reshape it")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise DTypeError(
            f"a result of {dtype_name(dtype)} cannot be written to an out of {dtype_name(out.dtype)}; cast the result"
        )
    return out


def fits(shape: tuple[int, ...], place: tuple[int, ...]) -> bool:
    """Return whether an array of `shape` broadcasts to shape `place`."""
    last = place[len(place) - len(shape) :] if shape else ()
    return len(shape) <= len(place) and all(one in (1, other) for one, other in zip(shape, last, strict=True))
