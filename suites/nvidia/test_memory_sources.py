"""`PageSource` over a model of the driver: what a failing call leaves behind (nothing), and what is given back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory import sources
from cuassay.errors import ArgumentError, CapabilityError, OutOfMemoryError

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

    `fail_at` is the number of the next call that fails for want of memory.
    """

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.handles: dict[int, int] = {}  # handle to bytes; released ones stay while something shows them
        self.released: set[int] = set()
        self.ranges: dict[int, int] = {}
        self.shown: dict[int, tuple[int, int]] = {}
        self.readable: set[int] = set()
        self.unmaps = 0
        self.fail_at = 0
        self._next = PAGE

    def __getattr__(self, name: str) -> Any:
        """The calls by the driver's names; enumerations and structures, on whose values nothing here depends."""
        if name in CALLS:
            return getattr(self, CALLS[name])
        if not name.startswith("CU"):
            raise AttributeError(name)
        return _Anything()

    def _fails(self) -> bool:
        self.fail_at -= 1
        return self.fail_at == 0

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


def test_pages_lie_side_by_side_and_may_be_used(driver, source):
    span = source.span(16 * PAGE, 0)

    source.map(span + PAGE, [PAGE, 4 * PAGE])

    assert [(at - span, nbytes) for at, (_, nbytes) in driver.shown.items()] == [(PAGE, PAGE), (2 * PAGE, 4 * PAGE)]
    assert driver.readable == set(driver.shown)


def test_an_alias_shows_the_same_pages_in_the_order_given(driver, source):
    span = source.span(16 * PAGE, 0)
    source.map(span, [PAGE, 2 * PAGE, PAGE])
    first, second, third = (driver.shown[span + offset * PAGE] for offset in (0, 1, 3))

    alias = source.alias([span + 3 * PAGE, span, span + PAGE])

    assert [driver.shown[alias + offset * PAGE] for offset in (0, 1, 2)] == [third, first, second]
    assert driver.readable == set(driver.shown)


def test_pages_side_by_side_go_in_one_call(driver, source):
    span = source.span(16 * PAGE, 0)
    source.map(span, [PAGE] * 6)

    source.unmap([span + offset * PAGE for offset in (5, 0, 1, 2)])

    assert driver.unmaps == 2
    assert sorted(driver.shown) == [span + 3 * PAGE, span + 4 * PAGE]
    assert len(driver.handles) == 2


def test_everything_goes_back(driver, source):
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
def test_a_call_that_fails_anywhere_changes_nothing(position, fail_at):
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


@pytest.mark.parametrize("call", ["span", "map", "unmap", "alias"])
def test_a_source_without_pages_refuses_them(call):
    arguments: dict[str, tuple[Any, ...]] = {"span": (PAGE, 0), "map": (0, [PAGE]), "unmap": ([0],), "alias": ([0],)}

    with pytest.raises(CapabilityError, match=r"DeviceSource\(cuda:0\) has no pages"):
        getattr(sources.DeviceSource(0), call)(*arguments[call])


def test_an_unknown_backend_lists_those_there_are(monkeypatch):
    monkeypatch.setattr(runtime, "init", lambda: None)

    with pytest.raises(ArgumentError, match="there is no backend 'heap'; backends: native, cudaMallocAsync"):
        sources.make_source("heap", 0)
