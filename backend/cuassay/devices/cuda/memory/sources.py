"""Where device memory comes from: ``cudaMalloc``, a driver pool, or pages mapped into address ranges.

Each source is a `cuassay.core.protocols.MemorySource` of one device. The option ``backend`` of ``CUASSAY_ALLOC_CONF``
chooses it: ``native`` is pages if the driver can map them, otherwise ``cudaMalloc``, which
``expandable_segments:False`` also chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate, groupby
from typing import Any

from cuassay.core.interrupts import is_late, mark_late
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.memory.order import Order, at, attempt, finished, relaxed
from cuassay.devices.cuda.memory.virtual import AddressSpace, Page, granularity
from cuassay.errors import ArgumentError
from cuassay.memory.integer_source import Pageless

__all__ = ["BACKENDS", "AsyncSource", "DeviceSource", "PageSource", "make_source"]


class DeviceSource(Pageless, Order):
    """Segments by ``cudaMalloc``: each is one piece, which another process or a network card can use."""

    instead = "set backend:native in CUASSAY_ALLOC_CONF for ranges of them"

    def reserve(self, nbytes: int, stream: int) -> int:
        """Allocate `nbytes` in one piece. Raises `OutOfMemoryError`."""
        del stream  # cudaMalloc is not ordered by streams; the policy is
        from cuda.bindings import runtime as cudart

        with at(self.index), relaxed():
            taken = finished(cudart.cudaMalloc, nbytes, undo=lambda made: made and cudart.cudaFree(made[1]))
            if taken[0]:
                cudart.cudaGetLastError()  # clear the error, or the next launch would report it
            return int(check(taken, f"taking {nbytes:,} bytes of cuda:{self.index}"))

    def release(self, address: int) -> None:
        """Release a segment; the driver waits for the device. An interrupt of it is marked early or late."""
        from cuda.bindings import runtime as cudart

        with attempt(cudart.cudaFree, address) as free, at(self.index), relaxed():
            check(free(), f"giving back the segment at {address:#x}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cuda:{self.index})"


class AsyncSource(DeviceSource):
    """Segments by ``cudaMallocFromPoolAsync``, from a separate driver pool that keeps no free memory."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        with at(index):
            self._pool, self._stream = _driver_pool(index)

    def reserve(self, nbytes: int, stream: int) -> int:
        """Allocate `nbytes` in one piece. Raises `OutOfMemoryError`."""
        del stream  # allocated on a separate stream and waited for, so that any stream may use it
        from cuda.bindings import runtime as cudart

        with at(self.index), relaxed():
            taken = cudart.cudaMallocFromPoolAsync(nbytes, self._pool, self._stream)
            address = int(check(taken, f"taking {nbytes:,} bytes of cuda:{self.index}"))
            try:
                check(cudart.cudaStreamSynchronize(self._stream), "waiting for memory of the driver's pool")
            except BaseException:
                cudart.cudaFreeAsync(address, self._stream)
                raise
        return address

    def release(self, address: int) -> None:
        """Release a segment; the driver waits for the device. An interrupt of it is marked early or late."""
        from cuda.bindings import runtime as cudart

        with attempt(cudart.cudaFreeAsync, address, self._stream) as free, at(self.index), relaxed():
            self.synchronize(())
            check(free(), f"giving back the segment at {address:#x}")
            check(cudart.cudaStreamSynchronize(self._stream), "waiting for the driver's pool")


