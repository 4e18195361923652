"""`checkpoint`: keep only the arguments of a part of a function, and recompute the part in the backward pass.

T. Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from cuassay.autograd.function import Function
from cuassay.autograd.recorded import Recorded
from cuassay.autograd.trees import is_array, leaves, mapped
from cuassay.core import draws, surroundings

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *args: Any, preserve_rng_state: bool = True) -> Any:
    """Return ``function(*args)``, and compute it again in the backward pass instead of keeping intermediate values.

    The recomputation runs on the stream of the call, in the same precision and autocast regions, and with the same
    random numbers. Names and meanings follow ``torch.utils.checkpoint.checkpoint``.

    Parameters
    ----------
    function : callable
        A function of ops that does the same each time. All traced arrays that it uses must be arguments.
    *args
        Arrays, or lists, tuples and dicts of them, and anything else.
    preserve_rng_state : bool
        Whether to repeat the states that generators handed out. If False, the second call draws new numbers.

    Raises
    ------
    GradientError
        If `function` uses a traced array that is not among its arguments.
    StateError
        In the backward pass, if the number of random draws differs from the first call.
    """
    forms = mapped(lambda leaf: None if is_array(leaf) else leaf, list(args))
    is_given = [is_array(leaf) for leaf in leaves(list(args))]
    arrays = [leaf for leaf in leaves(list(args)) if is_array(leaf)]

    def call(*given: Any) -> Any:
        left, known = iter(given), iter(is_given)
        return function(*mapped(lambda leaf: next(left) if next(known) else leaf, forms))

    return _Checkpoint.apply(call, preserve_rng_state, *arrays)


class _Checkpoint(Function):
    name = "checkpoint"

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *arrays: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.function, ctx.restored = function, surroundings.saved()
        with draws.recorded() as ctx.drawn:
            result = function(*arrays)
        if not preserve:
            ctx.drawn = None
        ctx.save_for_backward(*arrays)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Sequence[Any]:
        needed, arrays = ctx.needs_input_grad[2:], ctx.saved_tensors
        chosen = [place for place, wanted in enumerate(needed) if wanted]
        found = dict(zip(chosen, _gradients(ctx, arrays, chosen, grads), strict=True))
        return [None, None, *(found.get(place) for place in range(len(arrays)))]


def _gradients(ctx: Any, arrays: Sequence[Any], chosen: Sequence[int], grads: Sequence[Any]) -> tuple[Any, ...]:
    def again(*values: Any) -> Any:
        given = list(arrays)
        for place, value in zip(chosen, values, strict=True):
            given[place] = value
        return ctx.function(*given)

    with ctx.restored(), draws.repeated(ctx.drawn) if ctx.drawn is not None else nullcontext():
        recorded = Recorded(
            again, tuple(arrays[place] for place in chosen), {}, tuple(range(len(chosen))), has_aux=False
        )
    recorded.value = None  # free its memory
    return recorded.gradients(grads, keep=False)
