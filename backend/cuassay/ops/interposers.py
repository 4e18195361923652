"""Interposers: what sees a call before it runs, such as autocast, tracing and profiling; each thread has its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cuassay.ops.operation import Call

__all__ = ["Interposer", "interpose", "interposers", "through"]


class Interposer(Protocol):
    """Sees a call before it runs, and decides what becomes of it."""

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """Give the call's result: usually that of ``proceed(call)``, with the call as it is or changed."""


class _Interposers(threading.local):
    """Who watches this thread's calls.

    Attributes
    ----------
    stack : tuple of Interposer
        Outermost first.
    is_explaining : bool
        Whether the steps of a call are noted; see `cuassay.ops.explain`.
    is_watched : bool
        Whether either is so: what each call asks, in one look-up.
    """

    stack: tuple[Interposer, ...] = ()
    is_explaining: bool = False
    is_watched: bool = False

    def put(self, stack: tuple[Interposer, ...]) -> None:
        """Put `stack` in the place of the one there is."""
        self.stack = stack
        self.is_watched = bool(stack) or self.is_explaining

    def note_steps(self, *, enabled: bool) -> None:
        """Whether calls are explained from here."""
        self.is_explaining = enabled
        self.is_watched = bool(self.stack) or enabled


interposers = _Interposers()


@contextmanager
def interpose(interposer: Interposer) -> Iterator[None]:
    """Calls of this thread inside the block pass through `interposer`; one set earlier sees them first.

    An interposer with a true attribute ``innermost`` sees them after all others, and the newest of several such first:
    what records calls must see those that another interposer, such as autocast, makes of them.
    """
    former = interposers.stack
    place = next((at for at, one in enumerate(former) if getattr(one, "innermost", False)), len(former))
    interposers.put((*former[:place], interposer, *former[place:]))
    try:
        yield
    finally:
        interposers.put(former)


def through(stack: tuple[Interposer, ...], call: Call, run: Callable[[Call], Any]) -> Any:
    """Hand `call` to the outermost of `stack`; after the last, `run` does it. Calls made there start at the top."""
    former, rest = interposers.stack, stack[1:]
    interposers.put(rest)
    try:
        if not stack:
            return run(call)
        return stack[0](call, lambda inner: through(rest, inner, run) if rest or interposers.stack else run(inner))
    finally:
        interposers.put(former)
