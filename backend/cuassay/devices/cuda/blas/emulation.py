"""Float32 products of the split modes, by bfloat16 tensor cores: operands split into parts, then multiplied by parts.

For compute capability 9.0. Elsewhere, and where a product is too small to gain, a mode is computed natively, which is
never less precise than asked. ``tf32x3`` is served by ``bf16x6``: TF32 has half the rate, so that its three products
would cost as much as these six, which are more precise.

Errors. The parts hold 16 (bf16x3) or 24 bits of each operand, down to 2**-133, the smallest bfloat16: numbers below
2**-110 have fewer bits, those below 2**-134 none. Infinities and NaN give what they give in float32, but an infinity
times a number below 2**-134 is NaN. Sums leave the tensor cores every 64 terms (bf16x3: 256), so that the cores'
truncation does not add up: 1.5e-7 of a sum of one sign, less of others. They are added in a fixed order: equal calls
give equal bits.

Memory: a workspace of 4 (bf16x3) or 6 bytes an element of the operands, in tiles of 128 by 64, from the allocator for
the time of the call; a stack goes in groups, so that it takes no more than `_MOST_WORKSPACE` unless one matrix does.

Kernels: kernels/emulated_gemm.cu. Called by `gemm`, as `register_emulation` says.
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

#: As emulated_gemm.cu has them: a tile of parts, what follows its parts in device and in shared memory, bytes.
_ROWS, _DEPTH, _PLANE, _FLAG, _SHARED_FLAG = 128, 64, 128 * 64 * 2, 128, 1024

_SPLITTING_THREADS, _MULTIPLYING_THREADS = 256, 384

#: Workspace that a stack is divided for, bytes.
_MOST_WORKSPACE = 2**30

#: Tiles of the output that one launch counts.
_MOST_TILES = 2**30

_ACTIVATIONS = {None: 0, "relu": 1, "gelu_tanh": 2}


@dataclass(frozen=True, slots=True)
class Form:
    """How a mode is computed: `parts` of each operand, `products` of them, `chain` chunks of 64 terms a rounding.

    `stages` chunks are loaded ahead: as many as shared memory holds.
    """

    parts: int
    products: int
    stages: int
    chain: int

    @property
    def image(self) -> int:
        """Bytes of a tile's parts."""
        return self.parts * _PLANE + _FLAG

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: the tiles of both operands at multiples of 1,024 bytes."""
        return self.stages * 2 * (self.parts * _PLANE + _SHARED_FLAG) + 1024

    @property
    def names(self) -> tuple[str, str]:
        """The kernels that split and multiply."""
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

#: What a product takes on an H200, seconds. By parts: one product of parts of a chunk, storing a tile, splitting (bytes
#: a second), launches with start and end. Natively: what fills the device (operations a second), and a launch.
_CHUNK_S, _TILE_S, _SPLIT_RATE, _PARTS_S = 0.28e-6, 2e-6, 3.5e12, 14e-6
_NATIVE_RATE, _NATIVE_S = 46e12, 8e-6


def register() -> None:
    """Enter the modes of `FORMS`."""
    for mode in FORMS:
        register_emulation(mode, find)


def find(product: Product, a: Stack, b: Stack, c: Stack | None, d: Stack) -> Multiply | None:
    """What computes products of these layouts by parts; None where they are computed natively."""
    properties = runtime.get_device_properties(cupy.cuda.runtime.getDevice())
    if (properties.major, properties.minor) != (9, 0):
        return None
    a, b, c, d = merged(a, b, c, d)
    form, b = FORMS[product.mode], b.transposed  # its rows are columns of the product
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
        """Matrices from index `first` on are split next; one that all share has been, with the first."""
        self.x = array.data.ptr + 4 * first * self.batch_stride
        self.tiles = self.row_tiles * (count if self.batch_stride else not first)


class _Parts:
    """Products of given layouts, by parts: what does not change from call to call."""

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
        """Results go to the matrices from index `first` on."""
        out, c, bias, to = product.out, product.c, product.bias, self._epilogue
        to.out = out.data.ptr + first * self._steps[0]
        to.c = 0 if c is None else c.data.ptr + first * self._steps[1]
        to.bias = 0 if bias is None else bias.data.ptr


def _strides(x: Stack) -> tuple[int, int, int]:
    return x.batch_stride, x.row_stride, x.column_stride
