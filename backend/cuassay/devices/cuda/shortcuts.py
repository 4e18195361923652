"""The plainest calls of elementwise operations, past dispatch: contiguous arrays alike, on the only device.

To find out what is obvious here costs dispatch more of the host's time than the driver takes to launch. A shortcut
serves what it recognises and gives `NotImplemented` for everything else, which dispatch then serves or refuses: the
kernels are the same. Launches are made ready once for each dtype and size, and kept idle between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core import settings
from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.block import STREAM_WORD, first_argument_word
from cuassay.devices.cuda.context import refused_in_child
from cuassay.devices.cuda.launch import Kernel
from cuassay.devices.cuda.memory import hook
from cuassay.ops import Op

__all__ = ["Build", "Shortcut", "install"]

#: A launch made ready: its words, where the arguments' begin, the call.
_Ready = tuple[memoryview, int, Callable[[], int]]

#: From dtype and elements in all to kernel, grid and block, for arrays aligned to `_ALIGNMENT`; the kernel's arguments
#: are the operands, the output and the number of elements.
Build = Callable[[np.dtype[Any], int], tuple[Kernel, tuple[int, int, int], int]]

_ALIGNMENT = 16

#: Forms of call whose launches are kept; with one more, all are dropped.
_MOST_KEPT = 4096

_ndarray: Any = cupy.ndarray
_empty = hook.empty
_current_stream = cupy.cuda.get_current_stream
refused_in_child(globals(), "_current_stream", "_empty")


class Shortcut:
    """Serves an operation on `arity` arrays of one of `dtypes` by the kernel that `build` gives."""

    def __init__(self, arity: int, dtypes: frozenset[str], build: Build) -> None:
        self._arity = arity
        self._dtypes = dtypes
        self._build = build
        self._forms: dict[tuple[int, int], tuple[list[_Ready], int]] = {}

    def __repr__(self) -> str:
        return f"Shortcut({self._arity} arrays, {len(self._forms)} forms kept)"

    def __call__(self, operands: tuple[Any, ...], out: Any) -> Any:
        """The result; or `NotImplemented`, and nothing is done."""
        first = operands[0]
        dtype, shape, size = first.dtype, first.shape, first.size
        idle, nbytes = self._forms.get((dtype.num, size)) or self._admitted(dtype, size)
        if not nbytes or len(operands) != self._arity:
            return NotImplemented
        bits, addresses = 0, []
        for array in operands if out is None else (*operands, out):
            # One of CuPy's dtypes is one object; another object is dispatch's to compare.
            if (
                array.__class__ is not _ndarray
                or array.dtype is not dtype
                or array.shape != shape
                or not array._c_contiguous  # noqa: SLF001  array.flags costs ten times as much
            ):
                return NotImplemented
            address = array.data.ptr
            bits |= address
            addresses.append(address)
        if bits % _ALIGNMENT:
            return NotImplemented
        if out is None:
            out = _empty(shape, dtype, 0)
            addresses.append(out.data.ptr)
        else:
            target = addresses[-1]
            for address in addresses:
                if address != target and -nbytes < address - target < nbytes:
                    return NotImplemented
        return out if self._launch(idle, dtype, size, addresses) == 0 else NotImplemented

    def forget(self) -> None:
        """Drop the launches made ready: who replaces a kernel must, or it goes on being launched."""
        self._forms.clear()

    def _launch(self, idle: list[_Ready], dtype: np.dtype[Any], size: int, addresses: list[int]) -> int:
        """The driver's status."""
        try:  # not a test first: another thread may take the last one in between
            ready = idle.pop()
        except IndexError:
            ready = self._made(dtype, size)
        words, start, fire = ready
        for place, address in enumerate(addresses, start):
            words[place] = address
        words[STREAM_WORD] = _current_stream().ptr
        status = fire()
        idle.append(ready)
        return status

    def _admitted(self, dtype: np.dtype[Any], size: int) -> tuple[list[_Ready], int]:
        """The idle launches of a form of call, and the bytes of an array; 0 where it is not served."""
        if len(self._forms) >= _MOST_KEPT:
            self._forms.clear()
        nbytes = size * dtype.itemsize if dtype_name(dtype) in self._dtypes else 0
        return self._forms.setdefault((dtype.num, size), ([], nbytes))

    def _made(self, dtype: np.dtype[Any], size: int) -> _Ready:
        kernel, grid, block = self._build(dtype, size)
        types = [_ndarray] * (self._arity + 1) + [int]
        launch, start = kernel.prepare(types), first_argument_word(len(types))
        launch.words[start + self._arity + 1] = size
        return launch.words, start, launch.bind(grid, block)


def install(op: Op, arity: int, dtypes: frozenset[str], build: Build) -> None:
    """Let calls of `op` on CuPy's arrays try a shortcut first.

    Not where there are several devices, of which the right one must be made current, nor where launches block.
    """
    if runtime.device_count() == 1 and not settings.get("CUASSAY_LAUNCH_BLOCKING"):
        kept = frozenset(name for name in dtypes if dtype_name(op.schema.result(as_dtype(name))) == name)
        op.shortcuts[_ndarray] = Shortcut(arity, kept, build)
