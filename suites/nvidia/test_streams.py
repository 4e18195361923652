"""Streams of others on a CUDA device: adopted by address, by CuPy's object, by ``__cuda_stream__``; never destroyed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import devices, ops
from cuassay.devices.cuda.stream import ExternalStream, adopt
from cuassay.errors import ArgumentError, CaptureError

BACKEND = devices.backend("cuda")


class Foreign:
    """What another library's stream shows of itself."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.ptr


class ForeignProperty(Foreign):
    """The older form: an attribute instead of a method."""

    @property
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.ptr


FORMS: dict[str, Callable[[Any], Any]] = {
    "CuPy's": lambda stream: stream,
    "an address": lambda stream: stream.ptr,
    "__cuda_stream__()": Foreign,
    "__cuda_stream__": ForeignProperty,
}


@pytest.fixture
def theirs() -> Any:
    reason = BACKEND.why_absent()
    if reason is not None:
        pytest.skip(f"no CUDA device: {reason}")
    return cupy.cuda.Stream(non_blocking=True)


@pytest.mark.parametrize("junk", [None, True, 1.5, "stream", object()], ids=repr)
def test_what_is_no_stream_is_refused(junk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)

    with pytest.raises(ArgumentError, match="is no CUDA stream"):
        adopt(junk)


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_others_is_used_by_its_address(form: str, theirs: Any) -> None:
    given = FORMS[form](theirs)

    with BACKEND.use_stream(given) as adopted:
        assert cupy.cuda.get_current_stream().ptr == theirs.ptr
        result = ops.add(cupy.ones(3), cupy.ones(3))

    assert adopted.ptr == theirs.ptr
    assert adopted.device.kind == "cuda"
    assert result.tolist() == [2, 2, 2]


def test_one_of_ours_is_adopted_as_it_is(theirs: Any) -> None:
    ours = BACKEND.new_stream(0)

    assert adopt(ours) is ours


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_others_outlives_its_wrapper(form: str, theirs: Any) -> None:
    wrapper = adopt(FORMS[form](theirs))

    del wrapper
    gc.collect()

    with theirs:
        assert (cupy.ones(3) + 1).tolist() == [2, 2, 2]
    theirs.synchronize()


def test_a_wrapper_keeps_its_owner_alive(theirs: Any) -> None:
    wrapper = adopt(Foreign(cupy.cuda.Stream(non_blocking=True)))
    gc.collect()

    wrapper.synchronize()

    assert isinstance(wrapper, ExternalStream)
    assert wrapper.query() is True


def test_the_current_stream_is_cupys(theirs: Any) -> None:
    with theirs:
        inside = BACKEND.current_stream(0)

    assert inside.ptr == theirs.ptr
    assert BACKEND.current_stream(0).ptr == cupy.cuda.get_current_stream().ptr


def test_cupys_current_stream_is_ours_inside_use_stream(theirs: Any) -> None:
    ours = BACKEND.new_stream(0)

    with BACKEND.use_stream(ours):
        assert cupy.cuda.get_current_stream().ptr == ours.ptr


def test_a_wait_for_a_stream_of_others_is_ordered(theirs: Any) -> None:
    main = BACKEND.current_stream(0)
    a = cupy.ones(1_000_000, cupy.float32)
    theirs.wait_event(main.record_event())
    with theirs:
        for _ in range(20):
            a += 1
    main.wait_stream(theirs)

    assert float(a.max()) == float(a.min()) == 21


def test_a_capture_dropped_while_open_leaves_the_thread_able_to_allocate(theirs: Any) -> None:
    with BACKEND.use_stream(theirs):
        capture = BACKEND.new_capture(0)
        capture.begin()
        del capture
        gc.collect()
        fresh = cupy.zeros(12_345, cupy.float32)

    assert not theirs.is_capturing()
    assert float(fresh.sum()) == 0


def test_a_call_that_cannot_be_captured_is_told_at_the_end_and_forgotten_then(theirs: Any) -> None:
    with BACKEND.use_stream(theirs):
        capture = BACKEND.new_capture(0)
        capture.begin()
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            theirs.synchronize()
        with pytest.raises(CaptureError, match="cannot be captured"):
            capture.end()
        assert cupy.ones(3).tolist() == [1, 1, 1]
