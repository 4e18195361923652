"""Record the work of a stream into a CUDA graph and replay it.

The graph's memory comes from a pool of its own, which lives as long as the graph: CuPy's graph keeps no reference
to what it captured, so blocks freed after the capture would be handed out again under the replay.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import cupy

from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.cuda.stream import adopt
from cuassay.errors import CaptureError

__all__ = ["Capture"]


class Capture(Handle):
    """One recorded graph on the current device; see `cuassay.core.protocols.Capture`."""

    def __init__(self) -> None:
        self._device = Device("cuda", cupy.cuda.runtime.getDevice())
        self._pool: Any = cupy.cuda.MemoryPool()
        self._graph: Any = None
        self._stream: Any = None
        self._open: ExitStack | None = None

    def __repr__(self) -> str:
        state = "capturing" if self._open else "empty" if self._graph is None else "ready"
        return f"Capture({self._device}, {state})"

    def begin(self, stream: Any = None) -> None:
        """From here, work given to `stream` (None: the current one) is recorded, not run.

        Raises
        ------
        CaptureError
            If it is capturing already, or the stream is the legacy default one, which CUDA cannot capture.
        """
        if self._open is not None:
            raise CaptureError("begin was called twice; end the capture, or reset it, first")
        self._stream = adopt(cupy.cuda.get_current_stream() if stream is None else stream)
        if self._stream.ptr == 0:
            raise CaptureError("the legacy default stream cannot be captured; make a stream current and capture that")
        with ExitStack() as opened:
            opened.enter_context(self._stream)
            opened.enter_context(cupy.cuda.using_allocator(self._pool.malloc))
            # Relaxed, because the graph's pool may have to grow: a cudaMalloc that is ours is no mistake.
            self._stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeRelaxed)
            self._open = opened.pop_all()

    def end(self) -> None:
        """Stop recording and make the graph executable.

        Raises
        ------
        CaptureError
            If nothing is being captured, or a call in between made the capture invalid.
        """
        if self._open is None:
            raise CaptureError("end was called without begin; begin a capture first")
        with self._open:
            self._open = None
            try:
                self._graph = self._stream.end_capture()
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise CaptureError(
                    f"a call between begin and end cannot be captured ({error}); "
                    "look for host reads, synchronization, or first use of a library, and do those before"
                ) from error

    def replay(self) -> None:
        """Give the recorded work to the current stream.

        Raises
        ------
        CaptureError
            If nothing has been captured.
        """
        if self._graph is None:
            raise CaptureError("there is nothing to replay; capture something first")
        self._graph.launch(cupy.cuda.get_current_stream())

    def reset(self) -> None:
        """End an open capture, forget the graph and free its memory; twice is allowed."""
        if self._open is not None:
            opened, self._open = self._open, None
            # A call may have made the capture invalid already: then ending it says so, and ends it.
            with opened, suppress(cupy.cuda.runtime.CUDARuntimeError):
                cupy.cuda.runtime.streamEndCapture(self._stream.ptr)
        self._graph = None
        self._pool.free_all_blocks()

    def __del__(self) -> None:
        """A capture left open would forbid this thread to allocate."""
        if self._open is not None:
            self.reset()
