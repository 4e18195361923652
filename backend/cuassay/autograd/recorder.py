"""Record the calls of ops on traced arrays. The recorder is the innermost interposer, so it also sees autocast's casts.

A call runs at once on the plain arrays. It is recorded as a node with the source line, the stream, and the values that
its formulas read, which must not be written until the gradients are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuassay.arrays.dtypes import FLOATS, dtype_name, is_complex
from cuassay.autograd.traced import TracedArray, bottom
from cuassay.core import callers
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import GradientError
from cuassay.ops import Call, Formula, Meta, Op, derivatives, functional, registry, rules

__all__ = ["Node", "Place", "Recorder", "spent"]

Array = Any


def spent(grads: Sequence[Array]) -> Sequence[Array]:
    """Return no gradients. This is the pull of an argument, and of a node that is done, to free its values."""
    return ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call ran.

    Attributes
    ----------
    backend, device, stream
        The device kind, the device, and the stream that was current.
    """

    backend: Backend
    device: Device
    stream: Any

    @classmethod
    def of(cls, array: Array, last: Place | None = None) -> Place:
        """Return the device of `array` and the current stream there. Returns `last` itself if it is equal."""
        plain = bottom(array)
        backend = registry.owner_of(plain, "a traced array's value")
        device = backend.device_of(plain)
        stream = backend.current_stream(device.index)
        if last is not None and last.stream == stream and last.device == device:
            return last
        return cls(backend, device, stream)


@dataclass(slots=True, eq=False)
class Node:
    """A recorded call, view or argument.

    Attributes
    ----------
    name : str
        The name of the op or view.
    site : (str, int)
        The file and line of the call; `line` formats it.
    place : Place
        Where it ran, and where its derivative runs.
    outputs : sequence of Meta
        The shapes and dtypes of the outputs.
    parents : sequence of (Node, int)
        The node and output that each traced argument came from.
    pull : callable
        Takes the gradients of the outputs, and returns one for each parent, or None.
    grads : mapping
        From an output to the gradients received so far, each with the stream that computed it.
    materialize : bool
        Whether `pull` gets zeros instead of None for an output without a gradient.
    """

    name: str
    site: callers.Site
    place: Place
    outputs: Sequence[Meta]
    parents: Sequence[tuple[Node, int]] = ()
    pull: Callable[[Sequence[Any]], Sequence[Any]] = spent
    grads: dict[int, list[tuple[Array, Any]]] = field(default_factory=dict)
    materialize: bool = True

    @property
    def line(self) -> str:
        """The line of the call, as ``file.py:12``."""
        return callers.line(self.site)


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
        self._saved: list[tuple[Array, str, Node]] = []
        self._last: Place | None = None
        self._type: type | None = None
        self._rules: dict[tuple[Any, ...], _Rule] = {}

    def argument(self, value: Array) -> TracedArray:
        """Return the traced array for an argument to differentiate by."""
        return TracedArray(value, self, (Node("argument", callers.site(), self._place(value), (_meta(value),)), 0))

    def finish(self) -> None:
        """Stop checking writes to saved arrays, because the function has returned."""
        self._saved.clear()

    def owns(self, value: Any) -> bool:
        """Return whether `value` is a traced array of this recorder."""
        return isinstance(value, TracedArray) and value.recorder is self

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """Run the call, and record it if an argument is traced here."""
        op, arguments = call.op, call.arguments
        traced = [name for name, value in arguments.items() if self._holds(value)]
        if call.out is not None or op.schema.written:
            self._check_written(call)
        if not traced:
            return proceed(call)
        rule = self._rules.get((op, *traced)) or self._rule(op, traced)
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
        outputs = tuple(map(_meta, result)) if rule.gives_list else (_meta(result),)
        node = Node(op.name, callers.site(), self._place(first), outputs)
        pull = node.pull = _Pull(node, rule, self._forward(node, rule, call, plain, result))
        if rule.has_lists:
            node.parents, pull.places = self._members(rule, arguments)
        else:
            node.parents = [arguments[name].node for name, _ in rule.formulas]
        self.nodes.append(node)
        if rule.gives_list:
            return [TracedArray(one, self, (node, place)) for place, one in enumerate(result)]
        return TracedArray(result, self, (node, 0))

    def viewed(
        self, array: TracedArray, name: str, view: Callable[[Array], Array], back: Callable[[Array], Array]
    ) -> TracedArray:
        """Record a view; see `TracedArray`."""
        result = view(array.represents)
        node = Node(name, callers.site(), self._place(result), (_meta(result),), (array.node,))
        node.pull = lambda grads: (back(grads[0]),)
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
        node = Node(name, callers.site(), place, outputs, parents, pull, materialize=materialize)
        self.nodes.append(node)
        return [TracedArray(result, self, (node, place)) for place, result in enumerate(results)]

    def keep(self, array: Array, what: str, node: Node) -> None:
        """Forbid writes to `array` while this recorder is active, because a formula of `node` reads it as `what`."""
        self._saved.append((bottom(array), what, node))

    def _holds(self, value: Any) -> bool:
        if value.__class__ is TracedArray:
            return value.recorder is self
        return isinstance(value, list | tuple) and any(map(self.owns, value))

    def _represented(self, value: Any) -> Any:
        """Return the plain array of a traced one, or a list in which those traced by this recorder are replaced."""
        if value.__class__ is TracedArray:
            return value.represents
        return [one.represents if self.owns(one) else one for one in value]

    def _members(
        self, rule: _Rule, arguments: Mapping[str, Any]
    ) -> tuple[list[tuple[Node, int]], list[tuple[int, ...] | None]]:
        """Return the parents of the traced arguments, and for each list argument the indices of its traced arrays."""
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
            if last.stream == last.backend.current_stream(device.index) and last.device == device:
                return last
        found = self._last = Place.of(array, last)
        self._type = type(array) if array.__class__ is not TracedArray else None
        return found

    def _rule(self, op: Op, traced: Sequence[str]) -> _Rule:
        derivative = rules.derivative_of(op.name)
        if op.schema.written and not isinstance(derivative, str):
            derivative = f"it writes its arguments; call {op.name}.functional, which makes new arrays"
        if isinstance(derivative, str):
            raise GradientError(f"{op.name}, called at {callers.line()}, has no derivative: {derivative}")
        formulas = tuple((name, derivative[name]) for name in traced if name in derivative)
        reads = [formula.reads for _, formula in formulas if isinstance(formula, Formula)]
        named = [one for one in reads if isinstance(one, tuple)]
        fixed = frozenset(name for one in named for name in one) if len(named) == len(reads) else None
        has_lists = any(param.form == "arrays" for param in op.schema.arrays)
        gives_list = bool(op.schema.functional_of) and op.schema.outputs[0] in {one.name for one in op.schema.lists}
        found = self._rules[(op, *traced)] = _Rule(formulas, fixed, op.schema.array_names, has_lists, gives_list)
        return found

    def _forward(self, node: Node, rule: _Rule, call: Call, plain: Mapping[str, Any], result: Array) -> rules.Forward:
        """Return the call for its formulas. It holds only the arrays that they read, and shapes for the others."""
        read = rule.fixed if rule.fixed is not None else rule.reads(plain)
        values = dict(plain)
        for name in rule.arrays:
            if name not in read:
                given = call.arguments[name]
                if given.__class__ is TracedArray and given.recorder is self:
                    parent, output = given.node
                    values[name] = parent.outputs[output]
                else:
                    values[name] = _without_numbers(given)
        values["out"] = result if "out" in read else list(node.outputs) if rule.gives_list else node.outputs[0]
        values["home"] = (self._place(plain[rule.formulas[0][0]]) if call.op.schema.place else node.place).device
        for name in read:
            self._keep_read(name, values[name], node)
        return rules.Forward(values)

    def _keep_read(self, name: str, value: Any, node: Node) -> None:
        if isinstance(value, list):
            for place, one in enumerate(value):
                self.keep(one, f"its {name}[{place}]", node)
        else:
            self.keep(value, f"its {name}" if name != "out" else "its result", node)

    # ---------------------------------------------------------------------------------------------- writes

    def _check_written(self, call: Call) -> None:
        """Raise `GradientError` if the call writes a traced array or an array that a formula reads."""
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


