"""Loss scaling: the loss is scaled so that gradients do not underflow in 16 bits, and they are unscaled for the step.

Names, constants and rules follow ``torch.amp.GradScaler``. Arrays carry no gradient here, so gradients are passed to
`GradScaler.unscale_` and `GradScaler.step`. With optimizers of `cuassay.optim` the host never waits: the flag that a
gradient overflowed stays on the device, where it skips the step and updates the scale. Such a step can be captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from cuassay import devices, ops
from cuassay.amp.scale import Factors, LossScale
from cuassay.arrays.dtypes import HALVES, dtype_name
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DeviceError, StateError
from cuassay.ops import registry

__all__ = ["GradScaler"]

Array = Any

#: The keys of `state_dict`, as in torch.
_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class _Stage(Enum):
    READY = "ready"
    UNSCALED = "unscaled"
    STEPPED = "stepped"


@dataclass
class _Progress:
    """The stage of an optimizer between two updates, and its flag: () float32, on the device of its gradients."""

    stage: _Stage = _Stage.READY
    found_inf: Array = None


class GradScaler(Handle):
    """Scale losses, unscale gradients, skip steps whose gradients overflowed, and adapt the scale.

    Parameters
    ----------
    device : str
        The kind of device whose arrays are scaled.
    init_scale : float
        The initial scale.
    growth_factor, backoff_factor : float
        The factors of the scale after `growth_interval` good steps, and after a bad step.
    growth_interval : int
        The number of consecutive good steps after which the scale grows.
    enabled : bool
        If False, scaling and unscaling do nothing, and `step` always steps.

    Raises
    ------
    ArgumentError
        If the scale, a factor or the interval is invalid.
    DeviceError
        If there is no such kind of device.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self.device_type = Device(device).kind
        if self.device_type not in devices.kinds():
            raise DeviceError(devices.unknown_kind(self.device_type))
        self._scale = LossScale(init_scale)
        self._factors = Factors(growth_factor, backoff_factor, growth_interval)
        self._enabled = enabled
        self._optimizers: WeakKeyDictionary[Any, _Progress] = WeakKeyDictionary()
        self._round: list[_Progress] = []  # since the last update, including optimizers that were dropped since

    def __repr__(self) -> str:
        return f"GradScaler({self.device_type!r}, {self._scale if self._enabled else 'disabled'})"

    # ------------------------------------------------------------------------------------------------ the calls

    def scale(self, outputs: Any) -> Any:
        """Return `outputs` times the scale.

        Parameters
        ----------
        outputs : array or iterable of array
            An array, or arrays in lists, tuples or other iterables, which may be nested. Dtypes are kept.

        Raises
        ------
        ArgumentError
            If an element is not an array.
        DeviceError
            If an array is on another kind of device than the scaler was made for.
        """
        if not self._enabled:
            return outputs
        if registry.backend_for(outputs) is not None:  # an array, or a traced array
            return _times(outputs, self._scale.on(self._own(outputs)).scale)
        if isinstance(outputs, str | bytes | Mapping) or not isinstance(outputs, Iterable):
            raise ArgumentError(f"scale takes arrays, or iterables of them; got {type(outputs).__qualname__}")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled

    def _own(self, array: Array) -> Device:
        place = registry.device_of(array, "what is scaled")
        if place.kind != self.device_type:
            raise DeviceError(
                f"this scaler is for {self.device_type} arrays; got one on {place}; make one for that kind"
            )
        return place

    def unscale_(self, optimizer: Any, grads: Sequence[Any]) -> None:
        """Divide the gradients by the scale in place, and note if one is not finite. Call it before clipping.

        Raises
        ------
        StateError
            If this or `step` was already called for this optimizer since the last `update`.
        ArgumentError
            If a gradient is float16, because unscaling in float16 would underflow.
        """
        if not self._enabled:
            return
        progress = self._optimizers.setdefault(optimizer, _Progress())
        if progress.stage is not _Stage.READY:
            done = (
                "unscale_() has already been called on" if progress.stage is _Stage.UNSCALED else "step() is done for"
            )
            raise StateError(f"{done} this optimizer since the last update(); call update() first")
        self._unscale(progress, _flat(grads))
        self._reached(progress, _Stage.UNSCALED)

    def step(self, optimizer: Any, grads: Sequence[Any], **options: Any) -> Any:
        """Call ``optimizer.step(grads, ...)``, unless a gradient is not finite.

        An optimizer that declares ``_step_supports_amp_scaling`` (those of `cuassay.optim`) gets the scale and the
        flag, and unscales, checks and skips on the device. For other optimizers the host reads the flag, which waits.

        Parameters
        ----------
        optimizer
            An object with a method ``step(grads)``.
        grads : sequence of array
            The gradients, in the form that the optimizer takes: scaled, or unscaled by `unscale_`.
        **options
            Further arguments of the optimizer's step, such as ``max_norm``, ``zero_grads``.

        Returns
        -------
        object
            The result of the optimizer's step; None if the host skipped it.

        Raises
        ------
        StateError
            If it was already called for this optimizer since the last `update`.
        ArgumentError
            If gradients are float16 and the optimizer does not unscale them itself; see `unscale_`.
        """
        if not self._enabled:
            return optimizer.step(grads, **options)
        progress = self._optimizers.setdefault(optimizer, _Progress())
        if progress.stage is _Stage.STEPPED:
            raise StateError("step() has already been called on this optimizer since the last update(); update first")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_inside(optimizer, progress, grads, options)
        else:
            result = self._step_outside(optimizer, progress, grads, options)
        self._reached(progress, _Stage.STEPPED)
        return result

    def _reached(self, progress: _Progress, stage: _Stage) -> None:
        if progress.stage is _Stage.READY:
            self._round.append(progress)
        progress.stage = stage

    def _step_inside(
        self, optimizer: Any, progress: _Progress, grads: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        if progress.stage is _Stage.UNSCALED:
            own = {"found_inf": progress.found_inf}
        else:
            scale = self._scale.on(self._one_place(progress, _flat(grads))).scale
            own = {"grad_scale": scale, "found_inf": progress.found_inf, "check_finite": True}
        twice = sorted(own.keys() & options.keys())
        if twice:
            raise ArgumentError(
                f"the scaler gives this step {', '.join(own)} itself; got {', '.join(twice)} too; omit them"
            )
        return optimizer.step(grads, **own, **options)

    def _step_outside(
        self, optimizer: Any, progress: _Progress, grads: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        if progress.stage is not _Stage.UNSCALED:
            self._unscale(progress, _flat(grads))
        return None if devices.to_host(progress.found_inf) else optimizer.step(grads, **options)

    def update(self, new_scale: Any = None) -> None:
        """Update the scale after the steps. It backs off if a gradient was not finite, and grows after good steps.

        Parameters
        ----------
        new_scale : float or array, optional
            A scale to set instead. An array of one float32 element is read on its device.

        Raises
        ------
        ArgumentError
            If `new_scale` is a number that is not finite and above 0 in float32.
        StateError
            If no optimizer was stepped or unscaled since the last update.
        """
        if not self._enabled:
            return
        flags = [progress.found_inf for progress in self._round]
        if new_scale is not None:
            on_device = hasattr(new_scale, "dtype") and not isinstance(new_scale, np.generic)
            (self._scale.take if on_device else self._scale.write)(new_scale)
            for flag in flags:
                ops.foreach_zero_([flag])
        elif flags:
            self._scale.move(flags, self._factors)
        else:
            raise StateError(
                "update() found no optimizer that was stepped or unscaled; call step(optimizer, grads) first"
            )
        for progress in self._round:
            progress.stage = _Stage.READY
        self._round.clear()

    # ------------------------------------------------------------------------------------------------ settings, state

    def is_enabled(self) -> bool:
        """Return whether scaling is enabled."""
        return self._enabled

    def get_scale(self) -> float:
        """Return the scale, or 1 if scaling is disabled. Waits for the device."""
        return self._scale.read()[0] if self._enabled else 1.0

    def get_growth_tracker(self) -> int:
        """Return the number of consecutive good steps since the scale last changed. Waits for the device."""
        return self._scale.read()[1]

    def get_growth_factor(self) -> float:
        """Return the factor of the scale after enough good steps."""
        return self._factors.growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the growth factor. Raises `ArgumentError` unless it is above 1."""
        self._factors = replace(self._factors, growth_factor=new_factor)

    def get_backoff_factor(self) -> float:
        """Return the factor of the scale after a step whose gradients overflowed."""
        return self._factors.backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the backoff factor. Raises `ArgumentError` unless it is between 0 and 1."""
        self._factors = replace(self._factors, backoff_factor=new_factor)

    def get_growth_interval(self) -> int:
        """Return the number of consecutive good steps after which the scale grows."""
        return self._factors.growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the growth interval. Raises `ArgumentError` unless it is 1 or more."""
        self._factors = replace(self._factors, growth_interval=new_interval)

    def state_dict(self) -> dict[str, Any]:
        """Return scale, factors, interval and tracker under torch's names; empty if disabled. Waits for the device."""
        if not self._enabled:
            return {}
        scale, tracker = self._scale.read()
        return {"scale": scale, **asdict(self._factors), "_growth_tracker": tracker}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`.

        Raises
        ------
        ArgumentError
            If it is empty, lacks a key, or holds an invalid value. Nothing is changed then.
        """
        if not self._enabled:
            return
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"the state is a mapping; got {shown(state_dict)}; give what state_dict gave")
        missing = [key for key in _KEYS if key not in state_dict]
        if missing:
            raise ArgumentError(
                f"the state lacks {', '.join(missing)}; got {sorted(state_dict) or 'an empty one'}, as a disabled "
                "scaler gives it; save it from an enabled one"
            )
        factors = Factors(*(state_dict[field.name] for field in fields(Factors)))
        tracker = as_whole(state_dict["_growth_tracker"])
        if tracker is None or tracker < 0:
            raise ArgumentError(
                f"_growth_tracker must be a number of steps; got {state_dict['_growth_tracker']!r}; give what "
                "state_dict gave"
            )
        self._scale.write(state_dict["scale"], tracker)
        self._factors = factors

    # ------------------------------------------------------------------------------------------------ the gradients

    def _unscale(self, progress: _Progress, arrays: Sequence[Array]) -> None:
        if any(dtype_name(grad.dtype) == "float16" for grad in arrays):
            raise ArgumentError(
                "float16 gradients would be unscaled in float16, where what scaling saved is lost again; keep them in "
                "float32, or step by an optimizer of cuassay.optim, which unscales inside its pass"
            )
        inverse = self._scale.on(self._one_place(progress, arrays)).inverse
        by_dtype: dict[Any, list[Array]] = {}
        for array in arrays:
            by_dtype.setdefault(array.dtype, []).append(array)
        for some in by_dtype.values():
            ops.foreach_unscale_(some, progress.found_inf, inverse)

    def _one_place(self, progress: _Progress, arrays: Sequence[Array]) -> Device:
        """Return the device of an optimizer's gradients, and put its flag there."""
        if not arrays:
            raise ArgumentError("the optimizer got no gradients; give one for each parameter")
        places = dict.fromkeys(registry.device_of(array, "a gradient") for array in arrays)
        if len(places) > 1:
            raise DeviceError(
                f"one optimizer's gradients are on {', '.join(map(str, places))}; make an optimizer for each device: "
                "the scaler takes several"
            )
        (place,) = places
        if progress.found_inf is None or registry.device_of(progress.found_inf, "found_inf") != place:
            progress.found_inf = devices.zeros((), "float32", place)
        return place


def _flat(grads: Sequence[Any]) -> list[Array]:
    """Return the arrays of one sequence, or of one sequence per group."""
    return [array for one in grads for array in (one if isinstance(one, list | tuple) else (one,))]


def _times(array: Array, scale: Array) -> Array:
    """Multiply and keep the array's dtype. A 16-bit product is computed in float32 and rounded once."""
    if dtype_name(array.dtype) not in HALVES:
        return ops.mul(array, scale)
    with np.errstate(over="ignore"):  # a loss may overflow on the host, which the scale then responds to
        return ops.cast(ops.mul(ops.cast(array, dtype="float32"), scale), dtype=dtype_name(array.dtype))
