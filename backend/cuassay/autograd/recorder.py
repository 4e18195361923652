"""Records the calls of ops on traced arrays: the innermost interposer, so that it sees the casts of autocast too.

A call runs at once, on the plain arrays. What is kept of it is a node: the line, the stream, and the values that its
formulas read, which must not be written until the gradients are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.autograd.traced import TracedArray, bottom
from cuassay.core import callers
from cuassay.core.protocols import Backend
from cuassay.errors import GradientError
from cuassay.ops import Call, Formula, Meta, derivatives, registry, rules

__all__ = ["Node", "Place", "Recorder", "spent"]

Array = Any


def spent(grads: Sequence[Array]) -> Sequence[Array]:
    """The pull of an argument, which passes nothing on; and of a node that is done, whose values are free."""
    return ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call ran.

    Attributes
    ----------
    backend, index, stream
        The kind, the device's number, and the stream that was current.
    """

    backend: Backend
    index: int
    stream: Any

    @classmethod
    def of(cls, array: Array) -> Place:
        """Where `array` is, and the current stream there."""
        plain = bottom(array)
        backend = registry.owner_of(plain, "a traced array's value")
        index = backend.device_of(plain).index
        return cls(backend, index, backend.current_stream(index))


@dataclass(slots=True, eq=False)
class Node:
    """A call, a view or an argument, as its gradients need it.

    Attributes
    ----------
    name, line : str
        What was called, and where.
    place : Place
        Where it ran: its derivative runs there.
    outputs : sequence of Meta
        What it made.
    parents : sequence of (Node, int)
        The node and output that each traced argument came from.
    pull : callable
        From the gradients of the outputs to one for each parent, or None.
    grads : mapping
        Output to the gradients that arrived, each with the stream that made it.
    """

    name: str
    line: str
    place: Place
    outputs: Sequence[Meta]
    parents: Sequence[tuple[Node, int]] = ()
    pull: Callable[[Sequence[Array]], Sequence[Array]] = spent
    grads: dict[int, list[tuple[Array, Any]]] = field(default_factory=dict)


