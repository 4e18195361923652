"""The array namespace of a simulated device: NumPy's names, with arrays made on that device.

`creation` defines the functions that make arrays. All others are NumPy's own functions, which find simulated arrays by
their protocols, or receive them here. A function called with host data only would run on the host, so host arrays are
rejected, and plain numbers go to the device. `names` says which names are rejected.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import FP8, as_dtype
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.sim import calls, functional, functions, names
from cuassay.devices.sim.array import SimArray
from cuassay.devices.sim.creation import Creation, default_dtype, home_of
from cuassay.devices.sim.device import SimDevice
from cuassay.devices.sim.random_namespace import RandomNamespace
from cuassay.devices.sim.standard import Inspection

__all__ = ["Namespace"]

#: Names of dtypes that come from ml_dtypes.
_BEYOND_NUMPY = ("bfloat16", *FP8)


class _Module(Handle):
    """A module of NumPy, with its functions on one simulated device."""

    def __init__(self, sim_device: SimDevice, module: types.ModuleType) -> None:
        self._sim_device = sim_device
        self._module = module

    def __repr__(self) -> str:
        return f"Namespace({self._module.__name__} on {self.device})"

    @property
    def __name__(self) -> str:
        """Its own name: code that checks a namespace for NumPy's name would take these arrays for NumPy's."""
        return self._module.__name__.replace("numpy", "cuassay.devices.sim", 1)

    @property
    def device(self) -> Device:
        """The device where arrays are made."""
        return self._sim_device.device

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__array_api_version__", "__version__"):
            raise AttributeError(f"{self!r} has no {name!r}")
        found = self.__dict__[name] = self._find(name)
        return found

    def _find(self, name: str) -> Any:
        found = names.lookup(name, self._module, self.device)
        if isinstance(found, types.ModuleType):
            return self._module_of(name, found)
        if name in _OURS:
            return partial(_OURS[name], self._sim_device)
        if name in names.BUILDERS:
            return _Builder(name, found, self._sim_device)
        if isinstance(found, type):
            return found if names.is_harmless_class(found) else names.refuse(name, self.device)
        return _Forward(found, self._sim_device) if callable(found) else found

    def _module_of(self, name: str, module: types.ModuleType) -> Any:
        if name in names.MODULES:
            return _Module(self._sim_device, module)
        if name in _MODULES:
            return _MODULES[name](self._sim_device)
        return module if names.is_host_module(name) else names.refuse(name, self.device)

    def __dir__(self) -> list[str]:
        return sorted({name for name in {*dir(self._module), *super().__dir__()} if self._offers(name)})

    def _offers(self, name: str) -> bool:
        return name.startswith("_") or hasattr(self, name)


class Namespace(Creation, _Module):
    """``xp`` for one simulated device.

    Parameters
    ----------
    sim_device : SimDevice
        The device where arrays are made.
    """

    #: The class of its arrays, for isinstance; `empty` and similar functions make arrays.
    ndarray = SimArray

    def __init__(self, sim_device: SimDevice) -> None:
        _Module.__init__(self, sim_device, np)

    def __array_namespace_info__(self) -> Inspection:
        return Inspection(self._sim_device)


class _Forward:
    """A NumPy function or ufunc whose results are on the device."""

    __slots__ = ("_function", "_is_dispatched", "_sim_device")

    def __init__(self, function: Callable[..., Any], sim_device: SimDevice) -> None:
        self._function = function
        self._sim_device = sim_device
        owner = getattr(function, "__self__", function)
        self._is_dispatched = isinstance(owner, np.ufunc) or hasattr(function, "_implementation")

    def __repr__(self) -> str:
        return f"{self._function!r} on {self._sim_device.device}"

    @property
    def __signature__(self) -> inspect.Signature:
        """NumPy's signature; raises `ValueError` for a C function without one, as `inspect.signature` does."""
        return inspect.signature(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self._function, "__name__", "function")
        args = tuple(_named(one) for one in args)
        kwargs = {key: _named(one) for key, one in kwargs.items()}
        if name in names.HOST:
            return self._function(*calls.unwrapped(args, SimArray), **calls.unwrapped(kwargs, SimArray))
        if name in names.TAKES_DEVICE and "device" in kwargs:
            return self._call_on_device(kwargs.pop("device"), name, args, kwargs)
        return self._run(name, self._sim_device, args, kwargs)

    def _call_on_device(self, device: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call on the given device; an array of another device is copied there, if it is read at all."""
        home = home_of(device, self._sim_device)
        first = args[0] if args else None
        if device is None or not isinstance(first, SimArray):
            return self._run(name, home, args, kwargs)
        if functions.is_like(name):
            model = Creation(home).empty(first.shape, kwargs.get("dtype") or first.dtype)
            return self._run(name, home, (model, *args[1:]), kwargs)
        return self._run(name, first.owner, args, kwargs).to_device(home.device)

    def _run(self, name: str, home: SimDevice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._is_dispatched and calls.has_arrays((args, kwargs)):
            return self._function(*args, **kwargs)
        function = partial(_made, self._function, home) if name in _FLOATS else self._function
        return calls.call(name, function, args, kwargs, writes=functions.written(name, args, kwargs), sim_device=home)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._function, name)
        return _Forward(found, self._sim_device) if callable(found) else found


class _Builder:
    """``xp.r_``, ``xp.mgrid`` and similar objects, which make arrays from indexing expressions."""

    __slots__ = ("_builder", "_name", "_sim_device")

    def __init__(self, name: str, builder: Any, sim_device: SimDevice) -> None:
        self._name, self._builder, self._sim_device = name, builder, sim_device

    def __repr__(self) -> str:
        return f"{self._name} on {self._sim_device.device}"

    def __getitem__(self, key: Any) -> Any:
        return calls.call(self._name, self._builder.__getitem__, (key,), {}, sim_device=self._sim_device)


#: Functions whose default dtype is the device's.
_FLOATS = frozenset(
    "bartlett blackman eye fftfreq full geomspace hamming hanning identity kaiser linspace logspace ones rfftfreq tri "
    "zeros arange".split()
)


def _made(function: Callable[..., Any], home: SimDevice, *args: Any, **kwargs: Any) -> Any:
    """Return the result of `function`, narrowed if its dtype is NumPy's default and the device lacks it."""
    made = function(*args, **kwargs)
    if (
        not isinstance(made, np.ndarray)
        or "dtype" in kwargs
        or any(isinstance(one, (type, np.dtype, str)) for one in args)
    ):
        return made
    return made.astype(default_dtype(made.dtype, home), copy=False)


def _named(value: Any) -> Any:
    """Return the dtype if `value` is a dtype's name that NumPy does not know; otherwise `value`."""
    return as_dtype(value) if isinstance(value, str) and value in _BEYOND_NUMPY else value


# ------------------------------------------------------------------------------------------------ own versions


def _from_function(sim_device: SimDevice, function: Callable[..., Any], shape: Any, **options: Any) -> Any:
    """``numpy.fromfunction``: `function` gets indices on the device."""
    place = {key: options.pop(key) for key in ("dtype", "device") if key in options}
    indices = sim_device.namespace.indices(shape, **{"dtype": float, **place})
    return functional.fromfunction(indices, function, **options)


def _vectorize(sim_device: SimDevice, pyfunc: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``numpy.vectorize``: a function of Python numbers, called for each element."""
    hidden = [name for name in ("signature", "excluded") if options.get(name)]
    if hidden:
        raise TypeError(
            f"vectorize on {sim_device.device} takes no {hidden[0]}=: the function would get the memory itself"
        )
    if pyfunc is None:
        return partial(_vectorize, sim_device, **options)
    return _Forward(np.vectorize(pyfunc, **options), sim_device)


def _facts_of(kind: Any, sim_device: SimDevice, dtype: Any) -> Any:
    """``numpy.finfo`` and ``iinfo`` for a dtype, or for an array's dtype."""
    del sim_device
    wanted = dtype.dtype if isinstance(dtype, SimArray) else _named(dtype)
    return kind(wanted)


def _matching(sim_device: SimDevice, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """``numpy.astype``, also to another device."""
    moved = Creation(sim_device).asarray(x, device=device)
    return moved.astype(_named(dtype), copy=copy and moved is x)


class _Strides:
    """``xp.lib.stride_tricks``."""

    def __init__(self, sim_device: SimDevice) -> None:
        self.as_strided = functional.as_strided
        self.sliding_window_view = _Forward(np.lib.stride_tricks.sliding_window_view, sim_device)


def _lib(sim_device: SimDevice) -> Any:
    return types.SimpleNamespace(stride_tricks=_Strides(sim_device))


_OURS: dict[str, Callable[..., Any]] = {
    "astype": _matching,
    "finfo": partial(_facts_of, np.finfo),
    "fromfunction": _from_function,
    "iinfo": partial(_facts_of, np.iinfo),
    "vectorize": _vectorize,
}
_MODULES: dict[str, Callable[[SimDevice], Any]] = {"lib": _lib, "random": RandomNamespace}
