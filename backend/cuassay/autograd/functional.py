"""`grad`, `value_and_grad`, `vjp` and `jvp` of functions over `cuassay.ops`. Names and meanings follow ``torch.func``.

The function runs once, eagerly, on traced arrays. Then the backward pass runs as ops on the streams of the forward
calls. Gradients are ready in the order of the caller's current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuassay import devices
from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.autograd.recorded import Recorded
from cuassay.autograd.traced import bottom
from cuassay.autograd.trees import is_array, leaves, mapped
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, GradientError, ShapeError
from cuassay.ops import registry

__all__ = ["grad", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Array = Any
Function = Callable[..., Any]


def grad(function: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Function:
    """Return a function that computes the gradients of `function` by its arguments `argnums`; see `value_and_grad`.

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
    """Return a function that computes the value of `function` and its gradients.

    Parameters
    ----------
    function : callable
        A function from arrays, or lists, tuples and dicts of them, to an array of one element, computed by
        `cuassay.ops`, views and operators. Keyword arguments are passed on unchanged.
    argnums : int or tuple of int
        The positional arguments to differentiate by. All arrays in them must have a real floating-point dtype.
    has_aux : bool
        Whether `function` returns a pair of the value and an auxiliary result, which is not differentiated.

    Returns
    -------
    callable
        Returns ``(value, gradients)``, or ``((value, aux), gradients)``. Gradients have the form of the argument, the
        shape and dtype of its arrays, and separate memory.

    Raises
    ------
    GradientError
        If an op has no derivative, a saved array is overwritten, or a traced array is passed to another library.
    ShapeError
        If the value has more than one element.
    """
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def run(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        recorded = Recorded(function, args, kwargs, places, has_aux=has_aux)
        value = recorded.value
        _check_value(function, value)
        seed = devices.full(tuple(value.shape), 1, value.dtype, registry.device_of(value, "the value"))
        found = recorded.gradients([seed], keep=False)
        return (value, recorded.aux) if has_aux else value, found[0] if isinstance(argnums, int) else found

    return run


def vjp(function: Function, *args: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of `function` at `args`, and a function from gradients of the value to those of all arguments.

    Parameters
    ----------
    function : callable
        As for `value_and_grad`, but its value may be any array, or lists, tuples and dicts of arrays.
    *args
        Arrays, or lists, tuples and dicts of them.
    has_aux : bool
        As for `value_and_grad`.

    Returns
    -------
    value, pull
        With `has_aux` also the auxiliary result. ``pull(grad)`` takes gradients in the form of the value and returns a
        tuple with one entry per argument. It may be called several times. The arrays that it needs are kept until it
        is dropped and must not be written until then; writes by ops outside of `function` are not detected.
    """
    recorded = Recorded(function, args, {}, tuple(range(len(args))), has_aux=has_aux)

    def pull(grads: Any) -> tuple[Any, ...]:
        given, outputs = list(leaves(grads)), list(leaves(recorded.value))
        shapes = [tuple(getattr(one, "shape", ())) for one in given]
        if shapes != [tuple(one.shape) for one in outputs]:
            wanted = ", ".join(str(tuple(one.shape)) for one in outputs)
            raise ShapeError(f"pull takes gradients of the value, of shapes {wanted}; got {shapes}; give one an output")
        return recorded.gradients(given, keep=True)

    return (recorded.value, pull, recorded.aux) if has_aux else (recorded.value, pull)


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return the value of `function` at `primals`, and its derivative in the direction of `tangents`.

    The derivative has the form of the value. It is computed by two backward passes: the pull of `vjp` is linear in its
    argument, and the transpose of the pull is the derivative.
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
    """Return the plain arrays of traced ones, through which no gradient passes."""
    return mapped(bottom, tree)


def _check_value(function: Function, value: Any) -> None:
    name = getattr(function, "__name__", "the function")
    if not is_array(value):
        raise GradientError(f"{name} gave {shown(value)}; a gradient is that of an array of one element; return one")
    if value.size != 1 or dtype_name(value.dtype) not in FLOATS:
        raise ShapeError(
            f"{name} gave an array of shape {tuple(value.shape)} and {dtype_name(value.dtype)}; a gradient is that of "
            "one real number; return ops.sum(...) of it, or use vjp"
        )
