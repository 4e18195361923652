"""Hooks that are called on events of any graph, each with a handle that removes it.

A prepared replay does not look for hooks, so that it costs nothing more. When hooks change, every graph is notified.
Watchers of graphs (see `watchers`) are served by hooks of their own, present while somebody watches.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol, Self

from cuassay.core.handle import Handle
from cuassay.core.watchers import Occurrence, on_change, state, tell
from cuassay.errors import ArgumentError

__all__ = [
    "EVENTS",
    "Hook",
    "HookHandle",
    "call_hooks",
    "has_replay_hooks",
    "register_hook",
    "tell_watchers",
    "told_body",
    "watch",
]

#: What hooks may be registered for.
EVENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end", "destroy")

Hook = Callable[[Any], object]


class Watched(Protocol):
    """A graph."""

    def disarm(self) -> None:
        """Hooks changed: a replay made ready is not valid any more."""

    def end_open(self) -> None:
        """The interpreter exits: a capture that is open would make the driver refuse what others do then."""


_HOOKS: dict[str, dict[int, Hook]] = {event: {} for event in EVENTS}
_graphs: weakref.WeakSet[Watched] = weakref.WeakSet()
_numbers = count(1)


class HookHandle(Handle):
    """A registered hook: `remove` it, or use it as a context."""

    def __init__(self, event: str, number: int) -> None:
        self.event = event
        self._number = number

    def remove(self) -> None:
        """From here the hook is not called; twice is allowed."""
        _HOOKS[self.event].pop(self._number, None)
        _changed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "registered" if self._number in _HOOKS[self.event] else "removed"
        return f"HookHandle({self.event}, {state})"


def register_hook(event: str, hook: Hook) -> HookHandle:
    """``hook(graph)`` is called at each `event` of every graph, in the order of registration.

    Raises
    ------
    ArgumentError
        If there is no such event, or `hook` cannot be called.
    """
    if event not in EVENTS:
        raise ArgumentError(f"graphs have no event {event!r}; choose one of {', '.join(EVENTS)}")
    if not callable(hook):
        raise ArgumentError(f"a hook is called with the graph; got {hook!r}; give a function of one argument")
    number = next(_numbers)
    _HOOKS[event][number] = hook
    _changed()
    return HookHandle(event, number)


def call_hooks(event: str, graph: Any) -> None:
    """Call the hooks of `event`."""
    for hook in tuple(_HOOKS[event].values()):
        hook(graph)


def has_replay_hooks() -> bool:
    """Whether any hook wants to know of replays."""
    return bool(_HOOKS["replay_start"] or _HOOKS["replay_end"])


def watch(graph: Watched) -> None:
    """`graph` is told when hooks change and when the interpreter exits, while it lives."""
    _graphs.add(graph)


def _changed() -> None:
    for graph in tuple(_graphs):
        graph.disarm()


# ------------------------------------------------------------------------------------------------ watchers

#: Hooks by which watchers are told, and what they are told.
_TOLD = {"capture_end": "graph_captured", "replay_start": "graph_replay_begun", "replay_end": "graph_replayed"}
_telling: list[HookHandle] = []


def _serve_watchers(is_watched: bool) -> None:
    while _telling:
        _telling.pop().remove()
    if is_watched:
        _telling.extend(register_hook(hook, _teller(event)) for hook, event in _TOLD.items())


def _teller(event: str) -> Hook:
    return lambda graph: tell(Occurrence(event, str(graph.device), id(graph)))


on_change(_serve_watchers)


def tell_watchers(event: str, graph: Any, **facts: Any) -> None:
    """Tell watchers, if there are any, of what no hook is called for."""
    if state.watchers:
        tell(Occurrence(event, str(graph.device), id(graph), **facts))


@contextmanager
def told_body(graph: Any, kind: str) -> Iterator[None]:
    """Tell watchers that the body of a conditional node begins, and ends, on the stream that is current inside."""
    tell_watchers("graph_body_begun", graph, stream=graph.current_lane(), name=kind)
    try:
        yield
    finally:
        tell_watchers("graph_body_ended", graph, stream=graph.current_lane())


@atexit.register
def _at_exit() -> None:
    for graph in tuple(_graphs):
        graph.end_open()
