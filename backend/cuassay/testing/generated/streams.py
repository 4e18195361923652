"""Checks of how work is queued: on side streams, on two streams in turn, in a captured graph, without host waits."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from cuassay import devices
from cuassay.core import syncdebug
from cuassay.core.device import Device
from cuassay.core.protocols import Spinning
from cuassay.errors import RaceError, SynchronizationError
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import (
    check,
    explained,
    is_function,
    is_safely_taken,
    on_sample,
    overwrite,
    refusal_of,
    turned,
    verify,
)
from cuassay.testing.generated.extents import longest_axis, resized
from cuassay.testing.generated.selection import one, plainest
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

#: Cycles for which the default stream is kept busy: about 5 ms, so that work queued there by mistake comes too late.
_BUSY = 10_000_000


@check(needs=("streams",))
def check_side_stream(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The result is right on a stream that waits for its inputs, and then on a second one that makes its own inputs."""
    backend = devices.backend(device.kind)
    sample = one(spec, device, dtype)
    with on_sample(sample), backend.activate(device.index), _waits_after_errors(device), np.errstate(all="ignore"):
        spec.run(device, *sample.on(device))  # creates what the function caches, on the default stream
        backend.synchronize(device.index)
        main = backend.current_stream(device.index)
        sides = [backend.new_stream(device.index) for _ in range(2)]
        given = sample.on(device)
        sides[0].wait_stream(main)
        if isinstance(backend, Spinning):
            backend.spin(device.index, _BUSY)
        found = []
        for side in sides:
            with backend.use_stream(side):
                result = spec.run(device, *(given if side is sides[0] else sample.on(device)))
                found.append((result, devices.to_host(result) if hasattr(result, "shape") else result))
        fresh = _run_new_size(spec, device, sample, sides)
        for side in sides:
            main.wait_stream(side)
        backend.synchronize(device.index)
        for size, result in fresh if _is_right_on_host(spec, dtype, fresh) else ():
            with on_sample(size), explained(_TWO_STREAMS, functools.partial(verify, spec, device, dtype, [size])):
                compare(spec, device, dtype, size, result)
        plain = functools.partial(verify, spec, device, dtype, [sample])
        for result, read in found:
            with explained("on a stream other than the default one, while the default one is busy", plain):
                compare(spec, device, dtype, sample, result)
            if hasattr(result, "shape"):
                _check_read(read, devices.to_host(result))


@contextmanager
def _waits_after_errors(device: Device) -> Iterator[None]:
    """Wait for the device after an error: inputs freed while a side stream uses them are a race in the next test."""
    try:
        yield
    except Exception:
        with suppress(Exception):  # the first error says more
            devices.backend(device.kind).synchronize(device.index)
        raise


_TWO_STREAMS = (
    "called first on one stream and then on another, which does not wait for the first: what the function makes once "
    "and keeps, such as a table, must be waited for"
)


def _is_right_on_host(spec: OpSpec, dtype: Any, fresh: Sequence[tuple[Sample, Any]]) -> bool:
    """Whether sizes that nobody declared are right on the host; if they are not, `sizes` reports that."""
    try:
        verify(spec, Device("cpu"), dtype, [size for size, _ in fresh])
    except AssertionError:
        return False
    except Exception:  # noqa: BLE001  a function for one library may reject the host's arrays in any way
        return True
    return True


def _run_new_size(spec: OpSpec, device: Device, sample: Sample, streams: Sequence[Any]) -> list[tuple[Sample, Any]]:
    """Call the function on two streams with a size that no test has used, so that it fills its caches here."""
    backend = devices.backend(device.kind)
    extent = longest_axis(sample)
    if spec.op is not None or extent < 2:
        return []
    size = resized(sample, {extent: extent + _MORE})
    if not is_safely_taken(spec, size):
        return []
    found: list[tuple[Sample, Any]] = []
    for stream in streams:
        with backend.use_stream(stream):
            args, kwargs = size.on(device)
            if isinstance(backend, Spinning) and not found:
                backend.spin(device.index, _BUSY)
            try:
                found.append((size, spec.run(device, args, kwargs)))
            except RaceError as race:
                if "write by copy of" in str(race) and " not ordered after the read" in str(race):
                    return []  # the input of a captured graph: callers must not use it on two streams at once
                raise
    return found


