"""The backward pass: process the recorded nodes in reverse, each on the stream of its call.

Streams wait for each other where gradients pass between them. Gradients of the same value are added. Nodes are dropped
when they are done, unless the caller needs them for another pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

from cuassay import devices
from cuassay.autograd.nodes import Node, Place
from cuassay.core.device import Device
from cuassay.ops import add as add_op
from cuassay.ops import copy, derivatives, registry

__all__ = ["run"]

Array = Any

#: The number of an output, its gradient, and the stream that computed it.
Arrival = tuple[int, Array, Any]

#: The gradients received so far, by the node whose outputs they are of: a list, or the only one itself.
Waiting = dict[Node, Arrival | list[Arrival]]


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
    waiting: Waiting = {}
    last = None
    for node in nodes:  # before anything is freed, because a stream may read memory that another one allocated
        if node.place is not last:
            last = node.place
            streams.use(last)
    for (node, output), grad in given:
        place = Place.of(grad)
        streams.use(place)
        _receive(waiting, node, (output, grad, place.stream))
    try:
        with streams:
            _process(reversed(nodes) if keep else _popped(nodes), streams, waiting, keep=keep)
        with streams:
            found = [_argument_gradient(node, streams, waiting) for node in wanted]
        found = _apart(found, [grad for _, grad in given])  # before the streams are joined, because it copies
        streams.join()
    finally:
        waiting.clear()  # also if the traceback of an error keeps this frame
    return found


def _popped(nodes: list[Node]) -> Iterator[Node]:
    while nodes:
        yield nodes.pop()


class _Streams:
    """The streams that the pass used, by device, and the values that must live until the streams are joined.

    Memory is freed in the order of the stream that allocated it, so it is held here while a second stream may still
    read it. Inside the ``with`` block the stream of the last `switch` is the current one.

    Attributes
    ----------
    place : Place, optional
        The place of the last `switch`.
    alone : Place, optional
        The same, if its stream is the only one of its device in use.
    """

    def __init__(self) -> None:
        self._used: dict[Device, list[Place]] = {}
        self._held: list[Any] = []
        self._entered = ExitStack()
        self.place: Place | None = None
        self.alone: Place | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.place = self.alone = None
        self._entered.close()

    def use(self, place: Place) -> int:
        """Note that the pass uses this stream. Returns how many streams of its device are used so far."""
        used = self._used.setdefault(place.device, [])
        if all(other.stream != place.stream for other in used):
            used.append(place)
        return len(used)

    def switch(self, place: Place) -> None:
        """Make the stream of `place` the current one."""
        if place is not self.place:
            self._entered.close()
            self._entered.enter_context(place.backend.activate(place.device.index))
            if place.backend.current_stream(place.device.index) != place.stream:
                self._entered.enter_context(place.backend.use_stream(place.stream))
            self.place = place
            self.alone = place if self.use(place) == 1 else None

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


def _process(nodes: Iterator[Node], streams: _Streams, waiting: Waiting, *, keep: bool) -> None:
    """Pass the gradients that each node has received to its parents.

    A call of formulas on the only stream is processed here, without the general steps of `_step` and another frame.
    """
    for node in nodes:
        arrived = waiting.pop(node, None)
        if arrived is not None:
            formulas, place = node.formulas, node.place
            if formulas and place is streams.alone:
                grad = arrived[1] if arrived.__class__ is tuple else _grads(node, arrived)[0]
                forward, at = node.saved, 0
                try:
                    for parent, output in node.parents:
                        found, meta = formulas[at](grad, forward), parent.outputs[output]
                        if found.shape != meta.shape or found.dtype != meta.dtype:
                            found = derivatives.fitted(found, meta.shape, meta.dtype)
                        stream = place.stream if parent.place is place else _stream_of(parent.place, place, streams)
                        if parent in waiting:
                            _receive(waiting, parent, (output, found, stream))
                        else:
                            waiting[parent] = output, found, stream
                        at += 1
                except Exception as error:
                    _note(node, error)
                    raise
                grad = forward = found = None  # are not kept while the next node is processed
            else:
                _step(node, arrived, streams, waiting)
        if not keep:
            node.release()


def _step(node: Node, arrived: Arrival | list[Arrival], streams: _Streams, waiting: Waiting) -> None:
    """Sum the gradients of the node's outputs, and pass the gradients of its arguments to its parents."""
    place = node.place
    streams.switch(place)
    if streams.alone is None:
        streams.hold(node.saved, list(arrived))
    grads = _grads(node, arrived)
    try:
        passed = node.pull(node, grads)
    except Exception as error:
        _note(node, error)
        raise
    for at, (parent, output) in enumerate(node.parents):  # `zip(strict=True)` costs 150 ns more
        grad = passed[at]
        if grad is not None:
            _receive(waiting, parent, (output, grad, _stream_of(parent.place, place, streams)))


def _note(node: Node, error: Exception) -> None:
    error.add_note(f"in the derivative of {node.name}, called at {node.line}")


def _receive(waiting: Waiting, node: Node, arrival: Arrival) -> None:
    former = waiting.get(node)
    if former is None:
        waiting[node] = arrival
    elif isinstance(former, tuple):
        waiting[node] = [former, arrival]
    else:
        former.append(arrival)


def _listed(arrived: Arrival | list[Arrival]) -> list[Arrival]:
    return [arrived] if isinstance(arrived, tuple) else arrived


def _grads(node: Node, arrived: Arrival | list[Arrival]) -> Sequence[Array | None]:
    """Return the gradient of each output, and empty `arrived`: the parts of a sum are freed before `pull` runs."""
    if isinstance(arrived, tuple) and arrived[2] is node.place.stream and len(node.outputs) == 1:  # nothing to sum
        return (arrived[1],)
    parts: dict[int, list[tuple[Array, Any]]] = {}
    listed = _listed(arrived)
    for output, grad, stream in listed:
        parts.setdefault(output, []).append((grad, stream))
    listed.clear()
    return [
        _sum(parts.pop(output, ()), node.place, meta) if node.materialize or output in parts else None
        for output, meta in enumerate(node.outputs)
    ]


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


def _argument_gradient(node: Node, streams: _Streams, waiting: Waiting) -> Array:
    backend, device = node.place.backend, node.place.device
    place = Place(backend, device, backend.current_stream(device.index))
    parts = [(grad, stream) for _, grad, stream in _listed(waiting.pop(node, []))]
    streams.switch(place)
    if streams.alone is None:
        streams.hold(tuple(parts))
    return _sum(parts, place, node.outputs[0])


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
