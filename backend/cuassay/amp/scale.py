"""A loss scale that lives on the device: steps read it, and it is updated after them without involving the host.

The op `update_scale_` defines the update. `cuassay.amp.scaler` decides when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from cuassay import devices, ops
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.numbers import as_real
from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["Factors", "LossScale", "Numbers"]

Array = Any

#: A growth interval that is never reached.
_NEVER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a scale after `growth_interval` good steps, and after a bad step. Raises `ArgumentError`."""

    growth_factor: float
    backoff_factor: float
    growth_interval: int

    def __post_init__(self) -> None:
        """Check the factors by the op's rules, on host arrays."""
        one, count = np.ones((), np.float32), np.zeros((), np.int32)
        arrays = {"scale": one, "inv_scale": one, "growth_tracker": count, "found_inf": one}
        ops.update_scale_.schema.shape({**arrays, **{one.name: getattr(self, one.name) for one in fields(self)}})
        for name in ("growth_factor", "backoff_factor"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The scale on one device: () arrays, float32 except for the int32 tracker, which only the home device has."""

    scale: Array
    inverse: Array
    tracker: Array


class LossScale(Handle):
    """A scale on its home device, where it is first used. Copies on other devices last until it is updated."""

    def __init__(self, scale: float, tracker: int = 0) -> None:
        self._begins = _checked(scale), tracker
        self._home: Device | None = None
        self._numbers: Numbers | None = None
        self._copies: dict[Device, Numbers] = {}

    def __repr__(self) -> str:
        return f"LossScale(from {self._begins[0]:g})" if self._home is None else f"LossScale(on {self._home})"

    def on(self, place: Device) -> Numbers:
        """Return the current scale and inverse on the device `place`."""
        if self._numbers is None:
            self._home, (scale, tracker) = place, self._begins
            self._numbers = Numbers(*_pair(scale, place), _number(tracker, np.int32, place))
        if place == self._home:
            return self._numbers
        if place not in self._copies:
            scale, inverse = (ops.copy(array, device=place) for array in (self._numbers.scale, self._numbers.inverse))
            self._copies[place] = Numbers(scale, inverse, None)
        return self._copies[place]

    def read(self) -> tuple[float, int]:
        """Return scale and tracker. Waits for the device."""
        if self._numbers is None:
            return self._begins
        return float(devices.to_host(self._numbers.scale)), int(devices.to_host(self._numbers.tracker))

    def write(self, scale: float, tracker: int | None = None) -> None:
        """Set the scale, and the tracker if one is given. Raises `ArgumentError` for an invalid scale."""
        scale = _checked(scale)
        self._begins = scale, self._begins[1] if tracker is None else tracker
        self._copies.clear()
        if self._numbers is None:
            return
        place = registry.device_of(self._numbers.scale, "the scale")
        for array, new in zip((self._numbers.scale, self._numbers.inverse), _pair(scale, place), strict=True):
            ops.copy(new, out=array)
        if tracker is not None:
            ops.copy(_number(tracker, np.int32, place), out=self._numbers.tracker)

    def take(self, scale: Array) -> None:
        """Set the scale from an array of one element, on the device. The tracker is not changed."""
        if math.prod(scale.shape) != 1:
            raise ArgumentError(
                f"a loss scale is one number; got an array of shape {tuple(scale.shape)}; give a 0-d one"
            )
        numbers = self.on(self._home or registry.device_of(scale, "the scale"))
        ops.copy(scale.reshape(()), out=numbers.scale)
        # The update op computes the inverse. Run an update that changes nothing, and restore the tracker afterwards.
        tracker = ops.copy(numbers.tracker)
        self._update(numbers, self._no_flag(), Factors(2.0, 0.5, _NEVER))
        ops.copy(tracker, out=numbers.tracker)

    def move(self, flags: Sequence[Array], factors: Factors) -> None:
        """Update the scale after a step: back off if one of `flags`, () float32, is not 0. Sets the flags to 0."""
        numbers = self.on(self._home or registry.device_of(flags[0], "found_inf"))
        self._update(numbers, self._combined(flags), factors)

    def _update(self, numbers: Numbers, flag: Array, factors: Factors) -> None:
        self._copies.clear()
        ops.update_scale_(numbers.scale, numbers.inverse, numbers.tracker, flag, **asdict(factors))

    def _combined(self, flags: Sequence[Array]) -> Array:
        """Combine the flags into one on the home device, and set the others to 0."""
        if len(flags) == 1 and registry.device_of(flags[0], "found_inf") == self._home:
            return flags[0]
        total = self._no_flag()
        for flag in flags:
            ops.foreach_add_([total], [ops.copy(flag, device=self._home)])
            ops.foreach_zero_([flag])
        return total

    def _no_flag(self) -> Array:
        return devices.zeros((), "float32", self._home or "")


def _checked(scale: Any) -> float:
    """Return `scale` rounded to float32. Raises `ArgumentError` if that is not finite and above 0."""
    if (number := as_real(scale)) is not None:
        with np.errstate(over="ignore", under="ignore"):
            rounded = float(np.float32(number))
        if math.isfinite(rounded) and rounded > 0:
            return rounded
    raise ArgumentError(
        f"a loss scale is a number, finite and above 0 in float32; got {shown(scale)}; give a power of two"
    )


def _pair(scale: float, place: Device) -> tuple[Array, Array]:
    """Return a scale and its inverse, each rounded once."""
    rounded = np.float32(scale)
    return _number(rounded, np.float32, place), _number(1.0 / np.float64(rounded), np.float32, place)


def _number(value: Any, dtype: Any, place: Device) -> Array:
    return devices.from_host(np.array(value, dtype), place)
