"""`grad`, `value_and_grad`, `vjp` and `jvp` of functions over `cuassay.ops`; names and meanings are ``torch.func``'s.

The function runs once, eagerly, on traced arrays; then the backward pass runs as ops on the streams of the forward
calls. Gradients are ordered for the caller's current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuassay import devices
from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.autograd import backward
from cuassay.autograd.recorder import Node, Recorder
from cuassay.autograd.traced import TracedArray, bottom
from cuassay.autograd.trees import is_array, leaves, mapped
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError, GradientError, ShapeError
from cuassay.ops import interpose, registry

__all__ = ["grad", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Array = Any
Function = Callable[..., Any]


def grad(function: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Function:
    """A function that gives the gradients of `function` by its arguments `argnums`; see `value_and_grad`.

    Examples
    --------
    >>> import numpy as np
    >>> from cuassay import ops
    >>> from cuassay.autograd import grad
    >>> grad(lambda x: ops.sum(ops.mul(x, x)))(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    run = value_and_grad(function, argnums, has_aux=has_aux)

    def gradients(*args: Any, **kwargs: Any) -> Any:
        value, found = run(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradients


def value_and_grad(function: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Function:
    """A function that gives the value of `function` and its gradients.

    Parameters
    ----------
    function : callable
        From arrays, or lists, tuples and dicts of them, to an array of one element, computed by `cuassay.ops`, views
        and operators. Keyword arguments are passed on as they are.
    argnums : int or tuple of int
        The positional arguments to differentiate by; each array in them must be of a real floating dtype.
    has_aux : bool
        `function` gives a pair: the value, and what is returned with it as it is.

    Returns
    -------
    callable
        Gives ``(value, gradients)``, or ``((value, aux), gradients)``. Gradients have the form of the argument, the
        shape and dtype of its arrays, and memory of their own.

    Raises
    ------
    GradientError
        If an op has no derivative, a saved array is overwritten, or a traced array is given to another library.
    ShapeError
        If the value has more than one element.
    """
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def run(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        recorded = _Recorded(function, args, kwargs, places, has_aux=has_aux)
        value = recorded.value
        _check_value(function, value)
        seed = devices.full(tuple(value.shape), 1, value.dtype, registry.device_of(value, "the value"))
        found = recorded.gradients([seed], keep=False)
        return (value, recorded.aux) if has_aux else value, found[0] if isinstance(argnums, int) else found

    return run


def vjp(function: Function, *args: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of `function` at `args`, and a function from gradients of the value to those of all arguments.

    Parameters
    ----------
    function : callable
        As for `value_and_grad`, but its value may be any array, or lists, tuples and dicts of arrays.
    *args
        Arrays, or lists, tuples and dicts of them.

    Returns
    -------
    value, pull
        And what was given with the value, with `has_aux`. ``pull(grad)`` takes gradients in the form of the value and
        gives a tuple, one entry an argument. It may be called again: what it needs is kept until it is dropped, and
        must not be written until then. Writes by ops outside of `function` are not seen.
    """
    recorded = _Recorded(function, args, {}, tuple(range(len(args))), has_aux=has_aux)

    def pull(grads: Any) -> tuple[Any, ...]:
        given, outputs = list(leaves(grads)), list(leaves(recorded.value))
        shapes = [tuple(getattr(one, "shape", ())) for one in given]
        if shapes != [tuple(one.shape) for one in outputs]:
            wanted = ", ".join(str(tuple(one.shape)) for one in outputs)
            raise ShapeError(f"pull takes gradients of the value, of shapes {wanted}; got {shapes}; give one an output")
        return recorded.gradients(given, keep=True)

    return (recorded.value, pull, recorded.aux) if has_aux else (recorded.value, pull)


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of `function` at `primals`, and its derivative in the direction of `tangents`, of the value's form.

    By two backward passes: the pull of `vjp` is linear in its argument, and its own transpose is the derivative.
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise ArgumentError(
            f"jvp takes tuples of arguments and of tangents; got {shown(primals)} and {shown(tangents)}; write jvp(f, "
            "(x,), (t,))"
        )
    value, pull = vjp(function, *primals)
    zeros = mapped(lambda one: devices.zeros(tuple(one.shape), one.dtype, registry.device_of(one, "the value")), value)
    _, push = vjp(pull, zeros)
    (tangent,) = push(tuple(tangents))
    return value, tangent


def stop_gradient(tree: Any) -> Any:
    """The plain arrays of traced ones: no gradient passes through them."""
    return mapped(bottom, tree)


class _Recorded:
    """A function that was run on traced arguments.

    Attributes
    ----------
    value, aux
        Its results, plain.
    """

    def __init__(
        self,
        function: Function,
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

    def gradients(self, grads: Sequence[Array], *, keep: bool) -> tuple[Any, ...]:
        """Of each chosen argument, in its form."""
        given = [(node, one) for node, one in zip(self._outputs, grads, strict=True) if node is not None]
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


def _check_value(function: Function, value: Any) -> None:
    name = getattr(function, "__name__", "the function")
    if not is_array(value):
        raise GradientError(f"{name} gave {shown(value)}; a gradient is that of an array of one element; return one")
    if value.size != 1 or dtype_name(value.dtype) not in FLOATS:
        raise ShapeError(
            f"{name} gave an array of shape {tuple(value.shape)} and {dtype_name(value.dtype)}; a gradient is that of "
            "one real number; return ops.sum(...) of it, or use vjp"
        )
