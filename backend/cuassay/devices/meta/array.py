"""The array of kind `meta`: it wraps a header (see `headers`), and NumPy's rules on the header give its views.

Operators and NumPy's elementwise functions return arrays with the shape and dtype of NumPy's results. Other computation
needs an op of `cuassay.ops`. Reading a value raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import EllipsisType
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.devices.meta import functions, headers
from cuassay.devices.meta.stream import DEVICE
from cuassay.errors import ArgumentError, CapabilityError, MissingNameError, ShapeError
from cuassay.ops import views

__all__ = ["MetaArray", "no_values"]


class MetaArray(NDArrayOperatorsMixin):
    """An array without memory.

    Created by the namespace of the device, `cuassay.empty`, `cuassay.from_host` or an operation, never directly.

    Parameters
    ----------
    header : numpy.ndarray
        Holds shape, strides and dtype; see `cuassay.devices.meta.headers`.
    memory : object, optional
        An object that represents the memory and is shared with views; a new one by default.
    """

    __slots__ = ("__weakref__", "_header", "memory")

    # Comparison returns an array, so there is no hash, as in numpy.ndarray.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, header: headers.Header, memory: object = None) -> None:
        self._header = header
        self.memory = object() if memory is None else memory

    def __repr__(self) -> str:
        return f"MetaArray(shape={self.shape}, dtype={self.dtype}, device='{DEVICE}')"

    # ---------------------------------------------------------------------------------------------- facts

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return self._header.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._header.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._header.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._header.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._header.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes that all elements would take."""
        return self._header.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by axis."""
        return self._header.strides

    @property
    def flags(self) -> Any:
        """Contiguity, by NumPy's names."""
        return self._header.flags

    @property
    def device(self) -> Device:
        """The device of the array: always ``meta:0``."""
        return DEVICE

    def __len__(self) -> int:
        return len(self._header)

    # ---------------------------------------------------------------------------------------------- views

    def viewed(self, header: np.ndarray[Any, Any]) -> MetaArray:
        """A view of this array's memory that `header` describes."""
        return MetaArray(header.view(headers.Header), self.memory)  # NumPy's broadcast_to gives a plain array

    def transpose(self, *axes: Any) -> MetaArray:
        """The axes in this order; reversed where none is given."""
        return self.viewed(self._header.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> MetaArray:
        """Two axes exchanged."""
        return self.viewed(self._header.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> MetaArray:
        """Without axes of extent 1."""
        return self.viewed(self._header.squeeze(axis))

    def reshape(self, *shape: Any, copy: bool | None = None) -> MetaArray:
        """The same elements in another shape: a view where the strides allow one, else a new array.

        Parameters
        ----------
        *shape : int or tuple of int
            The extents; one of them may be -1.
        copy : bool, optional
            True always gives a new array. False raises `ArgumentError` where the strides allow no view.
        """
        wanted = shape[0] if len(shape) == 1 else shape
        extents = views.reshaped({"a": self, "shape": wanted})
        header = None if copy else headers.reshaped(self._header, extents)
        if header is None and copy is False:
            raise ArgumentError(
                f"the shape {extents} needs a copy of {self!r}, whose strides are {self.strides}; got copy=False; omit "
                "copy="
            )
        return MetaArray(headers.empty(extents, self.dtype)) if header is None else self.viewed(header)

    def ravel(self) -> MetaArray:
        """Return the elements along one axis: a view if the strides allow it, else a new array."""
        return self.reshape(-1)

    def __getitem__(self, index: Any) -> MetaArray:
        """Return a view, indexed by whole numbers, slices, None and ``...``.

        Raises
        ------
        CapabilityError
            If the index is a mask, because its values would decide the shape.
        ArgumentError
            If it is another array, or any other object.
        """
        parts = _basic(index)
        return self.viewed(self._header[parts if ... in parts else (*parts, ...)])  # with ... an element is a view too

    def __iter__(self) -> Iterator[MetaArray]:
        if not self.ndim:
            raise TypeError("a 0-d array cannot be iterated over; give it an axis with reshape(1)")
        return (self[position] for position in range(len(self)))

    # ---------------------------------------------------------------------------------------------- new arrays

    def copy(self) -> MetaArray:
        """Return a C-contiguous array of the same shape and dtype."""
        return MetaArray(headers.empty(self.shape, self.dtype))

    def astype(self, dtype: Any, *, copy: bool = True) -> MetaArray:
        """Return an array of the same shape in `dtype`, with the same order of axes in memory."""
        wanted = as_dtype(dtype)
        return self if not copy and wanted == self.dtype else MetaArray(headers.kept_order(self._header, wanted))

    def __copy__(self) -> MetaArray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> MetaArray:
        return self.copy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _restored, (self.shape, self.strides, self.dtype)

    # ---------------------------------------------------------------------------------------------- writing

    def fill(self, value: Any) -> None:
        """Check that `value` fits the dtype, raising as NumPy does; write nothing."""
        if isinstance(value, MetaArray):
            _check_fits((), value)
        else:
            np.empty((), self.dtype).fill(value)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Nothing is written; raises `ShapeError` where `value` does not broadcast to the place.

        Of a value that is not an array of this kind, raises as NumPy does where the dtype cannot hold it.
        """
        _check_fits(self[index].shape, value)
        if not isinstance(value, MetaArray):
            np.empty(np.shape(value), self.dtype)[...] = value

    # ---------------------------------------------------------------------------------------------- NumPy

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return functions.call_ufunc(MetaArray, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        return functions.call_function(MetaArray, function, args, kwargs)

    def __getattr__(self, name: str) -> MetaArray:
        if name in ("T", "mT"):
            return self.viewed(getattr(self._header, name))
        raise MissingNameError(f"{self!r} has no {name!r}; {functions.ADVICE}")

    # ---------------------------------------------------------------------------------------------- values: none

    def get(self) -> NoReturn:
        """Raise `CapabilityError`, as everything that asks for values does."""
        self._refuse("get")

    def item(self, *index: Any) -> NoReturn:
        """Raise `CapabilityError`."""
        self._refuse("item")

    def tolist(self) -> NoReturn:
        """Raise `CapabilityError`."""
        self._refuse("tolist")

    def tobytes(self, order: Any = "C") -> NoReturn:
        """Raise `CapabilityError`."""
        self._refuse("tobytes")

    def __bool__(self) -> bool:
        raise no_values(self, "bool")

    def __int__(self) -> NoReturn:
        self._refuse("int")

    def __float__(self) -> NoReturn:
        self._refuse("float")

    def __complex__(self) -> NoReturn:
        self._refuse("complex")

    def __index__(self) -> int:
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError(f"only a 0-d integer array is an index; got {self!r}")
        raise no_values(self, "index")

    def __contains__(self, value: Any) -> NoReturn:
        self._refuse("in")

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse("format")
        return repr(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        self._refuse("numpy.asarray")

    def _refuse(self, what: str) -> NoReturn:
        raise no_values(self, what)


def no_values(array: MetaArray, what: str) -> CapabilityError:
    """Return the error for `what`, which reads a value of `array`."""
    return CapabilityError(
        f"{what} reads values, and an array of {DEVICE} has none; got {array!r}; plan with shapes and dtypes alone, or "
        "call the function with arrays of another kind, such as cuassay.from_host(values, 'cpu')"
    )


def _restored(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> MetaArray:
    """Rebuild a pickled array."""
    return MetaArray(headers.strided(shape, strides, dtype))


def _basic(index: Any) -> tuple[Any, ...]:
    """Return the parts of an index that selects a view. Raises `CapabilityError` or `ArgumentError` for others."""
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        if part is None or isinstance(part, slice | EllipsisType) or _is_place(part):
            continue
        if getattr(part, "dtype", None) == np.bool_:
            raise CapabilityError(
                f"the shape of array[mask] depends on the mask's values, and an array of {DEVICE} has none; got "
                f"{shown(part)}; use cuassay.ops.where, whose result has the shape of its arguments"
            )
        raise ArgumentError(
            f"an array of {DEVICE} is indexed by whole numbers, slices, None and ...; got {shown(part)}; use "
            "cuassay.ops.embedding or cuassay.ops.gather for an index that is an array"
        )
    return parts


def _is_place(part: Any) -> bool:
    return not isinstance(part, bool | np.bool_ | MetaArray) and as_whole(part) is not None


def _check_fits(shape: tuple[int, ...], value: Any) -> None:
    given = tuple(np.shape(value))
    if not functions.fits(given, shape):
        raise ShapeError(f"a value of shape {given} cannot be written to a place of shape {shape}; reshape it")
