"""Work that a call leaves on other streams: no sample would contain it, so that the call would seem too fast.

A sample ends when the current stream has come to its end event. All other streams must have ended by then. This is
asked with the calls before the warm-up, by how long the host waits for the whole device after it has waited for the
current stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend, Spinning
from cuassay.errors import MeasurementError

__all__ = ["call_first"]

#: The host may wait this much longer for the device than for the stream: seconds, and as a share of the call's time. An
#: idle H200 takes 3 to 6 µs to answer, and its host may be interrupted.
_ALLOWED_S, _ALLOWED_SHARE = 20e-6, 0.02

#: Further calls before one is refused: work that is left is left by each of them, an interrupted host is not.
_MORE = 12


def call_first(
    name: str, call: Callable[[], Any], backend: Backend, index: int, calls: int, *, joined: bool = True
) -> None:
    """Make the calls before the warm-up; with `joined`, refuse one that leaves work on other streams each time.

    Raises
    ------
    MeasurementError
        It does.
    """
    if not joined or not isinstance(backend, Spinning):  # of which each call is over when it returns
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
    """Seconds for which other streams were at work after the current one had ended; 0 within what is allowed."""
    clock, is_modelled = getattr(backend, "now_s", time.perf_counter), hasattr(backend, "now_s")
    end, begun = backend.new_event(index), clock()
    call()
    end.record()
    end.synchronize()
    ended = clock()
    backend.synchronize(index)
    all_ended = clock()
    backend.synchronize(index)  # how long that takes if nothing is left
    left_s = (all_ended - ended) - (clock() - all_ended)
    allowed_s = 0.0 if is_modelled else max(_ALLOWED_S, _ALLOWED_SHARE * (ended - begun))
    return left_s if left_s > allowed_s else 0.0
