"""What a profile records of a program, and what its tables, traces and pages say of it."""

from __future__ import annotations

import _thread
import json
import re
import sys
import threading
from collections import deque
from itertools import chain, pairwise
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, devices, from_host, ops, to_host
from cuassay.core import watchers
from cuassay.cuda import nvtx
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError, DeviceError, ShapeError, StateError
from cuassay.memory import CachingAllocator, IntegerSource
from cuassay.observe import assembly, recorder
from cuassay.observe.gaps import idle_gaps
from cuassay.observe.pairs import NEVER, Pairs
from cuassay.observe.spans import DEVICE_KINDS, Change, Span, Timeline
from cuassay.observe.totals import totals
from cuassay.ops import registry

#: Kinds that tell how long their work takes.
TIMED = ("sim",)


@pytest.fixture
def x(device: Device) -> Any:
    return from_host(np.ones((32, 32), np.float32), device)


def named(timeline: Timeline, kind: str) -> list[str]:
    return [span.name for span in timeline.spans if span.kind == kind]


def test_ops_are_recorded_with_the_line_that_calls_them_and_their_way(x: Any) -> None:
    with cuassay.profile() as p:
        ops.exp(x)
        ops.linear(x, x, x[0])

    place, first = next(p.timeline.of_kinds(["op"]))
    assert named(p.timeline, "op")[0] == "exp"
    assert first.parent == -1
    assert first.site.startswith("test_profile.py:")
    assert "exp" in p.timeline.ways[place]
    assert all(span.begin <= span.end <= p.timeline.seconds for span in p.timeline.spans if span.kind == "op")


def test_lines_are_those_of_the_calls_though_they_are_looked_up_later(x: Any) -> None:
    def first_line() -> int:
        return sys._getframe(1).f_lineno

    with cuassay.profile() as p:
        begin = first_line()
        ops.exp(x)
        ops.add(
            x,
            x,
        )
        for _ in range(2):
            ops.exp(ops.neg(x))

    lines = [int(span.site.partition(":")[2]) - begin for _, span in p.timeline.of_kinds(["op"]) if span.parent == -1]
    assert lines == [1, 2, 7, 7, 7, 7]


def test_a_signature_is_that_of_the_call_though_the_shape_changes_later(x: Any, device: Device) -> None:
    if device.kind == "sim":
        pytest.skip("the shape of a simulated array cannot be set")
    with cuassay.profile() as p:
        ops.exp(x)
        x.shape = (1024,)
        ops.exp(x)

    ways = [p.timeline.ways[place] for place, span in p.timeline.of_kinds(["op"]) if span.name == "exp"]
    assert [re.findall(r"\([\d, ]+\)", way)[0] for way in ways] == ["(32, 32)", "(1024,)"]


@pytest.mark.parametrize("first", ["a list", "numbers"])
def test_calls_before_the_clock_is_known_have_times_of_the_recording(x: Any, first: str) -> None:
    with cuassay.profile() as p:
        if first == "a list":
            ops.foreach_max([x, x[0]])
        else:
            with pytest.raises(ArgumentError, match="array"):
                ops.add(1.0, 2.0)
        ops.exp(x)

    spans = [span for _, span in p.timeline.of_kinds(["op"]) if span.parent == -1]
    assert [span.name for span in spans] == ["foreach_max" if first == "a list" else "add", "exp"]
    assert 0 <= spans[0].begin <= spans[0].end <= spans[1].begin <= spans[1].end <= p.timeline.seconds


def test_a_call_that_has_not_ended_stays_open_when_the_clock_changes() -> None:
    code = sys._getframe().f_code
    log = [
        *(0, -1, 70.0, assembly.OPEN, assembly.Way("outer"), code, 0, None, -1),
        *(1, 0, 71.0, 72.0, assembly.Way("inner"), code, 0, None, -1),
    ]
    assembly.move_calls(log, 5.0)

    assert [(one.name, one.begin, one.end) for one in assembly.calls(log, 1)] == [
        ("outer", 5.0, assembly.OPEN), ("inner", 5.0, 5.0),
    ]  # fmt: skip


