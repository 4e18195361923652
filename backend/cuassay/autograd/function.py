"""`Function`: a function with a derivative written by its author. Forward gets plain arrays, and backward uses ops.

In nested derivatives each recorder records the call once, the newest first, like a call of an op. The forward pass runs
on the innermost plain arrays, and each backward pass gets the arrays of its own recorder.
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
    """The data that one call keeps for its backward passes.

    Attributes
    ----------
    name : str
        The name of the function.
    needs_input_grad : tuple of bool
        As in `Context`.
    saved : tuple of array or None
        The arrays passed to `save_for_backward`.
    given : tuple of int
        The ids of the plain arguments.
    constants : set of int
        The ids of the results that are not differentiable.
    materialize : bool
        Whether backward gets zeros instead of None.
    """

    name: str
    needs_input_grad: tuple[bool, ...]
    saved: tuple[Array | None, ...] = ()
    given: tuple[int, ...] = ()
    constants: set[int] = field(default_factory=set)
    materialize: bool = True

    def at(self, args: Sequence[Any], parts: Sequence[Any]) -> tuple[Array | None, ...]:
        """Return the saved arrays as arguments or results of a level; others are replaced by a placeholder error."""
        known = {id(bottom(one)): one for one in parts} | dict(zip(self.given, args, strict=True))
        return tuple(known.get(id(one), _Unknown(self.name)) if one is not None else None for one in self.saved)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A placeholder for a saved array that a second derivative cannot differentiate."""

    name: str

    def error(self) -> GradientError:
        return GradientError(
            f"{self.name} saved an array that is neither an argument nor a result of forward; its second derivative "
            "would miss a part; save arguments or results and compute the array in backward"
        )


class Context:
    """Passes data from `Function.forward` to `Function.backward`. Other attributes may be set freely.

    Parameters
    ----------
    kept : object
        The data of the call.
    saved : tuple, optional
        The saved arrays, if they differ from those of `kept`.
    attributes : mapping
        Attributes that forward set.
    """

    def __init__(
        self, kept: Kept, saved: tuple[Any, ...] | None = None, attributes: Mapping[str, Any] | None = None
    ) -> None:
        vars(self).update(attributes or {})
        self._kept, self._saved = kept, saved

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """Whether a gradient is needed, for each argument of forward."""
        return self._kept.needs_input_grad

    def save_for_backward(self, *arrays: Array | None) -> None:
        """Save arrays for backward. None may take the place of an array.

        The arrays are freed as soon as backward has run. Until then it is an error if an op overwrites one. Save
        arguments and results only: a second derivative cannot differentiate other arrays.

        Raises
        ------
        ArgumentError
            If a value is neither an array nor None.
        GradientError
            If an array is a traced array of another function.
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
        """The arrays passed to `save_for_backward`. The name is torch's.

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
        """Mark results as not differentiable. The caller gets them as plain arrays, and backward gets None for them."""
        self._kept.constants.update(map(id, arrays))

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether backward gets zeros (the default) or None for results that do not affect the value."""
        self._kept.materialize = value


class Function:
    """A function with a custom derivative. Subclass it, and call `apply`. Names and meanings follow torch.

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

    #: The name in errors and nodes; by default the name of the class.
    name: ClassVar[str] = ""

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """Return the value: an array, or lists, tuples and dicts of arrays and anything else.

        Arguments are plain arrays. They may be used in any way but must not be written. Keyword arguments are not
        supported.
        """
        raise NotImplementedError("a Function needs a static method forward(ctx, *args); write one")

    @staticmethod
    def backward(ctx: Context, *grads: Array | None) -> Any:
        """Return a gradient for each argument of forward, as a tuple, or a single one without a tuple.

        `grads` has a gradient for each result. None means that an argument has no gradient. A gradient may have a
        broadcast shape or a wider dtype, like that of a `cuassay.ops.Formula`. Backward runs on the stream of the call.
        For a second derivative it must consist of ops.
        """
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads); write one")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function and return its value.

        Arrays to differentiate by must be arguments themselves rather than elements of one.

        Raises
        ------
        ArgumentError
            If an argument is a list, tuple or dict that holds a traced array.
        GradientError
            If forward uses a traced array that is not an argument. In the backward pass, if backward returns another
            number of gradients than forward has arguments, or a value that is not an array.
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
    """Return the value: recorded by the newest recorder that owns an argument, or else the result of forward."""
    recorder = _newest(kept.name, args)
    if recorder is None:
        plain = _distinct(args)
        kept.given = tuple(map(id, plain))
        return _plain(kept.name, function.forward(ctx, *plain))
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
    for watcher in interposers.stack:  # recorders are at the end, the newest first
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


def _distinct(args: Sequence[Any]) -> list[Any]:
    """Return the arguments, with views for arrays that occur twice, because saved arrays are identified by id."""
    seen: set[int] = set()
    found = []
    for arg in args:
        one = arg[...] if is_array(arg) and id(arg) in seen else arg
        seen.add(id(arg))
        found.append(one)
    return found


class _Pull:
    """The backward of one call for one recorder, from gradients of differentiable results to those of arguments.

    Parameters
    ----------
    function, name, ctx
        The function, its name, and the context of the call.
    args : sequence
        The arguments of forward.
    wanted : sequence of int
        The indices of the arguments whose gradients are needed.
    results : (int, sequence of int)
        The number of results, and the indices of the differentiable ones.
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
