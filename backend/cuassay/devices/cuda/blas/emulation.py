"""Float32 products in the split modes: operands are split into parts, which bfloat16 tensor cores multiply.

This needs compute capability 9.0. On other devices, and if a product is too small to gain, the mode is computed
natively, which is never less precise than requested. ``bf16x6`` also serves ``tf32x3``: TF32 runs at half the rate, so
its three products would cost as much as these six, which are more precise.

Errors. The parts hold 16 (bf16x3) or 24 bits of each operand, down to 2**-133, the smallest bfloat16: numbers below
2**-110 keep fewer bits, and those below 2**-134 none. Infinities and NaN give the same results as in float32, except
that an infinity times a number below 2**-134 is NaN. Sums leave the tensor cores every 64 terms (bf16x3: 256), so that
the truncation of the tensor cores does not accumulate: the error is 1.5e-7 of a sum of terms with one sign, and less
for other sums. Sums are added in a fixed order, so equal calls give equal bits.

Memory. The workspace takes 4 (bf16x3) or 6 bytes for each element of the operands, in tiles of 128 by 64. The allocator
provides it for the duration of the call. A stack is computed in groups, so that the workspace is at most
`_MOST_WORKSPACE` unless one matrix needs more.

The kernels are in kernels/emulated_gemm.cu. `gemm` calls this module, as `register_emulation` describes.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from cuassay.core.precision import Mode
from cuassay.devices.cuda.blas.gemm import register_emulation
from cuassay.devices.cuda.blas.layouts import Stack, merged
from cuassay.devices.cuda.blas.product import Multiply, Product
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import hook
from cuassay.ops.explain import is_explaining, note

__all__ = ["FORMS", "Form", "find", "register"]

_FILE = "emulated_gemm.cu"

#: Constants of emulated_gemm.cu: the extents of a tile, and in bytes a part and what follows the parts in device and
#: shared memory.
_ROWS, _DEPTH, _PLANE, _FLAG, _SHARED_FLAG = 128, 64, 128 * 64 * 2, 128, 1024

_SPLITTING_THREADS, _MULTIPLYING_THREADS = 256, 384

#: The workspace in bytes above which a stack is divided into groups.
_MOST_WORKSPACE = 2**30

#: The most output tiles of one launch.
_MOST_TILES = 2**30

_ACTIVATIONS = {None: 0, "relu": 1, "gelu_tanh": 2}


@dataclass(frozen=True, slots=True)
class Form:
    """How a mode is computed: `parts` of each operand, `products` of parts, `chain` chunks of 64 terms a rounding.

    `stages` chunks are loaded ahead, as many as fit into shared memory.
    """

    parts: int
    products: int
    stages: int
    chain: int

    @property
    def image(self) -> int:
        """The bytes of a tile's parts."""
        return self.parts * _PLANE + _FLAG

    @property
    def shared(self) -> int:
        """The bytes of dynamic shared memory: the tiles of both operands at multiples of 1,024 bytes."""
        return self.stages * 2 * (self.parts * _PLANE + _SHARED_FLAG) + 1024

    @property
    def names(self) -> tuple[str, str]:
        """The names of the kernels that split and multiply."""
        return (
            f"split_parts<{self.parts}>",
            f"multiply_parts<{self.parts}, {self.products}, {self.stages}, {self.chain}>",
        )


_SIX = Form(parts=3, products=6, stages=2, chain=1)
FORMS: dict[Mode, Form] = {
    "bf16x3": Form(parts=2, products=3, stages=3, chain=4),
    "tf32x3": _SIX,
    "bf16x6": _SIX,
    "bf16x9": Form(parts=3, products=9, stages=2, chain=1),
}

#: Times of a product on an H200 in seconds. By parts: one product of parts of a chunk, storing a tile, splitting (in
#: bytes a second), and launches with their start and end. Natively: the rate of a full device (operations a second),
#: and a launch.
_CHUNK_S, _TILE_S, _SPLIT_RATE, _PARTS_S = 0.28e-6, 2e-6, 3.5e12, 14e-6
_NATIVE_RATE, _NATIVE_S = 46e12, 8e-6


def register() -> None:
    """Register the modes of `FORMS`."""
    for mode in FORMS:
        register_emulation(mode, find)


def find(product: Product, a: Stack, b: Stack, c: Stack | None, d: Stack) -> Multiply | None:
    """Return what computes products of these layouts by parts, or None to compute them natively."""
    properties = runtime.get_device_properties(cupy.cuda.runtime.getDevice())
    if (properties.major, properties.minor) != (9, 0):
        return None
    a, b, c, d = merged(a, b, c, d)
    form, b = FORMS[product.mode], b.transposed  # the rows of b are columns of the product
    blocks = properties.multi_processor_count
    return _Parts(form, product, (a, b, c, d), blocks) if _gains(form, a, b, d.count, blocks) else None


