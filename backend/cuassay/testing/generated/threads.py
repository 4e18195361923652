"""A check of threads: between any two lines, a call in one thread is interrupted by a whole call in another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.execution import check, explained, is_function, refusal_of, run_sample, turned, verify
from cuassay.testing.generated.named import unwrapped
from cuassay.testing.generated.selection import by_options, one, plainest
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

#: The most lines before which a call is interrupted, and seconds after which the other thread is taken to be blocked.
_LINES, _LOCK_S = 24, 0.2

#: The most elements of a call; it runs once for each interruption.
_MOST = 2**14

Tracer = Callable[[FrameType, str, Any], Any]


@check(lambda spec: is_function(spec) and spec.deterministic)
def check_threads(spec: OpSpec, device: Device) -> None:
    """Calls in two threads do not disturb each other, so they pass no arguments or results through global variables."""
    code = getattr(unwrapped(spec.fn), "__code__", None)
    if code is None:
        return
    dtype = plainest(spec, device)
    several = by_options(spec, device, dtype, most=_MOST)
    sample, other = several[:2] if len(several) > 1 else (found := one(spec, device, dtype, most=_MOST), turned(found))
    if refusal_of(spec, other) is not None:
        return
    with np.errstate(all="ignore"):
        run_sample(spec, device, sample), run_sample(spec, device, other)
    _check_interrupted(spec, device, dtype, sample, other, code)


def _check_interrupted(spec: OpSpec, device: Device, dtype: Any, sample: Sample, other: Sample, code: CodeType) -> None:
    def interrupt() -> None:
        thread = threading.Thread(target=_call, args=(spec, device, other), daemon=True)
        thread.start()
        thread.join(_LOCK_S)
        waiting.append(thread)

    waiting: list[threading.Thread] = []
    sentence = (
        "right alone, wrong while another thread calls it: it stores data of a call in a global variable\n"
        f"  the other call: {other.label}"
    )
    try:
        with (
            explained(sentence, lambda: verify(spec, device, dtype, [sample])),
            _interrupted(code.co_filename, interrupt),
        ):
            verify(spec, device, dtype, [sample])
    finally:
        for thread in waiting:
            thread.join(_LOCK_S)


def _call(spec: OpSpec, device: Device, sample: Sample) -> None:
    try:
        run_sample(spec, device, sample)
    except Exception:  # noqa: BLE001  only the result of the interrupted call is checked
        return


@contextmanager
def _interrupted(filename: str, interrupt: Callable[[], None]) -> Iterator[None]:
    """Run `interrupt` before each line of `filename` that this thread meets for the first time."""
    met: set[tuple[CodeType, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Tracer | None:
        if frame.f_code.co_filename != filename:
            return None
        place = frame.f_code, frame.f_lineno
        if event == "line" and place not in met and len(met) < _LINES:
            met.add(place)
            interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
