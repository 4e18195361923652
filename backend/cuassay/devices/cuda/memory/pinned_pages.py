"""Where pinned host memory comes from: pages made, touched by several threads and registered, or made by the driver.

The driver makes pinned memory at about 2 GB/s, in one thread, however many ask (8.2 s for 16 GiB on the host of an
H200), and most of that is the kernel's clearing of pages. Pages of our own are touched by several threads first, huge
ones where the system has them; registering these is quick. A forked child does not get the pages: the kernel would copy
all of them at the fork, for the device works on the parent's.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from cuassay.core.interrupts import is_late, is_marked_late, mark_late
from cuassay.core.units import format_bytes
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.memory.order import Marker, Order, at, attempt, finished, name_of, relaxed
from cuassay.errors import CuassayError, OutOfMemoryError
from cuassay.memory.config import AllocatorConfig
from cuassay.memory.host import HostSource

__all__ = ["DEVICE_SHIFT", "PinnedSource", "is_registered", "register", "stream_key", "unregister"]

#: Pages of x86 and Arm servers where the system has huge ones; also what a thread's share begins at.
_HUGE = 2**21
#: What one thread touches at a time, bytes.
_SHARE = 64 * 2**20
#: Below this the system is not asked whether it has the memory: it has other ways to find some.
_CERTAIN = 64 * 2**20
#: A stream's number in the allocator: its address, and above it the index of its device, for address 0 is every one's.
DEVICE_SHIFT = 56


def stream_key(index: int, address: int) -> int:
    """The number of the stream at `address` on device `index`."""
    return index << DEVICE_SHIFT | name_of(address, index)


def register(address: int, nbytes: int) -> None:
    """Pin memory that exists, for every device's use. Raises `DriverError`, `OutOfMemoryError`."""
    from cuda.bindings import runtime

    with relaxed():  # else it breaks what another thread captures
        undo = runtime.cudaHostUnregister
        pinned = finished(
            runtime.cudaHostRegister, address, nbytes, runtime.cudaHostRegisterPortable, undo=lambda _: undo(address)
        )
    check(pinned, f"pinning {format_bytes(nbytes)} of host memory")


def unregister(address: int) -> None:
    """Undo `register`; no copy may be under way. Raises `DriverError`."""
    from cuda.bindings import runtime

    with attempt(runtime.cudaHostUnregister, address) as unpin, relaxed():
        check(unpin(), f"unpinning host memory at {address:#x}")


class PinnedSource(HostSource):
    """A `cuassay.core.protocols.MemorySource` of pinned host memory, usable by every device.

    Parameters
    ----------
    config : callable
        Gives the configuration of now: its ``pinned_*`` keys say how pages are made.
    index : int
        The device whose context the calls are made in.
    """

    def __init__(self, config: Callable[[], AllocatorConfig], index: int) -> None:
        self._config = config
        self._index = index
        self._pages: dict[int, tuple[int, int] | None] = {}
        self._orders: dict[int, Order] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"PinnedSource({len(self._pages)} pieces)"

    def reserve(self, nbytes: int, stream: int) -> int:
        """Pin `nbytes`. Raises `OutOfMemoryError`."""
        _require_memory(nbytes)
        with at(self._index):
            address, pages = self._registered(nbytes) if self._config().pinned_use_cuda_host_register else _made(nbytes)
        with self._lock:
            self._pages[address] = pages
        return address

    def _registered(self, nbytes: int) -> tuple[int, tuple[int, int]]:
        pages, address = _mapped(nbytes)
        try:
            _touch(address, nbytes, min(self._config().pinned_num_register_threads, os.cpu_count() or 1))
            register(address, nbytes)
        except BaseException:
            _unmapped(*pages)
            raise
        return address, pages

    def release(self, address: int) -> None:
        """Unpin; nothing may be under way there. Raises `DriverError`, unless ``pinned_free_catch_all`` is set."""
        with self._lock:
            pages = self._pages.pop(address)
        catching = suppress(CuassayError) if self._config().pinned_free_catch_all else nullcontext()
        is_unpinned = False
        try:
            with catching, at(self._index):
                (_unmade if pages is None else unregister)(address)
                is_unpinned = True
        except BaseException as error:
            if is_unpinned:
                mark_late(error)
            is_unpinned = is_marked_late(error)
            if not is_late(error):
                with self._lock:
                    self._pages[address] = pages
            raise
        finally:
            if is_unpinned and pages is not None:
                _unmapped(*pages)

    def record(self, stream: int) -> tuple[Order, Marker | None]:
        """A marker of what that stream was given so far."""
        order = self._order(stream >> DEVICE_SHIFT)
        return order, order.record(stream & (1 << DEVICE_SHIFT) - 1)

    def _order(self, index: int) -> Order:
        try:
            return self._orders[index]
        except KeyError:
            return self._orders.setdefault(index, Order(index))

    def query(self, event: tuple[Order, Marker | None]) -> bool:
        """True when it is reached."""
        order, marker = event
        return order.query(marker)

    def wait(self, stream: int, event: tuple[Order, Marker | None]) -> None:
        """The host, which `stream` represents, waits."""
        from cuda.bindings import runtime

        _, marker = event
        if marker is not None:
            with relaxed():
                check(runtime.cudaEventSynchronize(marker.event), "waiting for copies of pinned memory")