@dataclass(frozen=True, slots=True)
class _Rule:
    """The derivative of an op by some of its arguments, cached per recording.

    Attributes
    ----------
    formulas : tuple of (str, Formula or str)
        For each traced argument, its formula or the reason why it has none.
    fixed : frozenset of str, optional
        The names that the formulas read, if they do not depend on the arguments.
    arrays : tuple of str
        The parameters that are arrays or lists of arrays.
    has_lists : bool
        Whether a parameter is a list.
    gives_list : bool
        Whether the result is a list.
    """

    formulas: tuple[tuple[str, Formula | str], ...]
    fixed: frozenset[str] | None
    arrays: tuple[str, ...]
    has_lists: bool
    gives_list: bool

    def reads(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """Return the names that the formulas read: arguments, and ``"out"`` for the result."""
        if self.fixed is not None:
            return self.fixed
        formulas = [one for _, one in self.formulas if isinstance(one, Formula)]
        return frozenset(name for one in formulas for name in one.read(arguments))


class _Pull:
    """Computes the gradients of a call's traced arguments from that of its result, or those of its list of results.

    Attributes
    ----------
    places : list, optional
        For each formula, the indices in its list whose gradients are needed, or None if the parameter is an array.
    """

    __slots__ = ("_forward", "_node", "_rule", "places")

    def __init__(self, node: Node, rule: _Rule, forward: rules.Forward) -> None:
        self._node, self._rule, self._forward = node, rule, forward
        self.places: list[tuple[int, ...] | None] | None = None

    def __call__(self, grads: Sequence[Array]) -> list[Array]:
        """Return a gradient for each parent, in its shape and dtype."""
        grad = grads if self._rule.gives_list else grads[0]
        found: list[Array] = []
        for at, (name, formula) in enumerate(self._rule.formulas):
            if isinstance(formula, str):
                raise GradientError(
                    f"{self._node.name}, called at {self._node.line}, has no derivative by {name}: {formula}"
                )
            made = formula.function(grad, self._forward)
            chosen = None if self.places is None else self.places[at]
            found += [made] if chosen is None else [made[place] for place in chosen]
        for at, (parent, output) in enumerate(self._node.parents):
            meta, one = parent.outputs[output], found[at]
            if one.shape != meta.shape or one.dtype != meta.dtype:
                found[at] = derivatives.fitted(one, meta.shape, meta.dtype)
        return found


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


def _check_out(call: Call, rule: _Rule, plain: Mapping[str, Any]) -> None:
    """Raise `GradientError` if a call would write its result over an argument that its own derivative reads."""
    reads = rule.reads(plain) - {"out"}
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
