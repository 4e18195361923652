"""Explain how a call is served, from the op to the library, as a list of the steps taken; note the calls of a process.

Dispatch notes the ops, and implementations note how they compute them. If no call is explained, this costs one
comparison.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.callers import line
from cuassay.ops.interposers import interposers
from cuassay.ops.operation import Op
from cuassay.ops.wrapping import Wrapping, wrap

if TYPE_CHECKING:
    from cuassay.ops.operation import Call

__all__ = ["Explanation", "Step", "described", "explain", "is_explaining", "note", "note_calls", "within"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and its depth below the call."""

    depth: int
    text: str


@dataclass(slots=True)
class Explanation:
    """The steps of one call, in order; it prints one line per step."""

    steps: list[Step] = field(default_factory=list)
    result: Any = None

    def __str__(self) -> str:
        return "\n".join(f"{'  ' * step.depth}{step.text}" for step in self.steps)

    __repr__ = __str__


class _Recording(threading.local):
    explanation: Explanation | None = None
    depth: int = 0


_recording = _Recording()


def is_explaining() -> bool:
    """Return whether this thread's current call is being explained."""
    return interposers.is_explaining


def note(text: str) -> None:
    """Add a step at the current depth."""
    if _recording.explanation is not None:
        _recording.explanation.steps.append(Step(_recording.depth, text))


@contextmanager
def within(text: str) -> Iterator[None]:
    """Add a step, and nest the steps noted inside the block below it."""
    note(text)
    _recording.depth += 1
    try:
        yield
    finally:
        _recording.depth -= 1


def described(name: str, bound: Mapping[str, Any], place: object) -> str:
    """Describe a call as ``mm(a (8, 33) bfloat16, b (33, 5) bfloat16) on cuda:0``, without scalars that are None."""
    parts = (f"{key} {_value(value)}" for key, value in bound.items() if value is not None)
    return f"{name}({', '.join(parts)}) on {place}"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple) and value and hasattr(value[0], "dtype"):
        return f"of {len(value)} arrays"
    return f"{tuple(value.shape)} {dtype_name(value.dtype)}" if hasattr(value, "dtype") else repr(value)


def note_calls(note: Callable[[str], None]) -> None:
    """Call `note` before each call of an op, with its name, arguments and line, for the rest of the process.

    It replaces the method, so that a process that does not use it pays nothing.
    """

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            given = [*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in scalars.items())]
            note(f"{op.name}({', '.join(given)}), at {line()}")
            return call(op, *args, out=out, **scalars)

        return noted

    wrap(Wrapping(noting))


def _shown(value: object) -> str:
    """Describe any value: calls with wrong arguments are noted too."""
    try:
        return _value(value)
    except Exception:  # noqa: BLE001  foreign types may raise anything
        return type(value).__name__


def explain(call: Call | Callable[[], Any]) -> Explanation:
    """Run `call` and report how it was served, from the op to the library's function.

    Parameters
    ----------
    call : Call or callable
        A call as an interposer sees it, or a function without arguments: ``lambda: ops.linear(x, weight, bias)``.

    Returns
    -------
    Explanation
        Print it for the steps; ``result`` holds the call's result.
    """
    former = _recording.explanation, _recording.depth
    found = _recording.explanation = Explanation()
    _recording.depth = 0
    interposers.note_steps(enabled=True)
    try:
        found.result = call() if callable(call) else call.op(**call.arguments, out=call.out)
    finally:
        _recording.explanation, _recording.depth = former
        interposers.note_steps(enabled=former[0] is not None)
    return found
