"""`softmax`, `layer_norm`, their gradients, variances and the like on CuPy arrays, by kernels that read rows once.

A warp processes a row of up to 1,024 elements in registers, and a block processes a longer row in shared memory. Rows
that do not fit there are read again. `reduction` has sums and maxima.
Kernels: kernels/softmax.cu, layer_norm.cu, row_gradients.cu, variance.cu, columns.cu. Called by `cuassay.ops`; OpSpecs:
`reduction` and `statistics` of `cuassay.testing.specs`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from cuassay.arrays.dtypes import FP8, compute_dtype, promote
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.eager.repeated import Repeated, only_launches
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops import reduction
from cuassay.devices.cuda.ops.elementwise import c_name, cast
from cuassay.devices.cuda.ops.layouts import pack_length
from cuassay.ops import compositions, registry
from cuassay.ops.shapes import reduced_axes

__all__ = ["register"]

Array = Any

_PACK_NBYTES = 16
_PACKS_A_LINE = 8  # packs in a line of the cache
_WARP = 32
_SHORT_BLOCK = 256
_SHORT_ROW = 1024
_GRADIENT_BLOCK = 512

#: Fewer rows than this leave most of a GPU idle, which does not matter if they are no longer than this.
_MANY_ROWS, _LONG_ROW = 64, 16_384

#: For statistics of columns: the blocks that fill a GPU, and the fewest and most rows of a part; float counts are exact
#: to 2^24.
_BLOCKS, _PART_ROWS, _MOST_PART_ROWS = 1_056, 64, 2**26
_MAX_GRID_Z = 65_535

#: Packs a lane in the kernels for short rows; there are few values, so that widths share kernels.
_PACKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

#: A block of the kernels for long rows takes about this many packs a thread.
_PACKS_A_THREAD = 8

#: For `softmax_cluster`: the blocks that share a row, and the largest share of each in bytes. On an H200 fewer blocks
#: with larger shares were slower, and so were more blocks with smaller ones.
_CLUSTERS = {4: 33 * 1024, 8: 100 * 1024}

#: Static shared memory of the kernels for long rows, and what the driver reserves in a block, in bytes.
_RESERVED = 2048


@only_launches
@alignment.on_aligned
def softmax(a: Array, *, axis: int, dtype: object, out: Array) -> None:
    """Compute into `out`, on the current stream; a row of only -inf is NaN. The result is cast if `out` is narrower."""
    _softmax(a, axis, out)


@only_launches
@alignment.on_aligned
def log_softmax(a: Array, *, axis: int, dtype: object, out: Array) -> None:
    """Compute the logarithm of softmax, by the same kernels."""
    _softmax(a, axis, out, log=True)


def _softmax(a: Array, axis: int, out: Array, *, log: bool = False) -> None:
    if not out.size:
        return
    wide = promote(a.dtype, out.dtype)
    if wide != out.dtype:
        result = cupy.empty(out.shape, wide)
        _softmax(a, axis, result, log=log)
        cast(result, dtype=out.dtype, out=out)
        return
    rows = _as_rows(a, axis, out.dtype)
    target = out if axis in (-1, a.ndim - 1) and out.flags.c_contiguous else cupy.empty_like(rows)
    _softmax_rows(rows, target, ", true" if log else "")
    if target is not out:
        cupy.copyto(out, cupy.moveaxis(target, -1, axis) if out.ndim else target.reshape(()))


@alignment.on_aligned
def logsumexp(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Compute in one pass, or for few long rows as a composition."""
    if not _statistic("LogSum", ("softmax.cu", "logsumexp_rows"), a, axis, out):
        cupy.copyto(out, compositions.logsumexp(a, axis=axis, keepdims=keepdims))


@alignment.on_aligned
def var(a: Array, *, axis: Any, correction: float, keepdims: bool, out: Array) -> None:
    """Compute in one pass, or for few long rows as a composition."""
    count = prod(a.shape[place] for place in reduced_axes(axis, a.ndim))
    divisor = float(max(count - correction, 0))
    if not _statistic("Variance", ("variance.cu", "var_rows"), a, axis, out, divisor):
        cupy.copyto(out, compositions.var(a, axis=axis, correction=correction, keepdims=keepdims))


