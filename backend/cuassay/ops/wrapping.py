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


#: What is called with the first of none, one, two... wrappings: where one goes, those below stay the same functions.
_composed: list[tuple[_Function, _Function]] = [(Op.__call__, Plan.run)]
_wrappings: list[Wrapping] = []


def wrap(wrapping: Wrapping) -> None:
    """From here calls pass through `wrapping`, outside of those that were set before."""
    _wrappings.append(wrapping)
    _compose(len(_wrappings) - 1)


def unwrap(wrapping: Wrapping) -> None:
    """Undo `wrap`, whichever others came after it."""
    place = _wrappings.index(wrapping)
    del _wrappings[place]
    _compose(place)


def _compose(place: int) -> None:
    """Put the wrappings from `place` on together again."""
    del _composed[place + 1 :]
    for wrapping in _wrappings[place:]:
        call, run = _composed[-1]
        _composed.append((wrapping.call(call), run if wrapping.run is None else wrapping.run(run)))
    plans: Any = Plan
    Op.__call__, plans.run = _composed[-1]  # type: ignore[method-assign]
