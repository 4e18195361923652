"""`Function`: a function whose derivative its author writes, forward on plain arrays, backward over ops.

Of a derivative inside a derivative each recorder takes the call once, the newest first, as it takes a call of an op:
the forward pass runs on the plain arrays at the bottom, and a backward pass gets the arrays of its own recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.autograd.recorder import Recorder
from cuassay.autograd.traced import TracedArray, bottom
from cuassay.autograd.trees import is_array, leaves, mapped
from cuassay.core import callers
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, GradientError, ShapeError
from cuassay.ops import derivatives
from cuassay.ops.interposers import interposers

__all__ = ["Context", "Function"]

Array = Any


@dataclass(slots=True)
class Kept:
    """What one call keeps.

    Attributes
    ----------
    name : str
        The function's.
    needs_input_grad : tuple of bool
        As in `Context`.
    saved : tuple of array or None
        What was given to `save_for_backward`.
    given : tuple of int
        Identities of the plain arguments.
    constants : set of int
        Identities of the results that no gradient passes through.
    materialize : bool
        Whether backward gets zeros rather than None.
    """

    name: str
    needs_input_grad: tuple[bool, ...]
    saved: tuple[Array | None, ...] = ()
    given: tuple[int, ...] = ()
    constants: set[int] = field(default_factory=set)
    materialize: bool = True

    def at(self, args: Sequence[Any], parts: Sequence[Any]) -> tuple[Array | None, ...]:
        """The saved arrays as those of a level, given its arguments and results; an error for what is neither."""
        known = {id(bottom(one)): one for one in parts} | dict(zip(self.given, args, strict=True))
        return tuple(known.get(id(one), _Unknown(self.name)) if one is not None else None for one in self.saved)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Replaces a saved array that a second derivative cannot go through."""

    name: str

    def error(self) -> GradientError:
        return GradientError(
            f"{self.name} saved an array that is neither an argument nor a result of forward; its second derivative "
            "would miss a part; save arguments or results and compute the array in backward"
        )


class Context:
    """What `Function.forward` leaves for `Function.backward`; any other attribute may be set, too.

    Parameters
    ----------
    kept : object
        What the call keeps.
    saved : tuple, optional
        The saved arrays where they are not those of `kept`.
    attributes : mapping
        Set by forward.
    """

    def __init__(
        self, kept: Kept, saved: tuple[Any, ...] | None = None, attributes: Mapping[str, Any] | None = None
    ) -> None:
        vars(self).update(attributes or {})
        self._kept, self._saved = kept, saved

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """For each argument of forward, whether a gradient by it is wanted."""
        return self._kept.needs_input_grad

    def save_for_backward(self, *arrays: Array | None) -> None:
        """Keep arrays for backward, or None in the place of one.

        They are freed as soon as backward has run, and a write over one by an op is an error until then. Save arguments
        and results: a second derivative goes through them, while other arrays would be constants to it.

        Raises
        ------
        ArgumentError
            If one is not an array.
        """
        for place, array in enumerate(arrays):
            if array is not None and not is_array(array):
                raise ArgumentError(
                    f"{self._kept.name}'s save_for_backward takes arrays; got {shown(array)} at place {place}; set "
                    "anything else as an attribute of ctx"
                )
            if isinstance(array, TracedArray):
                raise GradientError(
                    f"{self._kept.name}, called at {callers.line()}, saved a traced array of another function; give it "
                    "to apply as an argument, and save what forward gets"
                )
        self._kept.saved = arrays

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The arrays given to `save_for_backward`; the name is torch's.

        Raises
        ------
        GradientError
            In a second derivative, if one of them is neither an argument nor a result of forward.
        """
        saved = self._kept.saved if self._saved is None else self._saved
        for one in saved:
            if isinstance(one, _Unknown):
                raise one.error()
        return saved

    def mark_non_differentiable(self, *arrays: Array) -> None:
        """No gradient passes through these results: the caller gets them plain, and backward gets None for them."""
        self._kept.constants.update(map(id, arrays))

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, as it does unless told, for results that do not change the value; else None."""
        self._kept.materialize = value


