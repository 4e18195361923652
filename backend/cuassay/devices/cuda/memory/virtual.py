"""Pages of physical memory and the addresses they are mapped at: the ``cuMem*`` calls, each with its undo.

A page is one handle (``cuMemCreate``). To map it at a second address is another ``cuMemMap`` of the same whole handle.
NVIDIA documents that work in the order of one stream, or of streams ordered by events, sees the same memory at both
addresses (CUDA C++ Programming Guide, virtual aliasing support). None of these calls needs a context, and each is legal
while a stream is captured. The policy decides which page is mapped where.

On an H200 host a page of 2 MiB takes 10 µs to make, 2 to map and 22 to 30 to give access to, and so does one of 256
MiB: a GiB takes 21 ms in pages of 2 MiB, 1.7 in pages of 20, 0.1 in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Any

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.memory.order import attempt, finished

__all__ = ["AddressSpace", "granularity"]

Page = tuple[Any, int]


def granularity(index: int) -> int:
    """Return the bytes that page sizes of device `index` are multiples of; 0 if it cannot map pages."""
    runtime.init()
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    device = check(driver.cuDeviceGet(index), f"opening cuda:{index}")
    if not check(driver.cuDeviceGetAttribute(attribute, device), f"asking cuda:{index} for virtual memory"):
        return 0
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    asked = driver.cuMemGetAllocationGranularity(_properties(index), minimum)
    return int(check(asked, f"asking cuda:{index} for its page size"))


class AddressSpace:
    """Pages of one device and the ranges where they are mapped. Sizes are multiples of `granularity`, in bytes.

    Every method either does all of its work or, if it raises, nothing; `destroy` works page by page.

    Parameters
    ----------
    index : int
        The device.
    is_shared : bool
        Whether other processes can map the pages that `create` makes.
    """

    def __init__(self, index: int, *, is_shared: bool = False) -> None:
        self.index = index
        self._properties = _properties(index)
        if is_shared:
            self._properties.requestedHandleTypes = _descriptor_type()
        self._access = [_access(number) for number in (index, *_peers(index))]

    def reserve(self, nbytes: int) -> int:
        """Return the start of `nbytes` of addresses without memory. Raises `OutOfMemoryError`."""
        from cuda.bindings import driver

        return int(check(driver.cuMemAddressReserve(nbytes, 0, 0, 0), f"reserving {nbytes:,} bytes of addresses"))

    def free(self, address: int, nbytes: int) -> None:
        """Release the addresses, where nothing may be mapped."""
        from cuda.bindings import driver

        with attempt(driver.cuMemAddressFree, address, nbytes) as free:
            check(free(), f"giving back the addresses at {address:#x}")

    def create(self, sizes: Iterable[int]) -> list[Page]:
        """Make pages of these sizes. Raises `OutOfMemoryError`."""
        from cuda.bindings import driver

        with ExitStack() as undo:
            pages = []
            for nbytes in sizes:
                made = driver.cuMemCreate(nbytes, self._properties, 0)
                pages.append((check(made, f"taking {nbytes:,} bytes of cuda:{self.index}"), nbytes))
                undo.callback(self.destroy, pages[-1:])
            undo.pop_all()
        return pages

    def exported(self, page: Page) -> int:
        """Return a new file descriptor for a page, which any process can import; the caller closes it."""
        from cuda.bindings import driver

        made = driver.cuMemExportToShareableHandle(page[0], _descriptor_type(), 0)
        return int(check(made, f"sharing a page of cuda:{self.index}"))

    def imported(self, descriptor: int, nbytes: int) -> Page:
        """Return the page of another process that exported it as `descriptor`, which stays open."""
        from cuda.bindings import driver

        given = driver.cuMemImportFromShareableHandle(descriptor, _descriptor_type())
        return check(given, f"taking over a page of cuda:{self.index}"), nbytes

    def destroy(self, pages: Iterable[Page]) -> None:
        """Release the pages; the memory of each is freed when it is mapped nowhere."""
        from cuda.bindings import driver

        for handle, _ in pages:
            with attempt(driver.cuMemRelease, handle) as release:
                check(release(), f"releasing a page of cuda:{self.index}")

    def map(self, address: int, pages: Sequence[Page]) -> None:
        """Map the pages consecutively from `address` on, readable and writable by the device and its peers."""
        from cuda.bindings import driver

        with ExitStack() as undo:
            starts = accumulate((nbytes for _, nbytes in pages), initial=address)
            for start, (handle, nbytes) in zip(starts, pages, strict=False):  # there is one more start: the end
                check(driver.cuMemMap(start, nbytes, 0, handle, 0), f"mapping a page at {start:#x}")
                undo.callback(self.unmap, start, [(handle, nbytes)])
            total = sum(nbytes for _, nbytes in pages)
            given = driver.cuMemSetAccess(address, total, self._access, len(self._access))
            check(given, f"giving cuda:{self.index} access to {total:,} bytes at {address:#x}")
            undo.pop_all()

    def unmap(self, address: int, pages: Sequence[Page]) -> None:
        """Unmap the pages that are mapped from `address` on; no running work may use them there."""
        from cuda.bindings import driver

        nbytes = sum(size for _, size in pages)
        hidden = finished(driver.cuMemUnmap, address, nbytes, undo=lambda _: self.map(address, pages))
        check(hidden, f"unmapping {nbytes:,} bytes at {address:#x}")

    def __repr__(self) -> str:
        return f"AddressSpace(cuda:{self.index}, {len(self._access) - 1} peers)"


def _properties(index: int) -> Any:
    from cuda.bindings import driver

    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = index
    return properties


def _descriptor_type() -> Any:
    from cuda.bindings import driver

    return driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def _access(index: int) -> Any:
    from cuda.bindings import driver

    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = index
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return access


def _peers(index: int) -> list[int]:
    """Return the other devices that can read this device's memory."""
    others = (number for number in range(runtime.device_count()) if number != index)
    return [number for number in others if runtime.can_device_access_peer(number, index)]
