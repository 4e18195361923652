"""The backward pass: process the recorded nodes in reverse, each on the stream of its call.

Streams wait for each other where gradients pass between them. Gradients of the same value are added. Nodes are dropped
when they are done, unless the caller needs them for another pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

from cuassay import devices
from cuassay.autograd.recorder import Node, Place, spent
from cuassay.core.device import Device
from cuassay.ops import add as add_op
from cuassay.ops import copy, registry

__all__ = ["run"]

Array = Any


def run(
    nodes: list[Node], given: Sequence[tuple[tuple[Node, int], Array]], wanted: Sequence[Node], *, keep: bool
) -> list[Array]:
    """Return the gradients of the arguments `wanted`, in the order of the current stream of each one's device.

    Parameters
    ----------
    nodes : list of Node
        The nodes in the order of the calls. The list is emptied unless `keep` is true.
    given : sequence of ((Node, int), array)
        The gradients of outputs, each with its node and output number.
    wanted : sequence of Node
        The nodes of the arguments to differentiate by.
    keep : bool
        Whether to keep the nodes for another pass.

    Returns
    -------
    list of array
        One gradient per argument, in its own memory.
    """
    streams = _Streams()
    for place in {id(node.place): node.place for node in nodes}.values():
        streams.use(place)  # before anything is freed, because a stream may read memory that another one allocated
    for (node, output), grad in given:
        place = Place.of(grad)
        streams.use(place)
        node.grads.setdefault(output, []).append((grad, place.stream))
    try:
        with streams:
            for node in _reversed(nodes, keep=keep):
                if node.grads:
                    _step(node, streams)
                if not keep:
                    node.pull = spent
        with streams:
            found = [_argument_gradient(node, streams) for node in wanted]
        streams.join()
    finally:
        for node in (*nodes, *wanted):
            node.grads.clear()
    return _apart(found, [grad for _, grad in given])


def _reversed(nodes: list[Node], *, keep: bool) -> Iterator[Node]:
    if keep:
        yield from reversed(nodes)
    while nodes and not keep:
        yield nodes.pop()


class _Streams:
    """The streams that the pass used, by device, and the values that must live until the streams are joined.

    Memory is freed in the order of the stream that allocated it, so it is held here while a second stream may still
    read it. Inside the ``with`` block the stream of the last `switch` is the current one.
    """

    def __init__(self) -> None:
        self._used: dict[Device, list[Place]] = {}
        self._held: list[Any] = []
        self._entered = ExitStack()
        self._place: Place | None = None
        self._several = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._place = None
        self._entered.close()

    def use(self, place: Place) -> int:
        """Note that the pass uses this stream. Returns how many streams of its device are used so far."""
        used = self._used.setdefault(place.device, [])
        if all(other.stream != place.stream for other in used):
            used.append(place)
        return len(used)

    def switch(self, place: Place) -> bool:
        """Make the stream of `place` the current one. Returns whether other streams of its device are in use."""
        if place is not self._place:
            self._entered.close()
            self._entered.enter_context(place.backend.activate(place.device.index))
            if place.backend.current_stream(place.device.index) != place.stream:
                self._entered.enter_context(place.backend.use_stream(place.stream))
            self._place = place
            self._several = self.use(place) > 1
        return self._several

    def hold(self, *values: Any) -> None:
        """Keep values that a second stream may still read."""
        self._held.append(values)

    def join(self) -> None:
        """Let the current streams wait for all used streams, and these for the current ones before memory is reused."""
        for device, places in self._used.items():
            current = places[0].backend.current_stream(device.index)
            others = [place.stream for place in places if place.stream != current]
            for stream in others:
                current.wait_stream(stream)
            for stream in others:
                stream.wait_stream(current)
            for stream in others:  # again, because in a capture every stream must be joined into the first one
                current.wait_stream(stream)
        self._held.clear()


def _step(node: Node, streams: _Streams) -> None:
    """Sum the gradients of the node's outputs, and pass the gradients of its arguments to its parents."""
    place, arrived = node.place, node.grads
    if streams.switch(place):
        streams.hold(node.pull, dict(arrived))
    if len(node.outputs) == 1 and 0 in arrived:  # true for every op; a `Function` may have several outputs
        grads = [_sum(arrived.pop(0), place, node.outputs[0])]
    else:
        grads = [
            _sum(arrived.pop(output, ()), place, meta) if node.materialize or output in arrived else None
            for output, meta in enumerate(node.outputs)
        ]
    try:
        passed = node.pull(grads)
    except Exception as error:
        error.add_note(f"in the derivative of {node.name}, called at {node.line}")
        raise
    for (parent, output), grad in zip(node.parents, passed, strict=True):
        if grad is not None:
            parent.grads.setdefault(output, []).append((grad, _stream_of(parent.place, place, streams)))


def _stream_of(target: Place, ran: Place, streams: _Streams) -> Any:
    """Return the stream that orders a gradient for a result at `target`, from a derivative that ran at `ran`."""
    if target is ran or target.device == ran.device:
        return ran.stream
    # A copy between devices is in the order of the current stream of each.
    current = Place(target.backend, target.device, target.backend.current_stream(target.device.index))
    streams.use(current)
    return current.stream


def _sum(arrived: Sequence[tuple[Array, Any]], place: Place, meta: Any) -> Array:
    """Return the sum on the current stream, which waits for the streams of the parts; zeros if there are none."""
    if not arrived:
        return devices.zeros(meta.shape, meta.dtype, place.device)
    if len(arrived) == 1 and arrived[0][1] is place.stream:
        return arrived[0][0]
    for stream in {id(stream): stream for _, stream in arrived}.values():
        if stream != place.stream:
            place.stream.wait_stream(stream)
    total, *rest = (grad for grad, _ in arrived)
    for grad in rest:
        total = add_op(total, grad)
    return total


def _argument_gradient(node: Node, streams: _Streams) -> Array:
    backend, device = node.place.backend, node.place.device
    place = Place(backend, device, backend.current_stream(device.index))
    if streams.switch(place):
        streams.hold(dict(node.grads))
    return _sum(node.grads.pop(0, ()), place, node.outputs[0])


def _apart(found: list[Array], given: Sequence[Array]) -> list[Array]:
    """Return each gradient in separate memory and C order, so that writing one does not change another."""
    seen = list(given)
    for place, grad in enumerate(found):
        backend = registry.backend_of(type(grad))
        if backend is None:  # a traced array of an enclosing derivative
            continue
        others = (one for one in seen if registry.backend_of(type(one)) is backend)
        if not grad.flags.c_contiguous or any(backend.overlap(grad, one) != "none" for one in others):
            found[place] = copy(grad)
        seen.append(found[place])
    return found