def _gains(form: Form, a: Stack, b: Stack, count: int, blocks: int) -> bool:
    """Whether `count` products of the rows of `a` and `b` are faster by parts."""
    rounds = -(-count * _tiles_along(a.rows) * _tiles_along(b.rows) // blocks)
    split = sum(x.rows * x.columns * (count if x.batch_stride else 1) for x in (a, b)) * (4 + 2 * form.parts)
    by_parts = rounds * (_chunks(a) * form.products * _CHUNK_S + _TILE_S) + split / _SPLIT_RATE + _PARTS_S
    return by_parts < 2 * a.rows * b.rows * a.columns * count / _NATIVE_RATE + _NATIVE_S


def _tiles_along(rows: int) -> int:
    return -(-rows // _ROWS)


def _chunks(x: Stack) -> int:
    return -(-x.columns // _DEPTH)


# ------------------------------------------------------------------------------------------------ the call


class _Epilogue(ctypes.Structure):
    """``Epilogue`` of emulated_gemm.cu."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("out", "c", "bias")),
        ("out_layout", ctypes.c_int64 * 3),
        ("c_layout", ctypes.c_int64 * 3),
        *((name, ctypes.c_int64) for name in ("rows", "columns")),
        *((name, ctypes.c_float) for name in ("alpha", "beta")),
        ("activation", ctypes.c_int32),
    )


class _Operand(ctypes.Structure):
    """``Operand`` of emulated_gemm.cu."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("x", "images")),
        *((name, ctypes.c_int64) for name in ("rows", "batch_stride", "row_stride", "depth_stride")),
        *((name, ctypes.c_int32) for name in ("row_tiles", "tiles")),
    )

    def place(self, array: Any, first: int, count: int) -> None:
        """Split the matrices from index `first` on next; a matrix that all share is split only with the first group."""
        self.x = array.data.ptr + 4 * first * self.batch_stride
        self.tiles = self.row_tiles * (count if self.batch_stride else not first)


class _Parts:
    """Products of given layouts by parts; it keeps what does not change from call to call."""

    def __init__(
        self, form: Form, product: Product, stacks: tuple[Stack, Stack, Stack | None, Stack], blocks: int
    ) -> None:
        a, b, c, d = stacks
        chunks = _chunks(a)
        self._form, self._count, self._blocks = form, d.count, blocks
        self._tiles = _tiles_along(a.rows) * _tiles_along(b.rows)
        matrix = (_tiles_along(a.rows) + _tiles_along(b.rows)) * chunks * form.image
        self._group = max(1, min(d.count, _MOST_WORKSPACE // matrix, _MOST_TILES // self._tiles))
        self._depth, self._chunks = a.columns, np.int32(chunks)
        self._operands = tuple(_Operand(0, 0, x.rows, *_strides(x), _tiles_along(x.rows), 0) for x in (a, b))
        self._shared = tuple(not x.batch_stride for x in (a, b))
        self._nbytes = [
            operand.row_tiles * chunks * form.image * (1 if shared else self._group)
            for operand, shared in zip(self._operands, self._shared, strict=True)
        ]
        self._split, self._multiply = (kernel(_FILE, name, own_features=True) for name in form.names)
        self._steps = 4 * d.batch_stride, 4 * c.batch_stride if c else 0
        self._epilogue = _Epilogue(
            0, 0, 0, _strides(d), _strides(c) if c else (0, 0, 0), d.rows, d.columns,
            product.alpha, product.beta, _ACTIVATIONS[product.activation],
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._form.names)}, {self._count} in groups of {self._group})"

    def __call__(self, product: Product) -> None:
        """Compute `product`, in order of the current stream."""
        if is_explaining():
            note(", ".join(self._form.names))
        workspace = hook.empty((sum(self._nbytes),), np.uint8, product.out.data.device_id)
        a, b = self._operands
        a.images = workspace.data.ptr
        b.images = a.images + self._nbytes[0]
        for first in range(0, self._count, self._group):
            count = min(self._group, self._count - first)
            a.place(product.a, first, count)
            b.place(product.b, first, count)
            blocks = (a.tiles + b.tiles) * int(self._chunks)
            if blocks:
                self._split(blocks, _SPLITTING_THREADS, (a, b, self._depth))
            self._place(product, first)
            given = (a.images, b.images, self._epilogue, self._chunks, np.int32(count), *self._shared)
            grid = min(self._blocks, count * self._tiles)
            self._multiply(grid, _MULTIPLYING_THREADS, given, shared=self._form.shared)

    def _place(self, product: Product, first: int) -> None:
        """Write results to the matrices from index `first` on."""
        out, c, bias, to = product.out, product.c, product.bias, self._epilogue
        to.out = out.data.ptr + first * self._steps[0]
        to.c = 0 if c is None else c.data.ptr + first * self._steps[1]
        to.bias = 0 if bias is None else bias.data.ptr


def _strides(x: Stack) -> tuple[int, int, int]:
    return x.batch_stride, x.row_stride, x.column_stride
