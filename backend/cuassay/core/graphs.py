"""A graph of captured work on every kind of device: its states, its participants and hooks, and its errors.

A kind derives from `Graph` and defines how recording begins and ends and how the work is launched. The rest is here, so
that kinds differ in nothing else. Names and meanings follow ``torch.cuda.CUDAGraph``.
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

#: Whose unsafe calls (waits, allocations outside the pools, queries) break a capture: every thread's, this thread's, no
#: one's. The position is the driver's number.
CAPTURE_ERROR_MODES = ("global", "thread_local", "relaxed")


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """A graph as of now.

    Attributes
    ----------
    state : str
        ``empty``, ``capturing``, ``captured`` (not executable yet) or ``ready``.
    nodes : int
        Pieces of work recorded; those of conditional bodies are not counted.
    pool_nbytes : int
        Bytes that its private pool, which others may share, has taken from the device.
    """

    state: str
    nodes: int
    pool_nbytes: int


class Graph(Handle, ABC):
    """Work of one device, recorded once and replayed; not for two threads at once.

    Parameters
    ----------
    device : Device
        Where it was recorded and is replayed.
    keep_graph : bool
        The end of a capture does not make it executable: `instantiate` or the first `replay` does.
    """

    def __init__(self, device: Device, *, keep_graph: bool = False) -> None:
        self.keep_graph = keep_graph
        self._device = device
        self._state = "empty"
        self._is_debugged = False
        self._pool: GraphMemory | None = None
        self._token = object()  # given to participants in place of this graph, so that they do not keep it alive
        self._told: list[Participant] = []
        self._prologues: tuple[Prologue, ...] = ()
        graph_hooks.watch(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._device}, {self._state})"

    @property
    def device(self) -> Device:
        """Where it is recorded and replayed."""
        return self._device

    # -------------------------------------------------------------------------------------------- recording

    def capture_begin(self, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """`begin` on the current stream."""
        self.begin(None, pool=pool, capture_error_mode=capture_error_mode)

    def capture_end(self) -> None:
        """`end`."""
        self.end()

    def begin(self, stream: Any = None, *, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """Begin the capture: work given to `stream` (None: the current one) is recorded, not run.

        Parameters
        ----------
        stream : object, optional
            A stream other than the default stream, which cannot be captured.
        pool : tuple of int, optional
            From `graph_pool_handle` or another graph's `pool`: arrays made inside share that memory. Graphs that share
            it must not run at the same time.
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
        """Stop recording; unless the graph is kept, make it executable.

        Raises
        ------
        CaptureError
            If nothing is being recorded, or a call in between broke the capture; the work is dropped then.
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
        """What fails inside leaves the graph empty."""
        try:
            yield
        except BaseException:
            self.reset()
            raise

    @contextmanager
    def if_node(self, predicate: Any) -> Iterator[None]:
        """Work given to the current stream inside the block is replayed where `predicate` is true by then.

        Parameters
        ----------
        predicate : array
            One bool on the device, read at each replay.

        Raises
        ------
        CaptureError
            If this graph is not capturing.
        CapabilityError
            If the device has no conditional nodes.
        """
        with self._conditional("if", predicate):
            yield

    @contextmanager
    def while_node(self, predicate: Any) -> Iterator[None]:
        """Work given to the current stream inside the block is replayed while `predicate`, which it changes, is true.

        Parameters and errors as `if_node` has them.
        """
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
        """Make what was recorded executable; again after the kept graph was changed by others.

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
        """Give the recorded work to the current stream.

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
        """Raise where the current stream takes no replay: before anything is changed for one."""

    @property
    def is_plain(self) -> bool:
        """Whether a replay is only its launch: no hook and no participant takes part in it."""
        return not (self._prologues or graph_hooks.has_replay_hooks())

    def disarm(self) -> None:
        """Called when hooks change: a replay that a kind has prepared is no longer valid."""

    def update(self, other: Graph) -> bool:
        """Make replays do what `other` recorded; `other`, which must not be executable yet, is left empty.

        Returns
        -------
        bool
            True if the executable graph was changed in place: the same work with other sizes, values and addresses.
            False if it had to be instantiated again.

        Raises
        ------
        CaptureError
            If this graph is not ready, or `other` does not hold a recorded graph that is kept.
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
        """End an open capture, forget the work and free its memory; twice is allowed."""
        state, self._state = self._state, "empty"
        with ExitStack() as last:  # each step is taken, whatever the one before it raised
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
        """A capture left open would keep its stream and thread from other work."""
        if getattr(self, "_state", "empty") != "empty" and not sys.is_finalizing():
            with suppress(CuassayError):  # on a lost device there is nothing left to free
                self.reset()

    def end_open(self) -> None:
        """End a capture that is open; asked when the interpreter exits."""
        if self._state == "capturing":
            with suppress(CuassayError):
                self.reset()

    def enable_debug_mode(self) -> None:
        """Later captures look after each op whether they are broken, and name the op; `debug_dump` needs no mode."""
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
        """The token of its memory, for another graph to share. Raises `CaptureError` before a capture."""
        if self._pool is None:
            raise CaptureError(f"{self!r} has no memory yet; ask after its capture began, or use graph_pool_handle()")
        return self._pool.id

    @abstractmethod
    def statistics(self) -> GraphStatistics:
        """What it holds now."""

    def observed(self) -> AbstractContextManager[None]:
        """Within a capture: what a kind needs for `input_pointer` is watched inside the block."""
        return nullcontext()

    @property
    def is_broken(self) -> bool:
        """Whether a call has broken the open capture already."""
        return False

    def input_pointer(self, array: Any) -> Callable[[Any], bool] | None:
        """How to make replays read another array instead of `array` without a copy; None where the kind cannot."""
        return None

    # -------------------------------------------------------------------------------------------- a kind's part

    @abstractmethod
    def current_lane(self) -> int:
        """How watchers know the stream that is current now on the graph's device."""

    @abstractmethod
    def _open(self, stream: Any, pool: PoolId | None, mode: str) -> None:
        """Begin to record; what fails leaves nothing open."""

    @abstractmethod
    def _close(self) -> None:
        """Stop recording, also when it raises `CaptureError`."""

    @abstractmethod
    def _abandon(self) -> None:
        """Stop recording, and drop what there is."""

    @abstractmethod
    def _body(self, kind: str, predicate: Any) -> Any:
        """A context: the current stream's work becomes the body of a conditional node."""

    @abstractmethod
    def _make_executable(self) -> None:
        """From recorded to replayable; what was executable before goes."""

    @abstractmethod
    def _launch(self) -> None:
        """Give the work to the current stream."""

    @abstractmethod
    def _take_over(self, other: Any) -> bool:
        """`other`'s work and memory become this graph's; whether the executable one could stay."""

    @abstractmethod
    def _discard(self) -> None:
        """Free what is held, if anything is."""

    @abstractmethod
    def _dump(self, path: Path) -> None:
        """Write DOT."""
