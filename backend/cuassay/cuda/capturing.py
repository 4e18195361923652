"""The block in which work is captured into a graph, and the stream of the capture, for every device kind."""

from __future__ import annotations

import gc
import linecache
import sysconfig
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cuassay import devices
from cuassay.core.device import Device
from cuassay.core.graphs import Graph
from cuassay.errors import ArgumentError, CaptureError, CuassayError

if TYPE_CHECKING:
    from cuassay.core.graph_pools import PoolId

__all__ = ["graph", "side_stream"]


class graph:  # noqa: N801  torch's name
    """Capture work submitted to a side stream inside the block into `cuda_graph`.

    Nothing runs during the capture, so nothing synchronizes. If the block raises, or a call in it breaks the capture,
    the graph is left empty, and the stream and the thread can be used again.

    Parameters
    ----------
    cuda_graph : CUDAGraph or another kind's graph
        The graph to capture into.
    pool : tuple of int, optional
        See `cuassay.core.graphs.Graph.begin`.
    stream : Stream, optional
        The stream to capture on; by default the stream that this thread's captures of the device share.
    capture_error_mode : str
        ``global``, ``thread_local`` or ``relaxed``.

    Raises
    ------
    CaptureError
        If the work cannot be captured; the message names the call.
    """

    def __init__(
        self,
        cuda_graph: Graph,
        pool: PoolId | None = None,
        stream: Any = None,
        capture_error_mode: str = "global",
    ) -> None:
        if not isinstance(cuda_graph, Graph):
            raise ArgumentError(f"graph() captures into a CUDAGraph; got {cuda_graph!r}; make one and give it")
        self._graph = cuda_graph
        self._pool = pool
        self._mode = capture_error_mode
        self._backend = devices.backend(cuda_graph.device.kind)
        self._stream = side_stream(cuda_graph.device) if stream is None else stream
        self._entered: Any = None

    def __enter__(self) -> None:
        self._entered = self._backend.use_stream(self._stream)
        self._entered.__enter__()
        # A finalizer that ran now could call the driver, which breaks a capture. A collection before the capture, as in
        # older torch, takes 85 ms if torch is loaded, and does not help against garbage that the block itself makes.
        _pause_collector()
        try:
            self._graph.begin(pool=self._pool, capture_error_mode=self._mode)
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._graph.end()
            else:
                self._fail(error)
        finally:
            self._leave()
        if error is None and not self._graph.statistics().nodes:
            warnings.warn(f"{self._graph!r} holds no work: was it given to another stream?", stacklevel=2)

    def _leave(self) -> None:
        _resume_collector()
        self._entered.__exit__(None, None, None)

    def _fail(self, error: BaseException) -> None:
        """Name the call that broke the capture; other errors propagate unchanged."""
        is_broken = self._graph.is_broken
        self._graph.reset()
        if isinstance(error, CuassayError) or not isinstance(error, RuntimeError):
            return
        if is_broken or "captur" in str(error):
            raise CaptureError(
                f"{_call_of(error)} cannot be captured: {error}; do it before the capture, or after the replay"
            ) from error


def _call_of(error: BaseException) -> str:
    """Return file, line and text of the innermost call in the caller's own code that led to `error`."""
    found, link = "a call", error.__traceback__
    while link is not None:
        name, line = link.tb_frame.f_code.co_filename, link.tb_lineno
        if not name.startswith(_LIBRARIES) and not name.endswith(".pyx"):
            found = f"`{linecache.getline(name, line).strip()}` at {name}:{line}"
        link = link.tb_next
    return found


#: Directories of code that is not the caller's own.
_LIBRARIES = (str(Path(__file__).parents[1]), *(sysconfig.get_paths()[name] for name in ("purelib", "stdlib")))


class _Side(threading.local):
    def __init__(self) -> None:
        self.streams: dict[Device, Any] = {}


_side = _Side()


def side_stream(device: Device) -> Any:
    """Return the stream that this thread's captures of `device` share, so that freed memory of a stream is reused.

    Each thread has its own, because two threads may capture at the same time.
    """
    if device.kind == "sim":  # a test may have replaced the simulated machine
        return devices.backend("sim").new_stream(device.index)
    if device not in _side.streams:
        _side.streams[device] = devices.backend(device.kind).new_stream(device.index)
    return _side.streams[device]


class _PausedCollector:
    """The number of open captures in all threads, and whether the garbage collector was on before the first."""

    lock = threading.Lock()
    captures = 0
    was_on = False


def _pause_collector() -> None:
    """Disable garbage collection until each `_pause_collector` has been followed by a `_resume_collector`."""
    with _PausedCollector.lock:
        if not _PausedCollector.captures:
            _PausedCollector.was_on = gc.isenabled()
        _PausedCollector.captures += 1
        gc.disable()


def _resume_collector() -> None:
    with _PausedCollector.lock:
        _PausedCollector.captures -= 1
        if not _PausedCollector.captures and _PausedCollector.was_on:
            gc.enable()
