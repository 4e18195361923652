"""Elementwise operations and copies on CuPy arrays, by cuassay's own kernels.

CuPy's elementwise kernels load one element at a time: on an H200 its bfloat16 `add` ran at 1.2 TB/s, where the copy
rate is 4.0. These kernels load 16 bytes. CuPy's complex64 `add` and `mul` also flush subnormal numbers to zero; its
complex `exp` and its copies are correct, and are used. Kernels: kernels/elementwise.cu. Called by `cuassay.ops`;
OpSpecs: `cuassay.testing.specs.elementwise`.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import ALL, COMPLEX, FP8, compute_dtype, dtype_name
from cuassay.arrays.layout import is_channels_last
from cuassay.devices.cuda.driver.cupy_private import in_one_order
from cuassay.devices.cuda.eager.repeated import Repeated, only_launches
from cuassay.devices.cuda.launch.launch import Kernel, kernel
from cuassay.devices.cuda.launch.source import kernel_source
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops import peers, transposed
from cuassay.devices.cuda.ops.layouts import MAX_AXES, PACK_NBYTES, merged_axes, pack_length
from cuassay.errors import ArgumentError
from cuassay.ops import Op, registry

__all__ = [
    "ElementwiseKernel",
    "add",
    "c_name",
    "cast",
    "launch_strided",
    "layout_of_strides",
    "packed",
    "register",
]

Array = Any

_FLOAT32 = np.dtype(np.float32)
_BLOCK = 256

#: What the kernels do not compute, apart from float8; complex ``exp`` is CuPy's.
_LEFT_OUT = {"exp": COMPLEX}

#: The structs of GELU and its derivative, by the op's ``approximate``.
_GELU = {
    "gelu": {"none": "Gelu", "tanh": "GeluTanh"},
    "gelu_backward": {"none": "GeluBackward", "tanh": "GeluTanhBackward"},
}

#: Structs whose operands may be exchanged; the others need `Swapped` if the number is the first operand.
_COMMUTE = frozenset(("Add", "Mul", "Maximum", "Minimum"))


class _Layout(ctypes.Structure):
    """``Layout`` of elementwise.cu."""

    _fields_ = (
        ("n", ctypes.c_int64),
        ("axes", ctypes.c_int64),
        ("extent", ctypes.c_int64 * MAX_AXES),
        ("stride", ctypes.c_int64 * MAX_AXES * 4),
    )


@cache
def c_name(dtype: np.dtype[Any]) -> str:
    """Return the type of element.cuh that holds `dtype`."""
    name = dtype_name(dtype)
    return "uint8" if name == "bool" else name


#: The kernel, its grid and its arguments.
_Dense = tuple[Kernel, tuple[int, int, int], tuple[Any, ...]]


class ElementwiseKernel:
    """An operation computed by cuassay's kernels, on the current stream; it is an implementation that offers plans.

    Parameters
    ----------
    functor : callable
        Maps the operation's scalars to the struct of elementwise.cu.
    """

    only_launches = True  # see `repeated`

    def __init__(self, functor: Callable[..., str]) -> None:
        self._functor = functor

    def __call__(self, *operands: Any, out: Array, **scalars: Any) -> None:
        """Compute ``out = functor(*operands)`` with broadcasting; one of two operands may be a Python number."""
        if not out.size:
            return
        functor, ordered = _number_last(self._functor(**scalars), operands, out)
        dense = _dense(functor, ordered, out)
        if dense is None:
            _strided(*ordered, out=out, functor=functor)
        else:
            launched, grid, arguments = dense
            launched(grid, _BLOCK, arguments)

    def prepare(self, op: Op, bound: Mapping[str, Any], out: Array) -> Callable[[], None]:
        """Prepare one launch if the arrays are dense; otherwise return the call as it is."""
        operands = [bound[name] for name in op.schema.array_names]
        scalars = {name: bound[name] for name in op.schema.scalar_names}
        functor, ordered = _number_last(self._functor(**scalars), operands, out)
        dense = _dense(functor, ordered, out) if out.size else None
        if dense is None:
            return partial(self, *operands, out=out, **scalars)
        launched, grid, arguments = dense
        return launched.bind(grid, _BLOCK, arguments)


def _number_last(functor: str, operands: Sequence[Any], out: Array) -> tuple[str, Sequence[Any]]:
    """Put a Python number second, in the dtype of the computation, and return the struct that expects it there."""
    a, b = operands[0], operands[-1]
    if isinstance(a, cupy.ndarray) and isinstance(b, cupy.ndarray):
        return functor, operands
    is_last = isinstance(a, cupy.ndarray)
    array, number = (a, b) if is_last else (b, a)
    weak = np.asarray(number, dtype=compute_dtype(out.dtype))  # OverflowError if an integer does not fit
    return functor if is_last or functor in _COMMUTE else f"Swapped<{functor}>", (array, weak[()])


def _dense(functor: str, operands: Sequence[Any], out: Array) -> _Dense | None:
    """Return the launch for arrays that have one dtype and are contiguous in the same order, or None for others.

    Operands broadcast to `out`: an operand with as many elements has its shape, except for leading axes of extent 1.
    """
    form = "binary" if len(operands) == 2 else "unary"
    arrays = [*operands, out]
    if not isinstance(operands[-1], cupy.ndarray):
        form, arrays = "scalar", [operands[0], out]
    dtype, size, addresses = out.dtype, out.size, 0
    for array in arrays:
        if array.dtype != dtype or array.size != size:
            return None
        addresses |= array.data.ptr
    if not in_one_order(*arrays):
        return None
    length = math.gcd(PACK_NBYTES, addresses) // dtype.itemsize
    if not length:  # an array's elements are misaligned
        return None
    launched = kernel("elementwise.cu", _dense_name(form, functor, dtype, length))
    return launched, (-(-size // (_BLOCK * length)), 1, 1), (*operands, out, size)


@cache
def _dense_name(form: str, functor: str, dtype: np.dtype[Any], length: int) -> str:
    return f"dense_{form}<{functor}, {c_name(dtype)}, {length}>"


@alignment.on_aligned
def _strided(*operands: Any, out: Array, functor: str) -> None:
    if len(operands) == 1:
        a = operands[0].astype(out.dtype, copy=False)
        launch_strided(f"strided_unary<{functor}, {c_name(out.dtype)}>", (a, out), layout_of_strides(out, a))
    elif not isinstance(operands[1], cupy.ndarray):
        a, number = operands[0].astype(out.dtype, copy=False), operands[1]
        launch_strided(f"strided_scalar<{functor}, {c_name(out.dtype)}>", (a, number, out), layout_of_strides(out, a))
    else:
        a, b = operands
        if out.dtype.kind == "c":  # the kernel converts only between real dtypes
            a, b = a.astype(out.dtype, copy=False), b.astype(out.dtype, copy=False)
        layout = layout_of_strides(out, a, b)
        length = packed(layout, (out, a, b)) if out.dtype == a.dtype == b.dtype else 1
        names = ", ".join(c_name(array.dtype) for array in (out, a, b))
        name = (
            f"packed_binary<{functor}, {c_name(out.dtype)}, {length}>"
            if length > 1
            else f"strided_binary<{functor}, {names}>"
        )
        launch_strided(name, (a, b, out), layout)


def packed(layout: _Layout, arrays: Sequence[Array]) -> int:
    """Return the elements of one access along the innermost axis.

    If more than 1, change `layout` to count packs of them.

    Every array must be broadcast along that axis, or be contiguous with all other strides a whole number of packs.
    """
    inner = [layout.stride[place][0] for place in range(len(arrays))]
    if inner[0] != 1 or any(stride not in (0, 1) for stride in inner):
        return 1
    read = [place for place, stride in enumerate(inner) if stride]
    outer = [layout.stride[place][axis] for place in read for axis in range(1, layout.axes)]
    length = pack_length([arrays[place] for place in read], layout.extent[0], *outer)
    layout.n //= length
    layout.extent[0] //= length
    for place, stride in enumerate(inner):
        layout.stride[place][0] = stride * length
    return length


def launch_strided(name: str, arguments: tuple[Any, ...], layout: _Layout) -> None:
    """Launch the kernel `name` with one thread for each element of `layout`, which is its last argument."""
    kernel("elementwise.cu", name)(-(-layout.n // _BLOCK), _BLOCK, (*arguments, layout))


def layout_of_strides(out: Array, *operands: Array) -> _Layout:
    """Make the ``Layout`` of elementwise.cu for `out` and operands broadcast to it.

    Raises the errors of `merged_axes`.
    """
    return _filled(out.size, merged_axes(out, *operands), 1 + len(operands))


def _filled(size: int, axes: list[tuple[int, list[int]]], arrays: int) -> _Layout:
    layout = _Layout(n=size, axes=len(axes))
    for position, (extent, strides) in enumerate(axes):
        layout.extent[position] = extent
        for array in range(arrays):
            layout.stride[array][position] = strides[array]
    return layout


def _gelu(name: str, *, approximate: str) -> str:
    """Return the struct of an op of `_GELU`."""
    if approximate not in _GELU[name]:
        raise ArgumentError(f"{name}'s approximate must be 'none' or 'tanh'; got {approximate!r}")
    return _GELU[name][approximate]


def copy(a: Array, *, device: object, memory_format: object, out: Array) -> None:
    """Copy whatever the strides; copies to another device are done by `peers`."""
    if a.data.device_id != out.data.device_id:
        peers.copy(a, out)
        return
    if is_channels_last(out.shape, out.strides):  # CuPy takes the elements in C order
        a, out = a.transpose(0, 2, 3, 1), out.transpose(0, 2, 3, 1)
    transposed.copyto(out, a)


@only_launches
@alignment.on_aligned
def cast(a: Array, *, dtype: object, out: Array) -> None:
    """Cast with a cuassay kernel: CuPy casts float64 to bfloat16 through float32, and rounds twice."""
    if not out.size:
        return
    names = f"{c_name(out.dtype)}, {c_name(a.dtype)}"
    if in_one_order(a, out):
        length = pack_length((a, out))
        launched = kernel("elementwise.cu", f"dense_cast<{names}, {length}>")
        launched(-(-out.size // (_BLOCK * length)), _BLOCK, (a, out, out.size))
    else:
        launch_strided(f"strided_cast<{names}>", (a, out), layout_of_strides(out, a))


@only_launches
@alignment.on_aligned
def clamp(a: Array, *, min: Any, max: Any, out: Array) -> None:  # noqa: A002  the op's names
    """Limit to two bounds; a missing bound is the end of the dtype."""
    if not out.size:
        return
    wide = compute_dtype(out.dtype)
    low, high = _ends(wide)
    bounds = (low if min is None else np.asarray(min, wide)[()]), (high if max is None else np.asarray(max, wide)[()])
    if in_one_order(a, out):
        length = pack_length((a, out))
        launched = kernel("elementwise.cu", f"dense_clamp<{c_name(out.dtype)}, {length}>")
        launched(-(-out.size // (_BLOCK * length)), _BLOCK, (a, *bounds, out, out.size))
    else:
        launch_strided(f"strided_clamp<{c_name(out.dtype)}>", (a, *bounds, out), layout_of_strides(out, a))


@cache
def _ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest number of a dtype; for floats, the infinities."""
    if dtype.kind == "f":
        return dtype.type(-math.inf), dtype.type(math.inf)
    info = np.iinfo(dtype)
    return dtype.type(info.min), dtype.type(info.max)