class Recorder:
    """An interposer that records the calls on its own traced arrays, and passes on all others.

    Attributes
    ----------
    nodes : list of Node
        In the order of the calls.
    """

    innermost = True

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._saved: list[tuple[Array, str, Node]] = []

    def argument(self, value: Array) -> TracedArray:
        """The traced form of an argument to differentiate by."""
        return TracedArray(value, self, (Node("argument", callers.line(), Place.of(value), (_meta(value),)), 0))

    def finish(self) -> None:
        """The function has returned: nothing more is recorded, and no write is seen."""
        self._saved.clear()

    def owns(self, value: Any) -> bool:
        """Whether `value` is a traced array of this recorder."""
        return isinstance(value, TracedArray) and value.recorder is self

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """Run the call, and record it if an argument is traced here."""
        traced = {name: value for name, value in call.arguments.items() if self._holds(value)}
        self._check_written(call)
        if not traced:
            return proceed(call)
        name, derivative = call.op.name, rules.derivative_of(call.op.name)
        if isinstance(derivative, str):
            raise GradientError(f"{name}, called at {callers.line()}, has no derivative: {derivative}")
        plain = {key: value.represents if key in traced else value for key, value in call.arguments.items()}
        result = proceed(replace(call, arguments=plain))
        formulas = {key: derivative[key] for key in traced if key in derivative}
        if not formulas or dtype_name(result.dtype) not in FLOATS:
            return result
        parents = [traced[key].node for key in formulas]
        node = Node(name, callers.line(), Place.of(result), (_meta(result),), parents)
        node.pull = self._pull(node, call, plain, formulas, result)
        return self._entered(node, [result])[0]

    def viewed(
        self, array: TracedArray, name: str, view: Callable[[Array], Array], back: Callable[[Array], Array]
    ) -> TracedArray:
        """Record a view; see `TracedArray`."""
        result = view(array.represents)
        node = Node(name, callers.line(), Place.of(result), (_meta(result),), (array.node,))
        node.pull = lambda grads: (back(grads[0]),)
        return self._entered(node, [result])[0]

    def applied(
        self, name: str, inputs: Sequence[TracedArray], results: Sequence[Array], pull: Callable[..., Sequence[Array]]
    ) -> list[TracedArray]:
        """Record a call of a user's function with a backward of its own."""
        outputs = tuple(map(_meta, results))
        node = Node(name, callers.line(), Place.of(results[0]), outputs, [one.node for one in inputs], pull)
        return self._entered(node, results)

    def keep(self, array: Array, what: str, node: Node) -> None:
        """`array` must not be written while this recorder watches: a formula of `node` reads it as `what`."""
        self._saved.append((bottom(array), what, node))

    def _entered(self, node: Node, results: Sequence[Array]) -> list[TracedArray]:
        self.nodes.append(node)
        return [TracedArray(result, self, (node, place)) for place, result in enumerate(results)]

    def _holds(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(map(self.owns, value))
        return self.owns(value)

    def _pull(
        self, node: Node, call: Call, plain: Mapping[str, Any], formulas: Mapping[str, Formula | str], result: Array
    ) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """What makes the gradients of a call's arguments; it holds the values that the formulas read."""
        values, metas = self._forward_values(node, call, plain, formulas, result)
        forward = rules.Forward(values)

        def pull(grads: Sequence[Array]) -> list[Array]:
            (grad,) = grads
            return [_gradient(node, key, formula, grad, forward, metas[key]) for key, formula in formulas.items()]

        return pull

    def _forward_values(
        self, node: Node, call: Call, plain: Mapping[str, Any], formulas: Mapping[str, Formula | str], result: Array
    ) -> tuple[dict[str, Any], dict[str, Meta]]:
        read = {name for one in formulas.values() if isinstance(one, Formula) for name in one.read(plain)}
        values: dict[str, Any] = {}
        for name, value in (*plain.items(), ("out", result)):
            is_array = registry.backend_for(value) is not None
            values[name] = _meta(value) if is_array and name not in read else value
            if is_array and name in read:
                self.keep(value, f"its {name}" if name != "out" else "its result", node)
        first = next(plain[key] for key in formulas)
        values["home"] = registry.device_of(first, f"{call.op.name}'s argument")
        return values, {key: _meta(plain[key]) for key in formulas}

    # ---------------------------------------------------------------------------------------------- writes

    def _check_written(self, call: Call) -> None:
        """Raise `GradientError` where the call writes a traced array, or one that a formula reads."""
        for what, array in _written(call):
            if isinstance(array, TracedArray):
                raise GradientError(
                    f"{call.op.name}, called at {callers.line()}, would write {what}, a traced array, in place; its "
                    "former value would be lost to the gradients; let the op make a new array"
                )
            for saved, name, node in self._saved:
                if _overlap(saved, array):
                    raise GradientError(
                        f"{call.op.name}, called at {callers.line()}, would write {what} over an array that the "
                        f"derivative of {node.name}, called at {node.line}, reads as {name}; write into another array, "
                        "or copy it first with cuassay.ops.copy"
                    )


def _gradient(node: Node, name: str, formula: Formula | str, grad: Array, forward: rules.Forward, meta: Meta) -> Array:
    if isinstance(formula, str):
        raise GradientError(f"{node.name}, called at {node.line}, has no derivative by {name}: {formula}")
    return derivatives.fitted(formula.function(grad, forward), meta.shape, meta.dtype)


def _written(call: Call) -> Iterator[tuple[str, Array]]:
    if call.out is not None:
        yield "out", call.out
    for param in call.op.schema.written:
        yield from param.members(call.arguments[param.name])


def _overlap(saved: Array, array: Array) -> bool:
    backend = registry.backend_of(type(array))
    return backend is not None and backend.owns(type(saved)) and backend.overlap(saved, array) != "none"


def _meta(array: Array) -> Meta:
    return Meta(tuple(array.shape), array.dtype)
