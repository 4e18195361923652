"""Tags in both ends of every block, written and checked by the device: what two blocks share, and must not, shows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import cupy

from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory.order import at
from cuassay.memory import Block

__all__ = ["CudaTagger"]


class CudaTagger:
    """Tags for `cuassay.memory.trace.replay` on device `index`.

    A block's tag is written and checked in the order of its stream where `by_stream`, else all on the default stream:
    the streams of a recorded trace are numbers of another process.
    """

    def __init__(self, index: int, *, by_stream: bool = False) -> None:
        self._index = index
        self._by_stream = by_stream
        self._write, self._check = kernel("tags.cu", "write_tag"), kernel("tags.cu", "check_tag")
        with self._device():
            # Word 0 counts, the others tell of one; the driver's memory, as no allocator under test should hold it.
            memory = cupy.cuda.Memory(32)
            self._report = cupy.ndarray((4,), "uint64", cupy.cuda.MemoryPointer(memory, 0))
            self._report.fill(0)
            cupy.cuda.Device().synchronize()

    def _device(self) -> AbstractContextManager[Any]:
        return at(self._index)

    def write(self, block: Block, tag: int) -> None:
        """Put `tag` into both ends of `block`."""
        with self._device():
            self._write(1, 4, (block.address, block.nbytes, tag), stream=self._stream(block))

    def check(self, block: Block, tag: int) -> None:
        """Compare both ends with `tag`; `finish` reports the result."""
        self.check_on(block, tag, self._stream(block))

    def check_on(self, block: Block, tag: int, stream: int) -> None:
        """The same in the order of another stream, which has waited for the block's."""
        with self._device():
            self._check(1, 4, (block.address, block.nbytes, tag, self._report), stream=stream)

    def _stream(self, block: Block) -> int:
        return block.stream if self._by_stream else 0

    def finish(self) -> None:
        """Wait for every check.

        Raises
        ------
        AssertionError
            If a word was another than its block's tag; with the first of those found.
        """
        with self._device():
            cupy.cuda.Device().synchronize()
            count, address, tag, found = self._report.get().tolist()
            self._report.fill(0)
        if count:
            raise AssertionError(
                f"{count:,} words at the ends of blocks were overwritten; one of the first, at {address:#x}, should "
                f"hold tag {tag} and holds {found}: two blocks share memory"
            )
