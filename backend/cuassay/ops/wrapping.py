"""Functions that take the place of every op's call and of every plan's run, in all threads: how all calls are seen.

An interposer is one thread's, and a call through one takes no shortcut. A wrapped call takes the way that it takes
otherwise; when nobody wraps, the plain functions are there again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cuassay.ops.operation import Op
from cuassay.ops.plan import Plan

__all__ = ["Wrapping", "unwrap", "wrap"]

_Function = Callable[..., Any]


class Wrapping(NamedTuple):
    """`call` makes what takes the place of ``call(op, *args, out=None, **scalars)``; `run` of ``run(plan)``, if given.

    Each is given the function that is there, and calls it.
    """

    call: Callable[[_Function], _Function]
    run: Callable[[_Function], _Function] | None = None


_plain: tuple[_Function, _Function] = Op.__call__, Plan.run
_wrappings: list[Wrapping] = []


def wrap(wrapping: Wrapping) -> None:
    """From here calls pass through `wrapping`, outside of those that were set before."""
    _wrappings.append(wrapping)
    _renew()


def unwrap(wrapping: Wrapping) -> None:
    """Undo `wrap`, whichever others came after it."""
    _wrappings.remove(wrapping)
    _renew()


def _renew() -> None:
    call, run = _plain
    for wrapping in _wrappings:
        call = wrapping.call(call)
        run = run if wrapping.run is None else wrapping.run(run)
    Op.__call__ = call  # type: ignore[method-assign]
    plans: Any = Plan
    plans.run = run
