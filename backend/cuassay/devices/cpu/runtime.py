"""The cpu as a device: a single one, always present, synchronous.

Its streams and events exist so that code written for a device runs here unchanged. Work is done when the call returns,
so every query returns True and a wait does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

from cuassay.arrays import layout
from cuassay.arrays.dtypes import as_dtype
from cuassay.arrays.subclasses import why_refused
from cuassay.core.capability import NOT_DRAWN, Answer, absent, present
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.cpu import info
from cuassay.errors import ArgumentError, CapabilityError, OutOfMemoryError

__all__ = ["CpuBackend", "CpuEvent", "CpuStream"]

_DEVICE = Device("cpu")

#: What the cpu kind lacks, and why. Everything else in `cuassay.core.capability.FEATURES` is available.
_ABSENT: dict[str, str] = {
    "graphs": "work runs when it is called; there is nothing to capture",
    "conditional_graphs": "work runs when it is called; there is nothing to capture",
    "device_memory": "arrays are in the host's memory",
    "pinned_memory": "host memory needs no pinning to be reached from the host",
    "peer_access": "there is one cpu device",
    "vmm": "NumPy does not map pages",
    "ipc": "not offered for host memory; use multiprocessing.shared_memory",
    "race_detection": "work runs in program order; use kind sim to find races",
    "cublaslt": "cuBLASLt is a library for NVIDIA GPUs",
    "complex_half": "NumPy has no complex dtype of two float16",
    "compute": "compute capability is NVIDIA's",
    "l2": "not measured on the cpu kind",
}

#: The bytes to write to evict other data from the processor's caches.
_EVICT_NBYTES = 64 * 2**20


class CpuEvent(Handle):
    """A time of the host's clock."""

    def __init__(self, *, timing: bool = False) -> None:
        self._timing = timing
        self._at: float | None = None

    def __repr__(self) -> str:
        return f"CpuEvent({'recorded' if self._at is not None else 'not recorded'})"

    @property
    def device(self) -> Device:
        """Always ``cpu:0``."""
        return _DEVICE

    def record(self, stream: Any = None) -> None:
        """Store the time."""
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Do nothing: there is nothing to wait for."""

    def query(self) -> bool:
        """Return True, because work is done when its call returns."""
        return True

    def synchronize(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def elapsed_time(self, end: CpuEvent) -> float:
        """Return the milliseconds from this event to `end`.

        Raises
        ------
        ArgumentError
            If either event was made without timing, or was not recorded.
        """
        if not (self._timing and end._timing):
            raise ArgumentError("elapsed_time needs two events made with timing=True; make both so")
        if self._at is None or end._at is None:
            raise ArgumentError("elapsed_time needs two recorded events; record both first")
        return (end._at - self._at) * 1e3


class CpuStream(Handle):
    """A queue that is always empty."""

    def __init__(self, number: int = 0) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"CpuStream({self._number})"

    @property
    def device(self) -> Device:
        """Always ``cpu:0``."""
        return _DEVICE

    def query(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        """Record `event`, or a new one, and return it."""
        event = event or CpuEvent(timing=True)
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Do nothing: there is nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: there is nothing to wait for."""


_default_stream = CpuStream()
_current_stream: ContextVar[CpuStream] = ContextVar("cuassay_cpu_stream", default=_default_stream)


class CpuBackend:
    """The kind `cpu`; see `cuassay.core.protocols.Backend`."""

    kind = "cpu"

    def __init__(self) -> None:
        self._streams = 0

    def why_absent(self) -> str | None:
        """Return None: the cpu is never absent."""
        return None

    def count(self) -> int:
        """Return 1."""
        return 1

    def probe(self, index: int, name: str) -> Answer:
        """Answer that all dtypes are available, and everything else that is not in `_ABSENT`."""
        if name in _ABSENT:
            return absent(_ABSENT[name])
        if name.startswith("random:") and (dtype := name.partition(":")[2]) in NOT_DRAWN:
            return absent(NOT_DRAWN[dtype])
        return present({"memory": info.total_memory()[1], "count": 1}.get(name, 0))

    def identity(self, index: int) -> Mapping[str, str]:
        """Return the processor, the BLAS with its threads, and the vector instructions that NumPy uses."""
        pools = info.blas()
        return {
            "name": info.cpu_model(),
            "blas": ", ".join(f"{pool['internal_api']} {pool.get('version')}" for pool in pools) or "unknown",
            "threads": ", ".join(str(pool["num_threads"]) for pool in pools) or "unknown",
            "simd": " ".join(info.simd()),
        }

    def health(self, index: int) -> str | None:
        """Return None: the cpu is always healthy."""
        return None

    def memory_info(self, index: int) -> tuple[int, int]:
        """Return the free and the total main memory in bytes."""
        return info.total_memory()

    def owns(self, array_type: type) -> bool:
        """Whether the type is `numpy.ndarray`, a NumPy scalar, or a subclass that computes in the same way."""
        if array_type is np.ndarray:  # fast path: each call with out= asks
            return True
        return issubclass(array_type, (np.ndarray, np.generic)) and why_refused(array_type) is None

    def device_of(self, array: Any) -> Device:
        """Return ``cpu:0``."""
        return _DEVICE

    def namespace(self, index: int) -> Any:
        """Return NumPy itself."""
        return np

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> np.ndarray[Any, Any]:
        """Return `numpy.empty`, with cuassay's out-of-memory error; `stream` is ignored."""
        try:
            return np.empty(shape, as_dtype(dtype))
        except MemoryError as error:
            raise OutOfMemoryError(
                f"no main memory for shape {shape}, {dtype}: {error}; free arrays or use fewer elements"
            ) from error

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> np.ndarray[Any, Any]:
        """Return a copy with the strides in the same order."""
        return array.copy(order="K")

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy."""
        return np.array(array, order="K")

    def overlap(self, a: Any, b: Any) -> str:
        """Compare addresses, then elements within bounds."""
        if not layout.overlap(a, b):
            return "none"
        same = (
            a.__array_interface__["data"] == b.__array_interface__["data"]
            and a.shape == b.shape
            and a.strides == b.strides
        )
        return "same" if same and a.dtype == b.dtype else "partial"

    def activate(self, index: int) -> nullcontext[None]:
        """Do nothing: there is only one device."""
        return nullcontext()

    def is_current(self, index: int) -> bool:
        """Return True: there is only one device."""
        return True

    def synchronize(self, index: int) -> None:
        """Do nothing: there is nothing to wait for."""

    def current_stream(self, index: int) -> CpuStream:
        """Return the stream set by `use_stream`, or the default stream."""
        return _current_stream.get()

    def new_stream(self, index: int, priority: int = 0) -> CpuStream:
        """Return a stream with a new number."""
        self._streams += 1
        return CpuStream(self._streams)

    @contextmanager
    def use_stream(self, stream: CpuStream) -> Iterator[CpuStream]:
        """Make `stream` current for this thread or task."""
        token = _current_stream.set(stream)
        try:
            yield stream
        finally:
            _current_stream.reset(token)

    def new_event(self, index: int, *, timing: bool = False) -> CpuEvent:
        """Return an event on the host's clock."""
        return CpuEvent(timing=timing)

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Any:
        """Raise `CapabilityError`: there are no graphs here."""
        raise CapabilityError(f"cpu:0: no graphs: {_ABSENT['graphs']}")

    def flush_cache(self, index: int) -> None:
        """Write more bytes than the caches hold."""
        np.ones(_EVICT_NBYTES // 8)