#: Added to the extent; no other check uses such a size. It is constant, so that a cached table is not made again when
#: the leak guard repeats the check.
_MORE = 7


def _check_read(read: Any, now: Any) -> None:
    try:
        assert_same_bits(read, now)
    except AssertionError as error:
        raise AssertionError(
            "the result was not ready on the stream that was current: the function queues work on another stream; "
            f"launch on the current stream, or make it wait for the other\n{error}"
        ) from None


@check(is_function, needs=("graphs",))
def check_captured(spec: OpSpec, device: Device) -> None:
    """A function captured in a graph, and replayed after its inputs have changed, computes with the new numbers."""
    backend = devices.backend(device.kind)
    dtype = plainest(spec, device)
    sample = one(spec, device, dtype, most=4096)
    other = turned(sample)
    if refusal_of(spec, other) is not None:
        return
    with on_sample(sample), backend.activate(device.index), _waits_after_errors(device), np.errstate(all="ignore"):
        args, kwargs = sample.on(device)
        main, side = backend.current_stream(device.index), backend.new_stream(device.index)
        side.wait_stream(main)
        capture = backend.new_capture(device.index)
        try:
            with backend.use_stream(side):
                spec.run(device, args, kwargs)
                side.synchronize()
                with _capturing(spec, capture):
                    result = spec.run(device, args, kwargs)
                overwrite(device, args, other)
                capture.replay()
            side.synchronize()
            with explained("captured in a graph, and replayed after its inputs had changed"):
                compare(spec, device, dtype, other, result)
        finally:  # a capture left open would fail every test after this one
            capture.reset()


@contextmanager
def _capturing(spec: OpSpec, capture: Any) -> Iterator[None]:
    """Capture what runs inside; skip the test, with the line that fails, if it cannot be captured."""
    capture.begin()
    try:
        yield
        capture.end()
    except (AssertionError, RaceError):
        raise
    except Exception as error:  # noqa: BLE001  libraries raise errors of different types
        reason = str(error).partition("\n")[0]
        pytest.skip(f"{spec.name} cannot be captured: {_location(spec, error)}{reason}")


def _location(spec: OpSpec, error: BaseException) -> str:
    """The last line in the function's file at which `error` passed, as a prefix; empty if there is none."""
    code = getattr(spec.fn, "__code__", None)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if code and frame.filename == code.co_filename
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


#: The number of calls that must not wait. A function that logs a number every tenth call waits in one of them.
_CALLS = 16


@check(lambda spec: spec.op is None and not spec.waits, needs=("streams",))
def check_waits(spec: OpSpec, device: Device, dtype: Any) -> None:
    """A function that declares `waits=False` does not make the host wait for the device in 16 calls in a row."""
    if device.kind == "cpu":
        pytest.skip(f"{device}: a call returns when its work is done; there is nothing to wait for")
    sample = one(spec, device, dtype, most=4096)
    with on_sample(sample), np.errstate(all="ignore"):
        args, kwargs = sample.on(device)
        spec.run(device, args, kwargs)  # the first call may wait, because it compiles and tunes
        devices.backend(device.kind).synchronize(device.index)
        before = syncdebug.get_mode()
        syncdebug.set_mode("error")
        try:
            for _ in range(_CALLS):
                spec.run(device, args, kwargs)
        except SynchronizationError as error:
            raise AssertionError(f"waits=False, but {_location(spec, error)}{error}") from error
        finally:
            syncdebug.set_mode(before)
