"""All private names of CuPy that cuassay uses, each with its reason, under cuassay's own names.

`suites/pure/runtime/test_cupy_private.py` checks that no other file uses one, and
`suites/nvidia/runtime/test_cupy_private.py` names those that an installed CuPy lacks. If CuPy drops a name that has a
public counterpart, the slower public one is used. If it drops the hook of its waits, waits are not seen.

The savings, with CuPy 14.2 on a host without a GPU: `array.flags.c_contiguous` takes 0.176 µs, because it makes an
object first; the private attribute takes 0.018 µs, and `is_c_contiguous` 0.026 µs. `cupy.ndarray(...)` takes 0.81 µs,
and `make_array` 0.41 µs. The other names have no public counterpart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import cupy
import numpy as np

from cuassay.errors import LibraryNotFoundError

__all__ = [
    "PRIVATE",
    "BaseStream",
    "cublas",
    "cusolver",
    "dense_layout_of",
    "is_c_contiguous",
    "is_f_contiguous",
    "layout_of",
    "listen_to_waits",
    "make_array",
    "owner_of_memory",
    "traits_of",
]

Array = Any

#: Each name with the reason for its use.
PRIVATE = {
    "cupy.ndarray._c_contiguous": "`array.flags` makes an object at each read",
    "cupy.ndarray._f_contiguous": "`array.flags` makes an object at each read",
    "cupy._core.core._ndarray_base.__new__": "with `_init`, the constructor without its part for subclasses",
    "cupy._core.core._ndarray_base._init": "with `__new__`, the constructor without its part for subclasses",
    "cupy.cuda.UnownedMemory._owner": "the block that an array lies in; it has no public name",
    "cupy.cuda.stream._BaseStream": "what all of CuPy's streams are, and the only class that takes a handle as it is",
    "cupy._core.syncdetect._declare_synchronize": "CuPy calls it before the host waits; there is no public hook",
    "cupy_backends.cuda.libs.cublas": "batched factorizations, which `cupy.linalg` offers only with waits of the host",
    "cupy_backends.cuda.libs.cusolver": "factorizations, which `cupy.linalg` offers only with waits of the host",
}

# ------------------------------------------------------------------------------------------------ arrays

_ndarray: Any = cupy.ndarray
_C, _F = (
    f"_{order}_contiguous" if hasattr(_ndarray, f"_{order}_contiguous") else f"flags.{order}_contiguous"
    for order in "cf"
)

#: Whether a `cupy.ndarray` is contiguous in C order, or in Fortran order.
is_c_contiguous: Callable[[Array], bool] = attrgetter(_C)
is_f_contiguous: Callable[[Array], bool] = attrgetter(_F)


def in_one_order(*arrays: Array) -> bool:
    """Whether the arrays are contiguous in the same order: C, Fortran, or with the channels last (N, H, W, C)."""
    return (
        all(map(is_c_contiguous, arrays))
        or all(map(is_f_contiguous, arrays))
        or all(array.ndim == 4 and is_c_contiguous(array.transpose(0, 2, 3, 1)) for array in arrays)
    )


#: dtype, shape, and whether the array is contiguous in C order, in one C call.
layout_of: Callable[[Array], tuple[np.dtype[Any], tuple[int, ...], bool]] = attrgetter("dtype", "shape", _C)

#: dtype, shape, and contiguity in C and in Fortran order; for a dense array this is everything but the address.
dense_layout_of: Callable[[Array], tuple[np.dtype[Any], tuple[int, ...], bool, bool]] = attrgetter(
    "dtype", "shape", _C, _F
)

#: Address, device index, class of the memory object, shape, strides, dtype, and contiguity in C order, in one C call.
#: None of them keeps the memory alive.
traits_of: Callable[[Array], tuple[Any, ...]] = attrgetter(
    "data.ptr", "data.device_id", "data.mem.__class__", "shape", "strides", "dtype", _C
)


def _short(shape: tuple[int, ...], dtype: Any, memory: Any) -> Array:
    """Do what ``cupy.ndarray(shape, dtype, memory)`` does, without the constructor's work for subclasses."""
    array = _blank(_ndarray)
    array._init(shape, dtype, memory)  # noqa: SLF001
    return array


def _has_short_way() -> bool:
    """Whether this CuPy's arrays can still be made this way; an empty array, which needs no device, tests it."""
    asked = (0, 3), "float32", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, 0), 0)
    try:
        made, wanted = _short(*asked), _ndarray(*asked)
    except (AttributeError, TypeError):
        return False
    return all(getattr(made, fact) == getattr(wanted, fact) for fact in ("__class__", "shape", "strides", "dtype"))


_blank: Any = getattr(getattr(cupy._core.core, "_ndarray_base", None), "__new__", None)  # noqa: SLF001

#: Makes a C-contiguous `cupy.ndarray` from a shape, a dtype and a `cupy.cuda.MemoryPointer`.
make_array: Callable[[tuple[int, ...], Any, Any], Array] = _short if _has_short_way() else _ndarray

#: The owner of a `cupy.cuda.UnownedMemory`, as a descriptor, so that a subclass can give it a public name.
owner_of_memory: Any = cupy.cuda.UnownedMemory._owner  # noqa: SLF001

# ------------------------------------------------------------------------------------------------ streams and waits

#: The base class of all kinds of CuPy streams.
BaseStream: Any = cupy.cuda.Stream.__base__

_syncdetect: Any = getattr(cupy._core, "syncdetect", None)  # noqa: SLF001
_declare: Any = getattr(_syncdetect, "_declare_synchronize", None)


_listeners: dict[str, Callable[[], None]] = {}


def listen_to_waits(name: str, listener: Callable[[], None] | None) -> None:
    """Call `listener` before each wait of the host that CuPy reports; None removes the listener of that name."""
    _listeners.pop(name, None)
    if listener is not None:
        _listeners[name] = listener
    if _declare is not None:
        _syncdetect._declare_synchronize = _tell_of_wait if _listeners else _declare  # noqa: SLF001


def _tell_of_wait() -> None:
    for listener in tuple(_listeners.values()):
        listener()
    _declare()


# ------------------------------------------------------------------------------------------------ libraries


@cache
def cublas() -> Any:
    """Return CuPy's bindings of cuBLAS."""
    from cupy_backends.cuda.libs import cublas

    return cublas


@cache
def cusolver() -> Any:
    """Return CuPy's bindings of cuSOLVER, loaded at the first call: other operations must work without it.

    Raises
    ------
    LibraryNotFoundError
        If the library is absent.
    """
    try:
        from cupy_backends.cuda.libs import cusolver
    except ImportError as error:
        raise LibraryNotFoundError(
            f"cuSOLVER could not be loaded: {error}; install it with the CUDA toolkit or as nvidia-cusolver"
        ) from error
    return cusolver
