"""The classic mistakes with copies in stream order, found on the simulated device by its clock; and their cures."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

from cuassay import devices, from_host, ops, to_host
from cuassay.core import watchers
from cuassay.devices.sim import BACKEND, SimStream
from cuassay.devices.sim.pinned import host_memory
from cuassay.errors import CaptureError, RaceError

N = 1000


@pytest.fixture(autouse=True)
def machine() -> Iterator[Any]:
    with BACKEND.simulated(devices=2) as backend:
        yield backend.machine


@pytest.fixture
def stream() -> SimStream:
    return BACKEND.new_stream(0)


def pinned(value: float = 0.0) -> Any:
    array = devices.empty_pinned(N, np.float32, "sim")
    array[...] = value
    return array


def on_device(value: float = 0.0) -> Any:
    array = from_host(np.full(N, value, np.float32), "sim")
    BACKEND.synchronize(0)
    return array


class Pair(NamedTuple):
    first: Any
    second: Any


READS: dict[str, Callable[[Any], object]] = {
    "item": lambda a: a[3],
    "sum": lambda a: a.sum(),
    "ufunc": lambda a: a + 1,
    "function": lambda a: np.concatenate([a, a]),
    "named tuple": lambda a: np.concatenate(Pair(a, a)),
    "asarray": np.asarray,
    "tolist": lambda a: a.tolist(),
    "float": lambda a: float(a[:1].reshape(())),
    "print": str,
    "a view": lambda a: a[10:20].max(),
    "into another": lambda a: np.copyto(np.empty(N, np.float32), a),
    "bytes swapped": lambda a: a.byteswap(),
    "a named tuple of results": lambda a: np.unique_counts(a),
    "file": lambda a: a.tobytes(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_before_the_copy_is_done_is_found(stream: SimStream, read: Callable[[Any], object]) -> None:
    there, host = on_device(1), pinned()

    with BACKEND.use_stream(stream):
        devices.copy(there, host, non_blocking=True)

    with pytest.raises(RaceError, match=r"read by the host .* is not ordered after the write by copy .* on stream 2"):
        read(host)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("cure", ["stream", "event", "device", "polling"])
def test_reading_after_a_wait_is_sound(stream: SimStream, read: Callable[[Any], object], cure: str) -> None:
    there, host = on_device(1), pinned()
    with BACKEND.use_stream(stream):
        devices.copy(there, host, non_blocking=True)
        event = stream.record_event()

    if cure == "stream":
        stream.synchronize()
    elif cure == "event":
        event.synchronize()
    elif cure == "device":
        BACKEND.synchronize(0)
    while cure == "polling" and not event.query():
        pass

    read(host)
    np.testing.assert_array_equal(np.asarray(host), np.ones(N, np.float32))


WRITES: dict[str, Callable[[Any], object]] = {
    "item": lambda a: a.__setitem__(3, 1),
    "fill": lambda a: a.fill(1),
    "in place": lambda a: np.add(a, 1, out=a),
    "copyto": lambda a: np.copyto(a, 1),
    "a view": lambda a: a[5:].sort(),
    "bytes in place": lambda a: a.byteswap(inplace=True),
    "bytes in place, by position": lambda a: a.byteswap(True),
    "part of each": lambda a: a.setfield(1, np.uint8),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writing_what_a_copy_is_still_to_take_is_found(stream: SimStream, write: Callable[[Any], object]) -> None:
    host, there = pinned(1), on_device()

    with BACKEND.use_stream(stream):
        devices.copy(host, there, non_blocking=True)

    with pytest.raises(RaceError, match=r"write by the host .* is not ordered after the read by copy"):
        write(host)


def test_results_in_a_named_tuple_stay_one() -> None:
    found = np.linalg.svd(pinned(1)[:6].reshape(2, 3))

    assert type(found).__name__ == "SVDResult"
    assert found.S.shape == (2,)


def test_reading_what_a_copy_reads_is_sound(stream: SimStream) -> None:
    host, there = pinned(1), on_device()

    with BACKEND.use_stream(stream):
        devices.copy(host, there, non_blocking=True)

    assert float(host.sum()) == N


INTO: dict[str, Callable[[Any, Any], object]] = {
    "out": lambda a, result: np.add(a, 1, out=result),
    "out of a method": lambda a, result: a.clip(0, 1, out=result),
    "operator in place": lambda a, result: operator.iadd(result, a),
    "ufunc in place": lambda a, result: np.multiply(result, a, out=result),
    "method in place": lambda a, result: result.clip(a, 2, out=result),
    "copyto": lambda a, result: np.copyto(result, a),
    "item": lambda a, result: operator.setitem(result, slice(None), a),
}


@pytest.mark.parametrize("read", INTO.values(), ids=INTO)
def test_reading_into_another_pinned_array_is_found_too(stream: SimStream, read: Callable[[Any, Any], object]) -> None:
    there, host, result = on_device(1), pinned(), pinned()
    with BACKEND.use_stream(stream):
        devices.copy(there, host, non_blocking=True)

    with pytest.raises(RaceError, match="read by the host"):
        read(host, result)


@pytest.mark.parametrize("mode", ["relaxed", "global"])
def test_a_copy_that_the_host_waits_for_is_refused_in_a_capture(stream: SimStream, mode: str) -> None:
    there, host, capture = on_device(1), np.empty(N, np.float32), BACKEND.new_capture(0)
    with BACKEND.use_stream(stream):
        capture.begin(capture_error_mode=mode)
        with pytest.raises(CaptureError, match="a copy that the host waits for"):
            devices.copy(there, host)
        capture.reset()


def test_a_copy_that_the_host_waits_for_is_refused_on_other_streams_too(stream: SimStream) -> None:
    there, host, capture = on_device(1), np.empty(N, np.float32), BACKEND.new_capture(0)
    capture.begin(BACKEND.new_stream(0))

    with BACKEND.use_stream(stream), pytest.raises(CaptureError, match="for other streams too"):
        devices.copy(there, host)
    capture.reset()


def test_parts_that_no_copy_touches_are_free(stream: SimStream) -> None:
    host, there = pinned(), on_device(1)

    with BACKEND.use_stream(stream):
        devices.copy(there[:100], host[:100], non_blocking=True)
    host[100:] = 5

    assert float(host[100:].min()) == 5


def test_the_message_names_both_places_and_the_wait_that_is_missing(stream: SimStream) -> None:
    there, host = on_device(1), pinned()
    with BACKEND.use_stream(stream):
        devices.copy(there, host, non_blocking=True)

    with pytest.raises(RaceError) as caught:
        host.sum()

    assert str(caught.value).count(f"{__file__}:") == 2
    assert "stream2.synchronize()" in str(caught.value)


def test_an_error_is_told_once_and_the_program_goes_on(stream: SimStream) -> None:
    there, host = on_device(1), pinned()
    with BACKEND.use_stream(stream):
        devices.copy(there, host, non_blocking=True)
    with pytest.raises(RaceError):
        host.sum()

    assert float(host.sum()) == N


def test_two_streams_that_copy_into_one_array_race() -> None:
    a, b, host = on_device(1), on_device(2), pinned()
    first, second = BACKEND.new_stream(0), BACKEND.new_stream(0)
    with BACKEND.use_stream(first):
        devices.copy(a, host, non_blocking=True)

    with BACKEND.use_stream(second), pytest.raises(RaceError, match="write by copy"):
        devices.copy(b, host, non_blocking=True)


def test_a_copy_races_with_the_work_that_makes_what_it_takes(stream: SimStream) -> None:
    there, host = on_device(1), pinned()
    ops.add(there, 1.0, out=there)

    with BACKEND.use_stream(stream), pytest.raises(RaceError, match="copy"):
        devices.copy(there, host, non_blocking=True)


def test_memory_of_a_dropped_array_waits_for_its_copy_then_serves_again(machine: Any, stream: SimStream) -> None:
    host, there = pinned(1), on_device()
    allocator = host_memory(machine).allocator
    address = host.block.block.address

    with BACKEND.use_stream(stream):
        devices.copy(host, there, non_blocking=True)
    del host
    gc.collect()
    early = pinned()
    stream.synchronize()
    allocator.maintain()
    late = [pinned() for _ in range(4)]

    assert early.block.block.address != address
    assert address in [array.block.block.address for array in late]
    assert float(to_host(there).sum()) == N


def test_copies_of_two_devices_count(machine: Any) -> None:
    size = 2**20
    host = devices.empty_pinned(size, np.float32, "sim")
    address = host.block.block.address
    for index in range(2):
        own = BACKEND.new_stream(index)
        with BACKEND.use_stream(own):
            for _ in range(1 + 4 * index):
                devices.copy(host, devices.empty((size,), np.float32, f"sim:{index}"), non_blocking=True)
    del host
    gc.collect()

    BACKEND.synchronize(0)
    host_memory(machine).allocator.maintain()
    early = devices.empty_pinned(size, np.float32, "sim").block.block.address
    BACKEND.synchronize(1)
    host_memory(machine).allocator.maintain()

    assert early != address
    assert address in [host_memory(machine).allocator.malloc(4 * size).address for _ in range(2)]


def test_a_copy_takes_the_links_time_and_runs_next_to_other_streams(stream: SimStream) -> None:
    size = 2**20
    host, there = devices.empty_pinned(size, np.float32, "sim"), devices.empty((size,), np.float32, "sim")
    BACKEND.synchronize(0)
    begin, end = BACKEND.new_event(0, timing=True), BACKEND.new_event(0, timing=True)

    with BACKEND.use_stream(stream):
        begin.record()
        devices.copy(host, there, non_blocking=True)
        end.record()
    end.synchronize()

    assert begin.elapsed_time(end) == pytest.approx(4 * size / 55e9 * 1e3, rel=0.2)


def test_an_array_of_the_arena_and_a_pinned_one_are_not_mixed() -> None:
    there, host = on_device(), pinned()

    with pytest.raises(TypeError, match="and an array on a simulated device"):
        there + host
    with pytest.raises(TypeError, match=r"move one with devices\.copy"):
        host + there
    with pytest.raises(AttributeError, match="'ctypes'"):
        _ = host.ctypes


def test_what_asarray_gives_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(pinned())[0] = 1
    with pytest.raises(ValueError, match="copied to become"):
        np.asarray(pinned(), copy=False)


def test_asarray_of_a_dtype_cannot_be_written() -> None:
    found = np.asarray(pinned(2.0), dtype=np.float64)

    assert (found.dtype, found[0]) == (np.float64, 2.0)
    assert not found.flags.writeable


@pytest.mark.parametrize("excess", [0, 1])
def test_no_more_memory_is_pinned_than_the_computer_has(
    machine: Any, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16}.__getitem__)
    source = host_memory(machine).source

    with pytest.raises(MemoryError, match="64 KiB in this machine") if excess else nullcontext():
        source.reserve(16 * 4096 + excess, 0)


def test_pinned_memory_is_told_apart_from_that_of_other_kinds() -> None:
    found: list[watchers.Occurrence] = []
    with watchers.watch(found.append, ["memory_taken"]):
        array = pinned()

    assert array.size == N
    assert [one.device for one in found] == ["pinned host memory of the simulated machine"]


def test_new_memory_is_poisoned() -> None:
    assert np.isnan(np.asarray(devices.empty_pinned(4, np.float32, "sim"))).all()


def test_a_slice_is_a_view_a_list_of_places_a_copy() -> None:
    array = pinned()
    array[...] = np.arange(N)

    part, chosen = array[10:20], array[[3, 5]]
    part[0] = -1.0
    chosen[0] = -2.0

    assert (float(array[10]), float(array[3])) == (-1.0, 3.0)
    assert devices.is_pinned(part)
    np.testing.assert_array_equal(np.asarray(chosen), [-2.0, 5.0])


def test_new_memory_has_no_accesses_of_its_former_arrays(machine: Any, stream: SimStream) -> None:
    host, there = pinned(1), on_device()
    with BACKEND.use_stream(stream):
        devices.copy(host, there, non_blocking=True)
    stream.synchronize()
    address, home = host.block.block.address, host_memory(machine)
    assert len(home.log) == 1
    del host
    home.allocator.maintain()

    again = [pinned() for _ in range(4)]

    assert address in [array.block.block.address for array in again]
    assert len(home.log) == 0


def test_pinned_memory_is_iterated_over_from_its_first_element() -> None:
    array = pinned()
    array[...] = np.arange(N)

    assert [float(one) for one in array] == list(range(N))


def test_cached_pinned_memory_is_released(machine: Any) -> None:
    home = host_memory(machine)
    home.allocator.free(home.allocator.malloc(2**20))
    cached = repr(home.source)

    home.allocator.empty_cache()

    assert (cached, repr(home.source)) == ("the simulated host (1 pieces)", "the simulated host (0 pieces)")


def test_the_host_waits_for_an_event_of_pinned_memory(machine: Any, stream: SimStream) -> None:
    source = host_memory(machine).source
    machine.devices[0].launch(stream.queue, "work", (), flops=1e12)
    event = source.record(source.know(stream.queue))
    before = source.query(event)

    source.wait(0, event)

    assert (before, source.query(event)) == (False, True)