class PageSource(DeviceSource):
    """Segments by ``cudaMalloc``, and pages that can be mapped at several addresses.

    Attributes
    ----------
    granularity : int
        Page sizes are multiples of this many bytes; 2 MiB on every device so far.
    """

    def __init__(self, index: int, page_nbytes: int) -> None:
        super().__init__(index)
        self.granularity = page_nbytes
        self._space = AddressSpace(index)
        self._pages: dict[int, Page] = {}
        #: The bytes of every span and alias, and the pages that an alias maps.
        self._ranges: dict[int, tuple[int, Sequence[Page]]] = {}
        #: Pages that are mapped nowhere and could not be released yet.
        self._unmapped: list[Page] = []

    def span(self, nbytes: int, stream: int) -> int:
        """Reserve addresses without memory; `stream` is ignored. Raises `OutOfMemoryError`."""
        del stream
        address = self._space.reserve(nbytes)
        self._ranges[address] = nbytes, ()
        return address

    def map(self, address: int, pages: Sequence[int]) -> None:
        """Map new pages of these sizes consecutively from `address` on. Raises `OutOfMemoryError`."""
        made = self._space.create(pages)
        with ExitStack() as undo:
            undo.callback(self._space.destroy, made)
            self._space.map(address, made)
            undo.pop_all()
        self._pages.update(zip(accumulate(pages, initial=address), made, strict=False))

    def unmap(self, pages: Sequence[int]) -> None:
        """Release the pages at these addresses to the device; the addresses stay reserved."""
        with ExitStack() as undo:
            for run in _runs([(address, self._pages[address][1]) for address in sorted(pages)]):
                start, shown = run[0][0], [self._pages[address] for address, _ in run]
                self._space.unmap(start, shown)
                undo.callback(self._space.map, start, shown)
            undo.pop_all()
        self._unmapped += map(self._pages.pop, pages)
        self._release_unmapped()

    def _release_unmapped(self) -> None:
        """Release the pages that are mapped nowhere; an error is marked late, because they were unmapped before."""
        while self._unmapped:
            page = self._unmapped.pop()
            try:
                self._space.destroy([page])
            except BaseException as error:
                if not is_late(error):
                    self._unmapped.append(page)
                mark_late(error)
                raise

    def alias(self, pages: Sequence[int]) -> int:
        """Map the pages at these addresses a second time, to a new range. Raises `OutOfMemoryError`."""
        shown = [self._pages[address] for address in pages]
        nbytes = sum(size for _, size in shown)
        with ExitStack() as undo:
            address = self._space.reserve(nbytes)
            undo.callback(self._space.free, address, nbytes)
            self._space.map(address, shown)
            undo.pop_all()
        self._ranges[address] = nbytes, shown
        return address

    def release(self, address: int) -> None:
        """Release a segment, an empty span, or an alias."""
        found = self._ranges.pop(address, None)
        if found is None:
            super().release(address)
            return
        try:
            self._take_away(address, *found)
        except BaseException as error:
            if not is_late(error):
                self._ranges[address] = found
            raise

    def _take_away(self, address: int, nbytes: int, shown: Sequence[Page]) -> None:
        if shown:
            self._space.unmap(address, shown)
        try:
            self._space.free(address, nbytes)
        except BaseException as error:
            if shown and not is_late(error):
                self._space.map(address, shown)
            raise


def _runs(pages: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Group pages at consecutive addresses: one driver call unmaps a group."""
    ends = [0, *(address + nbytes for address, nbytes in pages)]
    breaks = accumulate(address != end for (address, _), end in zip(pages, ends, strict=False))
    for _, run in groupby(zip(breaks, pages, strict=True), key=lambda pair: pair[0]):
        yield [page for _, page in run]


def _driver_pool(index: int) -> tuple[Any, Any]:
    """Make a driver pool, and a stream for its allocations."""
    from cuda.bindings import runtime as cudart

    properties = cudart.cudaMemPoolProps()
    properties.allocType = cudart.cudaMemAllocationType.cudaMemAllocationTypePinned
    properties.location.type = cudart.cudaMemLocationType.cudaMemLocationTypeDevice
    properties.location.id = index
    stream = check(cudart.cudaStreamCreateWithFlags(cudart.cudaStreamNonBlocking), "making a stream")
    return check(cudart.cudaMemPoolCreate(properties), f"making a pool of cuda:{index}"), stream


def _native(index: int) -> DeviceSource:
    page_nbytes = granularity(index)
    return PageSource(index, page_nbytes) if page_nbytes else DeviceSource(index)


#: The values of the option ``backend``, and the sources they choose.
BACKENDS = {"native": _native, "cudaMallocAsync": AsyncSource}


def make_source(backend: str, index: int) -> DeviceSource:
    """Make the source of device `index` that the option ``backend`` names. Raises `ArgumentError`."""
    runtime.init()
    try:
        make = BACKENDS[backend]
    except KeyError:
        raise ArgumentError(f"there is no backend {backend!r}; backends: {', '.join(BACKENDS)}") from None
    return make(index)
