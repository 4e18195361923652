"""Functions that take the place of every op's call, in every thread: how a recorder or a sanitizer sees all calls.

An interposer is one thread's, and a call through one takes no shortcut. A wrapped call takes the way that it takes
otherwise; when nobody wraps, `Op.__call__` is the plain function again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuassay.ops.operation import Op

__all__ = ["unwrap_calls", "wrap_calls"]

#: From the call that is there, ``call(op, *args, out=None, **scalars)``, to the one that takes its place.
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]

_plain = Op.__call__
_wrappers: list[Wrapper] = []


def wrap_calls(wrapper: Wrapper) -> None:
    """From here calls pass through ``wrapper(call)``, outside of those that were set before."""
    _wrappers.append(wrapper)
    _renew()


def unwrap_calls(wrapper: Wrapper) -> None:
    """Undo `wrap_calls`, whichever others came after it."""
    _wrappers.remove(wrapper)
    _renew()


def _renew() -> None:
    call: Callable[..., Any] = _plain
    for wrapper in _wrappers:
        call = wrapper(call)
    Op.__call__ = call  # type: ignore[method-assign]
