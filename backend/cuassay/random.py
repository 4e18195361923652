"""Random numbers on any device; one seed gives the same numbers on every device kind and model.

Each function takes the next state of a generator (`generator=`, by default the device's) and calls the pure operation
of the same name in `cuassay.ops`. The numbers go into a new array, or into `out`, which may have any strides. Inside a
capture, each replay continues from the generator's current state.

Differences from torch: a number depends only on seed, offset and element index and not on the launch, so a seed gives
the same numbers on another GPU model and on the host. Results never equal the upper bound, even in 16 bits.
"""

from __future__ import annotations

from typing import Any

from cuassay import devices, ops
from cuassay.core.device import Device
from cuassay.core.generator import GeneratorState
from cuassay.core.generators import (
    Generator,
    default_generator,
    may_seed_default_generators,
    seed_default_generators,
)
from cuassay.core.numbers import as_whole
from cuassay.core.recordings import DrawState
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DeviceError
from cuassay.ops import registry

__all__ = [
    "Generator",
    "GeneratorState",
    "bernoulli",
    "default_generator",
    "dropout",
    "dropout_mask",
    "integers",
    "manual_seed",
    "normal",
    "permutation",
    "uniform",
]

Shape = int | tuple[int, ...]


def manual_seed(seed: int) -> None:
    """Seed the default generators of all devices of all kinds, including those not used yet.

    Raises
    ------
    CaptureError
        If this thread captures on a device whose generator has another seed; no generator is seeded then.
    ArgumentError
        If the seed is out of range; see `Generator.manual_seed`.
    """
    for kind in devices.kinds():
        may_seed_default_generators(kind, seed)
    for kind in devices.kinds():
        seed_default_generators(kind, seed)


def uniform(
    shape: Shape | None = None,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    generator: Generator | None = None,
    out: Any = None,
) -> Any:
    """Draw uniform numbers in ``[low, high)``.

    Parameters
    ----------
    shape : int or tuple of int
        The shape of the new array. Omit it with `out`.
    low, high : float
        The bounds, rounded to the dtype first. If they are equal, all results are that number.
    dtype
        A real floating dtype, float32 by default. Values of float16 and bfloat16 are multiples of 2**-16 of the
        interval, rounded down to the dtype. Omit it with `out`.
    device : str or Device, optional
        The device of the new array; by default the generator's device, else cpu.
    generator : Generator, optional
        A generator of that device; by default the device's own.
    out : array, optional
        An array to fill instead of a new one.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError, DTypeError, DeviceError, CapabilityError
        If the arguments do not match, or the device has no such dtype.
    """
    target = _target(shape, dtype, "float32", device, generator, out)
    return ops.uniform(target, state=_next(target, generator), low=low, high=high, out=target)


def normal(
    shape: Shape | None = None,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    generator: Generator | None = None,
    out: Any = None,
) -> Any:
    """Draw normal numbers, accurate to 4 units in the last place; see `uniform` for the other parameters."""
    target = _target(shape, dtype, "float32", device, generator, out)
    return ops.normal(target, state=_next(target, generator), mean=mean, std=std, out=target)


def integers(
    low: int,
    high: int,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    generator: Generator | None = None,
    out: Any = None,
) -> Any:
    """Draw uniform whole numbers in ``[low, high)``; see `uniform`. Probabilities are off by at most 2**-32 of them."""
    target = _target(shape, dtype, "int64", device, generator, out)
    low, high = (value if (whole := as_whole(value)) is None else whole for value in (low, high))  # NumPy's too
    return ops.integers(target, state=_next(target, generator), low=low, high=high, out=target)


def permutation(
    n: int | None = None,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    generator: Generator | None = None,
    out: Any = None,
) -> Any:
    """Draw the numbers below `n` in random order, each computed alone; see `uniform` for the other parameters."""
    target = _target(n, dtype, "int64", device, generator, out)
    return ops.permutation(target, state=_next(target, generator), out=target)


def bernoulli(p: Any, *, generator: Generator | None = None, out: Any = None) -> Any:
    """Draw 1 with the probabilities in the array `p`, else 0, in its dtype.

    Probabilities above 1 always give 1, and negative ones and NaN give 0: nothing is checked, because that would read
    values on the host.
    """
    return ops.bernoulli(p, state=_next(p, generator), out=out)


def dropout_mask(like: Any, p: float = 0.5, *, generator: Generator | None = None, out: Any = None) -> Any:
    """Return an array of bool of the shape of `like` that is False with probability `p`."""
    return ops.dropout_mask(like, state=_next(like, generator), p=p, out=out)


def dropout(a: Any, p: float = 0.5, *, generator: Generator | None = None, out: Any = None) -> Any:
    """Return ``a / (1 - p)``, with elements replaced by 0 with probability `p`.

    No mask is stored. For a gradient, take the state first (``state = generator.take()``) and call
    ``cuassay.ops.dropout(a, state=state, p=p)`` on the array and again on its gradient.
    """
    return ops.dropout(a, state=_next(a, generator), p=p, out=out)


def _target(
    shape: Shape | None, dtype: Any, usual: str, device: str | Device | None, generator: Generator | None, out: Any
) -> Any:
    if out is not None:
        given = {"shape": shape, "dtype": dtype, "device": device}
        excess = ", ".join(f"{name} {value!r}" for name, value in given.items() if value is not None)
        if excess:
            raise ArgumentError(f"out decides shape, dtype and device; got {excess} too; omit it")
        return out
    if shape is None:
        raise ArgumentError("neither a shape nor out was given; give one of them")
    where = device if device is not None else "cpu" if generator is None else _checked(generator).device
    return devices.empty(shape, usual if dtype is None else dtype, where)


def _next(array: Any, generator: Generator | None) -> DrawState:
    """Return the state to draw for `array` from; an array without elements takes nothing from the generator."""
    device = registry.device_of(array, "what numbers are drawn for")
    source = default_generator(device) if generator is None else _checked(generator)
    if source.device != device:
        raise DeviceError(f"{source!r} cannot draw on {device}; give a generator of that device, or none")
    return source.take() if array.size else GeneratorState()


def _checked(generator: Any) -> Generator:
    if not isinstance(generator, Generator):
        raise ArgumentError(f"generator must be a Generator; got {shown(generator)}; make one with Generator(device)")
    return generator
