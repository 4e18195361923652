"""Sums, products, means, maxima and minima, their positions, and prefix sums, by cuassay's own kernels.

On an H200 CuPy's reduction over a leading axis ran at 0.2 TB/s, and its bfloat16 reductions at 0.5 to 1.7, where the
copy rate is 4.0. These kernels see an array as (outer, reduced, inner) and read 16 bytes at a time. The shape alone
decides how the reduced axis is cut, so results do not depend on the GPU's size; the order of adding the parts depends
on whether it has clusters (compute capability 9.0). Complex sums are CuPy's.
Kernels: kernels/reduce.cu, argmax.cu and scan.cu. Called by `cuassay.ops`; OpSpecs: `reduction` and `statistics` of
`cuassay.testing.specs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import compute_dtype
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.eager.repeated import Repeated, only_launches
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.elementwise import ElementwiseKernel, c_name, cast
from cuassay.devices.cuda.ops.layouts import pack_length
from cuassay.ops import registry
from cuassay.ops.shapes import reduced_axes

__all__ = ["register", "three_axes"]

Array = Any

_BLOCK = 256
_PACK_NBYTES = 16
_SHORT_ROW = 4096
_MAX_GRID_Y = 65_535

#: The fewest elements in a part of a row, and the most parts, which are enough for any GPU.
_MIN_ROW_PART, _MAX_PARTS = 8_192, 1_024

#: The results of sums and products of nothing; other reductions have none.
_IDENTITIES = {"Sum": 0, "Prod": 1}

#: For columns, measured on an H200 from 1 to 1,024 MiB. Neighbouring threads: for one cache line, or for four of them
#: if there are enough tiles.
_LANES, _MANY_LANES = 8, 32

#: The number of blocks that fills a GPU, and the number up to which blocks are large: more large blocks have too little
#: to read.
_BLOCKS, _FEW_BLOCKS, _LARGE_BLOCK = 512, 264, 512

#: The blocks of a cluster, the fewest rows for each, and the fewest rows that are worth a second launch.
_CLUSTERS = (8, 4, 2)
_MIN_ROWS, _MIN_ROWS_OF_TWO = 64, 1_024


@only_launches
@alignment.on_aligned
def sum(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Sum into `out`, on the current stream."""
    if out.dtype.kind == "c":
        cupy.sum(a, axis=reduced_axes(axis, a.ndim), keepdims=bool(keepdims), out=out)
    else:
        _reduce("Sum", a, axis, out)


