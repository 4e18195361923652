"""What the parts of an allocator share changes under its lock alone: demanded in whatever a test does meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from cuassay.memory.counters import Counters
from cuassay.memory.free_list import FreeList
from cuassay.memory.heap import Heap
from cuassay.memory.page_space import PageSpace
from cuassay.memory.stream_pool import StreamPool

__all__ = ["locks_are_watched"]


class WatchedLock:
    """A lock that knows its owner."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._owner = 0
        self._lock.release()

    def demand(self, what: str) -> None:
        """Raise unless this thread holds it."""
        if self._owner != threading.get_ident():
            raise AssertionError(f"{what} without the allocator's lock")


def _demanding(kind: type, name: str) -> Callable[..., Any]:
    method, what = getattr(kind, name), f"{kind.__name__}.{name}"

    @wraps(method)
    def under_lock(self: Any, *arguments: Any, **options: Any) -> Any:
        self.lock.demand(what)
        return method(self, *arguments, **options)

    return under_lock


def _watched(kind: type, names: tuple[str, ...]) -> Any:
    """A subclass whose methods of these names demand the lock that its attribute ``lock`` holds."""
    return type(f"Watched{kind.__name__}", (kind,), {name: _demanding(kind, name) for name in names})


def _public(kind: type, *but: str) -> tuple[str, ...]:
    return tuple(name for name, found in vars(kind).items() if callable(found) and name[0] != "_" and name not in but)


_Dict = _watched(dict, ("__setitem__", "__delitem__", "__iter__", "pop", "setdefault", "clear", "update"))
_Queue = _watched(deque, ("remove",))  # its ends need no lock
_List = _watched(FreeList, (*_public(FreeList), "__iter__", "__reversed__"))
_Figures = _watched(Counters, _public(Counters))
_Pages = _watched(PageSpace, _public(PageSpace, "whole", "may_begin", "is_crowded"))  # they read one number

_GUARDED = frozenset({"clock", "moving", "captures", "driver_calls", "changes", "history"})


class _Heap(Heap):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in _GUARDED:
            self.lock.demand(f"Heap.{name}")
        super().__setattr__(name, value)


def _of_heap(make: Callable[..., None]) -> Callable[..., None]:
    def made(heap: Any, *arguments: Any, lock: Any = None, **options: Any) -> None:
        make(heap, *arguments, lock=lock or WatchedLock(), **options)
        if lock is not None:  # its owner's kind of lock, which does not say who holds it
            return
        heap.__class__, heap.counters.__class__, heap.counters.lock = _Heap, _Figures, heap.lock
        heap.cut, heap.segments, heap.pools = _Dict(), _Dict(), _Dict(heap.pools)
        heap.default.stream_pools = _Dict()
        for held in (heap.cut, heap.segments, heap.pools, heap.default.stream_pools):
            held.lock = heap.lock

    return made


def _of_stream_pool(make: Callable[..., None]) -> Callable[..., None]:
    def made(stream_pool: StreamPool, pool: Any, stream: int, miss: Any, is_capturing: Any, *fit: Any) -> None:
        make(stream_pool, pool, stream, miss, is_capturing, *fit)
        heap = getattr(is_capturing, "__self__", None)
        if isinstance(heap, _Heap):
            stream_pool.small, stream_pool.large = _List(*fit), _List(*fit)
            for free_list in (stream_pool.small, stream_pool.large):
                free_list.lock = heap.lock  # type: ignore[attr-defined]
            stream_pool.deferred.queue = _Queue()
            stream_pool.deferred.queue.lock = heap.lock  # type: ignore[attr-defined]

    return made


def _of_pages(make: Callable[..., None]) -> Callable[..., None]:
    def made(pages: Any, granularity: int, free_blocks: Any) -> None:
        make(pages, granularity, free_blocks)
        if isinstance(free_blocks, _List):
            free_blocks.lock.demand("PageSpace")  # two threads would make two of them
            pages.__class__, pages.lock = _Pages, free_blocks.lock

    return made


@contextmanager
def locks_are_watched() -> Iterator[None]:
    """Inside, each new allocator demands that its figures, its lists and its pages are used under its lock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Heap, "__init__", _of_heap(Heap.__init__))
        patch.setattr(StreamPool, "__init__", _of_stream_pool(StreamPool.__init__))
        patch.setattr(PageSpace, "__init__", _of_pages(PageSpace.__init__))
        yield
