"""Records the calls of ops on traced arrays: the innermost interposer, so that it sees the casts of autocast too.

A call runs at once, on the plain arrays. What is kept of it is a node: the line, the stream, and the values that its
formulas read, which must not be written until the gradients are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.autograd.traced import TracedArray, bottom
from cuassay.core import callers
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import GradientError
from cuassay.ops import Call, Formula, Meta, Op, derivatives, registry, rules

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
    backend, device, stream
        The kind, the device, and the stream that was current.
    """

    backend: Backend
    device: Device
    stream: Any

    @classmethod
    def of(cls, array: Array, last: Place | None = None) -> Place:
        """Where `array` is, and the current stream there: `last` itself where that is the same."""
        plain = bottom(array)
        backend = registry.owner_of(plain, "a traced array's value")
        device = backend.device_of(plain)
        stream = backend.current_stream(device.index)
        if last is not None and last.stream == stream and last.device == device:
            return last
        return cls(backend, device, stream)


@dataclass(slots=True, eq=False)
class Node:
    """A call, a view or an argument, as its gradients need it.

    Attributes
    ----------
    name : str
        What was called.
    site : (str, int)
        Where; `line` is its text.
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
    materialize : bool
        `pull` gets zeros for an output at which nothing arrived; else None.
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
        """Where it was called, as ``file.py:12``."""
        return callers.line(self.site)


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
        self._last: Place | None = None
        self._type: type | None = None
        self._rules: dict[tuple[Any, ...], _Rule] = {}

    def argument(self, value: Array) -> TracedArray:
        """The traced form of an argument to differentiate by."""
        return TracedArray(value, self, (Node("argument", callers.site(), self._place(value), (_meta(value),)), 0))

    def finish(self) -> None:
        """The function has returned: nothing more is recorded, and no write is seen."""
        self._saved.clear()

    def owns(self, value: Any) -> bool:
        """Whether `value` is a traced array of this recorder."""
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
        if not rule.formulas or not _is_float(result.dtype):
            return result
        node = Node(op.name, callers.site(), self._place(result), (_meta(result),))
        pull = node.pull = _Pull(node, rule.formulas, self._forward(node, rule, call, plain, result))
        if rule.has_lists:
            node.parents, pull.places = self._members(rule, arguments)
        else:
            node.parents = [arguments[name].node for name, _ in rule.formulas]
        self.nodes.append(node)
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
        """Record a call of a function with a backward of its own: `pull`, which gets None for zeros if it is to."""
        outputs, place = tuple(map(_meta, results)), self._place(results[0])
        parents = [one.node for one in inputs]
        node = Node(name, callers.site(), place, outputs, parents, pull, materialize=materialize)
        self.nodes.append(node)
        return [TracedArray(result, self, (node, place)) for place, result in enumerate(results)]

    def keep(self, array: Array, what: str, node: Node) -> None:
        """`array` must not be written while this recorder watches: a formula of `node` reads it as `what`."""
        self._saved.append((bottom(array), what, node))

    def _holds(self, value: Any) -> bool:
        if value.__class__ is TracedArray:
            return value.recorder is self
        return isinstance(value, list | tuple) and any(map(self.owns, value))

    def _represented(self, value: Any) -> Any:
        """The plain array of a traced one; of a list, that of each that is traced here."""
        if value.__class__ is TracedArray:
            return value.represents
        return [one.represents if self.owns(one) else one for one in value]

    def _members(
        self, rule: _Rule, arguments: Mapping[str, Any]
    ) -> tuple[list[tuple[Node, int]], list[tuple[int, ...] | None]]:
        """Where the arguments come from; of a list each array that is traced here, and at which places these are."""
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
        if last is not None and array.__class__ is self._type:  # as mostly, of the kind of the last
            device = last.backend.device_of(array)
            if last.stream == last.backend.current_stream(device.index) and last.device == device:
                return last
        found = self._last = Place.of(array, last)
        self._type = type(array) if array.__class__ is not TracedArray else None
        return found

    def _rule(self, op: Op, traced: Sequence[str]) -> _Rule:
        derivative = rules.derivative_of(op.name)
        if isinstance(derivative, str):
            raise GradientError(f"{op.name}, called at {callers.line()}, has no derivative: {derivative}")
        formulas = tuple((name, derivative[name]) for name in traced if name in derivative)
        reads = [formula.reads for _, formula in formulas if isinstance(formula, Formula)]
        named = [one for one in reads if isinstance(one, tuple)]
        fixed = frozenset(name for one in named for name in one) if len(named) == len(reads) else None
        has_lists = any(param.form == "arrays" for param in op.schema.arrays)
        found = self._rules[(op, *traced)] = _Rule(formulas, fixed, op.schema.array_names, has_lists)
        return found

    def _forward(self, node: Node, rule: _Rule, call: Call, plain: Mapping[str, Any], result: Array) -> rules.Forward:
        """The call as its formulas see it: it holds the values that they read, and no other array."""
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
        values["out"] = result if "out" in read else node.outputs[0]
        values["home"] = node.place.device
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


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an op and the names of its traced arguments decide; found once a recording.

    Attributes
    ----------
    formulas : tuple of (str, Formula or str)
        Of the traced arguments that have one, or the reason why there is none.
    fixed : frozenset of str, optional
        What the formulas read, where that does not depend on the arguments.
    arrays : tuple of str
        The parameters that are arrays or lists.
    has_lists : bool
        Whether one is a list.
    """

    formulas: tuple[tuple[str, Formula | str], ...]
    fixed: frozenset[str] | None
    arrays: tuple[str, ...]
    has_lists: bool

    def reads(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The arguments that the formulas read, and ``"out"``."""
        if self.fixed is not None:
            return self.fixed
        formulas = [one for _, one in self.formulas if isinstance(one, Formula)]
        return frozenset(name for one in formulas for name in one.read(arguments))


class _Pull:
    """From the gradient of a call's result to those of its traced arguments.

    Attributes
    ----------
    places : list, optional
        For each formula the places in its list whose gradients are wanted, or None where the parameter is an array.
    """

    __slots__ = ("_formulas", "_forward", "_node", "places")

    def __init__(self, node: Node, formulas: Sequence[tuple[str, Formula | str]], forward: rules.Forward) -> None:
        self._node, self._formulas, self._forward = node, formulas, forward
        self.places: list[tuple[int, ...] | None] | None = None

    def __call__(self, grads: Sequence[Array]) -> list[Array]:
        """One for each parent, of its shape and dtype."""
        (grad,) = grads
        found: list[Array] = []
        for at, (name, formula) in enumerate(self._formulas):
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


#: Dtypes to whether they are floating ones: their names cost more than the look-up.
_FLOATING: dict[Any, bool] = {}


def _is_float(dtype: Any) -> bool:
    found = _FLOATING.get(dtype)
    if found is None:
        found = _FLOATING[dtype] = dtype_name(dtype) in FLOATS
    return found


def _check_out(call: Call, rule: _Rule, plain: Mapping[str, Any]) -> None:
    """Raise `GradientError` where a call would write its result over an argument that its own derivative reads."""
    reads = rule.reads(plain) - {"out"}
    for param in call.op.schema.arrays:
        for what, array in param.members(plain[param.name]) if param.name in reads else ():
            if _overlap(bottom(array), call.out):
                raise GradientError(
                    f"{call.op.name}, called at {callers.line()}, would write out over its {what}, which its "
                    "derivative reads; let the op make a new array"
                )


def _written(call: Call) -> Iterator[tuple[str, Array]]:
    for out in call.out if isinstance(call.out, tuple | list) else (call.out,):
        if out is not None:
            yield "out", out
    for param in call.op.schema.written:
        yield from param.members(call.arguments[param.name])


def _overlap(saved: Array, array: Array) -> bool:
    backend = registry.backend_of(type(array))
    return backend is not None and backend.owns(type(saved)) and backend.overlap(saved, array) != "none"


def _without_numbers(value: Any) -> Any:
    """Shape and dtype of an array, and of each in a list; anything else as it is."""
    if isinstance(value, list):
        return [_without_numbers(one) for one in value]
    return value if registry.backend_for(value) is None else _meta(value)


def _meta(array: Array) -> Meta:
    return Meta(tuple(array.shape), array.dtype)