def test_a_call_after_one_that_failed_has_its_way(x: Any) -> None:
    with cuassay.profile() as p:
        with pytest.raises(ShapeError):
            ops.softmax(x, axis=9)
        ops.softmax(x, axis=1)

    places = [place for place, span in p.timeline.of_kinds(["op"]) if span.parent == -1]
    assert len(places) == 2
    assert "softmax" in p.timeline.ways[places[1]]


def test_a_thread_without_a_frame_of_its_own_may_make_calls(x: Any) -> None:
    done: SimpleQueue[str] = SimpleQueue()
    calls = chain(map(ops.exp, [x]), map(done.put, ["done"]))
    with cuassay.profile() as p:
        _thread.start_new_thread(deque[Any]().extend, (calls,))
        assert done.get(timeout=60) == "done"
        ops.exp(x)

    sites = [span.site.partition(":")[0] for _, span in p.timeline.of_kinds(["op"]) if span.parent == -1]
    assert sites == ["recorder.py", "test_profile.py"]


def test_arguments_that_cannot_be_hashed_are_rejected_as_without_a_profile(x: Any) -> None:
    given = SimpleNamespace(dtype=np.dtype("float32"), shape=[3])
    with cuassay.profile() as p, pytest.raises(ArgumentError, match="not an array of any known device kind"):
        ops.add(x, given)

    assert named(p.timeline, "op")[0] == "add"


def test_way_depends_on_the_types_of_numbers_and_on_each_dtype_and_shape(x: Any, device: Device) -> None:
    row = x[0]
    half = from_host(np.ones((32, 32), np.float16), device)
    calls = [(x, 1.0), (x, 2), (x, x), (x, row), (row, x), (row, row), (x, half), (half, x)]
    with cuassay.profile() as p:
        for operands in calls * 2:
            ops.add(*operands)

    ways = [p.timeline.ways[place] for place, span in p.timeline.of_kinds(["op"]) if span.parent == -1]
    assert len(set(ways)) == len(calls)
    assert ways[len(calls) :] == ways[: len(calls)]


def test_lines_of_calls_by_turns_from_two_functions_are_their_own(x: Any) -> None:
    def first() -> None:
        ops.exp(x)

    def second() -> None:
        ops.linear(x, x, x[0])

    begin = sys._getframe().f_lineno
    with cuassay.profile() as p:
        for _ in range(2):
            first()
            second()

    lines = [int(span.site.partition(":")[2]) - begin for _, span in p.timeline.of_kinds(["op"]) if span.parent == -1]
    assert lines == [-5, -2] * 2
    assert {int(span.site.partition(":")[2]) - begin for _, span in p.timeline.of_kinds(["op"])} == {-5, -2}