def _statistic(
    name: str, of_rows: tuple[str, str], a: Array, axis: Any, out: Array, divisor: float | None = None
) -> bool:
    """Compute over `axis` with a kernel of rows or columns.

    Return False if `a` is empty, or its rows are few and long.
    """
    if not a.size:
        return False
    folded = reduction.three_axes(a, reduced_axes(axis, a.ndim))
    outer, reduced, inner = folded.shape
    if inner == 1 and outer < _MANY_ROWS and reduced > _LONG_ROW:
        return False
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    if inner == 1:
        file, kernel_name = of_rows
        lanes = _WARP if reduced <= _SHORT_ROW else _SHORT_BLOCK
        run = kernel(file, f"{kernel_name}<{c_name(a.dtype)}, {_PACK_NBYTES // a.dtype.itemsize}, {lanes}>")
        scalars = () if divisor is None else (divisor,)
        run(-(-outer // (_SHORT_BLOCK // lanes)), _SHORT_BLOCK, (folded, target, outer, reduced, *scalars))
    else:
        _of_columns(name, folded, target, divisor or 0.0)
    if target is not out:
        cupy.copyto(out, target)
    return True


def _of_columns(name: str, folded: Array, out: Array, divisor: float) -> None:
    outer, reduced, inner = folded.shape
    dtype = c_name(folded.dtype)
    wide = compute_dtype(folded.dtype)
    pack = pack_length((folded,), inner)
    tiles = -(-inner // (_WARP * pack))
    parts = max(1, min(-(-_BLOCKS // (outer * tiles)), reduced // _PART_ROWS), reduced // _MOST_PART_ROWS)
    numbers = 3 if name == "Variance" else 2
    partial = cupy.empty((outer * parts * inner * numbers if parts > 1 else 1,), wide)
    statistic = f"{name}<{c_name(wide)}>"
    of_part = kernel("columns.cu", f"statistic_of_part<{statistic}, {dtype}, {pack}>")
    grid = tiles, parts, min(outer, _MAX_GRID_Z)
    of_part(grid, _SHORT_BLOCK, (folded, partial, out, outer, reduced, inner, -(-reduced // parts), divisor))
    if parts > 1:
        of_parts = kernel("columns.cu", f"statistic_of_parts<{statistic}, {dtype}>")
        columns = outer * inner
        of_parts(-(-columns // _SHORT_BLOCK), _SHORT_BLOCK, (partial, out, columns, inner, parts, divisor))


@only_launches
@alignment.on_aligned
def layer_norm(a: Array, weight: Array, bias: Array, *, eps: float, out: Array) -> None:
    """Compute into `out`, on the current stream, in the dtype of `out`; 16-bit dtypes are computed in float32."""
    if not out.size:
        return
    rows = _as_rows(a, -1, out.dtype)
    weight, bias = _as_rows(weight, -1, out.dtype), _as_rows(bias, -1, out.dtype)
    target = out if out.flags.c_contiguous else cupy.empty_like(rows)
    _layer_norm_rows(rows, weight, bias, float(eps), target)
    if target is not out:
        cupy.copyto(out, target)


@only_launches
@alignment.on_aligned
def softmax_backward(grad: Array, result: Array, *, axis: int, out: Array) -> None:
    """Compute into `out`, on the current stream, in the dtype of `out`; 16-bit dtypes are computed in float32."""
    if not out.size:
        return
    grad, result = _as_rows(grad, axis, out.dtype), _as_rows(result, axis, out.dtype)
    target = out if axis in (-1, out.ndim - 1) and out.flags.c_contiguous else cupy.empty_like(result)
    _gradient_rows("softmax_backward", (grad, result), target)
    if target is not out:
        cupy.copyto(out, cupy.moveaxis(target, -1, axis) if out.ndim else target.reshape(()))


@only_launches
@alignment.on_aligned
def layer_norm_backward(grad: Array, a: Array, weight: Array, *, eps: float, out: Array) -> None:
    """Compute into `out`, on the current stream, in the dtype of `out`; 16-bit dtypes are computed in float32."""
    if not out.size:
        return
    arrays = tuple(_as_rows(one, -1, out.dtype) for one in (grad, a, weight))
    target = out if out.flags.c_contiguous else cupy.empty_like(arrays[1])
    _gradient_rows("layer_norm_backward", arrays, target, float(eps))
    if target is not out:
        cupy.copyto(out, target)


def _gradient_rows(name: str, arrays: tuple[Array, ...], out: Array, *scalars: float) -> None:
    columns = out.shape[-1]
    rows = prod(out.shape[:-1])
    length = pack_length((*arrays, out), columns)
    if columns <= _SHORT_ROW:
        arguments = (*arrays, out, rows, columns, *scalars)
        _short("row_gradients.cu", f"{name}_short<{c_name(out.dtype)}, {length}", (rows, columns), length, arguments)
        return
    if name == "softmax_backward":
        length = _common_length(*arrays, out)
    block = kernel("row_gradients.cu", f"{name}_long<{c_name(out.dtype)}, {length}>")
    block(rows, _GRADIENT_BLOCK, (*arrays, out, columns, *scalars))


def _as_rows(a: Array, axis: int, dtype: Any) -> Array:
    """Return `a` with `axis` last, contiguous and of `dtype`; no copy is made if it is so already."""
    if not a.ndim:
        a, axis = a.reshape(1), -1
    return cupy.ascontiguousarray(cupy.moveaxis(a, axis, -1).astype(dtype, copy=False))


def _softmax_rows(a: Array, out: Array, last: str) -> None:
    columns = a.shape[-1]
    rows = prod(a.shape[:-1])
    if columns <= _SHORT_ROW:
        length = pack_length((a, out), columns)
        name = f"softmax_short<{c_name(a.dtype)}, {length}"
        _short("softmax.cu", name, (rows, columns), length, (a, out, rows, columns), last)
        return
    length = _common_length(a, out)
    blocks = _cluster(a, columns, length)
    if blocks:
        nbytes = (columns // length // blocks + _PACKS_A_LINE) * _PACK_NBYTES
        shared_row = kernel("softmax.cu", f"softmax_cluster<{c_name(a.dtype)}, {length}, {blocks}{last}>")
        shared_row(rows * blocks, _SHORT_BLOCK, (a, out, columns), shared=nbytes)
        return
    _long("softmax.cu", f"softmax_long<{c_name(a.dtype)}, {length}", a, length, (a, out, columns), last)


def _cluster(a: Array, columns: int, length: int) -> int:
    """Return the blocks that share a row of `columns`; 0 if one block a row is faster, or there are no clusters."""
    properties = runtime.get_device_properties(a.device.id)
    nbytes = columns * a.dtype.itemsize
    if properties.major < 9 or length == 1 or a.dtype.itemsize == 8:
        return 0
    if 2 * (nbytes + _RESERVED) <= properties.shared_memory_per_multiprocessor:
        return 0
    return next((blocks for blocks, share in _CLUSTERS.items() if nbytes // blocks <= share), 0)


def _layer_norm_rows(a: Array, weight: Array, bias: Array, eps: float, out: Array) -> None:
    columns = a.shape[-1]
    rows = prod(a.shape[:-1])
    length = pack_length((a, weight, bias, out), columns)
    names = f"{c_name(a.dtype)}, {length}"
    if columns <= _SHORT_ROW:
        arguments = (a, weight, bias, out, rows, columns, eps)
        _short("layer_norm.cu", f"layer_norm_short<{names}", (rows, columns), length, arguments)
        return
    _long("layer_norm.cu", f"layer_norm_long<{names}", a, length, (a, weight, bias, out, columns, eps))


def _common_length(*arrays: Array) -> int:
    """Return the elements of an access after the kernel has aligned a row.

    All arrays must have the same misalignment.
    """
    itemsize = int(arrays[0].dtype.itemsize)
    places = {one.data.ptr % _PACK_NBYTES for one in arrays}
    return _PACK_NBYTES // itemsize if len(places) == 1 and places.pop() % itemsize == 0 else 1


def _short(
    file: str, name: str, shape: tuple[int, int], length: int, arguments: tuple[Any, ...], last: str = ""
) -> None:
    """Launch one warp a row, for `shape` = (rows, columns); `last` follows the template's other arguments."""
    rows, columns = shape
    needed = -(-columns // (_WARP * length))
    packs = next(step for step in _PACKS if step >= needed)
    kernel(file, f"{name}, {packs}{last}>")(-(-rows // (_SHORT_BLOCK // _WARP)), _SHORT_BLOCK, arguments)


def _long(file: str, name: str, a: Array, length: int, arguments: tuple[Any, ...], last: str = "") -> None:
    """Launch one block a row, with the row in shared memory if it fits; `last` as in `_short`."""
    columns = a.shape[-1]
    packs = -(-columns // length)
    nbytes = packs * length * a.dtype.itemsize
    most = runtime.get_device_properties(a.device.id).shared_memory_per_block_optin - _RESERVED
    keep = nbytes <= most
    # Two blocks of 512 threads fit if two rows fit: one block reads while the other writes.
    widest = 512 if nbytes <= most // 2 or a.dtype.itemsize == 8 else 1024
    # A power of two, because a block of 800 threads would leave no room for a second one.
    threads = min(widest, max(128, 1 << (packs // _PACKS_A_THREAD).bit_length() - 1))
    block = kernel(file, f"{name}, {'true' if keep else 'false'}{last}>")
    block(prod(a.shape[:-1]), threads, arguments, shared=nbytes if keep else 0)


def register() -> None:
    """Add these implementations, and the reductions, to the registry."""
    reduction.register()
    table: dict[str, registry.Implementation] = {
        "softmax": softmax,
        "log_softmax": log_softmax,
        "layer_norm": layer_norm,
        "softmax_backward": softmax_backward,
        "layer_norm_backward": layer_norm_backward,
    }
    for name, implementation in table.items():
        dtypes = [dtype for dtype in registry.op(name).schema.dtypes if dtype not in FP8]
        registry.implement(name, kind="cuda", dtypes=dtypes)(implementation)
        Repeated(registry.op(name)).install()
    for name, implementation in (("logsumexp", logsumexp), ("var", var)):
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
