"""Tags in both ends of every block, written and checked by the device: they reveal blocks that share memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import cupy

from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory.order import at
from cuassay.memory import Block

__all__ = ["CudaTagger"]


class CudaTagger:
    """Writes and checks tags for `cuassay.memory.trace.replay` on device `index`.

    With `by_stream` a block's tag is written and checked in the order of its stream, otherwise always on the default
    stream, because the streams of a recorded trace are numbers of another process.
    """

    def __init__(self, index: int, *, by_stream: bool = False) -> None:
        self._index = index
        self._by_stream = by_stream
        self._write, self._check = kernel("tags.cu", "write_tag"), kernel("tags.cu", "check_tag")
        with self._device():
            # Word 0 counts, the others describe one difference; driver memory, because the allocator under test must
            # not hold it.
            memory = cupy.cuda.Memory(32)
            self._report = cupy.ndarray((4,), "uint64", cupy.cuda.MemoryPointer(memory, 0))
            self._report.fill(0)
            cupy.cuda.Device().synchronize()

    def _device(self) -> AbstractContextManager[Any]:
        return at(self._index)

    def write(self, block: Block, tag: int) -> None:
        """Write `tag` to both ends of `block`."""
        with self._device():
            self._write(1, 4, (block.address, block.nbytes, tag), stream=self._stream(block))

    def check(self, block: Block, tag: int) -> None:
        """Compare both ends with `tag`; `finish` reports the result."""
        self.check_on(block, tag, self._stream(block))

    def check_on(self, block: Block, tag: int, stream: int) -> None:
        """Check in the order of another stream, which has waited for the block's stream."""
        with self._device():
            self._check(1, 4, (block.address, block.nbytes, tag, self._report), stream=stream)

    def _stream(self, block: Block) -> int:
        return block.stream if self._by_stream else 0

    def finish(self) -> None:
        """Wait for all checks.

        Raises
        ------
        AssertionError
            If a word differs from its block's tag; the message shows one of the first differences.
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
