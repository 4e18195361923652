"""What a recording consists of: nodes, the place where each call ran, and the prepared derivative of an op.

A node does not refer to itself, so a recording that is dropped frees its arrays at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cuassay.autograd.traced import bottom
from cuassay.core import callers
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import GradientError
from cuassay.ops import Formula, Meta, Op, derivatives, registry, rules

__all__ = ["Node", "Place", "Pull", "Rule", "spent"]

Array = Any


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


def spent(node: Node, grads: Sequence[Any]) -> Sequence[Any]:
    """Return no gradients. This is the pull of an argument, and of a node that is done."""
    return ()


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
        Takes the node and the gradients of its outputs, and returns one for each parent, or None.
    saved : object
        The values that `pull` needs.
    formulas : sequence of callable
        The function of each parent's formula, if the node is a call of an op without lists. `pull` calls them and fits
        their results; the backward pass does both itself where nothing else is to be done.
    materialize : bool
        Whether `pull` gets zeros instead of None for an output without a gradient.
    """

    name: str
    site: callers.Site
    place: Place
    outputs: Sequence[Meta]
    parents: Sequence[tuple[Node, int]] = ()
    pull: Pull = spent
    saved: Any = None
    formulas: Sequence[Callable[[Any, Any], Any]] = ()
    materialize: bool = True

    @property
    def line(self) -> str:
        """The line of the call, as ``file.py:12``."""
        return callers.line(self.site)

    def release(self) -> None:
        """Free the values that `pull` needs, because the node is done."""
        self.pull, self.saved, self.formulas = spent, None, ()


#: From a node and the gradients of its outputs to one for each parent, or None.
Pull = Callable[[Node, Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """The derivative of an op by some of its arguments. All that does not depend on the call is prepared once.

    Attributes
    ----------
    formulas : tuple of (str, Formula or str)
        For each traced argument, its formula or the reason why it has none.
    pull, functions
        The `pull` and `formulas` of each call's node. Its `saved` is a `Forward`; with `has_lists` it is a pair, whose
        second part has for each formula the indices in its list whose gradients are needed, or None for an array.
    labels : tuple of (str, str), optional
        The names that the formulas read, with their words in errors, if they do not depend on the arguments.
    unread : tuple of str
        With `labels`, the parameters that are arrays or lists of arrays and are not read.
    arrays : tuple of str
        The parameters that are arrays or lists of arrays.
    is_placed : bool
        Whether the result may be on another device than the arguments.
    forward : type
        The class of `Forward` for calls of the op.
    has_lists : bool
        Whether a parameter is a list.
    gives_list : bool
        Whether the result is a list.
    """

    formulas: tuple[tuple[str, Formula | str], ...]
    pull: Pull
    functions: Sequence[Callable[[Any, Any], Any]]
    labels: tuple[tuple[str, str], ...] | None
    unread: tuple[str, ...]
    arrays: tuple[str, ...]
    is_placed: bool
    forward: type[rules.Forward]
    has_lists: bool
    gives_list: bool

    @classmethod
    def of(cls, op: Op, traced: Sequence[str]) -> Rule:
        """Return the derivative of `op` by the arguments `traced`. Raises `GradientError` if there is none."""
        derivative = rules.derivative_of(op.name)
        if op.schema.written and not isinstance(derivative, str):
            derivative = f"it writes its arguments; call {op.name}.functional, which makes new arrays"
        if isinstance(derivative, str):
            raise GradientError(f"{op.name}, called at {callers.line()}, has no derivative: {derivative}")
        known, found = _rules.get((op, *traced), (None, None))
        if found is None or known is not derivative:
            found = cls._made(op, traced, derivative)
            _rules[(op, *traced)] = derivative, found
        return found

    @classmethod
    def _made(cls, op: Op, traced: Sequence[str], derivative: Mapping[str, Formula | str]) -> Rule:
        schema = op.schema
        formulas = tuple((name, derivative[name]) for name in traced if name in derivative)
        written = [formula for _, formula in formulas if isinstance(formula, Formula)]
        named = [formula.reads for formula in written if isinstance(formula.reads, tuple)]
        labels = _labels(name for reads in named for name in reads) if len(named) == len(written) else None
        has_lists = any(param.form == "arrays" for param in schema.arrays)
        gives_list = bool(schema.functional_of) and schema.outputs[0] in {one.name for one in schema.lists}
        functions = tuple(formula.function for formula in written)
        is_plain = len(written) == len(formulas) and not has_lists and not gives_list
        pull: Pull = partial(_pull_each, functions) if is_plain else partial(_pull_any, formulas, has_lists, gives_list)
        return cls(
            formulas,
            pull,
            functions if is_plain else (),
            labels,
            _unread(schema.array_names, labels or ()),
            schema.array_names,
            is_placed=schema.place is not None,
            forward=rules.forward_class((*(param.name for param in schema.params), "out", "home")),
            has_lists=has_lists,
            gives_list=gives_list,
        )

    def reads(self, arguments: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Return `labels` and `unread` for a call with these arguments."""
        if self.labels is not None:
            return self.labels, self.unread
        formulas = [one for _, one in self.formulas if isinstance(one, Formula)]
        labels = _labels(name for one in formulas for name in one.read(arguments))
        return labels, _unread(self.arrays, labels)


#: The prepared derivatives by op and traced arguments, each with the registered derivative that it was made of.
_rules: dict[tuple[Any, ...], tuple[rules.Derivative, Rule]] = {}


def _labels(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, "its result" if name == "out" else f"its {name}") for name in sorted(set(names)))


def _unread(arrays: Sequence[str], labels: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    read = dict(labels)
    return tuple(name for name in arrays if name not in read)


def _pull_each(functions: Sequence[Callable[[Any, Any], Any]], node: Node, grads: Sequence[Array]) -> list[Array]:
    return _all_fitted(node, [function(grads[0], node.saved) for function in functions])


def _pull_any(
    formulas: Sequence[tuple[str, Formula | str]], has_lists: bool, gives_list: bool, node: Node, grads: Sequence[Array]
) -> Sequence[Array]:
    """Compute the gradients of a call with lists, or raise because an argument has no formula."""
    forward, members = node.saved if has_lists else (node.saved, [None] * len(formulas))
    found: list[Array] = []
    for (name, formula), chosen in zip(formulas, members, strict=True):
        if isinstance(formula, str):
            raise GradientError(f"{node.name}, called at {node.line}, has no derivative by {name}: {formula}")
        made = formula.function(grads if gives_list else grads[0], forward)
        found += [made] if chosen is None else [made[place] for place in chosen]
    return _all_fitted(node, found)


def _all_fitted(node: Node, found: list[Array]) -> list[Array]:
    for at, (parent, output) in enumerate(node.parents):
        meta, one = parent.outputs[output], found[at]
        if one.shape != meta.shape or one.dtype != meta.dtype:
            found[at] = derivatives.fitted(one, meta.shape, meta.dtype)
    return found
