"""Record the calls of ops on traced arrays. The recorder is the innermost interposer, so it also sees autocast's casts.

A call runs at once on the plain arrays. It is recorded as a node with the source line, the stream, and the values that
its formulas read, which must not be written until the gradients are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import FLOATS, dtype_name, is_complex
from cuassay.autograd.nodes import Node, Place, Rule
from cuassay.autograd.traced import TracedArray, bottom
from cuassay.core import callers
from cuassay.errors import GradientError
from cuassay.ops import Call, Meta, Op, functional, registry, rules

__all__ = ["Recorder"]

Array = Any

#: What a parameter for a list may get.
_LISTS = (list, tuple)

#: How many frames between a recorder and the caller of an op are at least of this package.
_FRAMES = 3

#: A node, the names of the values that its derivative reads, each with its words in errors, and what has the values.
_Kept = tuple[Node, Sequence[tuple[str, str]], rules.Forward]


class Recorder:
    """An interposer that records calls on its own traced arrays, and passes on all others.

    Attributes
    ----------
    nodes : list of Node
        The recorded nodes in the order of the calls.
    """

    innermost = True

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._kept: list[_Kept] = []
        self._last: Place | None = None
        self._type: type | None = None
        self._outputs: tuple[Meta] = (Meta((-1,), np.dtype(bool)),)  # equal to no array's
        self._rules: dict[tuple[Any, ...], Rule] = {}

    def argument(self, value: Array) -> TracedArray:
        """Return the traced array for an argument to differentiate by."""
        return TracedArray(value, self, (Node("argument", callers.site(), self._place(value), (_meta(value),)), 0))

    def finish(self) -> None:
        """Stop checking writes to saved arrays, because the function has returned."""
        self._kept.clear()

    def owns(self, value: Any) -> bool:
        """Return whether `value` is a traced array of this recorder."""
        return isinstance(value, TracedArray) and value.recorder is self

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """Run the call, and record it if an argument is traced here."""
        op, arguments = call.op, call.arguments
        traced = [
            name
            for name, value in arguments.items()
            if (value.recorder is self if value.__class__ is TracedArray else self._is_in(value))
        ]
        if call.out is not None or op.schema.written:
            self._check_written(call)
        if not traced:
            return proceed(call)
        rule = self._rules.get((op, *traced))
        if rule is None:
            rule = self._rules[(op, *traced)] = Rule.of(op, traced)
        plain = dict(arguments)
        for name in traced:
            plain[name] = self._represented(arguments[name])
        if call.out is not None:
            _check_out(call, rule, plain)
        result = proceed(Call(op, plain, call.out))
        first = result[0] if rule.gives_list else result
        if not rule.formulas:
            return result
        if not _is_float(first.dtype):
            _refuse_complex(op, first.dtype)
            return result
        outputs = tuple(map(_meta, result)) if rule.gives_list else self._outputs_of(result)
        place = self._place(first)
        parents, members = self._parents(rule, arguments)
        node = Node(op.name, callers.site(_FRAMES), place, outputs, parents, rule.pull, None, rule.functions)
        forward = self._forward(node, rule, arguments, plain, result)
        node.saved = (forward, members) if rule.has_lists else forward
        self.nodes.append(node)
        if rule.gives_list:
            return [TracedArray(one, self, (node, place)) for place, one in enumerate(result)]
        return TracedArray(result, self, (node, 0))

    def viewed(
        self, array: TracedArray, name: str, view: Callable[[Array], Array], back: Callable[[Array], Array]
    ) -> TracedArray:
        """Record a view; see `TracedArray`."""
        result = view(array.represents)
        node = Node(name, callers.site(), self._place(result), (_meta(result),), (array.node,), _pull_view, back)
        self.nodes.append(node)
        return TracedArray(result, self, (node, 0))

    def applied(
        self,
        name: str,
        inputs: Sequence[TracedArray],
        results: Sequence[Array],
        pull: Callable[[Sequence[Array | None]], Sequence[Array | None]],
        *,
        materialize: bool = True,
    ) -> list[TracedArray]:
        """Record a call of a function with a custom backward, `pull`, and return its results as traced arrays."""
        outputs, place = tuple(map(_meta, results)), self._place(results[0])
        parents = [one.node for one in inputs]
        node = Node(name, callers.site(), place, outputs, parents, _pull_applied, pull, (), materialize)
        self.nodes.append(node)
        return [TracedArray(result, self, (node, place)) for place, result in enumerate(results)]

    def keep(self, array: Array, what: str, node: Node) -> None:
        """Forbid writes to `array` while this recorder is active, because a formula of `node` reads it as `what`."""
        self._kept.append((node, (("array", what),), rules.forward_of({"array": array})))

    def _is_in(self, value: Any) -> bool:
        """Return whether `value` is a list with a traced array of this recorder."""
        return isinstance(value, _LISTS) and any(map(self.owns, value))

    def _represented(self, value: Any) -> Any:
        """Return the plain array of a traced one, or a list in which those traced by this recorder are replaced."""
        if value.__class__ is TracedArray:
            return value.represents
        return [one.represents if self.owns(one) else one for one in value]

    def _parents(
        self, rule: Rule, arguments: Mapping[str, Any]
    ) -> tuple[Sequence[tuple[Node, int]], list[tuple[int, ...] | None]]:
        """Return the parents of the traced arguments, and for each list argument the indices of its traced arrays."""
        if not rule.has_lists:
            return tuple([arguments[name].node for name, _ in rule.formulas]), []
        parents: list[tuple[Node, int]] = []
        places: list[tuple[int, ...] | None] = []
        for name, _ in rule.formulas:
            value = arguments[name]
            if value.__class__ is TracedArray:
                parents.append(value.node)
                places.append(None)
            else:
                mine = tuple(place for place, one in enumerate(value) if self.owns(one))
                parents += [value[place].node for place in mine]
                places.append(mine)
        return parents, places

    def _place(self, array: Array) -> Place:
        last = self._last
        if last is not None and array.__class__ is self._type:  # usually the same type as in the last call
            device = last.backend.device_of(array)
            stream = last.backend.current_stream(device.index)
            # Identity first: comparing devices or streams runs Python code.
            if (stream is last.stream or stream == last.stream) and (device is last.device or device == last.device):
                return last
        found = self._last = Place.of(array, last)
        self._type = type(array) if array.__class__ is not TracedArray else None
        return found

    def _outputs_of(self, array: Array) -> tuple[Meta]:
        """Return shape and dtype of a result; those of the last result if they are equal, which costs a third."""
        last = self._outputs[0]
        if array.dtype is not last.dtype or array.shape != last.shape:
            self._outputs = (_meta(array),)
        return self._outputs

    def _forward(
        self, node: Node, rule: Rule, arguments: Mapping[str, Any], plain: Mapping[str, Any], result: Array
    ) -> rules.Forward:
        """Return the call for its formulas: the arrays that they read, and shapes for the others.

        The arrays must not be written while this recorder is active.
        """
        labels, unread = (rule.labels, rule.unread) if rule.labels is not None else rule.reads(plain)
        forward: Any = rule.forward()
        for name, value in plain.items():
            setattr(forward, name, value)
        for name in unread:
            given = arguments[name]
            if given.__class__ is TracedArray and given.recorder is self:
                parent, output = given.node
                setattr(forward, name, parent.outputs[output])
            else:
                setattr(forward, name, _without_numbers(given))
        forward.out = list(node.outputs) if rule.gives_list else node.outputs[0]
        forward.home = self._place(plain[rule.formulas[0][0]]).device if rule.is_placed else node.place.device
        if labels:
            self._kept.append((node, labels, forward))
            if ("out", "its result") in labels:
                forward.out = result
        found: rules.Forward = forward
        return found

    # ---------------------------------------------------------------------------------------------- writes

    def _check_written(self, call: Call) -> None:
        """Raise `GradientError` if the call writes a traced array or an array that a formula reads."""
        for what, array in _written(call):
            if isinstance(array, TracedArray):
                raise GradientError(
                    f"{call.op.name}, called at {callers.line()}, would write {what}, a traced array, in place; its "
                    "former value would be lost to the gradients; let the op make a new array"
                )
            for node, name, saved in self._reads():
                if _overlap(saved, array):
                    raise GradientError(
                        f"{call.op.name}, called at {callers.line()}, would write {what} over an array that the "
                        f"derivative of {node.name}, called at {node.line}, reads as {name}; write into another array, "
                        "or copy it first with cuassay.ops.copy"
                    )

    def _reads(self) -> Iterator[tuple[Node, str, Array]]:
        """Yield the arrays that must not be written, with the node whose derivative reads each, and as what."""
        for node, labels, forward in self._kept:
            for name, label in labels:
                value = getattr(forward, name)
                if isinstance(value, list):
                    yield from ((node, f"its {name}[{place}]", bottom(one)) for place, one in enumerate(value))
                else:
                    yield node, label, bottom(value)


#: Whether a dtype is a floating-point one. Cached, because getting the name of a dtype is slow.
_FLOATING: dict[Any, bool] = {}


def _is_float(dtype: Any) -> bool:
    found = _FLOATING.get(dtype)
    if found is None:
        found = _FLOATING[dtype] = dtype_name(dtype) in FLOATS
    return found


def _refuse_complex(op: Op, dtype: Any) -> None:
    if is_complex(dtype):  # without this, its gradient would be 0
        raise GradientError(f"{op.name} makes {dtype_name(dtype)}, which has no derivative; call stop_gradient first")


def _check_out(call: Call, rule: Rule, plain: Mapping[str, Any]) -> None:
    """Raise `GradientError` if a call would write its result over an argument that its own derivative reads."""
    reads = dict(rule.reads(plain)[0])
    for param in call.op.schema.arrays:
        for what, array in param.members(plain[param.name]) if param.name in reads else ():
            if _overlap(bottom(array), call.out):
                raise GradientError(
                    f"{call.op.name}, called at {callers.line()}, would write out over its {what}, which its "
                    "derivative reads; let the op make a new array"
                )


def _written(call: Call) -> Iterator[tuple[str, Array]]:
    for out in functional.each(call.out):
        yield "out", out
    for param in call.op.schema.written:
        yield from param.members(call.arguments[param.name])


def _overlap(saved: Array, array: Array) -> bool:
    backend = registry.backend_of(type(array))
    return backend is not None and backend.owns(type(saved)) and backend.overlap(saved, array) != "none"


def _without_numbers(value: Any) -> Any:
    """Replace an array, or the arrays of a list, by shape and dtype. Return other values unchanged."""
    if isinstance(value, list):
        return [_without_numbers(one) for one in value]
    return value if registry.backend_for(value) is None else _meta(value)


def _meta(array: Array) -> Meta:
    return Meta(tuple(array.shape), array.dtype)


def _pull_view(node: Node, grads: Sequence[Array]) -> Sequence[Array]:
    return (node.saved(grads[0]),)


def _pull_applied(node: Node, grads: Sequence[Array]) -> Sequence[Array]:
    found: Sequence[Array] = node.saved(grads)
    return found
