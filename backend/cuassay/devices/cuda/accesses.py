"""Reports to a sanitizer what CUDA work reads and writes: copies, a user's kernels, the predicates of graphs.

Ops are not reported here, because their schemas describe them. Work inside a reported function is not reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence, replace_while_watched
from cuassay.devices.cuda.driver.context import device_of_stream
from cuassay.devices.cuda.facts import extent, pinned_extent
from cuassay.devices.cuda.graphs.capture import CUDAGraph
from cuassay.devices.cuda.launch.launch import stream_address
from cuassay.devices.cuda.launch.userkernel import UserKernel
from cuassay.devices.cuda.streams.stream import current_stream

__all__ = ["inside", "is_inside", "register", "tell", "tell_copy", "tell_wait"]

_Method = Callable[..., Any]


@contextmanager
def inside() -> Iterator[None]:
    """Mark the work inside the block as part of something that is reported."""
    watchers.hidden.depth += 1
    try:
        yield
    finally:
        watchers.hidden.depth -= 1


def is_inside() -> bool:
    """Whether this thread runs a function whose accesses are reported."""
    return watchers.hidden.depth > 0


def tell(name: str, touched: Iterable[tuple[Any, bool]], stream: Any = None) -> None:
    """Report, if wanted, that work called `name` on `stream` (None: the current one) accesses arrays.

    Parameters
    ----------
    touched : iterable
        Each `cupy.ndarray` or host array, and whether it is written; pageable host memory is omitted.
    """
    if not watchers.wants_accesses():
        return
    known = [(array, write) for array, write in touched if array.size]
    homes = [array.data.device_id for array, _ in known if isinstance(array, cupy.ndarray)]
    if not homes:
        return
    found = [(_extent(array), write) for array, write in known]
    index = homes[0]
    address = int(current_stream(index).ptr) if stream is None else stream_address(stream)
    if stream is not None:
        where = device_of_stream(address, stream)
        index = index if where is None else where
    accesses = tuple((one, write) for one, write in found if one is not None)
    watchers.tell(Occurrence("accessed", f"cuda:{index}", 0, address, name=name, accesses=accesses))


def _extent(array: Any) -> Any:
    return extent(array) if isinstance(array, cupy.ndarray) else pinned_extent(array)


def tell_copy(src: Any, dst: Any) -> None:
    """Report a copy on the current stream of the device array's device; None is new host memory."""
    tell("copy", [(array, array is dst) for array in (src, dst) if isinstance(array, (cupy.ndarray, np.ndarray))])


def tell_wait(index: int, stream: Any = None) -> None:
    """Report that the host has waited for `stream` (None: the current one) of device `index`."""
    if watchers.state.watchers:
        address = int(current_stream(index).ptr) if stream is None else stream_address(stream)
        watchers.tell(Occurrence("stream_synchronized", f"cuda:{index}", address))


# ------------------------------------------------------------------------------------------------ what is replaced


def register() -> None:
    """Report from now on, while a watcher wants accesses."""
    for owner, name, make in (
        (UserKernel, "__call__", _launching),
        (UserKernel, "bind", _binding),
        (CUDAGraph, "_body", _branching),
        (CUDAGraph, "input_pointer", _keeping),
    ):
        replace_while_watched(owner, name, make, "accessed")


def _launching(plain: _Method) -> _Method:
    def call(
        kernel: UserKernel, grid: Any, block: Any, arguments: Sequence[Any], *, stream: Any = None, shared: int = 0
    ) -> None:
        tell(kernel.name, _arrays_of(kernel, arguments), stream)
        plain(kernel, grid, block, arguments, stream=stream, shared=shared)

    return call


def _binding(plain: _Method) -> _Method:
    def bind(
        kernel: UserKernel, grid: Any, block: Any, arguments: Sequence[Any], *, shared: int = 0
    ) -> Callable[[], None]:
        run = plain(kernel, grid, block, arguments, shared=shared)

        def launch() -> None:
            tell(kernel.name, _arrays_of(kernel, arguments))
            run()

        return launch

    return bind


def _arrays_of(kernel: UserKernel, arguments: Sequence[Any]) -> list[tuple[Any, bool]]:
    """Return the arrays among `arguments`; arrays of parameters that are not known to be ``const`` count as written."""
    reads = kernel.reads
    return [
        (argument, not (place < len(reads) and reads[place]))
        for place, argument in enumerate(arguments)
        if isinstance(argument, cupy.ndarray)
    ]


def _branching(plain: _Method) -> _Method:
    def body(graph: CUDAGraph, kind: str, predicate: Any) -> Any:
        tell(f"{kind}_node", [(predicate, False)])
        return plain(graph, kind, predicate)

    return body


def _keeping(plain: _Method) -> _Method:
    """Disable re-pointing: replays with other arrays would be judged by the arrays that were captured."""

    def input_pointer(graph: CUDAGraph, array: Any) -> None:
        del graph, array

    return input_pointer
