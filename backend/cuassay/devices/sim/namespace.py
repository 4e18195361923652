"""The array namespace of a simulated device: NumPy's names, arrays made on that device.

What makes an array is written here; everything else is NumPy's own function, which finds our arrays by its
protocols. A function called with host data alone would run on the host, so host arrays are refused and plain
numbers go to the device.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import FP8, as_dtype
from cuassay.arrays.layout import as_shape
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.sim import calls
from cuassay.devices.sim.array import SimArray
from cuassay.devices.sim.machine import SimDevice, refuse_capture
from cuassay.errors import CapabilityError, DeviceError

__all__ = ["Namespace", "from_host"]

#: Names of dtypes that come from ml_dtypes.
_BEYOND_NUMPY = ("bfloat16", *FP8)

#: Attributes of NumPy that make no sense on a device, and why.
_REFUSED: dict[str, str] = {
    "random": "numpy.random fills host arrays; draw with cuassay.random, or move numbers here with xp.asarray",
    "frombuffer": "it would show host memory; use xp.asarray(numpy.frombuffer(...))",
    "memmap": "it would show a file; use xp.asarray(numpy.memmap(...))",
    "load": "it reads to the host; use xp.asarray(numpy.load(...))",
    "fromfile": "it reads to the host; use xp.asarray(numpy.fromfile(...))",
    "ndarray": "arrays are made by xp.empty and its like",
    "ctypeslib": "there is no host pointer to device memory",
    "lib": "its functions bypass dispatch",
}


class Namespace(Handle):
    """``xp`` for one simulated device.

    Parameters
    ----------
    sim_device : SimDevice
        Where arrays are made.
    """

    def __init__(self, sim_device: SimDevice, module: types.ModuleType = np) -> None:
        self._sim_device = sim_device
        self._module = module

    def __repr__(self) -> str:
        return f"Namespace({self._module.__name__} on {self.device})"

    @property
    def device(self) -> Device:
        """Where arrays are made."""
        return self._sim_device.device

    def array(self, obj: Any, dtype: Any = None, *, copy: bool = True) -> SimArray:
        """A copy of `obj` (host data, or an array of this device) on the device; ``copy=False`` is `asarray`."""
        wanted = None if dtype is None else as_dtype(dtype)
        if isinstance(obj, SimArray) and obj.owner is not self._sim_device:
            raise DeviceError(
                f"{obj!r} is not on {self.device}; move it with cuassay.ops.copy(array, device='{self.device}')"
            )
        if isinstance(obj, SimArray):
            return obj.astype(wanted or obj.dtype, copy=True) if copy or wanted not in (None, obj.dtype) else obj
        return from_host(np.asarray(obj, wanted), self._sim_device)

    def asarray(self, obj: Any, dtype: Any = None) -> SimArray:
        """`obj` itself when it is an array of this device and `dtype`, else a copy on it."""
        return self.array(obj, dtype, copy=False)

    def asnumpy(self, array: SimArray) -> np.ndarray[Any, Any]:
        """A copy on the host; waits for it."""
        return array.get()

    def empty(self, shape: Any, dtype: Any = np.float64) -> SimArray:
        """A poisoned array."""
        machine = self._sim_device.machine
        extents = as_shape(shape)
        with machine.working():
            return calls.new_array(extents, as_dtype(dtype), self._sim_device, machine.current_queue(self._sim_device))

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED:
            raise CapabilityError(f"xp.{name} is not offered on {self.device}: {_REFUSED[name]}")
        found = getattr(self._module, name)
        if isinstance(found, types.ModuleType):
            return Namespace(self._sim_device, found)
        if callable(found) and not isinstance(found, type):
            return _Forward(found, self._sim_device)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._module), *super().__dir__()} - set(_REFUSED))


class _Forward:
    """A NumPy function or ufunc whose results are on the device."""

    __slots__ = ("_function", "_sim_device")

    def __init__(self, function: Callable[..., Any], sim_device: SimDevice) -> None:
        self._function = function
        self._sim_device = sim_device

    def __repr__(self) -> str:
        return f"{self._function!r} on {self._sim_device.device}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_named(one) for one in args)
        kwargs = {name: _named(one) for name, one in kwargs.items()}
        if calls.has_arrays((args, kwargs)):
            return self._function(*args, **kwargs)
        return calls.call(self._function.__name__, self._function, args, kwargs, sim_device=self._sim_device)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._function, name)
        return _Forward(found, self._sim_device) if callable(found) else found


def _named(value: Any) -> Any:
    """The dtype, where `value` is a dtype's name that NumPy does not know."""
    return as_dtype(value) if isinstance(value, str) and value in _BEYOND_NUMPY else value


def from_host(array: np.ndarray[Any, Any], sim_device: SimDevice) -> SimArray:
    """A copy of `array` on the device, in order of the current stream, the order of its axes in memory kept.

    Raises
    ------
    CaptureError
        While the current stream is being captured.
    """
    machine = sim_device.machine
    with machine.working():
        queue = machine.current_queue(sim_device)
        refuse_capture(queue, "copying from the host", "copy before the capture, into an array that it reads")
        made = calls.new_array(array.shape, array.dtype, sim_device, queue)
        strides = np.empty_like(array, order="K").strides
        if strides != made.strides and made.block is not None:
            buffer, low = sim_device.arena.buffer, made.block.low
            made = SimArray(np.ndarray(array.shape, array.dtype, buffer, low, strides), sim_device, made.block)
        sim_device.launch(queue, "from_host", [(made, True)])
        made.raw[...] = array
    return made
