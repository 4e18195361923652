"""The kind `meta` as the protocol of kinds has it: one device that holds no values and runs no work."""

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

#: The features it has; the dtypes are all there.
_PRESENT = ("streams", "events", "views", "tf32", "fp8", "complex")

_NOTHING_RUNS = "nothing runs on arrays without memory"

_default_stream = MetaStream()
_current_stream: ContextVar[MetaStream] = ContextVar("cuassay_meta_stream", default=_default_stream)


class MetaBackend:
    """The kind `meta`; see `cuassay.core.protocols.Backend`."""

    kind = "meta"

    #: Its arrays are for planning: no test compares them, and nothing asks for their values.
    holds_values = False

    def __init__(self) -> None:
        self._namespace = Namespace()
        self._streams = 0

    def __repr__(self) -> str:
        return "MetaBackend()"

    def why_absent(self) -> str | None:
        """Never absent."""
        return None

    def count(self) -> int:
        """One."""
        return 1

    def probe(self, index: int, name: str) -> Answer:
        """All dtypes, views, and streams of no work."""
        if name in FEATURES and name not in _PRESENT:
            return absent(_NOTHING_RUNS)
        if name in ("compute", "l2"):
            return absent(_NOTHING_RUNS)
        if name.startswith("random:") and (dtype := name.partition(":")[2]) in NOT_DRAWN:
            return absent(NOT_DRAWN[dtype])
        return present(1 if name == "count" else 0)

    def identity(self, index: int) -> Mapping[str, str]:
        """A name that says what it is for."""
        return {"name": "arrays without memory, for planning"}

    def health(self, index: int) -> str | None:
        """Always well."""
        return None

    def memory_info(self, index: int) -> tuple[int, int]:
        """None at all."""
        return 0, 0

    # ---------------------------------------------------------------------------------------------- arrays

    def owns(self, array_type: type) -> bool:
        """`MetaArray`."""
        return issubclass(array_type, MetaArray)

    def device_of(self, array: MetaArray) -> Device:
        """Always ``meta:0``."""
        return DEVICE

    def namespace(self, index: int) -> Namespace:
        """NumPy's names over arrays without memory."""
        return self._namespace

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> MetaArray:
        """A C-contiguous array. Raises `ShapeError` for more bytes than an address can count."""
        return MetaArray(headers.empty(layout.as_shape(shape), as_dtype(dtype)))

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> MetaArray:
        """An array of that shape and dtype, the order of the axes in memory kept; its values are not."""
        return MetaArray(headers.kept_order(array, array.dtype))

    def to_host(self, array: MetaArray) -> Any:
        """Raises `CapabilityError`: there are no values."""
        raise no_values(array, "to_host")

    def overlap(self, a: MetaArray, b: MetaArray) -> str:
        """As between arrays with memory: views of one array overlap where their elements do."""
        if a.memory is not b.memory or not layout.overlap(headers.header_of(a), headers.header_of(b)):
            return "none"
        same = _described(a) == _described(b)
        return "same" if same else "partial"

    # ---------------------------------------------------------------------------------------------- order

    def activate(self, index: int) -> nullcontext[None]:
        """There is one device."""
        return nullcontext()

    def is_current(self, index: int) -> bool:
        """There is one device."""
        return True

    def synchronize(self, index: int) -> None:
        """Nothing to wait for."""

    def current_stream(self, index: int) -> MetaStream:
        """The one set by `use_stream`, else the default."""
        return _current_stream.get()

    def new_stream(self, index: int, priority: int = 0) -> MetaStream:
        """A stream with a number of its own."""
        self._streams += 1
        return MetaStream(self._streams)

    @contextmanager
    def use_stream(self, stream: MetaStream) -> Iterator[MetaStream]:
        """Make `stream` the current one of this thread or task."""
        token = _current_stream.set(stream)
        try:
            yield stream
        finally:
            _current_stream.reset(token)

    def new_event(self, index: int, *, timing: bool = False) -> MetaEvent:
        """An event; it has no time."""
        return MetaEvent()

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Any:
        """Raises `CapabilityError`: there is no work to capture."""
        raise CapabilityError(f"{DEVICE}: no graphs: {_NOTHING_RUNS}; call the function itself, which plans it")

    def flush_cache(self, index: int) -> None:
        """There is no cache."""


def _described(array: MetaArray) -> tuple[Any, ...]:
    return headers.header_of(array).__array_interface__["data"], array.shape, array.strides, array.dtype
