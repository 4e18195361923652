"""`gradcheck` and `gradgradcheck`: compare first and second gradients of a function with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.autograd.functional import vjp
from cuassay.autograd.trees import is_array, leaves, mapped
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, GradientError
from cuassay.ops import registry

__all__ = ["gradcheck", "gradgradcheck"]

#: The cube root of float64's epsilon, at which the error of a central difference is smallest. Combining differences at
#: this step and at twice the step cancels the leading error (Richardson), which helps near poles.
_STEP = float(np.finfo(np.float64).eps ** (1 / 3))

#: How many elements of each array are changed one by one. In larger arrays they are evenly spaced.
_ELEMENTS = 24


def gradcheck(
    function: Callable[..., Any],
    args: Sequence[Any],
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    step: float = _STEP,
    elements: int = _ELEMENTS,
) -> None:
    """Raise unless the gradients of `function` by its float64 arrays agree with central differences.

    The value, of any shape or form, is multiplied by fixed weights and summed, so one backward pass is checked.

    Parameters
    ----------
    function : callable
        As for `vjp`.
    args : sequence
        Its arguments: arrays, or lists, tuples and dicts of arrays. The gradients by float64 arrays are checked; other
        values are passed unchanged.
    rtol, atol : float
        The tolerances: relative to the larger of the difference and the largest gradient of the array, and absolute.
    step : float
        By how much an element is changed, relative to its size if that is above 1.
    elements : int
        The largest number of elements of an array that are changed.

    Raises
    ------
    GradientError
        If a gradient is wrong. The message names the element, the argument and both numbers.
    ArgumentError
        If no argument is a float64 array.
    """
    if not isinstance(args, list | tuple):
        raise ArgumentError(f"gradcheck takes a sequence of arguments; got {shown(args)}; write gradcheck(f, (x,))")
    host = [mapped(lambda leaf: devices.to_host(leaf) if is_array(leaf) else leaf, arg) for arg in args]
    chosen = [place for place, arg in enumerate(args) if any(map(_is_checked, leaves(arg)))]
    if not chosen:
        raise ArgumentError("gradcheck differentiates by arrays of float64; got none among the arguments; cast one")

    def by_chosen(*given: Any) -> Any:
        full = list(args)
        for place, arg in zip(chosen, given, strict=True):
            full[place] = arg
        return function(*full)

    value, pull = vjp(by_chosen, *(args[place] for place in chosen))
    weights = [_weights(tuple(one.shape), seed) for seed, one in enumerate(leaves(value))]
    found = pull(_like(value, weights))
    for place, grads in zip(chosen, found, strict=True):
        for leaf, grad in enumerate(leaves(grads)):
            _check(_Slope(function, args, host, place, leaf, weights), grad, rtol, atol, step, elements)


def gradgradcheck(function: Callable[..., Any], args: Sequence[Any], **options: Any) -> None:
    """Raise unless the second derivatives of `function` by its float64 arrays agree with central differences.

    This applies `gradcheck` to the gradients, as a function of the arguments and of the gradient of the value.

    Parameters
    ----------
    function, args
        As for `gradcheck`. Parts of the value that are not float64 arrays are ignored.
    **options
        As for `gradcheck`.

    Raises
    ------
    GradientError
        If a second derivative is wrong, or an op has none.
    ArgumentError
        If no argument is a float64 array.
    """
    args = tuple(args)
    chosen = [place for place, arg in enumerate(args) if any(map(_is_checked, leaves(arg)))]
    outputs = [one for one in leaves(function(*args)) if _is_checked(one)]
    given = [_like(one, [_weights(tuple(one.shape), 100 + seed)]) for seed, one in enumerate(outputs)]

    def gradients(*both: Any) -> Any:
        def floats(*values: Any) -> Any:
            full = list(both[: len(args)])
            for place, value in zip(chosen, values, strict=True):
                full[place] = value
            return [one for one in leaves(function(*full)) if _is_checked(one)]

        _, pull = vjp(floats, *(both[place] for place in chosen))
        return pull(list(both[len(args) :]))

    gradcheck(gradients, (*args, *given), **options)


def _is_checked(leaf: Any) -> bool:
    return is_array(leaf) and dtype_name(leaf.dtype) == "float64"


def _weights(shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def _like(value: Any, weights: Sequence[NDArray[Any]]) -> Any:
    """Return the weights in the form of the value, on its devices and in its dtypes."""
    left = iter(weights)

    def put(one: Any) -> Any:
        return devices.from_host(next(left).astype(one.dtype), registry.device_of(one, "the value"))

    return mapped(put, value)


class _Slope:
    """The weighted value as a function of one element of one leaf of one argument."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        host: Sequence[Any],
        place: int,
        leaf: int,
        weights: Sequence[NDArray[Any]],
    ) -> None:
        self._function, self._args, self._place, self._leaf, self._weights = function, args, place, leaf, weights
        self.start = list(leaves(host[place]))[leaf]
        self.name = f"argument {place}" + (f", array {leaf}" if len(list(leaves(args[place]))) > 1 else "")

    def __call__(self, index: tuple[int, ...], step: float) -> float:
        """Return the slope from four values."""
        near, far = (self._value(index, h) - self._value(index, -h) for h in (step, 2 * step))
        return (8 * near - far) / (12 * step)

    def _value(self, index: tuple[int, ...], step: float) -> float:
        changed = self.start.copy()
        changed[index] += step
        seen = iter(range(len(list(leaves(self._args[self._place])))))

        def put(leaf: Any) -> Any:
            if next(seen) != self._leaf:
                return leaf
            return devices.from_host(changed, registry.device_of(leaf, self.name))

        args = list(self._args)
        args[self._place] = mapped(put, args[self._place])
        with np.errstate(all="ignore"):
            values = [np.asarray(devices.to_host(one), np.float64) for one in leaves(self._function(*args))]
        return float(sum((one * weight).sum() for one, weight in zip(values, self._weights, strict=True)))


def _check(slope: _Slope, grad: Any, rtol: float, atol: float, step: float, elements: int) -> None:
    found = np.asarray(devices.to_host(grad), np.float64)
    size = float(np.max(np.abs(found), initial=0.0))
    count = min(elements, found.size)
    for place in np.linspace(0, found.size - 1, count).astype(int) if count else ():
        index = tuple(int(one) for one in np.unravel_index(place, found.shape))
        expected = slope(index, step * max(1.0, abs(float(slope.start[index]))))
        error = abs(found[index] - expected)
        allowed = atol + rtol * max(abs(expected), size)
        if not error <= allowed:
            raise GradientError(
                f"the gradient of {slope.name} is wrong at {index}: got {found[index]!s}, differences of the value "
                f"give {expected!s}; they differ by {error:.3g}, allowed is {allowed:.3g}; correct a derivative"
            )
