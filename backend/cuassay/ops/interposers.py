"""Interposers, such as autocast, tracing and profiling, which see a call before it runs; each thread has its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cuassay.ops.operation import Call

__all__ = ["Interposer", "interpose", "interposers", "through"]


class Interposer(Protocol):
    """A callable that sees a call before it runs, and decides how to run it."""

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """Return the call's result, usually that of ``proceed(call)`` with the call unchanged or modified."""


class _Interposers(threading.local):
    """The interposers of this thread.

    Attributes
    ----------
    stack : tuple of Interposer
        The interposers, outermost first.
    is_explaining : bool
        Whether the steps of calls are noted; see `cuassay.ops.explain`.
    is_watched : bool
        Whether there is an interposer or calls are explained, so that each call needs only one look-up.
    """

    stack: tuple[Interposer, ...] = ()
    is_explaining: bool = False
    is_watched: bool = False

    def put(self, stack: tuple[Interposer, ...]) -> None:
        """Replace the stack."""
        self.stack = stack
        self.is_watched = bool(stack) or self.is_explaining

    def note_steps(self, *, enabled: bool) -> None:
        """Set whether calls are explained."""
        self.is_explaining = enabled
        self.is_watched = bool(self.stack) or enabled


interposers = _Interposers()


@contextmanager
def interpose(interposer: Interposer) -> Iterator[None]:
    """Pass this thread's calls inside the block through `interposer`; interposers set earlier see them first.

    An interposer with a true attribute ``innermost`` sees calls after all others, and the newest of several sees them
    first: a recorder must see the calls that another interposer, such as autocast, makes of the original ones.
    """
    former = interposers.stack
    place = next((at for at, one in enumerate(former) if getattr(one, "innermost", False)), len(former))
    interposers.put((*former[:place], interposer, *former[place:]))
    try:
        yield
    finally:
        interposers.put(former)


def through(stack: tuple[Interposer, ...], call: Call, run: Callable[[Call], Any]) -> Any:
    """Pass `call` through `stack`, outermost first, then to `run`; calls made meanwhile see only what is further in."""
    mine = interposers.__dict__  # this thread's: setting attributes of a `local` costs three times as much
    former, rest = interposers.stack, stack[1:]
    mine["stack"], mine["is_watched"] = rest, bool(rest) or interposers.is_explaining
    try:
        if not stack:
            return run(call)
        return stack[0](call, lambda inner: through(rest, inner, run) if rest or interposers.stack else run(inner))
    finally:
        mine["stack"], mine["is_watched"] = former, bool(former) or interposers.is_explaining
