"""Which of NumPy's and CuPy's names the namespace of a simulated device has: tables with reasons.

A name is either a NumPy function that runs on the device (the default, in `namespace`), a value, or rejected here. A
rejection says what to use instead, because the alternative would be a result that is silently on the host.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from cuassay.core.device import Device
from cuassay.errors import MissingNameError

__all__ = ["BUILDERS", "HOST", "MODULES", "TAKES_DEVICE", "is_harmless_class", "refuse"]

_FILES = "it deals with files on the host; use numpy.{name} with array.get(), and xp.asarray for what it reads"
_CLASSES = "it is a class for host arrays"
_KERNELS = "sim compiles no kernels; write the function with xp, or test the kernel with --device cuda"
_POOLS = "pools are CuPy's; see cuassay.memory and the allocator of cuassay.devices.backend('sim')"

#: Names of NumPy that are rejected, and what to use.
_REFUSED: dict[str, str] = {
    "frombuffer": "it would show host memory; use xp.asarray(numpy.frombuffer(...))",
    "memmap": "it would show a file; use xp.asarray(numpy.memmap(...))",
    **{name: _FILES.format(name=name) for name in "load fromfile save savez savez_compressed savetxt".split()},
    "broadcast": f"{_CLASSES}; use xp.broadcast_arrays, or xp.broadcast_shapes",
    "flatiter": f"{_CLASSES}; use array.ravel()",
    "nditer": f"{_CLASSES}; use xp's functions, or numpy.nditer(array.get())",
    "poly1d": f"{_CLASSES}; use xp.polyval and its like on arrays of coefficients",
    "polynomial": "its functions are of the host; use xp.polyval, xp.polyfit and their like, or array.get()",
    "testing": "it compares host arrays; use cuassay.testing.assert_close, or compare what .get() gives",
    "ctypeslib": "there is no host pointer to device memory",
    "matrix": f"{_CLASSES}; use xp.asarray, which gives two axes to nested lists",
    "frompyfunc": "it makes arrays of Python objects; use xp.vectorize",
}

#: Names of CuPy that NumPy lacks, and what to use.
_CUPY_ONLY: dict[str, str] = {
    **dict.fromkeys("ElementwiseKernel ReductionKernel RawKernel RawModule fuse".split(), _KERNELS),
    **dict.fromkeys("get_default_memory_pool get_default_pinned_memory_pool".split(), _POOLS),
    "get_array_module": "use array.__array_namespace__()",
    "cuda": "streams and events are those of cuassay.devices.backend('sim') and of cuassay.cuda",
    "is_available": "use cuassay.testing's --device, or cuassay.devices.kinds()",
    "clear_memo": "sim keeps no compiled kernels",
    "memoize": "use functools.cache",
    "scatter_add": "use xp.add.at",
}

#: Modules that are also namespaces on the device; `lib` and `random` have separate implementations.
MODULES = frozenset(("linalg", "fft"))

#: Modules without arrays.
_HOST_MODULES = frozenset(("dtypes", "exceptions"))

#: Functions that return facts about dtypes, shapes and settings, which involve no device.
HOST = frozenset(
    "base_repr binary_repr broadcast_shapes can_cast common_type errstate format_float_positional "
    "format_float_scientific get_printoptions geterr isdtype isfortran isscalar issubdtype iterable min_scalar_type "
    "mintypecode ndim printoptions promote_types result_type set_printoptions seterr shape show_config size "
    "typename".split()
)

#: Functions that take ``device=``.
TAKES_DEVICE = frozenset(
    "arange array asanyarray asarray ascontiguousarray asfortranarray astype bartlett blackman empty empty_like eye "
    "fftfreq from_dlpack fromfunction fromiter fromstring full full_like geomspace hamming hanning identity indices "
    "kaiser linspace logspace ones ones_like require rfftfreq tri vander zeros zeros_like".split()
)

#: Objects that make arrays from an indexing expression.
BUILDERS = frozenset(("c_", "mgrid", "ogrid", "r_"))


def is_harmless_class(found: type) -> bool:
    """Whether a NumPy class may be used as it is, because it holds no array."""
    return issubclass(found, (np.generic, np.dtype, np.ufunc, np.ndindex, np.errstate, BaseException))


def refuse(name: str, device: Device, module: str = "xp") -> NoReturn:
    """Raise for a name that the tables reject or do not know; the message gives the reason, if there is one."""
    reason = _REFUSED.get(name) or _CUPY_ONLY.get(name)
    if reason is None and hasattr(np, name):
        reason = f"it works on host arrays; call it on array.get(), and move its result with xp.asarray (numpy.{name})"
    if reason is None:
        raise AttributeError(f"module {module!r} of {device} has no attribute {name!r}, nor has NumPy")
    raise MissingNameError(f"xp.{name} is not offered on {device}: {reason}")


def lookup(name: str, module: Any, device: Device) -> Any:
    """Return NumPy's object of that name in `module`; raise if the tables reject it."""
    if name in _REFUSED or not hasattr(module, name):
        refuse(name, device, module.__name__)
    return getattr(module, name)


def is_host_module(name: str) -> bool:
    """Whether the module of that name holds no arrays."""
    return name in _HOST_MODULES
