"""Cache what depends only on the shapes, dtypes and options of a large call, because finding it out takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from cuassay.testing.samples import each, over_arguments

__all__ = ["keeping", "once_if_large"]

#: The number of elements from which a call is large.
_LARGE = 2**20

#: What calls inside a block of `keeping` have found.
_KEPT: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)

Found = TypeVar("Found")

#: Spec to the cached values of its large calls.
_KNOWN: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def once_if_large(
    spec: Any, what: str, args: Sequence[Any], kwargs: Mapping[str, Any], find: Callable[[], Found]
) -> Found:
    """Return ``find()``; for a large call, the value found for an earlier one of equal shapes, dtypes and options."""
    kept = _KEPT.get()
    if kept is None and sum(one.size for one in each(args, kwargs) if isinstance(one, np.ndarray)) < _LARGE:
        return find()
    known = _KNOWN.setdefault(spec, {}) if kept is None else kept
    form = repr((what, *over_arguments(args, kwargs, _form)))
    if form not in known:
        known[form] = find()
    found: Found = known[form]
    return found


@contextmanager
def keeping(known: dict[Any, Any]) -> Iterator[None]:
    """Inside the block, treat calls of one spec as large ones, and cache in `known`, which later blocks may share.

    The numbers of these calls must be drawn in the same way, because what is found may depend on them a little.
    """
    before = _KEPT.set(known)
    try:
        yield
    finally:
        _KEPT.reset(before)


def _form(value: Any) -> Any:
    return (value.shape, value.dtype.str) if isinstance(value, np.ndarray) else value
