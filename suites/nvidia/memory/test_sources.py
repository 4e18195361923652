"""`PageSource` over a model of the driver: what a failing call leaves behind (nothing), and what is given back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.core import interrupts
from cuassay.core.interrupts import is_late
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory import sources
from cuassay.devices.cuda.memory.pluggable import PluggableSource
from cuassay.devices.cuda.memory.sources import PageSource
from cuassay.errors import ArgumentError, CapabilityError, DriverError, OutOfMemoryError

PAGE = 2**21


class CUresult(IntEnum):
    """Named as the driver's, by which its texts are asked for."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2


CALLS = {
    "cuMemCreate": "create",
    "cuMemRelease": "release",
    "cuMemAddressReserve": "reserve",
    "cuMemAddressFree": "forget",
    "cuMemMap": "map",
    "cuMemSetAccess": "give_access",
    "cuMemUnmap": "unmap",
    "cuGetErrorString": "describe",
}


class Driver(ModuleType):
    """The driver's pages, addresses and mappings, and the rules it holds callers to.

    `fail_at` is the number of the next call that fails for want of memory. Of the calls that give back, `fails_back` is
    the number of the next that fails, and `interrupted_at` of the next during which Ctrl-C is pressed.
    """

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.handles: dict[int, int] = {}  # handle to bytes; released ones stay while something shows them
        self.released: set[int] = set()
        self.ranges: dict[int, int] = {}
        self.shown: dict[int, tuple[int, int]] = {}
        self.readable: set[int] = set()
        self.unmaps = 0
        self.fail_at = self.fails_back = self.interrupted_at = 0
        self._next = PAGE

    def __getattr__(self, name: str) -> Any:
        """The calls by the driver's names; enumerations and structures, on whose values nothing here depends."""
        if name in CALLS:
            found = getattr(self, CALLS[name])
            return partial(self._giving_back, found) if CALLS[name] in ("release", "forget", "unmap") else found
        if not name.startswith("CU"):
            raise AttributeError(name)
        return _Anything()

    def _fails(self) -> bool:
        self.fail_at -= 1
        return self.fail_at == 0

    def _giving_back(self, call: Any, *arguments: Any) -> tuple[Any, ...]:
        self.fails_back -= 1
        if self.fails_back == 0:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.interrupted_at -= 1
        if self.interrupted_at == 0:
            return Interrupting(call(*arguments))
        return tuple(call(*arguments))

    def create(self, nbytes: int, properties: Any, flags: int) -> tuple[Any, ...]:
        if self._fails():
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        self._next += PAGE
        self.handles[self._next] = nbytes
        return CUresult.CUDA_SUCCESS, self._next

    def release(self, handle: int) -> tuple[Any, ...]:
        if handle not in self.handles or handle in self.released:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.released.add(handle)
        self._sweep()
        return (CUresult.CUDA_SUCCESS,)

    def reserve(self, nbytes: int, alignment: int, address: int, flags: int) -> tuple[Any, ...]:
        if self._fails():
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        self._next += PAGE
        start = self._next
        self._next += nbytes
        self.ranges[start] = nbytes
        return CUresult.CUDA_SUCCESS, start

    def forget(self, address: int, nbytes: int) -> tuple[Any, ...]:
        if self.ranges.get(address) != nbytes or any(address <= at < address + nbytes for at in self.shown):
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        del self.ranges[address]
        return (CUresult.CUDA_SUCCESS,)

    def map(self, address: int, nbytes: int, offset: int, handle: int, flags: int) -> tuple[Any, ...]:
        if self._fails():
            return (CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
        inside = any(start <= address and address + nbytes <= start + size for start, size in self.ranges.items())
        taken = any(at < address + nbytes and address < at + size for at, (_, size) in self.shown.items())
        if offset or self.handles.get(handle) != nbytes or not inside or taken:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.shown[address] = handle, nbytes
        return (CUresult.CUDA_SUCCESS,)

    def give_access(self, address: int, nbytes: int, access: Any, count: int) -> tuple[Any, ...]:
        if self._fails():
            return (CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
        self.readable |= {at for at in self.shown if address <= at < address + nbytes}
        return (CUresult.CUDA_SUCCESS,)

    def unmap(self, address: int, nbytes: int) -> tuple[Any, ...]:
        gone = sorted(at for at in self.shown if address <= at < address + nbytes)
        if not gone or sum(self.shown[at][1] for at in gone) != nbytes:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        for at in gone:
            del self.shown[at]
            self.readable.discard(at)
        self.unmaps += 1
        self._sweep()
        return (CUresult.CUDA_SUCCESS,)

    def describe(self, status: CUresult) -> tuple[Any, ...]:
        return CUresult.CUDA_SUCCESS, b"as the model has it"

    def _sweep(self) -> None:
        for handle in self.released - {handle for handle, _ in self.shown.values()}:
            self.released.discard(handle)
            del self.handles[handle]

    def state(self) -> tuple[Any, ...]:
        return dict(self.handles), set(self.released), dict(self.ranges), dict(self.shown), set(self.readable)


class Interrupting(tuple[Any, ...]):
    """The answer of a call during which Ctrl-C was pressed: Python raises when it has the answer."""

    __slots__ = ()


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `finish` find an interrupt where the driver's model tells of one."""

    def interrupted(call: Any, arguments: Any) -> Iterator[Any]:
        for one in arguments:
            answer = call(*one)
            yield answer
            if isinstance(answer, Interrupting):
                raise KeyboardInterrupt

    monkeypatch.setattr(interrupts, "starmap", interrupted)


class _Anything(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __call__(self) -> Any:
        return SimpleNamespace(location=SimpleNamespace())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return installed(monkeypatch)


def installed(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The model in place of cuda.bindings' driver."""
    made, package, bindings = Driver(), ModuleType("cuda"), ModuleType("cuda.bindings")
    bindings.driver = made  # type: ignore[attr-defined]
    for name, module in {"cuda": package, "cuda.bindings": bindings, "cuda.bindings.driver": made}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(runtime, "device_count", lambda: 1)
    return made


@pytest.fixture
def source(driver: Driver) -> sources.PageSource:
    return sources.PageSource(0, PAGE)


def test_pages_lie_side_by_side_and_may_be_used(driver: Driver, source: PageSource) -> None:
    span = source.span(16 * PAGE, 0)

    source.map(span + PAGE, [PAGE, 4 * PAGE])

    assert [(at - span, nbytes) for at, (_, nbytes) in driver.shown.items()] == [(PAGE, PAGE), (2 * PAGE, 4 * PAGE)]
    assert driver.readable == set(driver.shown)


def test_an_alias_shows_the_same_pages_in_the_order_given(driver: Driver, source: PageSource) -> None:
    span = source.span(16 * PAGE, 0)
    source.map(span, [PAGE, 2 * PAGE, PAGE])
    first, second, third = (driver.shown[span + offset * PAGE] for offset in (0, 1, 3))

    alias = source.alias([span + 3 * PAGE, span, span + PAGE])

    assert [driver.shown[alias + offset * PAGE] for offset in (0, 1, 2)] == [third, first, second]
    assert driver.readable == set(driver.shown)


def test_pages_side_by_side_go_in_one_call(driver: Driver, source: PageSource) -> None:
    span = source.span(16 * PAGE, 0)
    source.map(span, [PAGE] * 6)

    source.unmap([span + offset * PAGE for offset in (5, 0, 1, 2)])

    assert driver.unmaps == 2
    assert sorted(driver.shown) == [span + 3 * PAGE, span + 4 * PAGE]
    assert len(driver.handles) == 2


def test_everything_goes_back(driver: Driver, source: PageSource) -> None:
    span = source.span(16 * PAGE, 0)
    source.map(span, [PAGE, PAGE])
    alias = source.alias([span + PAGE, span])

    source.release(alias)
    source.unmap([span, span + PAGE])
    source.release(span)

    assert driver.state() == ({}, set(), {}, {}, set())


def steps(source: sources.PageSource) -> Iterator[Any]:
    """Calls that may fail, each ready to be made."""
    span = source.span(32 * PAGE, 0)
    yield lambda: source.map(span, [PAGE, 2 * PAGE, PAGE])
    yield lambda: source.alias([span + 3 * PAGE, span])
    yield lambda: source.map(span + 4 * PAGE, [PAGE] * 3)
    yield lambda: source.alias([span + 5 * PAGE, span + PAGE, span + 6 * PAGE])
    yield lambda: source.span(8 * PAGE, 0)


@given(st.integers(0, 4), st.integers(1, 9))
def test_a_call_that_fails_anywhere_changes_nothing(position: int, fail_at: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        driver = installed(monkeypatch)
        for number, step in enumerate(steps(sources.PageSource(0, PAGE))):
            before = driver.state()
            driver.fail_at = fail_at if number == position else 0
            try:
                step()
            except OutOfMemoryError:
                assert driver.state() == before
                driver.fail_at = 0
                step()
            driver.fail_at = 0
            assert driver.readable == set(driver.shown)


def stitched(source: sources.PageSource) -> tuple[int, int]:
    """A span with four pages in two runs, and an alias of two others in it."""
    span = source.span(32 * PAGE, 0)
    source.map(span, [PAGE] * 8)
    return span, source.alias([span + 6 * PAGE, span + 7 * PAGE])


def give_back(source: sources.PageSource, what: str, span: int, alias: int) -> None:
    if what == "alias":
        source.release(alias)
    else:
        source.unmap([span, span + PAGE, span + 3 * PAGE, span + 4 * PAGE])


@pytest.mark.parametrize(("what", "fails_back"), [("alias", 1), ("alias", 2), ("pages", 1), ("pages", 2)])
def test_a_call_that_cannot_give_back_changes_nothing(
    driver: Driver, source: PageSource, what: str, fails_back: int
) -> None:
    span, alias = stitched(source)
    before = driver.state()
    driver.fails_back = fails_back

    with pytest.raises(DriverError) as caught:
        give_back(source, what, span, alias)

    assert driver.state() == before
    assert not is_late(caught.value)
    give_back(source, what, span, alias)
    assert len(driver.handles) == 8 - 4 * (what == "pages")


@pytest.mark.parametrize("fails_back", [3, 4, 5, 6])
def test_a_page_that_cannot_be_released_is_released_by_the_next_call(
    driver: Driver, source: PageSource, fails_back: int
) -> None:
    span, alias = stitched(source)
    driver.fails_back = fails_back

    with pytest.raises(DriverError) as caught:
        give_back(source, "pages", span, alias)

    assert is_late(caught.value)
    assert span not in driver.shown
    source.unmap([span + 2 * PAGE])
    assert len(driver.handles) == 3


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("interrupted_at", range(1, 7))
def test_an_interrupt_while_pages_are_given_back_leaves_them_or_says_that_it_is_late(
    driver: Driver, source: PageSource, interrupted_at: int
) -> None:
    span, alias = stitched(source)
    before = driver.state()
    driver.interrupted_at = interrupted_at

    with pytest.raises(KeyboardInterrupt) as caught:
        give_back(source, "pages", span, alias)

    if is_late(caught.value):
        source.unmap([span + 2 * PAGE])
        assert len(driver.handles) == 3
    else:
        assert driver.state() == before
        give_back(source, "pages", span, alias)
        assert len(driver.handles) == 4


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("interrupted_at", "is_gone"), [(1, False), (2, True)], ids=["unmapping", "the addresses"])
def test_an_interrupt_while_an_alias_is_released_leaves_it_or_says_that_it_is_late(
    driver: Driver, source: PageSource, interrupted_at: int, is_gone: bool
) -> None:
    _, alias = stitched(source)
    before = driver.state()
    driver.interrupted_at = interrupted_at

    with pytest.raises(KeyboardInterrupt) as caught:
        source.release(alias)

    assert is_late(caught.value) == is_gone
    if is_gone:
        assert alias not in driver.ranges
    else:
        assert driver.state() == before
        source.release(alias)
        assert alias not in driver.ranges


def test_a_users_function_that_raises_keeps_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    failures, freed = [RuntimeError("busy")], []

    def free(*arguments: int) -> None:
        if failures:
            raise failures.pop()
        freed.append(arguments)

    source = PluggableSource(0, lambda nbytes, device, stream: 0x1000, free)
    monkeypatch.setattr(source, "synchronize", lambda streams: None)
    source.reserve(4096, 7)

    with pytest.raises(RuntimeError, match="busy"):
        source.release(0x1000)
    source.release(0x1000)

    assert freed == [(0x1000, 4096, 0, 7)]


@pytest.mark.parametrize("call", ["span", "map", "unmap", "alias"])
def test_a_source_without_pages_refuses_them(call: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"span": (PAGE, 0), "map": (0, [PAGE]), "unmap": ([0],), "alias": ([0],)}

    with pytest.raises(CapabilityError, match=r"DeviceSource\(cuda:0\) has no pages"):
        getattr(sources.DeviceSource(0), call)(*arguments[call])


def test_an_unknown_backend_lists_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "init", lambda: None)

    with pytest.raises(ArgumentError, match="there is no backend 'heap'; backends: native, cudaMallocAsync"):
        sources.make_source("heap", 0)
