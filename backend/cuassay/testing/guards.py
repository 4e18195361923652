"""What a test must leave as it found it: device memory, the current stream, the precision mode.

Every generated check runs inside `guarded`. A test of one's own may do the same.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cuassay import devices
from cuassay.core.capability import format_bytes
from cuassay.core.device import Device
from cuassay.core.precision import current_precision

__all__ = ["guarded", "memory_returned", "precision_kept", "stream_kept"]


@contextmanager
def guarded(device: str | Device) -> Iterator[None]:
    """All guards of this module at once; `AssertionError` names what was left behind."""
    with ExitStack() as stack:
        for guard in (memory_returned, stream_kept):
            stack.enter_context(guard(device))
        stack.enter_context(precision_kept())
        yield


@contextmanager
def memory_returned(device: str | Device) -> Iterator[None]:
    """Fail when more device memory is in use after the block than before.

    Asked of kinds whose backend has ``memory_in_use(index)``: live bytes of this process. Free memory as the driver
    tells it is no measure: pools keep it, other processes take it.
    """
    found = Device(device)
    in_use = getattr(devices.backend(found.kind), "memory_in_use", None)
    before = 0 if in_use is None else in_use(found.index)
    yield
    if in_use is None or in_use(found.index) <= before:
        return
    gc.collect()  # arrays in reference cycles are no leak
    left = in_use(found.index) - before
    if left > 0:
        raise AssertionError(
            f"{found}: {format_bytes(left)} ({left:,} bytes) of device memory are still in use after the test"
        )


@contextmanager
def stream_kept(device: str | Device) -> Iterator[None]:
    """Fail when the block leaves another stream current."""
    found = Device(device)
    backend = devices.backend(found.kind)
    before = backend.current_stream(found.index)
    yield
    after = backend.current_stream(found.index)
    if after != before:
        raise AssertionError(f"{found}: the current stream is {after!r} after the test, it was {before!r}")


@contextmanager
def precision_kept() -> Iterator[None]:
    """Fail when the block leaves another precision mode in force."""
    before = current_precision()
    yield
    if current_precision() != before:
        raise AssertionError(f"the precision mode is {current_precision()!r} after the test, it was {before!r}")