def _require_memory(nbytes: int) -> None:
    """Raise `OutOfMemoryError` rather than touch more than there is: the system would end this process, or another."""
    if nbytes < _CERTAIN:
        return
    try:
        words = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2].split()
    except OSError:
        return
    available = int(words[0]) * 1024 if words else nbytes
    if nbytes > available:
        raise OutOfMemoryError(
            f"pinning {format_bytes(nbytes)} needs as much free host memory; {format_bytes(available)} is available; "
            "pin less, or free host memory"
        )


def _mapped(nbytes: int) -> tuple[tuple[int, int], int]:
    """Private pages, as an address and bytes, and the address in them where `nbytes` begin, aligned to huge pages."""
    whole = nbytes + _HUGE
    start = _libc().mmap(None, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if start == ctypes.c_void_p(-1).value:
        reason = errno.errorcode.get(ctypes.get_errno(), "an error")
        raise OutOfMemoryError(
            f"the system has no addresses for {format_bytes(nbytes)} ({reason}); pin less, or raise the limit of "
            "addresses (ulimit -v)"
        )
    for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):
        if hasattr(mmap, advice):  # an error is a kernel without huge pages
            _libc().madvise(start, whole, getattr(mmap, advice))
    return (start, whole), -(-start // _HUGE) * _HUGE


def _unmapped(start: int, nbytes: int) -> None:
    _libc().munmap(start, nbytes)


@cache
def _libc() -> Any:
    """The system's own calls: a mapping as a Python object would be unmapped in a forked child, where it never was."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def _touch(address: int, nbytes: int, threads: int) -> None:
    """Let the system find the pages: by writing, which faults whole huge pages, and several at a time."""
    shares = [(address + low, 0, min(_SHARE, nbytes - low)) for low in range(0, nbytes, _SHARE)]
    if len(shares) == 1 or threads == 1:
        for share in shares:
            ctypes.memset(*share)
        return
    with ThreadPoolExecutor(threads, "cuassay-touch") as pool:
        list(pool.map(lambda share: ctypes.memset(*share), shares))


def _made(nbytes: int) -> tuple[int, None]:
    from cuda.bindings import runtime

    with relaxed():
        made = finished(
            runtime.cudaHostAlloc,
            nbytes,
            runtime.cudaHostAllocPortable,
            undo=lambda found: found and runtime.cudaFreeHost(found[1]),
        )
    return int(check(made, f"making {format_bytes(nbytes)} of pinned host memory")), None


def _unmade(address: int) -> None:
    from cuda.bindings import runtime

    with attempt(runtime.cudaFreeHost, address) as free, relaxed():
        check(free(), f"giving pinned host memory at {address:#x} back")


def is_registered(address: int) -> bool:
    """Whether the driver knows the memory as pinned, whoever did it; the driver is in use already."""
    from cuda.bindings import runtime

    attributes: Any = check(runtime.cudaPointerGetAttributes(address), f"asking about {address:#x}")
    return bool(attributes.type == runtime.cudaMemoryType.cudaMemoryTypeHost)
