"""What kind `cuda` offers to a sanitizer and a profile; the first query imports CuPy and the driver."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from cuassay.core.protocols import StreamFacts
from cuassay.core.traced import Stopwatch, Tracer
from cuassay.errors import CuassayError
from cuassay.ops import Op, registry
from cuassay.ops.placement import is_number

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

    def launches_of(self, op: Op, operands: Sequence[Any]) -> AbstractContextManager[Sequence[Any]]:
        """Return a context that yields the kernels that a call of `op` launches inside it.

        The list stays empty if the implementation may give the device other work, such as a library's.
        """
        from cuassay.devices.cuda.launch.launch import watched

        try:
            dtype = op.schema.registry_dtype([one if is_number(one) else one.dtype for one in operands])
        except (AttributeError, CuassayError):  # a list of arrays, or operands that the op rejects
            return nullcontext(())
        return watched() if getattr(registry.find(op, "cuda", dtype), "only_launches", False) else nullcontext(())

    def new_stopwatch(self, index: int) -> Stopwatch:
        """Return a stopwatch that times work of device `index` by pairs of events."""
        from cuassay.devices.cuda.streams import stopwatch

        return stopwatch.Stopwatch(index)


@cache
def _facts() -> Any:
    """Return the module, cached because importing it at each call would take a microsecond."""
    from cuassay.devices.cuda import facts

    return facts
