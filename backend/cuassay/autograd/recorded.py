"""`Recorded`: one run of a function on traced arguments, and the gradients of its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.autograd import backward
from cuassay.autograd.nodes import Node
from cuassay.autograd.recorder import Recorder
from cuassay.autograd.traced import TracedArray
from cuassay.autograd.trees import is_array, leaves, mapped
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError
from cuassay.ops import interpose

__all__ = ["Recorded"]

Array = Any


class Recorded:
    """One run of a function on traced arguments.

    Parameters
    ----------
    function : callable
        The function.
    args, kwargs
        Its arguments.
    places : tuple of int
        The indices of the arguments to differentiate by.
    has_aux : bool
        Whether it returns a pair whose second part is not differentiated.

    Attributes
    ----------
    value, aux
        Its results as plain arrays.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        places: tuple[int, ...],
        *,
        has_aux: bool,
    ) -> None:
        self._recorder = Recorder()
        self._wanted: list[Node] = []
        chosen = _chosen(places, len(args))
        traced = [mapped(self._traced, arg) if place in chosen else arg for place, arg in enumerate(args)]
        self._arguments = [mapped(lambda leaf: None, args[place]) for place in chosen]
        with interpose(self._recorder):
            result = function(*traced, **kwargs)
        self._recorder.finish()
        value, aux = _pair(result) if has_aux else (result, None)
        self._outputs = [one.node if self._recorder.owns(one) else None for one in leaves(value)]
        self.value, self.aux = mapped(self._plain, value), mapped(self._plain, aux)

    def _traced(self, leaf: Any) -> TracedArray:
        if not is_array(leaf):
            raise ArgumentError(
                f"an argument to differentiate by holds {shown(leaf)}, which is not an array; leave it out of argnums"
            )
        if dtype_name(leaf.dtype) not in FLOATS:
            raise DTypeError(
                f"a derivative by an array of {dtype_name(leaf.dtype)} is not defined; give one of "
                f"{', '.join(FLOATS)}, or leave the argument out of argnums"
            )
        traced = self._recorder.argument(leaf)
        self._wanted.append(traced.node[0])
        return traced

    def _plain(self, leaf: Any) -> Any:
        return leaf.represents if self._recorder.owns(leaf) else leaf

    def gradients(self, grads: Sequence[Array | None], *, keep: bool) -> tuple[Any, ...]:
        """Return the gradient of each chosen argument, in its form. `grads` are the gradients of the value's leaves."""
        pairs = zip(self._outputs, grads, strict=True)
        given = [(node, one) for node, one in pairs if node is not None and one is not None]
        found = iter(backward.run(self._recorder.nodes, given, self._wanted, keep=keep))
        return tuple(mapped(lambda leaf: next(found), form) for form in self._arguments)


def _chosen(places: tuple[int, ...], count: int) -> tuple[int, ...]:
    found = []
    for place in places:
        if not -count <= place < count:
            raise ArgumentError(f"argnums names argument {place} of a call with {count}; count from 0")
        found.append(place % count)
    return tuple(found)


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(f"with has_aux the function gives (value, aux); got {shown(result)}")
    return result