@alignment.on_aligned
def _complex_exp(a: Array, *, out: Array) -> None:
    cupy.exp(a, out=out)


#: ``out = a + b``, for modules that add to what they have computed.
add = ElementwiseKernel(partial(str, "Add"))


def functors() -> dict[str, str]:
    """Map each elementwise op without scalars to the struct of elementwise.cu that computes it: ``relu`` to ``Relu``.

    Comparisons have structs too, but other kernels; see `comparison`.
    """
    structs = set(re.findall(r"^struct (\w+)", kernel_source("elementwise.cu"), re.MULTILINE))
    elementwise = (op for op in registry.ops() if op.schema.op_class == "elementwise" and not op.schema.scalar_names)
    plain = (op.name for op in elementwise if op.schema.result(_FLOAT32) == _FLOAT32)
    named = {name: name.title().replace("_", "") for name in plain}
    return {name: struct for name, struct in named.items() if struct in structs}


def register() -> None:
    """Add these implementations to the registry."""
    plain = functors()
    for name, functor in plain.items():
        left_out = (*FP8, *_LEFT_OUT.get(name, ()))
        dtypes = [dtype for dtype in registry.op(name).schema.dtypes if dtype not in left_out]
        registry.implement(name, kind="cuda", dtypes=dtypes)(ElementwiseKernel(partial(str, functor)))
    registry.implement("exp", kind="cuda", dtypes=COMPLEX)(_complex_exp)
    for name in _GELU:
        dtypes = [dtype for dtype in registry.op(name).schema.dtypes if dtype not in FP8]
        registry.implement(name, kind="cuda", dtypes=dtypes)(ElementwiseKernel(partial(_gelu, name)))
    registry.implement("clamp", kind="cuda", dtypes=registry.op("clamp").schema.dtypes)(clamp)
    registry.implement("cast", kind="cuda", dtypes=registry.op("cast").schema.dtypes)(cast)
    registry.implement("copy", kind="cuda", dtypes=[d for d in ALL if d not in FP8])(copy)
    for name in (*plain, *_GELU, "clamp", "cast"):
        Repeated(registry.op(name)).install()
