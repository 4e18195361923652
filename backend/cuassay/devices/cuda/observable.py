"""What kind `cuda` offers to a sanitizer and a profile; the first query imports CuPy and the driver."""

from __future__ import annotations

from functools import cache
from typing import Any

from cuassay.core.protocols import StreamFacts
from cuassay.core.traced import Stopwatch, Tracer

__all__ = ["ObservableBackend"]


class ObservableBackend:
    """See `cuassay.core.protocols.Observable` and `cuassay.core.traced.Traced`."""

    def extent(self, array: Any) -> Any:
        """Return where `array` is."""
        return _facts().extent(array)

    @property
    def traits(self) -> tuple[Any, Any]:
        """The functions `traits_of` and `extent_of`; see `cuassay.core.protocols.Observable`."""
        return _facts().traits_of, _facts().extent_of

    @property
    def stream_functions(self) -> tuple[Any, Any]:
        """The functions `current_number` and `is_capturing` themselves, because methods cost more."""
        return _facts().current_number, _facts().is_capturing

    def current_number(self, index: int) -> int:
        """Return the number by which watchers know the current stream of device `index`."""
        return int(_facts().current_number(index))

    def is_capturing(self, number: int) -> bool:
        """Whether the stream that watchers know by `number` is being captured."""
        return bool(_facts().is_capturing(number))

    def stream_facts(self, index: int, number: int) -> StreamFacts:
        """Return the facts of the stream that watchers know by `number`, seen with device `index`."""
        found: StreamFacts = _facts().stream_facts(index, number)
        return found

    def new_tracer(self) -> Tracer:
        """Return a tracer of this process by CUPTI. Raises `LibraryNotFoundError`."""
        from cuassay.devices.cuda import activity

        return activity.Tracer()

    def new_stopwatch(self, index: int) -> Stopwatch:
        """Return a stopwatch that times work of device `index` by pairs of events."""
        from cuassay.devices.cuda.streams import stopwatch

        return stopwatch.Stopwatch(index)


@cache
def _facts() -> Any:
    """Return the module, cached because importing it at each call would take a microsecond."""
    from cuassay.devices.cuda import facts

    return facts