@only_launches
@alignment.on_aligned
def amax(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Take the maximum into `out`, on the current stream; NaN wins."""
    _reduce("Max", a, axis, out)


@only_launches
@alignment.on_aligned
def amin(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Take the minimum into `out`, on the current stream; NaN wins."""
    _reduce("Min", a, axis, out)


@only_launches
@alignment.on_aligned
def product(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Multiply into `out`, on the current stream."""
    _reduce("Prod", a, axis, out)


@alignment.on_aligned
def mean(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Write the mean to `out`, on the current stream: the sum in the accumulator's dtype, divided, and rounded once."""
    if not out.size:
        return
    axes = reduced_axes(axis, a.ndim)
    count = prod(a.shape[place] for place in axes)
    if not count:
        out.fill(math.nan)
        return
    wide, folded = compute_dtype(out.dtype), three_axes(a, axes)
    launch = _launch(folded, wide.itemsize)
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    if launch.parts == 1:
        launch.run(_types("Mean", a.dtype, wide, out.dtype), folded, target)
    else:
        total = target if out.dtype == wide else cupy.empty(out.shape, wide)
        _fold("Sum", folded, total, wide)
        _divide(total, float(count), out=total)
        if total is not target:
            cast(total, dtype=out.dtype, out=target)
    if target is not out:
        cupy.copyto(out, target)


_divide = ElementwiseKernel(lambda: "Div")


@alignment.on_aligned
def argmax(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Write the position of the first maximum to `out`, on the current stream."""
    if not out.size:
        return
    folded = three_axes(a, reduced_axes(axis, a.ndim))
    types = f"{c_name(a.dtype)}, {c_name(_accumulator('Max', a.dtype))}"
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    launched = _argmax_columns if folded.shape[2] > 1 else _argmax_rows
    launched(folded, target, types)
    if target is not out:
        cupy.copyto(out, target)


def _argmax_rows(folded: Array, out: Array, types: str) -> None:
    outer, reduced, _ = folded.shape
    pack = _PACK_NBYTES // folded.dtype.itemsize
    parts = max(1, min(_MAX_PARTS // outer, reduced // _MIN_ROW_PART))
    if parts == 1 and reduced <= _SHORT_ROW:
        launched = kernel("argmax.cu", f"argmax_short_rows<{types}, {pack}>")
        launched(-(-outer // (_BLOCK // 32)), _BLOCK, (folded, out, outer, reduced))
        return
    places = out if parts == 1 else cupy.empty((outer, parts), np.int64)
    numbers = outer, reduced, -(-reduced // (parts * pack)) * pack  # a part begins at a multiple of a pack
    grid = parts, min(outer, _MAX_GRID_Y), 1
    kernel("argmax.cu", f"argmax_rows<{types}, {pack}>")(grid, _BLOCK, (folded, places, *numbers))
    if parts > 1:
        _choose(folded, places, out, types)


def _argmax_columns(folded: Array, out: Array, types: str) -> None:
    outer, reduced, inner = folded.shape
    tiles = -(-inner // 32)
    parts = max(1, min(-(-_BLOCKS // (outer * tiles)), reduced // _MIN_ROWS))
    places = out if parts == 1 else cupy.empty((outer, parts, inner), np.int64)
    numbers = outer, reduced, inner, -(-reduced // parts)
    grid = tiles, parts, min(outer, _MAX_GRID_Y)
    kernel("argmax.cu", f"argmax_columns<{types}>")(grid, _BLOCK, (folded, places, *numbers))
    if parts > 1:
        _choose(folded, places, out, types)


def _choose(folded: Array, places: Array, out: Array, types: str) -> None:
    """Choose among the winners of the parts."""
    outer, reduced, inner = folded.shape
    launched = kernel("argmax.cu", f"argmax_parts<{types}>")
    warps = outer * inner
    launched(-(-warps // (_BLOCK // 32)), _BLOCK, (folded, places, out, outer, reduced, inner, places.shape[1]))


@alignment.on_aligned
def cumsum(a: Array, *, axis: int, out: Array) -> None:
    """Write prefix sums along `axis` to `out`, on the current stream."""
    if not out.size:
        return
    a = a if a.flags.c_contiguous else cupy.ascontiguousarray(a)
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    axis = axis % a.ndim
    outer, length, inner = prod(a.shape[:axis]), a.shape[axis], prod(a.shape[axis + 1 :])
    if inner == 1:
        types = ", ".join(map(c_name, (a.dtype, _accumulator("Sum", a.dtype), out.dtype)))
        kernel("scan.cu", f"cumsum_rows<{types}>")(outer, _BLOCK, (a, target, length))
    else:
        _cumsum_columns(a, target, (outer, length, inner))
    if target is not out:
        cupy.copyto(out, target)


#: The most parts of a column, and their least length. They depend only on the column, so that its bits are the same in
#: a batch.
_PARTS, _LEAST_PART = 64, 64
#: From this many columns on, one thread for each column is enough.
_MANY_COLUMNS = 65_536


def _cumsum_columns(a: Array, out: Array, folded: tuple[int, int, int]) -> None:
    outer, length, inner = folded
    wide = _accumulator("Sum", a.dtype)
    part = max(_LEAST_PART, -(-length // _PARTS))
    parts, blocks = -(-length // part), -(-outer * inner // _BLOCK)
    sums, together = a, parts
    if parts > 1 and outer * inner < _MANY_COLUMNS:
        sums, together = cupy.empty((parts, outer * inner), wide), 1
        name = f"cumsum_parts<{c_name(a.dtype)}, {c_name(wide)}>"
        kernel("scan.cu", name)((blocks, parts - 1, 1), _BLOCK, (a, sums, outer, length, inner, part))
    types = ", ".join(map(c_name, (a.dtype, wide, out.dtype)))
    arguments = (a, out, sums, outer, length, inner, part, together)
    kernel("scan.cu", f"cumsum_columns<{types}>")((blocks, -(-parts // together), 1), _BLOCK, arguments)


def _accumulator(reduction: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the accumulator's dtype: 64 bits for integers, float32 for 16-bit floats, otherwise the dtype itself."""
    if dtype.kind in "bu":
        return np.dtype(np.int64 if dtype.kind == "b" and reduction in _IDENTITIES else np.uint64)
    return np.dtype(np.int64) if dtype.kind == "i" else compute_dtype(dtype)


def _reduce(reduction: str, a: Array, axis: Any, out: Array) -> None:
    if not out.size:
        return
    axes = reduced_axes(axis, a.ndim)
    if not a.size:
        out.fill(_IDENTITIES[reduction])
        return
    folded = three_axes(a, axes)
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    _fold(reduction, folded, target, _accumulator(reduction, a.dtype))
    if target is not out:
        cupy.copyto(out, target)


def three_axes(a: Array, axes: tuple[int, ...]) -> Array:
    """Return `a` as a contiguous (outer, reduced, inner) array, copied only if its axes are not in this order."""
    kept = [axis for axis in range(a.ndim) if axis not in axes]
    neighbours = not axes or axes == tuple(range(axes[0], axes[-1] + 1))
    if not (neighbours and a.flags.c_contiguous):
        a = cupy.ascontiguousarray(a.transpose(*kept, *axes)) if a.ndim else a
        return a.reshape(prod(a.shape[: len(kept)]), -1, 1)
    if not axes:
        return a.reshape(-1, 1, 1)
    return a.reshape(prod(a.shape[: axes[0]]), prod(a.shape[axes[0] : axes[-1] + 1]), prod(a.shape[axes[-1] + 1 :]))


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel, its template arguments after the types, its numbers after input and output, and the parts it leaves."""

    name: str
    template: str
    grid: tuple[int, ...]
    block: int
    numbers: tuple[int, ...]
    parts: int = 1
    shared: int = 0

    def run(self, types: str, folded: Array, out: Array) -> None:
        function = kernel("reduce.cu", f"{self.name}<{types}, {self.template}>")
        function(self.grid, self.block, (folded, out, *self.numbers), shared=self.shared)


def _fold(reduction: str, folded: Array, out: Array, accumulator: np.dtype[Any]) -> None:
    outer, _, inner = folded.shape
    launch = _launch(folded, accumulator.itemsize)
    if launch.parts == 1:
        launch.run(_types(reduction, folded.dtype, accumulator, out.dtype), folded, out)
        return
    partial = cupy.empty((outer, launch.parts, inner), accumulator)
    launch.run(_types(reduction, folded.dtype, accumulator, accumulator), folded, partial)
    last = _launch(partial, accumulator.itemsize, whole=True)
    last.run(_types(reduction, accumulator, accumulator, out.dtype), partial, out)


@cache
def _types(reduction: str, *dtypes: np.dtype[Any]) -> str:
    return ", ".join([reduction, *map(c_name, dtypes)])


def _launch(folded: Array, nbytes: int, *, whole: bool = False) -> _Launch:
    """Return how to reduce in accumulators of `nbytes`; `whole` requires one launch."""
    outer, reduced, inner = folded.shape
    if inner == 1:
        return _rows(outer, reduced, _PACK_NBYTES // folded.dtype.itemsize, whole=whole)
    has_clusters = runtime.get_device_properties(folded.device.id).major >= 9
    return _columns(*folded.shape, pack_length((folded,), inner), nbytes, whole=whole, has_clusters=has_clusters)


@lru_cache(4096)
def _rows(outer: int, reduced: int, pack: int, *, whole: bool) -> _Launch:
    parts = 1 if whole else max(1, min(_MAX_PARTS // outer, reduced // _MIN_ROW_PART))
    if parts == 1 and reduced <= _SHORT_ROW:
        rows = _BLOCK // 32
        return _Launch("reduce_short_rows", str(pack), (-(-outer // rows), 1, 1), _BLOCK, (outer, reduced))
    length = -(-reduced // (parts * pack)) * pack  # a part begins at a multiple of a pack
    grid = parts, min(outer, _MAX_GRID_Y), 1
    return _Launch("reduce_rows", str(pack), grid, _BLOCK, (outer, reduced, length), parts)


@lru_cache(4096)
def _columns(
    outer: int, reduced: int, inner: int, pack: int, nbytes: int, *, whole: bool, has_clusters: bool
) -> _Launch:
    packs = -(-inner // pack)
    most = _MANY_LANES if outer * -(-packs // _LANES) >= _BLOCKS else _LANES
    shift = min(most.bit_length() - 1, (packs - 1).bit_length())
    tiles = -(-packs // (1 << shift))
    busy = outer * tiles
    together = next((n for n in _CLUSTERS if 2 * busy * n <= 3 * _BLOCKS and reduced >= n * _MIN_ROWS), 1)
    apart = max(1, min(_FEW_BLOCKS // (busy * together), reduced // (together * _MIN_ROWS_OF_TWO)))
    cluster, groups = (together, apart) if has_clusters else (1, together * apart)
    groups = 1 if whole else groups
    parts = cluster * groups
    block = _LARGE_BLOCK if busy * parts <= _FEW_BLOCKS else _BLOCK
    numbers = outer, reduced, inner, -(-reduced // parts), parts, shift
    grid = tiles * parts, min(outer, _MAX_GRID_Y), 1
    shared = block // 32 * (pack << shift) * nbytes
    return _Launch("reduce_columns", f"{pack}, {cluster}", grid, block, numbers, groups, shared)


def register() -> None:
    """Add these implementations to the registry."""
    table = {"sum": sum, "amax": amax, "amin": amin, "prod": product, "mean": mean, "argmax": argmax, "cumsum": cumsum}
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
    for name in ("sum", "amax", "amin", "prod"):
        Repeated(registry.op(name)).install()