class Function:
    """A function with a derivative of its own: subclass it, and call `apply`. Names and meanings are torch's.

    Examples
    --------
    >>> import numpy as np
    >>> from cuassay import ops
    >>> from cuassay.autograd import Function, grad
    >>> class Cube(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return ops.mul(g, ops.mul(3.0, ops.mul(x, x)))
    >>> grad(lambda x: ops.sum(Cube.apply(x)))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """

    #: What errors and nodes call it; the class's name unless set.
    name: ClassVar[str] = ""

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """The value: an array, or lists, tuples and dicts of arrays and anything else.

        It gets plain arrays and may do anything with them but write them. Keyword arguments are not passed on.
        """
        raise NotImplementedError("a Function needs a static method forward(ctx, *args); write one")

    @staticmethod
    def backward(ctx: Context, *grads: Array | None) -> Any:
        """From a gradient of each result to one for each argument of forward: a tuple, or the one by itself.

        None means that an argument has no gradient. A gradient may be broadcast or wider, as that of a
        `cuassay.ops.Formula`. It runs on the stream of the call. What has a second derivative is written over ops.
        """
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads); write one")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The value at `args`; arrays to differentiate by are arguments themselves, not parts of one.

        Raises
        ------
        ArgumentError
            If an argument is a list, tuple or dict that holds a traced array.
        GradientError
            If forward uses a traced array that is not an argument; in the backward pass, if backward gives another
            number of gradients than forward has arguments, or something else than arrays.
        ShapeError
            In the backward pass, if the shape of a gradient does not fit.
        """
        name = cls.name or cls.__name__
        for place, arg in enumerate(args):
            if isinstance(arg, list | tuple | dict) and any(isinstance(one, TracedArray) for one in leaves(arg)):
                raise ArgumentError(
                    f"{name}'s argument {place}, at {callers.line()}, holds traced arrays; give each as an argument"
                )
        kept = Kept(name, tuple(isinstance(arg, TracedArray) for arg in args))
        return _run(cls, kept, Context(kept), args)


def _run(function: type[Function], kept: Kept, ctx: Context, args: tuple[Any, ...]) -> Any:
    """The value on this level: the newest recorder's, if one owns an argument; else forward itself."""
    recorder = _newest(kept.name, args)
    if recorder is None:
        given = _told_apart(args)
        kept.given = tuple(map(id, given))
        return _plain(kept.name, function.forward(ctx, *given))
    lower = tuple(one.represents if recorder.owns(one) else one for one in args)
    result = _run(function, kept, ctx, lower)
    parts = list(leaves(result))
    places = [place for place, one in enumerate(parts) if _is_differentiable(kept, one)]
    if not places:
        return result
    if any(isinstance(one, TracedArray) for one in (*lower, *parts)):
        ctx = Context(kept, kept.at(lower, parts), vars(ctx))
    wanted = [place for place, one in enumerate(args) if recorder.owns(one)]
    made = recorder.applied(
        kept.name,
        [args[place] for place in wanted],
        [parts[place] for place in places],
        _Pull(function, kept.name, ctx, lower, wanted, (len(parts), places)),
        materialize=kept.materialize,
    )
    for array in kept.saved:
        if array is not None:
            recorder.keep(array, "a saved array", made[0].node[0])
    traced = dict(zip(places, made, strict=True))
    numbered = iter(range(len(parts)))
    return mapped(lambda leaf: traced.get(next(numbered), leaf), result)


def _newest(name: str, args: Sequence[Any]) -> Recorder | None:
    traced = [(place, one) for place, one in enumerate(args) if isinstance(one, TracedArray)]
    for watcher in interposers.stack:  # recorders stand last, the newest first
        if isinstance(watcher, Recorder) and any(watcher.owns(one) for _, one in traced):
            return watcher
    for place, one in traced:
        raise one.left(f"{name}'s argument {place}")
    return None


def _plain(name: str, result: Any) -> Any:
    for one in leaves(result):
        if isinstance(one, TracedArray):
            node = one.node[0]
            raise GradientError(
                f"{name}, called at {callers.line()}, uses a traced array that is not one of its arguments (it came "
                f"from {node.name}, called at {node.line}); give it as an argument"
            )
    return result


def _is_differentiable(kept: Kept, value: Any) -> bool:
    return is_array(value) and dtype_name(value.dtype) in FLOATS and id(bottom(value)) not in kept.constants


def _told_apart(args: Sequence[Any]) -> list[Any]:
    """The arguments; of an array that is given twice, views: saved arrays are known by their identity."""
    seen: set[int] = set()
    found = []
    for arg in args:
        one = arg[...] if is_array(arg) and id(arg) in seen else arg
        seen.add(id(arg))
        found.append(one)
    return found


class _Pull:
    """The backward of one call, for one recorder: from gradients of differentiable results to those of arguments.

    Parameters
    ----------
    function, name, ctx
        Whose backward it is.
    args : sequence
        The arguments of forward.
    wanted : sequence of int
        Those to give gradients of.
    results : (int, sequence of int)
        How many results there are, and which are differentiable.
    """

    def __init__(
        self,
        function: type[Function],
        name: str,
        ctx: Context,
        args: Sequence[Any],
        wanted: Sequence[int],
        results: tuple[int, Sequence[int]],
    ) -> None:
        self._backward: Callable[..., Any] = function.backward
        self._name, self._ctx, self._wanted, self._results = name, ctx, wanted, results
        self._metas = [(tuple(one.shape), one.dtype) if is_array(one) else None for one in args]

    def __call__(self, grads: Sequence[Array | None]) -> list[Array | None]:
        count, places = self._results
        given: list[Array | None] = [None] * count
        for place, grad in zip(places, grads, strict=True):
            given[place] = grad
        found = self._backward(self._ctx, *given)
        entries = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(entries) != len(self._metas):
            raise GradientError(
                f"{self._name}.backward gave {len(entries)} gradients for {len(self._metas)} arguments of forward; "
                "give one for each, None for what has none"
            )
        return [self._fitted(place, entries[place]) for place in self._wanted]

    def _fitted(self, place: int, grad: Any) -> Array | None:
        meta = self._metas[place]
        if grad is None or meta is None:
            return None
        if not is_array(grad):
            raise GradientError(
                f"{self._name}.backward gave {shown(grad)} for argument {place}; give an array of shape {meta[0]}, or "
                "None"
            )
        shape = tuple(grad.shape)
        if shape != meta[0] and not _is_broadcast(meta[0], shape):
            raise ShapeError(
                f"{self._name}.backward gave a gradient of shape {shape} for argument {place}, which has {meta[0]}; "
                "give one of that shape, or of one that it broadcasts to"
            )
        return derivatives.fitted(grad, *meta)


def _is_broadcast(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, wide) == wide
    except ValueError:
        return False
