"""The sanitizer over the simulated device, which computes on as a real one does: what it sees, and what not."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import ops
from cuassay.core import watchers
from cuassay.core.watchers import Occurrence
from cuassay.cuda import _sanitizer
from cuassay.devices.sim import BACKEND
from cuassay.errors import RaceError, ShapeError, StateError
from cuassay.observe import touched
from cuassay.observe.sanitizer import Sanitizer, sanitized, summary
from cuassay.ops import Op
from cuassay.ops.plan import Plan


@pytest.fixture(autouse=True)
def machine() -> Iterator[Any]:
    with BACKEND.simulated(devices=2, memory=2**20, finds_races=False) as backend:
        yield backend


@pytest.fixture
def sanitizer() -> Iterator[Sanitizer]:
    with sanitized() as on:
        yield on


def done(value: float = 1.0, index: int = 0) -> Any:
    array = BACKEND.from_host(np.full(4, value, np.float32), index)
    BACKEND.synchronize(index)
    return array


def write(array: Any) -> Any:
    """`array` written on a stream of its own."""
    with BACKEND.use_stream(BACKEND.new_stream(0)) as stream:
        ops.mul(array, 2.0, out=array)
    return stream


# ------------------------------------------------------------------------------------------------ on and off


def test_calls_and_plans_are_the_plain_functions_again_when_it_is_off() -> None:
    plain = Op.__call__, Plan.run

    with sanitized():
        assert Op.__call__ is not plain[0]
        assert Plan.run is not plain[1]

    assert (Op.__call__, Plan.run) == plain


def test_off_the_machine_computes_on() -> None:
    array = done()
    write(array)

    ops.add(array, 1.0)


def test_it_is_started_once_and_stopped_any_number_of_times() -> None:
    sanitizer = Sanitizer()
    sanitizer.start()
    with pytest.raises(StateError, match="is on already"):
        sanitizer.start()
    sanitizer.stop()
    sanitizer.stop()

    assert "off, 0 found" in repr(sanitizer)


def test_a_profile_and_a_sanitizer_end_in_any_order() -> None:
    plain, sanitizer, profile = Op.__call__, Sanitizer(), cuassay.profile()
    profile.start()
    sanitizer.start()
    profile.stop()
    array = done()
    write(array)
    with pytest.raises(RaceError):
        ops.add(array, 1.0)
    sanitizer.stop()

    assert Op.__call__ is plain


def test_an_early_free_is_raised_at_the_end_of_the_block_at_the_latest() -> None:
    def work() -> None:
        with sanitized():
            array = done()
            write(array)
            del array

    with pytest.raises(RaceError, match="early free"):
        work()


def test_kinds_that_find_races_themselves_are_left_alone() -> None:
    with BACKEND.simulated(devices=1), sanitized() as sanitizer:
        array = done()
        write(array)
        with pytest.raises(RaceError):
            ops.add(array, 1.0)
        assert sanitizer.engine.found == []


def test_an_array_of_the_machine_outside_dropped_inside_is_no_early_free_inside() -> None:
    outside = [done()]
    with BACKEND.simulated(devices=1, finds_races=False), sanitized() as sanitizer:
        inside = done()
        write(inside)
        outside.clear()
        gc.collect()
        BACKEND.synchronize(0)
        assert sanitizer.engine.found == []


def test_work_of_the_machine_outside_is_not_held_against_the_one_inside() -> None:
    with sanitized() as sanitizer:
        outside = done()
        write(outside)
        with BACKEND.simulated(devices=2, memory=2**20, finds_races=False):
            inside = done()
            ops.add(inside, 1.0)
            BACKEND.synchronize(0)
            write(inside)
            with pytest.raises(RaceError):
                ops.add(inside, 1.0)
        again = done()
        ops.add(again, 1.0)
        BACKEND.synchronize(0)
        write(again)
        with pytest.raises(RaceError):
            ops.add(again, 1.0)

    assert len(sanitizer.engine.found) == 2


# ------------------------------------------------------------------------------------------------ calls


def test_a_call_that_is_refused_says_what_it_says_otherwise(sanitizer: Sanitizer) -> None:
    with pytest.raises(ShapeError):
        ops.add(done(), BACKEND.from_host(np.ones(3, np.float32), 0))
    with pytest.raises(cuassay.errors.ArgumentError):
        ops.add(done())


def test_a_race_is_raised_before_the_call_runs(sanitizer: Sanitizer) -> None:
    array, out = done(), done(5.0)
    stream = write(array)

    with pytest.raises(RaceError):
        ops.add(array, 1.0, out=out)

    stream.synchronize()
    assert out.get().tolist() == [5.0] * 4


def test_the_line_is_the_callers(sanitizer: Sanitizer) -> None:
    array = done()
    write(array)

    with pytest.raises(RaceError) as caught:
        ops.softmax(array, axis=0)

    assert str(caught.value).count(f"{__file__}:") == 2
    assert "read by softmax" in str(caught.value)


def test_calls_inside_a_call_are_the_outer_one(sanitizer: Sanitizer) -> None:
    square = BACKEND.from_host(np.ones((4, 4), np.float32), 0)
    made = ops.linear(square, square, done())

    with BACKEND.use_stream(BACKEND.new_stream(0)), pytest.raises(RaceError, match="write by linear"):
        ops.add(made, 1.0)


def test_calls_of_every_thread_are_judged(sanitizer: Sanitizer) -> None:
    array, caught = done(), list[BaseException]()
    write(array)

    def work() -> None:
        try:
            ops.add(array, 1.0)
        except RaceError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert len(caught) == 1


def test_a_copy_to_another_device_is_ordered_with_both(sanitizer: Sanitizer) -> None:
    source, target = done(), done(0.0, 1)

    ops.copy(source, out=target)
    target.fill(1.0)
    source.fill(1.0)

    with BACKEND.use_stream(BACKEND.new_stream(1)), pytest.raises(RaceError, match="sim:1: write by fill"):
        target.fill(2.0)


def test_arrays_on_the_cpu_are_not_looked_at(sanitizer: Sanitizer) -> None:
    a = np.ones(4, np.float32)

    ops.add(a, a, out=a)

    assert len(sanitizer.engine) == 0


def touched_by(op: Any, *args: Any, out: Any = None, **scalars: Any) -> list[tuple[Any, bool]]:
    return touched.by_call(op, args, out, scalars)


def test_operands_are_read_out_and_updated_arrays_are_written_and_numbers_are_nothing() -> None:
    a, b, c = done(), done(), done()

    assert touched_by(ops.add, a, b) == [(a, False), (b, False)]
    assert touched_by(ops.add, a, 2.0, out=c) == [(a, False), (2.0, False), (c, True)]
    assert touched_by(ops.foreach_mul_, [a, b], c) == [(a, True), (b, True), (c, False)]
    assert touched.located([(2.0, False)]) is None


def test_a_view_touches_nothing_and_is_a_copy_with_out() -> None:
    a, c = (
        cuassay.from_host(np.ones((2, 3), np.float32), "sim:0"),
        cuassay.from_host(np.ones((3, 2), np.float32), "sim:0"),
    )
    plan = ops.permute.prepare(a, axes=(1, 0))

    assert touched_by(ops.permute, a, axes=(1, 0)) == []
    assert touched.by_schema(plan.op, plan.bound, plan.out) == []
    assert touched_by(ops.permute, a, axes=(1, 0), out=c) == [(a, False), (c, True)]


def test_a_call_that_does_not_fit_touches_nothing() -> None:
    assert touched_by(ops.add, done()) == []


# ------------------------------------------------------------------------------------------------ memory, graphs


def test_arrays_in_reference_cycles_that_are_collected_during_a_call_are_entered_after_it(
    sanitizer: Sanitizer,
) -> None:
    former = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            cycle: list[Any] = [done()]
            cycle.append(cycle)
            del cycle
            ops.add(done(), 1.0)
    finally:
        gc.set_threshold(*former)
    gc.collect()
    BACKEND.synchronize(0)

    assert sanitizer.engine.found == []


def test_what_a_finaliser_gives_back_while_the_engine_works_is_entered_after(sanitizer: Sanitizer) -> None:
    array = done()
    with sanitizer._working():
        watchers.tell(Occurrence("memory_returned", "sim:0", array.span.low, 0, 256))
        during = len(sanitizer.engine)

    assert (during, len(sanitizer.engine)) == (1, 0)


def test_graphs_that_were_captured_before_are_counted() -> None:
    array, stream = done(), BACKEND.new_stream(0)
    graph = BACKEND.new_capture(0)
    graph.begin(stream)
    ops.mul(array, 2.0, out=array)
    graph.end()

    with sanitized() as sanitizer:
        graph.replay()

    assert summary(sanitizer) == [
        "cuassay sanitizer: 0 errors found",
        "cuassay sanitizer: not seen: 1 replays of graphs that were captured before the sanitizer was on",
    ]


def test_a_capture_that_fails_leaves_its_stream_free(sanitizer: Sanitizer) -> None:
    array, stream, graph = done(), BACKEND.new_stream(0), BACKEND.new_capture(0)
    graph.begin(stream)
    with pytest.raises(cuassay.errors.CaptureError):
        stream.synchronize()
    with pytest.raises(cuassay.errors.CaptureError):
        graph.end()

    with BACKEND.use_stream(stream):
        array.fill(2.0)

    with pytest.raises(RaceError):
        ops.add(array, 1.0)


def test_inside_a_quiet_block_nothing_is_raised_and_later_work_is_judged(sanitizer: Sanitizer) -> None:
    array = done()
    with sanitizer.quiet():
        write(array)
        ops.add(array, 1.0)
    assert sanitizer.engine.found == []

    write(array)
    with pytest.raises(RaceError):
        ops.add(array, 1.0)


# ------------------------------------------------------------------------------------------------ by torch's names


def test_the_face_judges_until_it_is_disabled_and_tells_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    plain = Op.__call__
    _sanitizer.enable_cuda_sanitizer()
    _sanitizer.enable_cuda_sanitizer()
    try:
        array = done()
        write(array)
        with pytest.raises(RaceError):
            ops.add(array, 1.0)
    finally:
        _sanitizer.disable_cuda_sanitizer()
    _sanitizer.disable_cuda_sanitizer()

    assert Op.__call__ is plain
    assert capsys.readouterr().err == "cuassay sanitizer: 1 error found\n"


def test_torchs_setting_turns_it_on_at_import() -> None:
    command, env = [sys.executable, "-c", "import cuassay"], {**os.environ, "TORCH_CUDA_SANITIZER": "1"}
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)

    assert found.stderr.splitlines() == [
        "cuassay sanitizer: 0 errors found",
        "cuassay sanitizer: nothing was checked: no work on a CUDA device was seen",
    ]


def test_memory_of_a_stream_that_was_never_met_goes_back_without_a_question(
    sanitizer: Sanitizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken before; its stream may be gone, and CUDA's driver crashes where it is asked for one that is gone."""
    asked: list[int] = []
    monkeypatch.setattr(BACKEND, "stream_facts", lambda index, number: asked.append(number))

    watchers.tell(Occurrence("memory_returned", "sim:0", 4096, 77, 256))

    assert asked == []


