"""`mixed_linear`: a layer with weights of 8 or 4 bits, computed in one of three ways, each as exact as float32 sums.

- Up to 64 rows of 16-bit inputs: this takes as long as reading the weights. On devices of compute capability 9.0 the
  kernel skinny_mixed.cu multiplies the integers, and the scales multiply its sums.
- More rows of 16-bit inputs: a library multiplies 16-bit operands, in which the integers are exact. One scale for each
  row of the weights multiplies the sums. Scales of groups multiply the weights, which rounds them; a second product
  adds what this rounding removed.
- Everything else: a library multiplies the scaled weights in float32 or float64.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.scaled`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import HALVES, compute_dtype, dtype_name
from cuassay.core import settings
from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas import plans
from cuassay.devices.cuda.blas.gemm import gemm, table
from cuassay.devices.cuda.blas.skinny import ACTIVATIONS, Extents, why_not
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.launch.block import STREAM_WORD, first_argument_word
from cuassay.devices.cuda.launch.launch import conclude, kernel
from cuassay.devices.cuda.memory.alignment import aligned, copyto
from cuassay.devices.cuda.ops.elementwise import cast
from cuassay.ops import Op, catalog, products
from cuassay.ops.explain import is_explaining, note
from cuassay.ops.products import MixedForm

__all__ = ["Mixed", "MixedPlan", "MixedTiling", "tiling_of"]

Array = Any

#: The most rows for the kernel, and how many it can take at a time; each time it reads all weights.
_MOST_TOKENS, _TOKENS = 64, (8, 16)

#: Bytes of a row that four lanes read; a group of terms is a multiple of them.
_LINE = 64

#: The kernel counts in 32 bits, and divides the number of a line by multiplying with an inverse, which is exact for
#: 2**16 lines in a row.
_MOST_ROW_NBYTES, _MOST_NBYTES = _LINE << 16, 1 << 35

_BLOCK = 256


class Mixed:
    """`mixed_linear` on CuPy arrays."""

    def __call__(
        self, a: Array, weight: Array, scale: Array, bias: Array | None, *, out: Array, activation: str | None
    ) -> None:
        """Compute into `out`, on the current stream."""
        if not out.size:
            return
        form = products.mixed_form({"a": a, "weight": weight, "scale": scale})
        rows = _dense(a).reshape(-1, form.depth) if form.depth else cupy.zeros((out.size // form.rows, 0), a.dtype)
        weight, scale = _dense(weight), _dense(scale)
        bias = None if bias is None else _dense(bias)
        result = out if is_c_contiguous(out) and aligned(out) is out else cupy.empty(out.shape, out.dtype)
        compute = _route(rows, weight, form)
        compute(rows, weight, scale, bias, result.reshape(-1, form.rows), form, activation)
        if result is not out:
            copyto(out, result)

    def prepare(self, op: Op, bound: Mapping[str, Any], out: Array) -> Callable[[], None]:
        """Prepare the call as one graph."""
        arrays = op.schema.pick_arrays(bound)
        return plans.BoundProduct(partial(self, *arrays, out=out, activation=bound["activation"]), (*arrays, out))


Route = Callable[[Array, Array, Array, Array | None, Array, MixedForm, str | None], None]


def _dense(array: Array) -> Array:
    return aligned(array) if is_c_contiguous(array) else cupy.ascontiguousarray(aligned(array))


def _route(rows: Array, weight: Array, form: MixedForm) -> Route:
    """Return what computes the product."""
    name = dtype_name(rows.dtype)
    if name not in HALVES:
        return _noted(_in_wide_dtype, f"{name} weights")
    if len(rows) > _MOST_TOKENS:
        how = "scaled afterwards" if form.groups == 1 else "scaled, in two parts"
        return _noted(_in_16_bits, f"the weights as {name}, {how}")
    reason = _refusal(rows, weight, form)
    return _noted(_in_wide_dtype, f"float32 weights: {reason}") if reason else _by_kernel


def _noted(route: Route, how: str) -> Route:
    """Return `route`, and tell `explain` how it computes."""
    if is_explaining():
        note(how)
    return route


def _refusal(rows: Array, weight: Array, form: MixedForm) -> str | None:
    """Return why the kernel cannot compute the product, or None."""
    reason = why_not(rows.data.device_id)
    if reason is not None:
        return reason
    line, of_weights = _LINE * 8 // form.bits, form.depth * form.bits // 8
    at_rows, at_weight = rows.data.ptr, weight.data.ptr
    if not form.depth or of_weights % 16 or at_rows % 16 or at_weight % 16:
        return f"{of_weights} bytes in a row of weights at {at_weight:#x}, inputs at {at_rows:#x}: not multiples of 16"
    if form.groups > 1 and form.group % line:
        return f"groups of {form.group} terms, not a multiple of {line}"
    if of_weights > _MOST_ROW_NBYTES or weight.size > _MOST_NBYTES:
        return f"{weight.size:,} bytes of weights, {of_weights:,} in a row: more than the kernel can count"
    return None


# ------------------------------------------------------------------------------------------------ the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedTiling:
    """How a product is cut for the kernel.

    Attributes
    ----------
    tokens : int
        Rows of the inputs that the instructions take, rounded up.
    rows, warps : int
        Rows of the weights of a warp, and the number of warps side by side in a tile.
    slices, depth : int
        The groups of warps among which the 64-byte lines of a row are divided, and the lines that a warp loads ahead.
    blocks : int
        How many blocks a multiprocessor must hold at a time, which limits the registers of a thread.
    """

    tokens: int
    rows: int
    warps: int
    slices: int
    depth: int
    blocks: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps * self.slices

    def tiles(self, form: MixedForm) -> int:
        """Tiles that cover all rows; the launch has a block for each."""
        return -(-form.rows // (self.rows * self.warps))

    @property
    def shared_nbytes(self) -> int:
        """The dynamic shared memory of a block: sums of a tile for each slice."""
        return 4 * self.slices * self.tokens * (self.rows * self.warps + 4)


#: The slices of a tile, by its rows and by the number of blocks on a multiprocessor: 12 to 24 warps in all.
_SLICES = {32: {1: 16, 2: 8, 3: 4, 4: 4}, 16: {1: 16, 2: 8, 3: 8, 4: 4}}

#: The value of tiles of 16 rows, relative to tiles of 32, for 16 tokens: they read more inputs than weights.
_HALF_TILE = 0.7


def tiling_of(tokens: int, form: MixedForm, multiprocessors: int) -> MixedTiling:
    """Return a tiling whose tiles all run at the same time and keep most multiprocessors busy.

    On an H200 its time was within 15 % of the fastest tiling tried, for each of six layers in 8 and in 4 bits.
    """
    padded = next(most for most in _TOKENS if tokens <= most)

    def tiling(rows: int, blocks: int) -> MixedTiling:
        slices = 4 if blocks == 3 and padded == 16 else _SLICES[rows][blocks]  # registers of 24 warps do not suffice
        return MixedTiling(tokens=padded, rows=rows, warps=1, slices=slices, depth=2, blocks=blocks)

    found = [(1.0, tiling(32, 4))]  # if not all tiles fit, the next one runs as soon as one has ended
    for rows, blocks in product((32, 16), (1, 2, 3, 4)):
        share = tiling(rows, blocks).tiles(form) / multiprocessors
        if blocks - 1 < share <= blocks:
            worth = _HALF_TILE if (rows, padded) == (16, 16) else 1.0
            found.append((-worth * share / blocks, tiling(rows, blocks)))
    return min(found, key=lambda one: one[0])[1]


class MixedPlan(Handle):
    """The kernel for a number of rows and a form of weights, to be called by this thread on the current device.

    Parameters
    ----------
    tokens : int
        The number of rows of the inputs.
    form : MixedForm
        What the weights are.
    dtypes : tuple of str
        The dtypes of inputs and scales.
    activation : str or None
        The activation.
    tiling : MixedTiling
        How the product is cut.
    """

    def __init__(
        self, tokens: int, form: MixedForm, dtypes: tuple[str, str], activation: str | None, tiling: MixedTiling
    ) -> None:
        self.tiling = tiling
        numbers = tiling.tokens, tiling.rows, tiling.warps, tiling.slices, tiling.depth, tiling.blocks
        grouped = "true" if form.groups > 1 else "false"
        types = f"{', '.join(dtypes)}, {form.bits}, {grouped}"
        self._kernel = kernel("skinny_mixed.cu", f"skinny_mixed<{types}, {', '.join(map(str, numbers))}>")
        extents = Extents(form.rows, tokens, form.depth, form.depth * form.bits // 8, form.depth, 0, form.rows)
        lines = form.group * form.bits // (8 * _LINE)
        inverse = np.uint32(-(-(2**32) // lines) if lines > 1 else 0)
        arguments = 0, 0, 0, 0, 0, extents, np.int32(form.groups), inverse, np.int32(ACTIVATIONS[activation])
        shared = tiling.shared_nbytes
        self._launch = self._kernel.prepare(tuple(map(type, arguments)), shared=shared)
        self._launch.write(arguments)
        self._launch.arrange(early=True)
        self._first = first_argument_word(len(arguments))
        self._fire = self._launch.bind(tiling.tiles(form), tiling.threads, shared)
        self._stream, self._blocking = cupy.cuda.get_current_stream, settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"MixedPlan({self._kernel.name}, {self.tiling})"

    def run(self, weight: int, rows: int, scale: int, out: int, bias: int) -> None:
        """Compute on these addresses, in order of the current stream.

        Raises
        ------
        CuassayError
            If the driver reports an error.
        """
        words, first, stream = self._launch.words, self._first, self._stream().ptr
        words[first : first + 5] = array("Q", (weight, rows, scale, out, bias))
        words[STREAM_WORD] = stream
        status = self._fire()
        if status or self._blocking:
            conclude(status, stream, repr(self))


def _by_kernel(
    rows: Array, weight: Array, scale: Array, bias: Array | None, out: Array, form: MixedForm, activation: str | None
) -> None:
    """Multiply the weights as they are, for up to 16 rows at a time."""
    if (of_scale := dtype_name(scale.dtype)) not in ("float32", dtype_name(rows.dtype)):
        scale, of_scale = scale.astype(np.float32), "float32"
    at_bias = 0 if bias is None else bias.data.ptr
    for first in range(0, len(rows), _TOKENS[-1]):
        tokens = min(_TOKENS[-1], len(rows) - first)
        key = ("mixed", tokens, form, rows.dtype, of_scale, activation)
        known = table()
        if (plan := known.get(key)) is None:
            dtypes = dtype_name(rows.dtype), of_scale
            processors = runtime.get_device_properties(rows.data.device_id).multi_processor_count
            plan = known[key] = MixedPlan(tokens, form, dtypes, activation, tiling_of(tokens, form, processors))
        if is_explaining():
            note(repr(plan))
        at = first * rows.dtype.itemsize
        at_rows, at_out = rows.data.ptr + at * form.depth, out.data.ptr + at * form.rows
        plan.run(weight.data.ptr, at_rows, scale.data.ptr, at_out, at_bias)


# ------------------------------------------------------------------------------------------------ by a library


def _in_wide_dtype(
    rows: Array, weight: Array, scale: Array, bias: Array | None, out: Array, form: MixedForm, activation: str | None
) -> None:
    """Multiply scaled weights in the dtype in which `rows` are computed."""
    wide = compute_dtype(rows.dtype)
    result = out if out.dtype == wide else cupy.empty(out.shape, wide)
    numbers = _dequantized(weight, scale, wide, form)
    bias = None if bias is None else bias.astype(wide, copy=False)
    gemm(rows.astype(wide, copy=False), numbers.T, result, None, bias, activation=activation)
    if result is not out:
        cast(result, dtype=out.dtype, out=out)


def _in_16_bits(
    rows: Array, weight: Array, scale: Array, bias: Array | None, out: Array, form: MixedForm, activation: str | None
) -> None:
    """Multiply operands of the 16-bit dtype of `rows`, add in float32, and round once."""
    sums = cupy.empty(out.shape, np.float32)
    if form.groups == 1:
        gemm(rows, _dequantized(weight, None, rows.dtype, form).T, sums)
        sums *= scale.astype(np.float32, copy=False).reshape(-1)
    else:
        scales = scale.astype(np.float32, copy=False)
        largest = cupy.abs(scales).max(axis=1)
        # The scales are divided by the largest of their row, so that float16 holds the scaled weights.
        largest = cupy.where((largest > 0) & (largest < np.inf), largest, np.float32(1))
        shares = scales / largest[:, None]
        gemm(rows, _dequantized(weight, shares, rows.dtype, form).T, sums)
        gemm(rows, _dequantized(weight, shares, rows.dtype, form, low=True).T, sums, sums, beta=1.0)
        sums *= largest
    if bias is not None:
        sums += bias.astype(np.float32)
    if activation is not None:
        _ACTIVATED[activation](sums, out=sums)
    cast(sums, dtype=out.dtype, out=out)


_ACTIVATED: dict[str, Callable[..., Any]] = {
    "relu": catalog.relu,
    "gelu_tanh": partial(catalog.gelu, approximate="tanh"),
}


def _dequantized(weight: Array, scale: Array | None, dtype: Any, form: MixedForm, *, low: bool = False) -> Array:
    """Return the weights as an array (rows, depth) of `dtype`, scaled unless `scale` is None.

    If `low`, return what rounding to `dtype` removed from them.
    """
    out = cupy.empty((form.rows, form.depth), dtype)
    if not out.size:
        return out
    line = weight.shape[1]
    unit = next(unit for unit in (8, 4, 2, 1) if line % unit == 0 and weight.data.ptr % unit == 0)
    dequantize = kernel(
        "dequantize.cu", f"dequantize<{dtype_name(out.dtype)}, {form.bits}, {unit}, {'true' if low else 'false'}>"
    )
    scales = 0 if scale is None else scale.astype(compute_dtype(out.dtype), copy=False)
    blocks = -(-weight.size // (unit * _BLOCK))
    dequantize(blocks, _BLOCK, (weight, scales, out, weight.size, line, form.group, form.groups))
    return out
