"""Detect work that a call leaves on other streams. Samples would not include it, so the call would seem too fast.

A sample ends when the current stream reaches its end event. All other streams must be finished by then. The calls
before the warm-up check this by how long the host waits for the whole device after it has waited for the current
stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend, Spinning
from cuassay.errors import MeasurementError

__all__ = ["call_first"]

#: How much longer the host may wait for the device than for the stream: in seconds, and as a fraction of the call's
#: time. An idle H200 takes 3 to 6 µs to answer, and its host may be interrupted.
_ALLOWED_S, _ALLOWED_SHARE = 20e-6, 0.02

#: How many more calls are tried before an error: every one of them leaves work, but the host is not always interrupted.
_MORE = 12


def call_first(
    name: str, call: Callable[[], Any], backend: Backend, index: int, calls: int, *, joined: bool = True
) -> None:
    """Make the calls before the warm-up. With `joined`, reject a call that always leaves work on other streams.

    Raises
    ------
    MeasurementError
        If every call leaves work on other streams.
    """
    if not joined or not isinstance(backend, Spinning):  # without `Spinning`, a call is finished when it returns
        for _ in range(calls):
            call()
        return
    left_s = min([_left_s(call, backend, index) for _ in range(calls)])
    for _ in range(_MORE):
        if left_s > 0:
            left_s = min(left_s, _left_s(call, backend, index))
    if left_s > 0:
        raise MeasurementError(
            f"{name} leaves work on another stream of {Device(backend.kind, index)}: it ran for {left_s * 1e6:.0f} µs "
            "after the current stream had ended, and no sample contains it; let the current stream wait for it with "
            "wait_stream, or give joined=False to time the current stream alone"
        )


def _left_s(call: Callable[[], Any], backend: Backend, index: int) -> float:
    """Return the seconds for which other streams worked after the current one had finished; 0 if within tolerance."""
    clock, is_modelled = getattr(backend, "now_s", time.perf_counter), hasattr(backend, "now_s")
    end, begun = backend.new_event(index), clock()
    call()
    end.record()
    end.synchronize()
    ended = clock()
    backend.synchronize(index)
    all_ended = clock()
    backend.synchronize(index)  # measures how long this takes when no work is left
    left_s = (all_ended - ended) - (clock() - all_ended)
    allowed_s = 0.0 if is_modelled else max(_ALLOWED_S, _ALLOWED_SHARE * (ended - begun))
    return left_s if left_s > allowed_s else 0.0
