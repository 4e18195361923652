"""Hooks that are called on events of all graphs, each with a handle that removes it.

A prepared replay does not look for hooks, so hooks that are not registered cost nothing. Every graph is notified when
hooks change. Watchers (see `watchers`) are notified of graph events by hooks that are registered while any watcher is.
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

#: The events that a hook can be registered for.
EVENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end", "destroy")

Hook = Callable[[Any], object]


class Watched(Protocol):
    """The part of a graph that this module calls."""

    def disarm(self) -> None:
        """Discard a prepared replay, because hooks changed."""

    def end_open(self) -> None:
        """End an open capture, because the interpreter exits and the driver rejects other calls during a capture."""


_HOOKS: dict[str, dict[int, Hook]] = {event: {} for event in EVENTS}
_graphs: weakref.WeakSet[Watched] = weakref.WeakSet()
_numbers = count(1)


class HookHandle(Handle):
    """A registered hook: call `remove`, or use it as a context manager that removes it."""

    def __init__(self, event: str, number: int) -> None:
        self.event = event
        self._number = number

    def remove(self) -> None:
        """Stop calling the hook. Calling this twice is allowed."""
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
    """Call ``hook(graph)`` at each `event` of every graph, in the order of registration.

    Parameters
    ----------
    event : str
        One of `EVENTS`.
    hook : callable
        A function of one argument, the graph.

    Returns
    -------
    HookHandle
        Removes the hook.

    Raises
    ------
    ArgumentError
        If there is no such event, or `hook` is not callable.
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
    """Return whether any hook is registered for replays."""
    return bool(_HOOKS["replay_start"] or _HOOKS["replay_end"])


def watch(graph: Watched) -> None:
    """Notify `graph` when hooks change and when the interpreter exits. Holds it only by a weak reference."""
    _graphs.add(graph)


def _changed() -> None:
    for graph in tuple(_graphs):
        graph.disarm()


# ------------------------------------------------------------------------------------------------ watchers

#: From a hook's event to the event that watchers are notified of.
_WATCHED = {"capture_end": "graph_captured", "replay_start": "graph_replay_begun", "replay_end": "graph_replayed"}
_notifiers: list[HookHandle] = []


def _serve_watchers(is_watched: bool) -> None:
    while _notifiers:
        _notifiers.pop().remove()
    if is_watched:
        _notifiers.extend(register_hook(hook, _notifier(event)) for hook, event in _WATCHED.items())


def _notifier(event: str) -> Hook:
    return lambda graph: tell(Occurrence(event, str(graph.device), id(graph)))


on_change(_serve_watchers)


def tell_watchers(event: str, graph: Any, **facts: Any) -> None:
    """Notify watchers, if there are any, of an event that hooks do not cover."""
    if state.watchers:
        tell(Occurrence(event, str(graph.device), id(graph), **facts))


@contextmanager
def told_body(graph: Any, kind: str) -> Iterator[None]:
    """Notify watchers that the body of a conditional node begins and ends on the stream current inside the block."""
    tell_watchers("graph_body_begun", graph, stream=graph.current_lane(), name=kind)
    try:
        yield
    finally:
        tell_watchers("graph_body_ended", graph, stream=graph.current_lane())


@atexit.register
def _at_exit() -> None:
    for graph in tuple(_graphs):
        graph.end_open()
