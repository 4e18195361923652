"""Cache what takes long to find out about a call.

For a large call: what depends only on its shapes, dtypes and options. For a small one: what depends on its numbers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.samples import each, over_arguments

__all__ = ["keeping", "once_for", "once_if_large"]

#: The number of elements from which a call is large.
_LARGE = 2**20

#: What calls inside a block of `keeping` have found.
_KEPT: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)

#: The id of a kept answer to what was found: of which sample, what it is, and its value.
_OF_ANSWERS: dict[int, list[tuple[Any, str, Any]]] = {}

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


def once_for(sample: Any, answer: NDArray[Any], what: str, find: Callable[[], Found]) -> Found:
    """Return ``find()``; if `answer` is one that `LastAnswers` keeps, the value found before for the same sample.

    A kept answer is read-only, so that what was found stays true.
    """
    if answer.flags.writeable:
        return find()
    if id(answer) not in _OF_ANSWERS:
        finalize(answer, _OF_ANSWERS.pop, id(answer), None)
    known = _OF_ANSWERS.setdefault(id(answer), [])
    for of, name, value in known:
        if of is sample and name == what:
            kept: Found = value
            return kept
    found = find()
    known.append((sample, what, found))
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
