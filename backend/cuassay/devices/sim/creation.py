"""Functions that make arrays on a simulated device: from host data, from existing arrays, and from nothing.

Host data arrives by one copy in order of the current stream (`from_host`). An array made from nothing is NumPy's own
result, copied in (see `namespace`). Nothing here returns a host array.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.arrays.layout import as_shape
from cuassay.core.device import Device
from cuassay.devices.sim import calls
from cuassay.devices.sim.device import SimDevice
from cuassay.devices.sim.device_array import DeviceArray
from cuassay.devices.sim.machine import refuse_capture
from cuassay.errors import ArgumentError, DeviceError

__all__ = ["Creation", "default_dtype", "from_host", "home_of"]

#: The dtypes that replace NumPy's defaults if a device lacks them, as in torch on Metal.
_NARROWER = {"float64": "float32", "complex128": "complex64"}

#: The requirements that `require` accepts, in NumPy's words; None is what every array here satisfies.
_REQUIREMENTS: dict[str, str | None] = {
    **dict.fromkeys(("C", "C_CONTIGUOUS", "CONTIGUOUS"), "C"),
    **dict.fromkeys(("F", "F_CONTIGUOUS", "FORTRAN"), "F"),
    **dict.fromkeys(("A", "ALIGNED", "W", "WRITEABLE", "O", "OWNDATA", "E", "ENSUREARRAY")),
}


def home_of(device: Any, sim_device: SimDevice) -> SimDevice:
    """Return the device of `sim_device`'s machine that `device` names; None is `sim_device` itself.

    Raises
    ------
    DeviceError
        If it names a device of another kind, or a device that does not exist.
    """
    if device is None:
        return sim_device
    named, devices = Device(device), sim_device.machine.devices
    if named.kind != "sim":
        raise DeviceError(
            f"the namespace of {sim_device.device} makes arrays on simulated devices; got device={str(named)!r}; use "
            f"cuassay.devices.namespace({str(named)!r})"
        )
    if named.index >= len(devices):
        raise DeviceError(
            f"{named} does not exist; {len(devices)} simulated devices are here; raise CUASSAY_SIM_DEVICES"
        )
    return devices[named.index]


def default_dtype(dtype: np.dtype[Any], sim_device: SimDevice) -> np.dtype[Any]:
    """Return `dtype`, NumPy's default, or a narrower one if the device lacks it."""
    narrower = _NARROWER.get(dtype.name)
    is_there = narrower is None or sim_device.machine.answer(f"storage:{dtype.name}")
    return dtype if is_there else np.dtype(narrower)


def from_host(array: np.ndarray[Any, Any], sim_device: SimDevice) -> DeviceArray:
    """Return a copy of `array` on the device, in order of the current stream, with the same memory order of axes.

    Raises
    ------
    CaptureError
        If the current stream is being captured.
    """
    machine = sim_device.machine
    with machine.working():
        queue = machine.current_queue(sim_device)
        refuse_capture(queue, "copying from the host", "copy before the capture, into an array that it reads")
        made = calls.new_like(array, sim_device, queue)
        sim_device.launch(queue, "from_host", [(made, True)], event="copied")
        made.raw[...] = array
    return made


