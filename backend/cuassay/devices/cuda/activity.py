"""Kernels, copies and fills as CUPTI reports them: each with its device times, and the host call that submitted it.

This uses the package cupti-python. CUPTI delivers records in its own thread; the needed fields are copied there,
because CUPTI owns the records' memory. A call of the runtime or the driver and the device work that it submits have the
same correlation number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter_ns
from typing import Any

from cuassay.core import extras
from cuassay.core.traced import TracedWork
from cuassay.devices.cuda.driver.context import at
from cuassay.devices.cuda.facts import current_number, is_own_handle
from cuassay.errors import LibraryNotFoundError, StateError

__all__ = ["Tracer"]

#: Kinds of records: device work, and host calls that may have submitted it.
_WORK = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
_CALLS = ("DRIVER", "RUNTIME")
#: The prefixes of such calls' names.
_GIVE_WORK = ("cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cudaLaunch", "cudaGraphLaunch", "cudaMemcpy",
              "cudaMemset")  # fmt: skip

#: Maps ``CUpti_ActivityMemcpyKind`` to a timeline's name for such copies.
_COPIES = {1: "to the device", 2: "to the host", 8: "on the device", 10: "to another device"}

#: The bytes of each buffer that CUPTI fills with records.
_BUFFER_NBYTES = 4 << 20

#: How often the two clocks are read together; the fastest reading is used.
_READINGS = 64


class Tracer:
    """Traces all CUDA devices of this process from `start` to `stop`.

    Attributes
    ----------
    missed : int
        The number of records that CUPTI dropped.

    Raises
    ------
    LibraryNotFoundError
        If the package cupti-python, or the library it needs, is missing.
    """

    def __init__(self) -> None:
        self._cupti = _bindings()
        self._kinds = {int(getattr(self._cupti.ActivityKind, name)): name for name in (*_WORK, *_CALLS)}
        self._calls: dict[int, tuple[int, int]] = {}
        self._work: list[tuple[Any, ...]] = []
        self._handles: dict[tuple[int, int], int] = {}
        self._anchor = (0, 0)
        self.missed = 0

    def __repr__(self) -> str:
        return f"Tracer({len(self._work):,} pieces of work)"

    def start(self) -> None:
        """Start to trace.

        Raises
        ------
        StateError
            If another profiler traces this process.
        """
        try:
            self._cupti.activity_register_callbacks(lambda: (_BUFFER_NBYTES, 0), self._take)
            self._choose(on=True)
        except self._cupti.cuptiError as error:
            self._choose(on=False)
            raise StateError(
                f"CUPTI does not trace this process: {error}; end the other profiler (nsys, ncu, torch.profiler), or "
                "profile without kernels=True"
            ) from error
        self._anchor = self._clocks()

    def _choose(self, *, on: bool) -> None:
        """Enable the wanted records, or disable all; of host calls only those that submit device work are enabled."""
        cupti = self._cupti
        for name in _CALLS:
            calls = getattr(cupti, f"{name.lower()}_api_trace_cbid")
            switch = getattr(cupti, f"activity_enable_{name.lower()}_api")
            for call in calls:
                if call.name.startswith(_GIVE_WORK):
                    self._quietly(switch, int(call), int(on))  # a CUPTI newer than the driver rejects some
        for name in (*_CALLS, *_WORK):
            kind = getattr(cupti.ActivityKind, name)
            if on:
                cupti.activity_enable(kind)
            else:
                self._quietly(cupti.activity_disable, kind)

    def _quietly(self, call: Any, *arguments: Any) -> None:
        with suppress(self._cupti.cuptiError):
            call(*arguments)

    def meet(self, index: int, number: int | None = None) -> None:
        """Learn CUPTI's number of the stream that watchers know as `number` (None: the current one); it must exist."""
        number = current_number(index) if number is None else number
        if (index, number) in self._handles or not is_own_handle(number):
            return
        from cuda.bindings import driver

        with at(index):
            status, context = driver.cuCtxGetCurrent()
            if int(status) == 0 and int(context):
                try:
                    self._handles[index, number] = self._cupti.get_stream_id_ex(int(context), number, 0)
                except self._cupti.cuptiError:
                    self._handles[index, number] = -1

    def stop(self) -> list[TracedWork]:
        """Stop, and return the traced work in the order in which it ended; the caller has waited for the devices."""
        self._cupti.activity_flush_all(1)
        ended = self._clocks()
        dropped = ctypes.c_size_t()
        self._quietly(self._cupti.activity_get_num_dropped_records, 0, 0, ctypes.addressof(dropped))
        self.missed = dropped.value
        self._choose(on=False)
        self._quietly(self._cupti.finalize)  # otherwise each later launch of this process would take 2 us longer
        return list(self._traced(ended))

    # -------------------------------------------------------------------------------------------- records

    def _take(self, records: Iterable[Any]) -> None:
        """Copy the needed fields of records; CUPTI's thread calls this."""
        for record in records:
            kind = self._kinds.get(int(record.kind))
            if kind in _CALLS:
                self._calls.setdefault(record.correlation_id, (record.start, record.thread_id))
            elif kind is not None:
                is_kernel = kind == "CONCURRENT_KERNEL"
                name = record.name if is_kernel else "fill" if kind == "MEMSET" else int(record.copy_kind)
                device = record.dst_device_id if kind == "MEMCPY2" else record.device_id
                nbytes = 0 if is_kernel else record.bytes
                times = record.start, record.end
                self._work.append((record.correlation_id, name, device, record.stream_id, *times, nbytes))

    def _traced(self, ended: tuple[int, int]) -> Iterator[TracedWork]:
        numbers = {(index, theirs): ours for (index, ours), theirs in self._handles.items()}
        seconds = _clock(self._anchor, ended)
        for correlation, name, device, stream, begin, end, nbytes in self._work:
            called, thread = self._calls.get(correlation, (begin, 0))
            event = "copied" if isinstance(name, int) else "launched"
            label = _COPIES.get(name, "copy") if isinstance(name, int) else _readable(name)
            number = numbers.get((device, stream), -1)
            lane = "" if number >= 0 else f"CUPTI's stream {stream}"
            times = seconds(begin), seconds(end), seconds(called)
            yield TracedWork(event, label, int(device), number, lane, *times, int(nbytes), int(thread))

    def _clocks(self) -> tuple[int, int]:
        """Read the host's clock and CUPTI's at the same moment, in nanoseconds."""
        read = self._cupti.get_timestamp
        found = [(perf_counter_ns(), read(), perf_counter_ns()) for _ in range(_READINGS)]
        before, theirs, after = min(found, key=lambda one: one[2] - one[0])
        return (before + after) // 2, theirs