def test_threads_that_record_at_the_same_time_keep_their_calls(x: Any) -> None:
    ready = threading.Barrier(3)

    def work() -> None:
        ready.wait()
        for _ in range(50):
            with nvtx.range("outer"):
                ops.exp(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with cuassay.profile(memory=False) as p:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    of_track: dict[str, list[Span]] = {}
    for _, span in p.timeline.of_kinds(["op"]):
        of_track.setdefault(span.track, []).append(span)
    parents = [p.timeline.spans[span.parent] for spans in of_track.values() for span in spans]
    assert [len(spans) for spans in of_track.values()] == [50] * 3
    assert all(span.end <= later.begin for spans in of_track.values() for span, later in pairwise(spans))
    assert all(parent.kind == "range" for parent in parents)
    assert [parent.track for parent in parents] == [track for track in of_track for _ in range(50)]


def test_results_and_errors_are_those_of_the_plain_call(x: Any) -> None:
    want = to_host(ops.add(x, 1.0))
    plain = ops.Op.__call__

    p = cuassay.profile()
    with p:
        np.testing.assert_array_equal(to_host(ops.add(x, 1.0)), want)
        out = ops.copy(x)
        assert ops.add(x, 1.0, out=out) is out
        with pytest.raises(ArgumentError, match="axis"):
            ops.softmax(x, axis=7)

    assert ops.Op.__call__ is plain
    assert named(p.timeline, "op")[-1] == "softmax"


def test_an_error_in_the_block_ends_the_recording(x: Any) -> None:
    plain = ops.Op.__call__

    p = cuassay.profile()

    def fail() -> None:
        with p:
            ops.exp(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert ops.Op.__call__ is plain
    assert named(p.timeline, "op") == ["exp"]


def test_kernels_lie_on_their_stream_and_belong_to_their_op(device: Device, x: Any) -> None:
    if device.kind not in TIMED:
        pytest.skip("the kind does not tell how long its work takes")
    with cuassay.profile(device) as p:
        ops.mm(x, x)

    place, _ = next(p.timeline.of_kinds(["op"]))
    kernels = [span for span in p.timeline.spans if span.kind == "kernel" and span.name == "mm"]
    assert [kernel.parent for kernel in kernels] == [place]
    assert kernels[0].track.startswith(f"{device} stream ")
    assert kernels[0].seconds > 0
    (total,) = (one for one in p.totals("kernel") if one.name == "mm")
    assert (total.calls, total.launches, total.device_total) == (1, 1, kernels[0].seconds)
    (of_op,) = (one for one in p.totals() if one.name == "mm")
    assert of_op.device_total >= kernels[0].seconds


def test_a_step_with_streams_a_graph_copies_and_memory_has_all_lanes(device: Device) -> None:
    backend = devices.backend(device.kind)
    if not devices.capabilities(device).answer("graphs"):
        pytest.skip("no graphs")
    host = np.ones((16, 16), np.float32)
    a = from_host(host, device)
    side = backend.new_stream(device.index)
    out = ops.exp(a)
    side.wait_stream(backend.current_stream(device.index))
    graph = backend.new_capture(device.index)
    with backend.use_stream(side):
        ops.exp(a, out=out)
        side.synchronize()
        graph.begin()
        ops.exp(a, out=out)
        graph.end()

    with cuassay.profile(device) as p:
        kept = from_host(host, device)
        side.wait_stream(backend.current_stream(device.index))
        with backend.use_stream(side):
            ops.add(kept, 1.0)
            graph.replay()
        backend.synchronize(device.index)
        nvtx.mark("end of step")
    graph.reset()

    kinds = {span.kind for span in p.timeline.spans}
    assert {"op", "replay", "copy", "wait", "mark"} <= kinds
    assert named(p.timeline, "mark") == ["end of step"]
    assert any(change.nbytes > 0 for change in p.timeline.changes)
    assert f"wait for {device}" in named(p.timeline, "wait")
    if device.kind in TIMED:
        assert len({flow.waiter for flow in p.timeline.flows}) == 1
        assert [span.name for span in p.timeline.spans if span.kind == "kernel"].count("exp") == 1


def test_memory_is_booked_on_the_line_that_took_it(device: Device) -> None:
    if device.kind == "cpu":
        pytest.skip("NumPy allocates")
    with cuassay.profile(device) as p:
        taken = cuassay.empty((1024,), "float32", device)
        del taken

    up, down = p.timeline.changes[:2]
    assert (up.nbytes, down.nbytes) == (4096, -4096)
    assert up.site == down.site
    assert up.site.startswith("test_profile.py:")
    with cuassay.profile(device, memory=False) as without:
        cuassay.empty((1024,), "float32", device)
    assert without.timeline.changes == []


def test_memory_at_one_address_of_two_devices_is_booked_by_device() -> None:
    with BACKEND.simulated(devices=2), cuassay.profile("sim") as p:
        blocks = [cuassay.empty((size,), "uint8", f"sim:{index}") for index, size in enumerate((4096, 2048))]
        for _ in range(2):
            del blocks[0]

    found = [(change.device, change.nbytes) for change in p.timeline.changes]
    assert found == [("sim:0", 4096), ("sim:1", 2048), ("sim:0", -4096), ("sim:1", -2048)]


def test_memory_of_repeated_calls_is_booked_on_the_line_of_each_call(device: Device, x: Any) -> None:
    if device.kind == "cpu":
        pytest.skip("NumPy allocates")
    line = sys._getframe().f_lineno
    with cuassay.profile(device) as p:
        for _ in range(3):
            ops.exp(x)
        ops.exp(x)

    taken = [change.site for change in p.timeline.changes if change.nbytes > 0]
    assert taken == [f"test_profile.py:{line + 3}"] * 3 + [f"test_profile.py:{line + 4}"]


def test_memory_that_a_composition_takes_itself_is_booked_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ops", dict(registry._ops))
    allocator, host = CachingAllocator(IntegerSource(), name="cpu:0"), np.ones(4, np.float32)
    line = sys._getframe().f_lineno

    def composed(a: Any) -> Any:
        allocator.free(allocator.malloc(64))
        return ops.neg(a)

    op = ops.declare(
        "test_taking(a) -> out", shape=lambda bound: bound["a"].shape, dtypes=("float32",), op_class="elementwise",
        composite=composed, parts=("neg",),
    )  # fmt: skip
    with cuassay.profile("cpu") as p:
        for _ in range(3):
            op(host)
    registry.routes.clear()

    assert [change.site for change in p.timeline.changes if change.nbytes > 0] == [f"test_profile.py:{line + 3}"] * 3


def test_threads_have_tracks_of_their_own(x: Any) -> None:
    with cuassay.profile() as p:
        ops.exp(x)
        other = threading.Thread(target=lambda: ops.exp(x))
        other.start()
        other.join()

    assert [span.track for span in p.timeline.spans if span.kind == "op"] == ["host", "host thread 2"]
    assert p.timeline.tracks()[:2] == ["host", "host thread 2"]


def test_ranges_contain_what_is_called_in_them(x: Any) -> None:
    with cuassay.profile() as p:
        ops.exp(x)
        with nvtx.range("step {}", 3):
            ops.mul(x, x)
        assert nvtx.range_push("outer") == 0
        assert nvtx.range_push("inner") == 1
        assert (nvtx.range_pop(), nvtx.range_pop(), nvtx.range_pop()) == (1, 0, -1)

    places = {span.name: place for place, span in p.timeline.of_kinds(["op", "range"])}
    assert p.timeline.spans[places["mul"]].parent == places["step 3"]
    assert p.timeline.spans[places["inner"]].parent == places["outer"]
    assert p.timeline.spans[places["step 3"]].site.startswith("test_profile.py:")


def test_a_profile_of_a_device_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(DeviceError, match=r"sim:99 does not exist"):
        cuassay.profile("sim:99")
    with pytest.raises(DeviceError, match=r"no device kind 'gpu' \(did you mean 'cuda'\?\)"):
        cuassay.profile("gpu")


def test_a_range_from_start_to_end_ends_once() -> None:
    number = nvtx.range_start("anywhere")
    nvtx.range_end(number)

    with pytest.raises(ArgumentError, match="is not open; give what range_start returned, once"):
        nvtx.range_end(number)


def test_ranges_that_end_in_another_thread_lie_on_tracks_of_their_own(x: Any) -> None:
    before = nvtx.range_start("begun before")
    with cuassay.profile() as p:
        first = nvtx.range_start("first")
        second = nvtx.range_start("second")
        ops.exp(x)
        thread = threading.Thread(target=nvtx.range_end, args=(first,))
        thread.start()
        thread.join()
        third = nvtx.range_start("third")
        nvtx.range_end(second)
        nvtx.range_end(before)
    nvtx.range_end(third)

    found = {span.name: span for _, span in p.timeline.of_kinds(["range"])}
    assert {name: span.track for name, span in found.items()} == {
        "first": "host ranges", "second": "host ranges 2", "third": "host ranges",
    }  # fmt: skip
    assert found["first"].begin <= found["first"].end <= found["third"].begin
    assert found["third"].end == pytest.approx(p.timeline.seconds)
    (call,) = [span for _, span in p.timeline.of_kinds(["op"])]
    assert call.parent == -1
    assert found["second"].site.startswith("test_profile.py:")


def test_what_is_beyond_the_limit_is_counted(x: Any) -> None:
    with cuassay.profile(memory=False, limit=3) as p:
        for _ in range(5):
            ops.exp(x)

    assert len(p.timeline.spans) <= 3
    assert p.timeline.missed >= 2


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_calls_and_their_times_count_towards_the_limit(
    limit: int, x: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events time the calls here, as on a GPU, so that a call has a second span."""
    if device.kind == "cpu":
        pytest.skip("no events")
    monkeypatch.setattr("cuassay.observe.recorder.needs_pairs", lambda backend: backend.kind == device.kind)

    with cuassay.profile(memory=False, limit=limit) as p:
        for _ in range(5):
            ops.exp(x)

    assert 1 <= len(p.timeline.spans) <= limit


def test_one_profile_at_a_time_and_figures_after_its_end(x: Any) -> None:
    p = cuassay.profile()
    p.start()
    with pytest.raises(StateError, match="recorded already; end it first"):
        cuassay.profile().start()
    with pytest.raises(StateError, match="has not ended"):
        p.table()
    p.stop()
    with pytest.raises(ArgumentError, match="a table is by op, kernel, site; got 'shape'"):
        p.table("shape")

    first = cuassay.profile(gives_way=True)
    first.start()
    ops.exp(x)
    with cuassay.profile() as second:
        ops.mul(x, x)
    first.stop()
    assert (named(first.timeline, "op"), named(second.timeline, "op")) == (["exp"], ["mul"])


def test_profile_records_once_and_leaves_room_for_another(x: Any) -> None:
    with cuassay.profile() as profile:
        ops.exp(x)
    with pytest.raises(StateError, match=r"has ended; .* make another"), profile:
        ops.mul(x, x)
    with cuassay.profile() as other:
        ops.add(x, x)

    assert (named(profile.timeline, "op"), named(other.timeline, "op")) == (["exp"], ["add"])


@pytest.mark.parametrize("is_first", [True, False], ids=["before any op", "after an op"])
def test_range_that_is_open_when_the_profile_ends_lasts_until_then(x: Any, is_first: bool) -> None:
    with cuassay.profile() as profile:
        if not is_first:
            ops.exp(x)
        nvtx.range_push("open")
        ops.mul(x, x)
    nvtx.range_pop()

    (span,) = (one for one in profile.timeline.spans if one.kind == "range")
    assert span.end == pytest.approx(profile.timeline.seconds)
    assert span.end >= next(one.end for one in profile.timeline.spans if one.name == "mul")


def test_profile_that_was_not_started_ends_no_other(x: Any) -> None:
    with cuassay.profile() as profile:
        with pytest.raises(StateError, match=r"not recording; .* start"):
            cuassay.profile().stop()
        ops.exp(x)

    assert named(profile.timeline, "op") == ["exp"]


def test_pinned_memory_may_be_the_first_that_is_told(x: Any) -> None:
    with cuassay.profile() as profile:
        watchers.tell(watchers.Occurrence("memory_returned", "pinned host memory", 4096, nbytes=256))
        ops.exp(x)

    assert named(profile.timeline, "op") == ["exp"]


def test_pairs_of_events_time_calls_on_kinds_that_do_not_tell(device: Device, x: Any) -> None:
    backend = devices.backend(device.kind)
    if device.kind == "cpu":
        pytest.skip("no events")
    pairs = Pairs(lambda run: run(), is_wanted=lambda _: True)
    for number in range(2):
        pair = pairs.begin((x,))
        assert pair is not None
        for _ in range(4):
            ops.mm(x, x)
        watch, mark = pair
        watch.called[watch.stop(mark)] = assembly.Way("mm"), number, NEVER

    moments = pairs.read()

    assert [(moment.name, moment.parent) for moment in moments] == [("mm", 0), ("mm", 1)]
    assert all(moment.end > moment.begin for moment in moments)
    assert moments[1].begin >= moments[0].end - 1e-9
    backend.synchronize(device.index)


# ------------------------------------------------------------------------------------------------ figures and files


def by_hand() -> Timeline:
    """An op that calls another, two kernels 2 ms apart, a copy without a length, a wait of a stream."""
    spans = [
        Span("op", "outer", "host", 0.0, 0.004, -1, 0, "a.py:1"),
        Span("op", "inner", "host", 0.001, 0.003, 0, 0, "a.py:2"),
        Span("kernel", "k", "sim:0 default stream", 0.001, 0.002, 1, 100, "a.py:2"),
        Span("op", "slow on the host", "host", 0.004, 0.0041, -1, 0, "a.py:3"),
        Span("kernel", "k", "sim:0 stream 1", 0.004, 0.005, 3, 200, "a.py:3"),
        Span("copy", "copy: to the host", "sim:0 stream 1", 0.005, 0.005, -1, 64, "a.py:4", is_timed=False),
    ]
    return Timeline(spans, [Change(0.0, "sim:0", 512, "a.py:1"), Change(0.004, "sim:0", -512, "a.py:1")], seconds=0.006)


def profile_of(timeline: Timeline) -> Any:
    p = cuassay.profile()
    p._timeline = timeline
    return p


def test_totals_count_time_once_and_self_time_apart() -> None:
    outer, inner, other = (
        next(one for one in profile_of(by_hand()).totals() if one.name == name)
        for name in ("outer", "inner", "slow on the host")
    )

    assert (outer.host_total, outer.host_self) == pytest.approx((0.004, 0.002))
    assert (inner.host_total, inner.host_self) == pytest.approx((0.002, 0.002))
    assert (outer.device_total, outer.device_self, inner.device_self) == pytest.approx((0.001, 0.0, 0.001))
    assert (inner.launches, inner.nbytes, other.launches) == (1, 100, 1)


def test_a_table_has_a_row_for_each_and_says_what_it_leaves_out() -> None:
    text = profile_of(by_hand()).table(limit=2)

    assert text.splitlines()[0].split() == ["op", "calls", "host", "self", "host", "total", "device", "self", "device",
                                            "total", "launches", "bytes", "of", "bandwidth"]  # fmt: skip
    assert "... and 2 more; give limit=" in text
    assert "6 ms in all; kernels and copies 2 ms" in text
    assert "a.py:3" in profile_of(by_hand()).table("site")


def test_the_share_of_bandwidth_is_that_of_kernels_whose_bytes_are_known() -> None:
    timeline = by_hand()
    timeline.bandwidths = {"sim:0": 400e3}
    timeline.spans.append(Span("kernel", "unknown", "cuda:0 stream 1", 0.005, 0.006, -1, 200))
    timeline.spans.append(Span("kernel", "k", "sim:0 stream 1", 0.005, 0.006, -1, 0))
    timeline.spans.append(Span("kernel", "k", "sim:0 stream 1", 0.006, 0.006, -1, 500, is_timed=False))

    shares = {total.name: total.of_bandwidth for by in ("op", "kernel") for total in totals(timeline, by)}

    assert shares["inner"] == pytest.approx(100 / 400)
    assert shares["k"] == pytest.approx(300 / 800)
    assert [shares[name] for name in ("outer", "copy: to the host", "unknown")] == [None, None, None]
    assert "  25.0%" in profile_of(timeline).table()


def test_a_kernel_of_the_simulated_device_has_the_share_of_its_model(device: Device, x: Any) -> None:
    if device.kind != "sim":
        pytest.skip("no model of its times")
    with cuassay.profile(device) as p:
        ops.add(x, x)

    (total,) = p.totals("kernel")
    (span,) = [one for _, one in p.timeline.of_kinds(["kernel"])]
    assert total.of_bandwidth == pytest.approx(3 * x.nbytes / 4.8e12 / span.seconds)


def test_calls_that_events_time_have_the_bytes_of_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    x = from_host(np.ones((32, 32), np.float32), "sim:0")
    monkeypatch.setattr(watchers, "tell", lambda occurrence: None)  # what the machine tells of its kernels
    monkeypatch.setattr(recorder, "needs_pairs", lambda backend: True)
    with cuassay.profile("sim") as p:
        for _ in range(2):
            ops.add(x, x)
        ops.transpose(x, axis0=0, axis1=1)
        ops.foreach_max([x, x[0]])

    moved = [(span.name, span.nbytes) for _, span in p.timeline.of_kinds(["kernel"])]
    assert moved == [("add", 3 * x.nbytes)] * 2 + [("transpose", 0), ("foreach_max", 0)]


def test_an_idle_gap_is_named_by_what_the_host_did() -> None:
    (gap,) = idle_gaps(by_hand())

    assert (gap.device, gap.seconds) == ("sim:0", pytest.approx(0.002))
    assert gap.reason == "outer at a.py:1"


@pytest.mark.parametrize(
    ("of_other_thread", "reason"),
    [
        ((0.005, 0.1), "b"),
        ((0.085, 0.1), "outside of calls, after a, before b"),
        ((0.02, 0.04), "outside of calls, after b"),
    ],
)
def test_an_idle_gap_is_named_by_the_calls_of_all_threads(of_other_thread: tuple[float, float], reason: str) -> None:
    kernels = [Span("kernel", "k", "sim:0 default stream", *times) for times in ((0.0, 0.008), (0.09, 0.091))]
    calls = [Span("op", "a", "host", 0.0, 0.01), Span("op", "b", "host thread 2", *of_other_thread)]

    (gap,) = idle_gaps(Timeline([*kernels, *calls], seconds=0.1))

    assert gap.reason.startswith(reason)


def test_a_trace_has_each_span_once_in_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    profile_of(by_hand()).export_chrome_trace(path)

    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert sorted((event["name"], event["ts"], event["dur"]) for event in spans if event["name"] == "inner") == [
        ("inner", 1000, 2000)
    ]
    assert len(spans) == sum(span.is_timed for span in by_hand().spans)
    assert {event["ph"] for event in events} >= {"X", "M", "C", "i"}
    assert all({"ph", "pid"} <= event.keys() for event in events)


def test_a_page_needs_no_other_file_and_takes_any_name(tmp_path: Path) -> None:
    timeline = by_hand()
    timeline.spans[0].name = "</script><b>&\u2028"
    path = tmp_path / "page.html"
    profile_of(timeline).html(path, title="<a & b>")

    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(http|//)", text)
    assert "</script><b>" not in text
    assert "&lt;a &amp; b&gt;" in text


def test_real_work_makes_a_trace_and_a_page(device: Device, x: Any, tmp_path: Path) -> None:
    with cuassay.profile(device) as p:
        for _ in range(20):
            ops.mul(ops.add(x, 1.0), x)

    p.export_chrome_trace(tmp_path / "trace.json")
    p.html(tmp_path / "page.html")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == sum(span.is_timed for span in p.timeline.spans)
    assert (tmp_path / "page.html").stat().st_size > 2_000
    assert re.fullmatch(r"profile\([\d,]+ spans, [\d.]+ [mun]?s( of virtual time)?\)", repr(p))
    assert any(span.kind in DEVICE_KINDS for span in p.timeline.spans) == (device.kind != "cpu")
