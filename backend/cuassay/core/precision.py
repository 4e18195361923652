"""The precision in which float32 products are computed: the modes by name, and the context that sets one.

Names follow ``torch`` where it has one (`ieee`, `tf32`, `bf16`). An implementation asks `current_precision`
at the time of the call; nothing here computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

from cuassay.errors import ArgumentError

__all__ = ["MODES", "Mode", "current_precision", "precision", "set_default_precision"]

Mode = Literal["ieee", "tf32", "tf32x3", "bf16x6", "bf16x9", "bf16", "fp16"]

#: What each mode does to the operands of a float32 product; sums are float32 in all of them.
MODES: dict[str, str] = {
    "ieee": "float32 as it is",
    "tf32": "operands rounded to TF32 (10 explicit bits of mantissa)",
    "tf32x3": "operands split into two TF32 parts, three products",
    "bf16x6": "operands split into three bfloat16 parts, the six largest products",
    "bf16x9": "operands split into three bfloat16 parts, all nine products",
    "bf16": "operands rounded to bfloat16",
    "fp16": "operands rounded to float16",
}

_default: Mode = "ieee"
_current: ContextVar[Mode | None] = ContextVar("cuassay_precision", default=None)


def current_precision() -> Mode:
    """The mode in force here: the innermost `precision` context, else the process default."""
    return _current.get() or _default


def set_default_precision(mode: Mode) -> Mode:
    """Set the process default; gives the former one."""
    global _default
    former, _default = _default, _checked(mode)
    return former


@contextmanager
def precision(mode: Mode) -> Iterator[None]:
    """Compute float32 products in `mode` inside the block, in this thread or task only.

    Raises
    ------
    ArgumentError
        If `mode` is not one of `MODES`.
    """
    token = _current.set(_checked(mode))
    try:
        yield
    finally:
        _current.reset(token)


def _checked(mode: Mode) -> Mode:
    if mode not in get_args(Mode):
        raise ArgumentError(f"{mode!r} is no precision mode; give one of {', '.join(MODES)}")
    return mode
