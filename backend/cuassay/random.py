"""Random numbers on any device, from its generator; the same numbers on every kind and model for one seed.

Each function takes the next state of a generator (`generator=`, else the device's default one) and calls the pure
operation of the same name in `cuassay.ops`; the numbers go into a new array or into `out`, of any strides. Inside a
capture they draw from where each replay finds the generator.

Where we differ from torch: what is drawn depends on seed, offset and an element's index alone, not on the launch, so
that seeds carry over from one GPU model to another, and to the host. Results are never the upper bound, in 16 bits
either.
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
    """Seed the default generators of all devices of all kinds, those too that nobody has asked for yet.

    Raises
    ------
    CaptureError
        If this thread captures on a device whose generator has another seed; then none is seeded.
    ArgumentError
        If the seed does not fit; see `Generator.manual_seed`.
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
    """Numbers of equal probability in ``[low, high)``.

    Parameters
    ----------
    shape : int or tuple of int
        With `dtype` and `device` it says what to make. Omit it with `out`.
    low, high : float
        Rounded to the dtype first. Of equal ends, all results are that number.
    dtype
        A real float, float32 unless named; float16 and bfloat16 lie on a grid of 2**-16 of the interval, rounded down
        to what they hold. Omit it with `out`.
    device : str or Device, optional
        Otherwise the generator's, else cpu.
    generator : Generator, optional
        Of that device; otherwise the device's default one.
    out : array, optional
        Filled instead of a new array.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError, DTypeError, DeviceError, CapabilityError
        If the arguments do not fit together, or the device has no such dtype.
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
    """Normal numbers of that mean and standard deviation, to 4 units in the last place; else as `uniform`."""
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
    """Whole numbers of equal probability in ``[low, high)``, to 2**-32 of itself; else as `uniform`."""
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
    """The numbers below `n` in random order; else as `uniform`. Nothing is sorted: each number is computed alone."""
    target = _target(n, dtype, "int64", device, generator, out)
    return ops.permutation(target, state=_next(target, generator), out=target)


def bernoulli(p: Any, *, generator: Generator | None = None, out: Any = None) -> Any:
    """1 with the probability given in the array `p`, else 0, in its dtype.

    Above 1 it is always 1, below 0 and for NaN never: nothing is read on the host, so nothing is refused.
    """
    return ops.bernoulli(p, state=_next(p, generator), out=out)


def dropout_mask(like: Any, p: float = 0.5, *, generator: Generator | None = None, out: Any = None) -> Any:
    """An array of bool as large as `like`: False with probability `p`."""
    return ops.dropout_mask(like, state=_next(like, generator), p=p, out=out)


def dropout(a: Any, p: float = 0.5, *, generator: Generator | None = None, out: Any = None) -> Any:
    """``a / (1 - p)``, or 0 with probability `p`.

    No mask is stored: for a gradient's, take the state first (``state = generator.take()``) and call
    ``cuassay.ops.dropout(a, state=state, p=p)`` on the array and again on its gradient.
    """
    return ops.dropout(a, state=_next(a, generator), p=p, out=out)


def _target(
    shape: Shape | None, dtype: Any, usual: str, device: str | Device | None, generator: Generator | None, out: Any
) -> Any:
    if out is not None:
        given = {"shape": shape, "dtype": dtype, "device": device}
        told = ", ".join(f"{name} {value!r}" for name, value in given.items() if value is not None)
        if told:
            raise ArgumentError(f"out decides shape, dtype and device; got {told} too; omit it")
        return out
    if shape is None:
        raise ArgumentError("neither a shape nor out was given; give one of them")
    where = device if device is not None else "cpu" if generator is None else _checked(generator).device
    return devices.empty(shape, usual if dtype is None else dtype, where)


def _next(array: Any, generator: Generator | None) -> DrawState:
    """The state to draw for `array` from; of an array without elements nothing is taken."""
    device = registry.device_of(array, "what numbers are drawn for")
    source = default_generator(device) if generator is None else _checked(generator)
    if source.device != device:
        raise DeviceError(f"{source!r} cannot draw on {device}; give a generator of that device, or none")
    return source.take() if array.size else GeneratorState()


def _checked(generator: Any) -> Generator:
    if not isinstance(generator, Generator):
        raise ArgumentError(f"generator must be a Generator; got {shown(generator)}; make one with Generator(device)")
    return generator
