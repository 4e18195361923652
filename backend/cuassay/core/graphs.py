"""The base class of captured graphs on every device kind: states, participants, hooks and errors.

A kind derives from `Graph` and defines how recording begins and ends and how the work is launched. Everything else is
shared here. Names and meanings follow ``torch.cuda.CUDAGraph``.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay.core import graph_hooks
from cuassay.core.device import Device
from cuassay.core.graph_pools import GraphMemory, PoolId, is_pool_id
from cuassay.core.handle import Handle
from cuassay.core.participants import Participant, Prologue, participants
from cuassay.errors import ArgumentError, CaptureError, CuassayError

__all__ = [
    "CAPTURE_ERROR_MODES",
    "Graph",
    "GraphStatistics",
]

#: The threads whose unsafe calls (waits, allocations outside the pools, queries) break a capture: all threads, the
#: capturing thread, or no thread. The position is the driver's number.
CAPTURE_ERROR_MODES = ("global", "thread_local", "relaxed")


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """The current state of a graph.

    Attributes
    ----------
    state : str
        ``empty``, ``capturing``, ``captured`` (not executable yet) or ``ready``.
    nodes : int
        The number of recorded nodes, without those of conditional bodies.
    pool_nbytes : int
        The bytes that its private pool, which other graphs may share, has allocated from the device.
    """

    state: str
    nodes: int
    pool_nbytes: int


class Graph(Handle, ABC):
    """Work of one device that is recorded once and replayed. Two threads must not use a graph at the same time.

    Parameters
    ----------
    device : Device
        The device on which the work is recorded and replayed.
    keep_graph : bool
        If true, `instantiate` or the first `replay` makes the graph executable instead of the end of the capture.
    """

    def __init__(self, device: Device, *, keep_graph: bool = False) -> None:
        self.keep_graph = keep_graph
        self._device = device
        self._state = "empty"
        self._is_debugged = False
        self._pool: GraphMemory | None = None
        self._token = object()  # passed to participants instead of this graph, so that they do not keep it alive
        self._told: list[Participant] = []
        self._prologues: tuple[Prologue, ...] = ()
        graph_hooks.watch(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._device}, {self._state})"

    @property
    def device(self) -> Device:
        """The device on which the work is recorded and replayed."""
        return self._device

    # -------------------------------------------------------------------------------------------- recording

    def capture_begin(self, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """Call `begin` on the current stream."""
        self.begin(None, pool=pool, capture_error_mode=capture_error_mode)

    def capture_end(self) -> None:
        """Call `end`."""
        self.end()

    def begin(self, stream: Any = None, *, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """Begin the capture: work given to `stream` is recorded instead of run.

        Parameters
        ----------
        stream : object, optional
            The stream to capture; None means the current one. The default stream cannot be captured.
        pool : tuple of int, optional
            A token from `graph_pool_handle` or another graph's `pool`. Arrays made during the capture use that memory.
            Graphs that share memory must not run at the same time.
        capture_error_mode : str
            See `CAPTURE_ERROR_MODES`.

        Raises
        ------
        CaptureError
            If the stream cannot be captured, or this graph holds work already.
        ArgumentError
            If there is no such mode, or `pool` is not the id of a pool.
        """
        if capture_error_mode not in CAPTURE_ERROR_MODES:
            modes = ", ".join(CAPTURE_ERROR_MODES)
            raise ArgumentError(f"capture_error_mode is one of {modes}; got {capture_error_mode!r}; choose one")
        if pool is not None and not is_pool_id(pool):
            raise ArgumentError(
                f"pool is a pair of integers; got {pool!r}; give what graph_pool_handle() or a graph's pool() returned"
            )
        if self._state == "capturing":
            raise CaptureError(f"{self!r}: begin was called twice; end the capture, or reset it, first")
        if self._state != "empty":
            raise CaptureError(f"{self!r} holds work already; call reset() first, or make another graph")
        self._open(stream, pool, capture_error_mode)
        self._state = "capturing"
        with self._undone():
            for participant in participants(self._device.kind):
                participant.capture_begin(self._token, self._device)
                self._told.append(participant)
            graph_hooks.tell_watchers("graph_capture_begun", self, stream=self.current_lane())
            graph_hooks.call_hooks("capture_start", self)

    def end(self) -> None:
        """Stop recording. Makes the graph executable unless `keep_graph` is set.

        Raises
        ------
        CaptureError
            If nothing is being recorded, or if a call broke the capture. The recorded work is dropped then.
        """
        if self._state != "capturing":
            raise CaptureError(f"{self!r} is not capturing: end was called without begin; call begin() first")
        with self._undone():
            self._state = "closing"
            self._close()
            self._state = "captured"
            ended = [participant.capture_end(self._token, self._device) for participant in self._told]
            self._prologues = tuple(prologue for prologue in ended if prologue is not None)
            graph_hooks.call_hooks("capture_end", self)
            if not self.keep_graph:
                self.instantiate()

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Reset the graph if the block raises."""
        try:
            yield
        except BaseException:
            self.reset()
            raise

    @contextmanager
    def if_node(self, predicate: Any) -> Iterator[None]:
        """Replay the work given to the current stream inside the block only if `predicate` is true at that time.

        Parameters
        ----------
        predicate : array
            One bool on the device, read at each replay.

        Raises
        ------
        CaptureError
            If this graph is not capturing.
        ArgumentError
            If `predicate` is not one bool.
        CapabilityError
            If the device has no conditional nodes.
        """
        with self._conditional("if", predicate):
            yield

    @contextmanager
    def while_node(self, predicate: Any) -> Iterator[None]:
        """Replay the block's work while `predicate`, which it changes, is true. See `if_node` for the errors."""
        with self._conditional("while", predicate):
            yield

    @contextmanager
    def _conditional(self, kind: str, predicate: Any) -> Iterator[None]:
        if self._state != "capturing":
            raise CaptureError(f"{self!r}: {kind}_node belongs inside a capture; call it between begin and end")
        if predicate.size != 1 or predicate.dtype != bool:
            raise ArgumentError(
                f"{kind}_node takes one bool on the device; got {predicate.size} elements of {predicate.dtype}; "
                "compare, and reduce with all or any"
            )
        with self._body(kind, predicate), graph_hooks.told_body(self, kind):
            yield

    # -------------------------------------------------------------------------------------------- replaying

    def instantiate(self) -> None:
        """Make the recorded work executable. Call it again after other code changed a kept graph.

        Raises
        ------
        CaptureError
            If nothing was recorded, or the recorded graph was not kept.
        """
        if self._state != "captured" and not (self._state == "ready" and self.keep_graph):
            raise CaptureError(
                f"{self!r} cannot be instantiated: nothing is recorded or kept; capture first, with keep_graph=True"
            )
        self._make_executable()
        self._state = "ready"
        graph_hooks.call_hooks("instantiate", self)

    def replay(self) -> None:
        """Launch the recorded work on the current stream.

        Raises
        ------
        CaptureError
            If nothing has been captured.
        """
        if self._state == "captured":
            self.instantiate()
        if self._state != "ready":
            raise CaptureError(f"{self!r}: there is nothing to replay; capture something first")
        if not graph_hooks.has_replay_hooks():
            self._prepared_launch()
            return
        try:
            graph_hooks.call_hooks("replay_start", self)
            self._prepared_launch()
        finally:
            graph_hooks.call_hooks("replay_end", self)

    def _prepared_launch(self) -> None:
        self._may_launch()
        for prologue in self._prologues:
            prologue()
        self._launch()

    def _may_launch(self) -> None:
        """Raise an error if the current stream cannot take a replay. Called before a replay changes anything."""

    @property
    def is_plain(self) -> bool:
        """Whether a replay is only a launch, without hooks or participants."""
        return not (self._prologues or graph_hooks.has_replay_hooks())

    def disarm(self) -> None:
        """Discard a prepared replay. Called when hooks change."""

    def update(self, other: Graph) -> bool:
        """Replace the recorded work by that of `other`, which is left empty and must not be executable yet.

        Returns
        -------
        bool
            True if the executable graph was updated in place, which requires the same nodes with other sizes, values
            or addresses. False if it was instantiated again.

        Raises
        ------
        CaptureError
            If this graph is not ready, or `other` does not hold a kept graph that is captured but not executable.
        """
        if self._state != "ready":
            raise CaptureError(f"{self!r} is not executable yet; capture and instantiate it before an update")
        if type(other) is not type(self) or other.device != self._device or other._state != "captured":
            raise CaptureError(
                f"{self!r} cannot be updated from {other!r}; capture on the same device into a graph made with "
                "keep_graph=True, and do not instantiate it"
            )
        in_place = self._take_over(other)
        graph_hooks.tell_watchers("graph_updated", self, other=id(other))
        self._forget()
        self._told, self._prologues, self._token = other._told, other._prologues, other._token
        other._told, other._prologues, other._token, other._state = [], (), object(), "empty"
        self.disarm()
        return in_place

    # -------------------------------------------------------------------------------------------- life and looks

    def reset(self) -> None:
        """End an open capture, drop the work and free its memory. Calling this twice is allowed."""
        state, self._state = self._state, "empty"
        with ExitStack() as last:  # every step runs, even if an earlier one raised
            last.callback(self.disarm)
            last.callback(self._discard)
            last.callback(self._forget)
            if state == "capturing":
                last.callback(self._abandon)
            if state in ("captured", "ready"):
                graph_hooks.call_hooks("destroy", self)
            if state != "empty":
                graph_hooks.tell_watchers("graph_dropped", self)

    def _forget(self) -> None:
        told, self._told, self._prologues = self._told, [], ()
        for participant in told:
            participant.capture_forget(self._token, self._device)

    def __del__(self) -> None:
        """Reset the graph: an open capture would block other work on its stream and thread."""
        if getattr(self, "_state", "empty") != "empty" and not sys.is_finalizing():
            with suppress(CuassayError):  # a lost device has nothing left to free
                self.reset()

    def end_open(self) -> None:
        """End an open capture. Called when the interpreter exits."""
        if self._state == "capturing":
            with suppress(CuassayError):
                self.reset()

    def enable_debug_mode(self) -> None:
        """Check after each op of later captures whether it broke the capture, and name the op in the error."""
        self._is_debugged = True

    def debug_dump(self, debug_path: str | Path) -> None:
        """Write the recorded graph to `debug_path` in the DOT language.

        Raises
        ------
        CaptureError
            If nothing was recorded.
        """
        if self._state not in ("captured", "ready"):
            raise CaptureError(f"{self!r} has no recorded graph to show; capture something first")
        self._dump(Path(debug_path))

    def pool(self) -> PoolId:
        """Return the token of its memory, for another graph to share. Raises `CaptureError` before a capture."""
        if self._pool is None:
            raise CaptureError(f"{self!r} has no memory yet; ask after its capture began, or use graph_pool_handle()")
        return self._pool.id

    @abstractmethod
    def statistics(self) -> GraphStatistics:
        """Return the current state, number of nodes and pool size."""

    def observed(self) -> AbstractContextManager[None]:
        """Return a context manager that, during a capture, collects what `input_pointer` needs."""
        return nullcontext()

    @property
    def is_broken(self) -> bool:
        """Whether a call has broken the open capture."""
        return False

    def input_pointer(self, array: Any) -> Callable[[Any], bool] | None:
        """Return a function that makes replays read another array instead of `array` without a copy, or None."""
        return None

    # -------------------------------------------------------------------------------------------- a kind's part

    @abstractmethod
    def current_lane(self) -> int:
        """Return the number by which watchers know the current stream of the graph's device."""

    @abstractmethod
    def _open(self, stream: Any, pool: PoolId | None, mode: str) -> None:
        """Begin to record. A failure must not leave a capture open."""

    @abstractmethod
    def _close(self) -> None:
        """Stop recording, even if this raises `CaptureError`."""

    @abstractmethod
    def _abandon(self) -> None:
        """Stop recording, and drop the recorded work."""

    @abstractmethod
    def _body(self, kind: str, predicate: Any) -> Any:
        """Return a context manager inside which the current stream records the body of a conditional node."""

    @abstractmethod
    def _make_executable(self) -> None:
        """Make the recorded work executable, and drop the former executable graph."""

    @abstractmethod
    def _launch(self) -> None:
        """Launch the work on the current stream."""

    @abstractmethod
    def _take_over(self, other: Any) -> bool:
        """Take over `other`'s work and memory. Returns whether the executable graph was updated in place."""

    @abstractmethod
    def _discard(self) -> None:
        """Free the memory and work of the graph, if there are any."""

    @abstractmethod
    def _dump(self, path: Path) -> None:
        """Write the graph in the DOT language."""
