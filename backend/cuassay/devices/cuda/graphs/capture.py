"""Record the work of a stream into a CUDA graph and replay it.

`cuassay.core.graphs` has what all device kinds share (states, hooks, participants, rejections), `pool` manages the
memory, and `inputs` changes the addresses of a graph's inputs.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cupy

from cuassay.core.device import Device
from cuassay.core.graph_pools import PoolId, graph_pool_handle
from cuassay.core.graphs import CAPTURE_ERROR_MODES, Graph, GraphStatistics
from cuassay.devices.cuda.driver import forks, graph_driver, runtime
from cuassay.devices.cuda.driver.check import advice
from cuassay.devices.cuda.driver.graph_driver import call, relaxed
from cuassay.devices.cuda.graphs import pool as graph_pool
from cuassay.devices.cuda.graphs.inputs import Inputs, Witness
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.streams.stream import Stream, adopt, at
from cuassay.errors import CapabilityError, CaptureError
from cuassay.ops.interposers import Interposer, interpose
from cuassay.ops.operation import Call

__all__ = ["CUDAGraph", "is_current_stream_capturing"]

_UPDATE_FAILED = 910  # CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
_VERBOSE = 1  # CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE
_AUTO_FREE = 1  # frees memory that captured work allocated from the driver, before the next replay
#: The legacy default stream has two addresses, 0 and 1.
_UNCAPTURABLE = (0, 1)
_CONDITIONAL_SINCE = (12, 4)

_live: Counter[int] = Counter()  # executable graphs, by device
_of_the_parent: list[Any] = []  # a forked child cannot destroy its parent's graphs

_current_stream = cupy.cuda.get_current_stream
_graph_launch = cupy.cuda.runtime.graphLaunch


def is_current_stream_capturing() -> bool:
    """Whether the current stream records its work into a graph."""
    return bool(_current_stream().is_capturing())


class CUDAGraph(Graph):
    """Work captured on the current device.

    Parameters
    ----------
    keep_graph : bool
        See `cuassay.core.graphs.Graph`.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(Device("cuda", cupy.cuda.runtime.getDevice()), keep_graph=keep_graph)
        self._pool: graph_pool.GraphPool | None = None
        self._stream: Any = None
        self._mode = 0
        self._opened: ExitStack | None = None
        self._launcher: Any = None  # CuPy's graph, which owns its handles; its `launch` has the least overhead
        self._graph = 0
        self._executable = 0
        self._source = 0  # the graph that was instantiated: only its nodes can be set
        self._armed = 0  # the executable graph, if a replay is just its launch
        self._nodes = 0
        self._witness: Witness | None = None
        self._inputs: Inputs | None = None

    # -------------------------------------------------------------------------------------------- recording

    def _open(self, stream: Any, pool: PoolId | None, mode: str) -> None:
        stream, index = adopt(_current_stream() if stream is None else stream), self._device.index
        self._check(stream)
        try:
            with ExitStack() as opened:
                opened.enter_context(at(index))
                opened.enter_context(stream)
                self._pool = graph_pool.acquire(pool or graph_pool_handle(), index)
                opened.enter_context(self._pool.routing())
                self._stream, self._mode = stream, CAPTURE_ERROR_MODES.index(mode)
                stream.begin_capture(mode=self._mode)
                if self._is_debugged:
                    opened.enter_context(interpose(self._watch()))
                self._opened = opened.pop_all()
        except BaseException:
            self._discard()
            raise

    def _check(self, stream: Any) -> None:
        if stream.ptr in _UNCAPTURABLE:
            raise CaptureError("the legacy default stream cannot be captured; make a stream current and capture that")
        if stream.device_id != self._device.index:
            raise CaptureError(f"{self!r} cannot capture {stream!r}; make the graph with that device current")
        if graph_driver.capture_status(stream.ptr) != "none":
            raise CaptureError(f"{stream!r} is being captured already; end that capture first")

    def _watch(self) -> Interposer:
        """Return the debug-mode interposer, which finds the first op that breaks the capture or meets a broken one."""
        last = "the beginning"

        def look(call: Call, proceed: Callable[[Call], Any]) -> Any:
            nonlocal last
            if self.is_broken:
                raise CaptureError(
                    f"{self!r}: a call between {last} and {call.op.name} broke the capture, perhaps one of another "
                    "thread; do it before the capture, or capture in another capture_error_mode"
                )
            result = proceed(call)
            if self.is_broken:
                raise CaptureError(f"{self!r}: {call.op.name} broke the capture; call it once before the capture")
            last = call.op.name
            return result

        return look

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        with opened or ExitStack():
            try:
                if self.keep_graph:
                    self._graph = int(cupy.cuda.runtime.streamEndCapture(self._stream.ptr))
                else:
                    self._launcher = self._stream.end_capture()
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise self._broken(error.status) from error
        if self._launcher is not None:
            self._graph = self._source = self._launcher.graph
            self._executable = self._launcher.graphExec
            _live[self._device.index] += 1
        self._nodes = graph_driver.node_count(self._graph)

    def _broken(self, status: int) -> CaptureError:
        from cuda.bindings import driver

        name = driver.CUresult(status).name
        what = f"{self._stream!r}: the work between begin and end cannot be captured: {name} ({status})"
        if name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED":
            return CaptureError(
                f"{what}; a call in between was rejected and its error was caught: look for host reads, "
                "synchronization, queries of events, or memory taken from the driver, and do those before"
            )
        return CaptureError(f"{what}; {advice(name)[1]}")

    def _abandon(self) -> None:
        opened, self._opened = self._opened, None
        graph = ctypes.c_void_p()
        with opened or ExitStack():  # a call may have invalidated the capture: ending it reports that, and ends it
            graph_driver.status("cuStreamEndCapture", self._stream.ptr, ctypes.byref(graph))
        if graph.value:
            call("cuGraphDestroy", graph)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Record which op launched which nodes, for `input_pointer`; use it inside a capture."""
        self._witness = Witness(self._stream.ptr)
        with interpose(self._witness):
            yield

    @property
    def is_broken(self) -> bool:
        """Whether a call has already broken the open capture."""
        return self._opened is not None and graph_driver.capture_status(self._stream.ptr) == "invalidated"

    @contextmanager
    def _body(self, kind: str, predicate: Any) -> Iterator[None]:
        version = runtime.driver_version()
        if tuple(map(int, version.split("."))) < _CONDITIONAL_SINCE:
            raise CapabilityError(
                f"{self._device}: conditional nodes need CUDA 12.4; this driver serves {version}; call both branches"
            )
        stream, inner = _current_stream(), _idle_stream()
        node = graph_driver.Conditional(graph_driver.capturing_graph(stream.ptr)[0])
        decide = kernel("condition.cu", "set_condition")
        decide(1, 1, (node.handle, predicate))
        body = node.insert(stream.ptr, kind)
        call("cuStreamBeginCaptureToGraph", inner.ptr, body, None, None, 0, self._mode)
        try:
            with inner:
                yield
                if kind == "while":
                    decide(1, 1, (node.handle, predicate))
        finally:
            status = graph_driver.status("cuStreamEndCapture", inner.ptr, ctypes.byref(ctypes.c_void_p()))
        if status:
            raise self._broken(status)

    # -------------------------------------------------------------------------------------------- replaying

    def _make_executable(self) -> None:
        if self._launcher is None:
            self._drop_executable()
            self._executable = self._instantiated(self._graph)
        self._arm()

    def _instantiated(self, graph: int) -> int:
        made = ctypes.c_void_p()
        with at(self._device.index), relaxed():
            call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, _AUTO_FREE)
        self._source, self._inputs = graph, None
        _live[self._device.index] += 1
        return made.value or 0

    def replay(self) -> None:
        """Launch the recorded work on the current stream.

        If there is nothing else to do, CuPy's own method replaces this one and raises CuPy's errors: a Python call
        would double the overhead beyond the driver's. Do not keep a reference to this method beyond `reset`.

        Raises
        ------
        CaptureError
            If nothing has been captured, or the current stream is being captured.
        """
        if not self._armed:
            super().replay()
            self._arm()
            return
        try:
            _graph_launch(self._armed, _current_stream().ptr)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise self._refused(error) from error

    def _arm(self) -> None:
        if not self._executable or not self.is_plain or runtime.device_count() > 1:
            return
        self._armed = self._executable
        if self._launcher is not None:
            self.replay = self._launcher.launch  # type: ignore[method-assign] # see `replay`

    def disarm(self) -> None:
        """Handle a change of hooks: the next replay checks everything again."""
        self._armed = 0
        self.__dict__.pop("replay", None)

    def _launch(self) -> None:
        index = self._device.index
        with at(index):
            try:
                _graph_launch(self._executable, _current_stream(index).ptr)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise self._refused(error) from error

    def _refused(self, error: Exception) -> Exception:
        if is_current_stream_capturing():
            return CaptureError(
                f"{self!r} cannot be replayed into a capture ({error}); replay it outside, or capture its work again"
            )
        return error

    def current_lane(self) -> int:
        """See `cuassay.core.graphs.Graph`."""
        return int(_current_stream(self._device.index).ptr)

    def _take_over(self, other: CUDAGraph) -> bool:
        with at(self._device.index):
            status = graph_driver.status(
                "cuGraphExecUpdate_v2", self._executable, other._graph, ctypes.byref((ctypes.c_void_p * 3)())
            )
        if status not in (0, _UPDATE_FAILED):
            raise self._broken(status)
        self._drop_graph()
        if status:
            self._drop_executable()
            self._executable = self._instantiated(other._graph)
        else:
            self._source = 0  # that graph is gone, and another may get its address
        former_pool, self._inputs = self._pool, None
        self._graph, self._pool, self._nodes = other._graph, other._pool, other._nodes
        self._witness = other._witness  # its node numbers are those of the new graph
        other._graph, other._pool, other._nodes, other._witness = 0, None, 0, None
        if former_pool is not None:
            graph_pool.release(former_pool)
        return not status

    def input_pointer(self, array: Any) -> Callable[[Any], bool] | None:
        """Return a function that makes replays read another array in place of `array`, without a copy.

        Returns
        -------
        callable or None
            Takes an array of the same shape, strides and dtype, and returns True; or False if the address has another
            alignment, or the graph was reset, updated or instantiated again since. The result is None if anything but
            cuassay's kernels uses `array`, or if the graph was updated in place.
        """
        if not self._executable or self._source != self._graph:
            return None
        if self._inputs is None:
            self._inputs = Inputs(self._graph, self._executable, self._witness)
        found = self._inputs.pointer(array)
        return None if found is None else partial(self._point, self._inputs, found)

    def _point(self, inputs: Inputs, pointer: Callable[[Any], bool], array: Any) -> bool:
        """Call `pointer`, unless the executable graph of `inputs` is gone: its nodes cannot be set then."""
        return self._inputs is inputs and pointer(array)

    # -------------------------------------------------------------------------------------------- life and looks

    def statistics(self) -> GraphStatistics:
        """Return the graph's state, its nodes and its memory."""
        return GraphStatistics(self._state, self._nodes, 0 if self._pool is None else self._pool.nbytes)

    def raw_cuda_graph(self) -> int:
        """Return the address of the recorded ``cudaGraph_t``.

        Raises
        ------
        CaptureError
            If the graph was not kept, or nothing has been captured.
        """
        if not (self.keep_graph and self._graph):
            raise CaptureError(f"{self!r} keeps no recorded graph; make it with keep_graph=True, and capture first")
        return self._graph

    def raw_cuda_graph_exec(self) -> int:
        """Return the address of the executable ``cudaGraphExec_t``.

        Raises
        ------
        CaptureError
            If there is no executable graph.
        """
        if not self._executable:
            raise CaptureError(f"{self!r} is not executable; call instantiate() first")
        return self._executable

    def _discard(self) -> None:
        if forks.is_child():  # the graphs are the parent's: the driver does not work in a forked child
            _of_the_parent.append(self._launcher)
            self._graph, self._executable, self._launcher = 0, 0, None
            return
        pool, self._pool, self._witness, self._inputs = self._pool, None, None, None
        self._drop_graph()
        self._drop_executable()
        if pool is not None:
            graph_pool.release(pool)

    def _drop_graph(self) -> None:
        """Destroy the recorded graph, unless CuPy's graph owns it."""
        graph, self._graph, self._nodes = self._graph, 0, 0
        if graph and (self._launcher is None or graph != self._launcher.graph):
            call("cuGraphDestroy", graph)

    def _drop_executable(self) -> None:
        """Destroy the executable graph without waiting: the driver keeps a running graph until it is done.

        When the device's last one is destroyed, the driver's memory for graphs is trimmed.
        """
        executable, self._executable, index = self._executable, 0, self._device.index
        self._inputs = None
        if not executable:
            return
        self.disarm()
        with at(index), relaxed():
            if self._launcher is None:
                call("cuGraphExecDestroy", executable)
            self._launcher = None  # CuPy's graph destroys what it owns
            _live[index] -= 1
            if not _live[index]:
                call("cuDeviceGraphMemTrim", _device_handle(index))

    def _dump(self, path: Path) -> None:
        call("cuGraphDebugDotPrint", self._graph, str(path).encode(), _VERBOSE)


def _idle_stream() -> Any:
    """Return a stream that is not being captured; the pool hands out its streams in turn."""
    stream = Stream()
    while graph_driver.capture_status(stream.ptr) != "none":
        stream = Stream()
    return stream


def _device_handle(index: int) -> int:
    found = ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(found), index)
    return found.value