def test_work_in_a_capture_of_another_library_is_not_run(sanitizer: Sanitizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy and torch capture streams without a word: the kind says whether a stream is captured."""
    captured = set[int]()
    monkeypatch.setattr(BACKEND, "is_capturing", captured.__contains__, raising=False)
    array = done()
    writer = write(array)
    other = BACKEND.new_stream(0)
    with BACKEND.use_stream(other):
        captured.add(BACKEND.current_number(0))
        ops.mul(array, 2.0, out=array)
        captured.clear()
        with pytest.raises(RaceError, match="not ordered after the write"):
            ops.mul(array, 2.0, out=array)
        captured.add(BACKEND.current_number(0))
        ops.mul(array, 2.0, out=array)
        captured.clear()
        other.wait_stream(writer)
        ops.mul(array, 2.0, out=array)

    assert sanitizer.unseen() == {"graphs that other libraries captured: their replays are not reported": 2}


def test_the_copies_of_a_functional_form_are_written_by_its_call(sanitizer: Sanitizer) -> None:
    array = done()
    with BACKEND.use_stream(BACKEND.new_stream(0)):
        (copied,) = ops.foreach_mul_.functional([array], 2.0)
    ops.add(array, 1.0)  # the array itself is only read there

    with pytest.raises(RaceError, match=r"foreach_mul_\.functional"):
        ops.add(copied, 1.0)
