"""The backend of kind `meta`: one device that holds no values and runs no work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

from cuassay.arrays import layout
from cuassay.arrays.dtypes import as_dtype
from cuassay.core.capability import FEATURES, NOT_DRAWN, Answer, absent, present
from cuassay.core.device import Device
from cuassay.devices.meta import headers
from cuassay.devices.meta.array import MetaArray, no_values
from cuassay.devices.meta.namespace import Namespace
from cuassay.devices.meta.stream import DEVICE, MetaEvent, MetaStream
from cuassay.errors import CapabilityError

__all__ = ["MetaBackend"]

#: The features that it has; all dtypes are supported.
_PRESENT = ("streams", "events", "views", "tf32", "fp8", "complex")

_NOTHING_RUNS = "nothing runs on arrays without memory"

_default_stream = MetaStream()
_current_stream: ContextVar[MetaStream] = ContextVar("cuassay_meta_stream", default=_default_stream)


class MetaBackend:
    """The backend of kind `meta`; see `cuassay.core.protocols.Backend`."""

    kind = "meta"

    #: Its arrays are for planning: tests do not compare them, and reading their values raises.
    holds_values = False

    def __init__(self) -> None:
        self._namespace = Namespace()
        self._streams = 0

    def __repr__(self) -> str:
        return "MetaBackend()"

    def why_absent(self) -> str | None:
        """Return None, because the kind is never absent."""
        return None

    def count(self) -> int:
        """Return 1."""
        return 1

    def probe(self, index: int, name: str) -> Answer:
        """Answer that all dtypes and views are present, and that streams are present without any work."""
        if name in FEATURES and name not in _PRESENT:
            return absent(_NOTHING_RUNS)
        if name in ("compute", "l2"):
            return absent(_NOTHING_RUNS)
        if name.startswith("random:") and (dtype := name.partition(":")[2]) in NOT_DRAWN:
            return absent(NOT_DRAWN[dtype])
        return present(1 if name == "count" else 0)

    def identity(self, index: int) -> Mapping[str, str]:
        """Return a name that describes the purpose."""
        return {"name": "arrays without memory, for planning"}

    def health(self, index: int) -> str | None:
        """Return None: the device is always healthy."""
        return None

    def memory_info(self, index: int) -> tuple[int, int]:
        """Return 0 free and 0 total bytes."""
        return 0, 0

    # ---------------------------------------------------------------------------------------------- arrays

    def owns(self, array_type: type) -> bool:
        """Return whether `array_type` is `MetaArray`."""
        return issubclass(array_type, MetaArray)

    def device_of(self, array: MetaArray) -> Device:
        """Return ``meta:0``."""
        return DEVICE

    def namespace(self, index: int) -> Namespace:
        """Return NumPy's names for arrays without memory."""
        return self._namespace

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> MetaArray:
        """Return a C-contiguous array. Raises `ShapeError` for more bytes than an address can count."""
        return MetaArray(headers.empty(layout.as_shape(shape), as_dtype(dtype)))

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> MetaArray:
        """Return an array with the shape, dtype and order of axes of `array`, without its values."""
        return MetaArray(headers.kept_order(array, array.dtype))

    def to_host(self, array: MetaArray) -> Any:
        """Raise `CapabilityError`, because there are no values."""
        raise no_values(array, "to_host")

    def overlap(self, a: MetaArray, b: MetaArray) -> str:
        """As between arrays with memory: views of one array overlap where their elements do."""
        if a.memory is not b.memory or not layout.overlap(headers.header_of(a), headers.header_of(b)):
            return "none"
        same = _described(a) == _described(b)
        return "same" if same else "partial"

    # ---------------------------------------------------------------------------------------------- order

    def activate(self, index: int) -> nullcontext[None]:
        """Do nothing: there is one device."""
        return nullcontext()

    def is_current(self, index: int) -> bool:
        """Return True: there is one device."""
        return True

    def synchronize(self, index: int) -> None:
        """Do nothing: there is no work to wait for."""

    def current_stream(self, index: int) -> MetaStream:
        """Return the stream set by `use_stream`, else the default stream."""
        return _current_stream.get()

    def new_stream(self, index: int, priority: int = 0) -> MetaStream:
        """Return a new stream with its own number."""
        self._streams += 1
        return MetaStream(self._streams)

    @contextmanager
    def use_stream(self, stream: MetaStream) -> Iterator[MetaStream]:
        """Make `stream` current in this thread or task inside the block."""
        token = _current_stream.set(stream)
        try:
            yield stream
        finally:
            _current_stream.reset(token)

    def new_event(self, index: int, *, timing: bool = False) -> MetaEvent:
        """Return an event without timing."""
        return MetaEvent()

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Any:
        """Raise `CapabilityError`, because there is no work to capture."""
        raise CapabilityError(f"{DEVICE}: no graphs: {_NOTHING_RUNS}; call the function itself, which plans it")

    def flush_cache(self, index: int) -> None:
        """Do nothing: there is no cache."""


def _described(array: MetaArray) -> tuple[Any, ...]:
    return headers.header_of(array).__array_interface__["data"], array.shape, array.strides, array.dtype