def _clock(first: tuple[int, int], last: tuple[int, int]) -> Any:
    """Return the conversion of CUPTI's nanoseconds to `time.perf_counter` seconds, from two readings of both clocks."""
    (host, theirs), (later, later_theirs) = first, last
    rate = (later - host) / (later_theirs - theirs) if later_theirs > theirs else 1.0
    return lambda time: (host + (time - theirs) * rate) / 1e9


@cache
def _bindings() -> Any:
    if find_spec("cupti") is None:
        raise LibraryNotFoundError(
            "kernels are timed one by one through the package cupti-python, which is not installed; "
            f"install it with: {extras.pip_install('cupti')}, or profile without kernels=True"
        )
    try:
        return import_module("cupti.cupti")
    except (ImportError, RuntimeError) as error:
        raise LibraryNotFoundError(
            f"the package cupti-python does not load: {error}; install what it needs, such as nvidia-cuda-cupti, or "
            "profile without kernels=True"
        ) from error


# ------------------------------------------------------------------------------------------------ names


@cache
def _readable(name: str) -> str:
    """Return a kernel's name as C++ writes it, without its parameters."""
    if not name.startswith("_Z"):
        return name
    demangle = _demangler()
    status = ctypes.c_int()
    found = demangle(name.encode(), None, None, ctypes.byref(status)) if demangle else None
    if not found:
        return name
    try:
        text = ctypes.string_at(found).decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return _without_parameters(text.removeprefix("void "))


@cache
def _demangler() -> Any:
    try:
        demangle = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    return demangle


def _without_parameters(text: str) -> str:
    """Return ``f<int>`` for ``f<int>(float*)``: cut the last parentheses that are not in a template's arguments."""
    if not text.endswith(")"):
        return text
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return text[:place]
    return text