class Creation:
    """The functions of a namespace that make arrays and are not NumPy's own; `sim_device` is the default device."""

    def __init__(self, sim_device: SimDevice) -> None:
        self._sim_device = sim_device

    def array(
        self,
        obj: Any,
        dtype: Any = None,
        *,
        copy: bool | None = True,
        order: Any = "K",
        ndmin: int = 0,
        device: Any = None,
    ) -> DeviceArray:
        """Return a copy of `obj` (host data, or arrays of this device) on the device; ``copy=None`` is `asarray`."""
        made = self.asarray(obj, dtype, order, device=device, copy=copy)
        missing = (1,) * (ndmin - made.ndim)
        return made.reshape(missing + made.shape) if missing else made

    def asarray(
        self, obj: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None
    ) -> DeviceArray:
        """Return `obj` itself if it is an array of the device with that `dtype` and `order`, else a copy on the device.

        Parameters
        ----------
        obj : array, number or nested lists of them
            Host data, or arrays of a simulated device.
        dtype : str or numpy.dtype, optional
            None keeps the dtype of `obj`.
        order : {None, 'K', 'A', 'C', 'F'}
            The order of the axes in memory.
        device : Device or str, optional
            None is the namespace's device.
        copy : bool, optional
            False raises `ValueError` if a copy is necessary, as it always is for host data.
        """
        home, wanted = home_of(device, self._sim_device), None if dtype is None else as_dtype(dtype)
        if isinstance(obj, DeviceArray):
            here = _to_device(obj, home, is_asked=device is not None, copy=copy)
            return _as_asked(here, wanted, order, copy=copy if here is obj else None)
        if copy is False:
            raise ValueError(
                f"host data must be copied to reach {home.device}; got copy=False; omit it, or give copy=None"
            )
        if calls.has_arrays(obj):
            return _stacked(self, obj, wanted, device)
        return from_host(_host_array(obj, wanted, order, home), home)

    asanyarray = asarray

    def asarray_chkfinite(self, a: Any, dtype: Any = None, order: Any = None) -> DeviceArray:
        """Do what `asarray` does, and wait for the values. Raises `ValueError` if one is infinite or NaN."""
        made = self.asarray(a, dtype, order)
        if made.dtype.kind in "fcV" and not bool(np.isfinite(made).all()):
            raise ValueError("asarray_chkfinite got an array with infinities or NaN; mask them, or use asarray")
        return made

    def ascontiguousarray(self, a: Any, dtype: Any = None, *, device: Any = None) -> DeviceArray:
        """Return `a` itself if it is contiguous in C order, else a contiguous copy.

        The result has at least one axis.
        """
        return _with_axis(self.asarray(a, dtype, "C", device=device))

    def asfortranarray(self, a: Any, dtype: Any = None, *, device: Any = None) -> DeviceArray:
        """Return `a` itself if it is contiguous in Fortran order, else such a copy.

        The result has at least one axis.
        """
        return _with_axis(self.asarray(a, dtype, "F", device=device))

    def require(self, a: Any, dtype: Any = None, requirements: Any = None, *, device: Any = None) -> DeviceArray:
        """Return `a` with these requirements, copied if necessary; all device arrays are aligned and writable."""
        asked = [requirements] if isinstance(requirements, str) else list(requirements or ())
        unknown = [one for one in asked if str(one).upper() not in _REQUIREMENTS]
        orders = {order for one in asked if (order := _REQUIREMENTS.get(str(one).upper()))}
        if unknown or len(orders) > 1:
            raise ValueError(f"require takes C or F, and A, W, O, E; got {asked!r}; ask for one order and known words")
        return self.asarray(a, dtype, orders.pop() if orders else None, device=device)

    def asnumpy(self, a: Any, **options: Any) -> np.ndarray[Any, Any]:
        """Return a copy on the host, waiting for it.

        Anything but a device array goes to `numpy.asarray`, as in CuPy.
        """
        if isinstance(a, DeviceArray):
            return a.get()
        return np.asarray(a, **options)

    def empty(self, shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> DeviceArray:
        """Return a poisoned array."""
        if order not in ("C", "F"):
            raise ArgumentError(f"empty takes the orders 'C' and 'F'; got {order!r}; give one of them")
        home = home_of(device, self._sim_device)
        wanted = default_dtype(np.dtype(np.float64), home) if dtype is None else as_dtype(dtype)
        extents = as_shape(shape)
        with home.machine.working():
            queue = home.machine.current_queue(home)
            if order == "C":
                return calls.new_array(extents, wanted, home, queue)
            made: DeviceArray = calls.new_array(extents[::-1], wanted, home, queue).T
            return made

    def from_dlpack(self, x: Any, /, *, device: Any = None, copy: bool | None = None) -> DeviceArray:
        """Return an array of this device itself, or a copy of any other ``__dlpack__`` object on the given `device`.

        Raises
        ------
        BufferError
            If `x` is on the host and no device is given: the device cannot access it without a copy.
        """
        if isinstance(x, DeviceArray):
            return self.asarray(x, device=device, copy=copy)
        if device is None or copy is False:
            raise BufferError(
                f"from_dlpack shows memory of one place, and {type(x).__qualname__} is not on a simulated device; "
                f"give device='{self._sim_device.device}' for a copy there"
            )
        return from_host(np.from_dlpack(x, device="cpu"), home_of(device, self._sim_device))


def _with_axis(array: DeviceArray) -> DeviceArray:
    return array if array.ndim else array[None]


def _to_device(array: DeviceArray, home: SimDevice, *, is_asked: bool, copy: bool | None) -> DeviceArray:
    """Return `array` on `home`; an array of another device is copied only if the caller gave the device."""
    if array.owner is home:
        return array
    if not is_asked:
        raise DeviceError(
            f"{array!r} is not on {home.device}; move it with cuassay.ops.copy(array, device='{home.device}')"
        )
    if copy is False:
        raise ValueError(f"{array!r} must be copied to reach {home.device}; got copy=False; omit it, or give copy=None")
    moved: DeviceArray = array.to_device(home.device)
    return moved


def _as_asked(array: DeviceArray, dtype: np.dtype[Any] | None, order: Any, *, copy: bool | None) -> DeviceArray:
    wanted, flags = array.dtype if dtype is None else dtype, array.flags
    is_laid_out = {"C": flags.c_contiguous, "F": flags.f_contiguous}.get(order, True)
    if copy or wanted != array.dtype or not is_laid_out:
        if copy is False:
            raise ValueError(f"{array!r} must be copied to become {wanted} in order {order!r}; got copy=False; omit it")
        array = array.astype(wanted, order=order or "K")
    return array


def _stacked(maker: Creation, obj: Any, dtype: np.dtype[Any] | None, device: Any) -> DeviceArray:
    """Stack nested lists that contain device arrays, as CuPy does."""
    if not isinstance(obj, (list, tuple)):
        raise TypeError(f"arrays are made of numbers, arrays and lists of them; got {type(obj).__qualname__}")
    parts: Any = [maker.asarray(one, device=device) for one in obj]
    stacked = cast("DeviceArray", np.stack(parts))
    return stacked if dtype in (None, stacked.dtype) else _as_asked(stacked, dtype, None, copy=None)


def _host_array(obj: Any, dtype: np.dtype[Any] | None, order: Any, home: SimDevice) -> np.ndarray[Any, Any]:
    if isinstance(obj, np.ma.MaskedArray):
        raise TypeError(
            f"a masked array would lose its mask on {home.device}; move .data and .mask, or array.filled(value)"
        )
    host = np.asarray(obj, dtype, order)
    has_dtype = dtype is not None or isinstance(obj, np.generic) or hasattr(obj, "dtype")
    return host if has_dtype else host.astype(default_dtype(host.dtype, home), copy=False)
