"""The plainest calls of elementwise operations, past dispatch: contiguous arrays alike, on the only device.

To find out what is obvious here costs dispatch more of the host's time than the driver takes to launch. A shortcut
serves what it recognises and gives `NotImplemented` for everything else, which dispatch then serves or refuses: the
kernels are the same. What decides the launch is the operands' layout; launches are made ready once for each, and kept
idle between calls. The output may be an operand, or lie apart from all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Protocol

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core import settings
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.context import refused_in_child
from cuassay.devices.cuda.driver.cupy_private import layout_of
from cuassay.devices.cuda.launch.block import STREAM_WORD, first_argument_word
from cuassay.devices.cuda.launch.launch import Kernel
from cuassay.devices.cuda.memory import hook
from cuassay.ops import Op, registry

__all__ = ["ALIGNMENT", "Build", "Layout", "Shortcut", "forget", "install", "installed"]

#: A launch made ready: the words of its arguments, and the call.
_Ready = tuple[memoryview, Callable[[], int]]

#: dtype, shape, and whether the array is contiguous in C order.
Layout = tuple[np.dtype[Any], tuple[int, ...], bool]

#: From dtype and elements in all to kernel, grid and block, for arrays aligned to `ALIGNMENT`; the kernel's arguments
#: are the operands, the output and the number of elements.
Build = Callable[[np.dtype[Any], int], tuple[Kernel, tuple[int, int, int], int]]

#: Of every address; then the widest access may be used. In bytes.
ALIGNMENT = 16

#: Layouts whose launches are kept; with one more, all are dropped.
_MOST_KEPT = 4096

_ndarray: Any = cupy.ndarray
_fresh = hook.fresh
_current_stream = cupy.cuda.get_current_stream
refused_in_child(globals(), "_current_stream", "_fresh")


class Shortcut:
    """Serves `op` on one or two arrays of one of `dtypes` by the kernel that `build` gives.

    As long as the registry has the implementation that it stands for.
    """

    def __init__(self, op: Op, dtypes: frozenset[str], build: Build) -> None:
        self._op = op
        self._build = build
        self._arity = arity = len(op.schema.arrays)
        self._implementations = {name: registry.find(op, "cuda", as_dtype(name)) for name in dtypes}
        self._routes = registry.routes
        self._first = first_argument_word(arity + 2)
        self._last, self._out = self._first + arity - 1, self._first + arity
        self._forms: dict[Layout, tuple[list[_Ready], int]] = {}

    def __repr__(self) -> str:
        return f"Shortcut({self._arity} arrays, {len(self._forms)} forms kept)"

    def serve(self, operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """The result; or `NotImplemented`, and nothing is done."""
        if registry.routes is not self._routes:
            self.forget()
        a, b = operands[0], operands[-1]  # of one operand it is both, as its address is then written twice
        layout = layout_of(a)
        idle, nbytes = self._forms.get(layout) or self._admitted(layout)
        if not nbytes or len(operands) != self._arity or scalars:
            return NotImplemented
        if b is not a and (b.__class__ is not _ndarray or layout_of(b) != layout):
            return NotImplemented
        at_a, at_b, stream = a.data.ptr, b.data.ptr, _current_stream().ptr
        if out is None:
            if (at_a | at_b) % ALIGNMENT:
                return NotImplemented
            out = _fresh(layout[1], layout[0], nbytes, 0, stream)
            at = out.data.ptr
        else:
            if out.__class__ is not _ndarray or layout_of(out) != layout:
                return NotImplemented
            at = out.data.ptr
            if (
                (at_a | at_b | at) % ALIGNMENT
                or (at_a != at and -nbytes < at_a - at < nbytes)
                or (at_b != at and -nbytes < at_b - at < nbytes)
            ):
                return NotImplemented
        try:  # not a test first: another thread may take the last one in between
            ready = idle.pop()
        except IndexError:
            ready = self._made(layout)
        words, fire = ready
        words[self._first], words[self._last], words[self._out] = at_a, at_b, at
        words[STREAM_WORD] = stream
        failed = fire()
        idle.append(ready)
        return NotImplemented if failed else out

    def forget(self) -> None:
        """Drop the launches made ready."""
        self._forms, self._routes = {}, registry.routes

    def _admitted(self, layout: Layout) -> tuple[list[_Ready], int]:
        """The idle launches of a layout, and the bytes of an array; 0 where it is not served."""
        if len(self._forms) >= _MOST_KEPT:
            self._forms.clear()
        dtype, shape, is_contiguous = layout
        mine = self._implementations.get(dtype_name(dtype))
        is_served = is_contiguous and mine is not None and registry.find(self._op, "cuda", dtype) is mine
        return self._forms.setdefault(layout, ([], prod(shape) * dtype.itemsize if is_served else 0))

    def _made(self, layout: Layout) -> _Ready:
        dtype, shape, _ = layout
        size = prod(shape)
        kernel, grid, block = self._build(dtype, size)
        launch = kernel.prepare([_ndarray] * (self._arity + 1) + [int])
        launch.words[self._out + 1] = size
        return launch.words, launch.bind(grid, block)


def install(op: Op, dtypes: frozenset[str], build: Build) -> None:
    """Let calls of `op`, once it is implemented, try a shortcut first.

    Not where there are several devices, of which the right one must be made current, nor where launches block.
    """
    if runtime.device_count() == 1 and not settings.get("CUASSAY_LAUNCH_BLOCKING"):
        kept = frozenset(name for name in dtypes if dtype_name(op.schema.result(as_dtype(name))) == name)
        made = Shortcut(op, kept, build)
        installed.append(made)
        op.shortcuts[_ndarray] = (made.serve,)  # the method itself: to call an object costs twice as much


class Forgetful(Protocol):
    """Keeps launches made ready."""

    def forget(self) -> None:
        """Drop them."""


installed: list[Forgetful] = []


def forget() -> None:
    """Drop every launch made ready: who replaces a kernel must, or it goes on being launched.

    Not those of products, which `blas.controls.renew` drops.
    """
    for shortcut in installed:
        shortcut.forget()
