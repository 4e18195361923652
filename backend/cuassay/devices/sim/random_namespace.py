"""``xp.random`` of a simulated device: NumPy's generators draw, and the numbers are on the device.

Seeds and sequences of numbers are NumPy's, so that results can be compared; arrays among the arguments are tracked. The
state is on the host, one for each device, and starts the same in every process, as everything here does. For numbers
that are the same on every kind of device use `cuassay.random`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from cuassay.core.handle import Handle
from cuassay.devices.sim import calls
from cuassay.devices.sim.creation import default_dtype
from cuassay.devices.sim.device import SimDevice
from cuassay.devices.sim.device_array import DeviceArray
from cuassay.devices.sim.functions import written
from cuassay.errors import MissingNameError

__all__ = ["Draws", "RandomNamespace"]

#: What would expose the state, or make arrays of another kind.
_HIDDEN = frozenset("get_state set_state bit_generator spawn".split())


class Draws(Handle):
    """A generator whose numbers are on a device; its methods are those of `source`.

    Parameters
    ----------
    sim_device : SimDevice
        The device of the numbers.
    source : numpy.random.RandomState or numpy.random.Generator
        The generator that draws.
    """

    def __init__(self, sim_device: SimDevice, source: Any) -> None:
        self._sim_device = sim_device
        self._source = source

    def __repr__(self) -> str:
        return f"{type(self._source).__name__} of numbers on {self._sim_device.device}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name in _HIDDEN or not callable(getattr(self._source, name, None)):
            raise MissingNameError(
                f"xp.random.{name} is not offered on {self._sim_device.device}: numbers are drawn by xp.random's "
                f"functions, xp.random.default_rng(seed) and xp.random.RandomState(seed)"
            )
        return partial(self._draw, name)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._source) if name not in _HIDDEN and not name.startswith("_")]

    def _draw(self, name: str, *args: Any, **kwargs: Any) -> Any:
        machine, home = self._sim_device.machine, self._sim_device
        writes = [args[0] if args else kwargs["x"]] if name == "shuffle" else written(name, args, kwargs)
        function = partial(self._numbers, name)
        with machine.working():
            if machine.current_queue(home).capture is None:
                return calls.call(f"random.{name}", function, args, kwargs, writes=writes, sim_device=home)
            state = self._state()  # a capture calls once to learn shapes; the first replay draws the numbers
            try:
                return calls.call(f"random.{name}", function, args, kwargs, writes=writes, sim_device=home)
            finally:
                self._restore(state)

    def _numbers(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Draw from the source; a number stays on the device as an array without axes."""
        drawn = getattr(self._source, name)(*args, **kwargs)
        if isinstance(drawn, (bool, int, float)):
            drawn = np.asarray(drawn)
        if isinstance(drawn, np.ndarray) and kwargs.get("dtype") is None and kwargs.get("out") is None:
            return drawn.astype(default_dtype(drawn.dtype, self._sim_device), copy=False)
        return drawn

    def _state(self) -> Any:
        is_legacy = isinstance(self._source, np.random.RandomState)
        return self._source.get_state(legacy=False) if is_legacy else self._source.bit_generator.state

    def _restore(self, state: Any) -> None:
        if isinstance(self._source, np.random.RandomState):
            self._source.set_state(state)
        else:
            self._source.bit_generator.state = state


class RandomNamespace(Draws):
    """``xp.random`` itself: the functions of a `RandomState`, and functions that make other generators."""

    def __init__(self, sim_device: SimDevice) -> None:
        super().__init__(sim_device, np.random.RandomState(sim_device.index))

    def __repr__(self) -> str:
        return f"Namespace(cuassay.devices.sim.random on {self._sim_device.device})"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "RandomState", "default_rng", "ranf", "sample"]

    def default_rng(self, seed: Any = None) -> Draws:
        """Return a generator with the methods of `numpy.random.Generator`."""
        return Draws(self._sim_device, np.random.default_rng(_plain(seed)))

    def RandomState(self, seed: Any = None) -> Draws:  # noqa: N802  NumPy's name
        """Return a generator with the methods of `numpy.random.RandomState`."""
        return Draws(self._sim_device, np.random.RandomState(_plain(seed)))

    def ranf(self, size: int | Sequence[int] | None = None) -> Any:
        """Draw numbers in [0, 1)."""
        return self.random_sample(size)

    def sample(self, size: int | Sequence[int] | None = None) -> Any:
        """Draw numbers in [0, 1)."""
        return self.random_sample(size)


def _plain(seed: Any) -> Any:
    return seed.get() if isinstance(seed, DeviceArray) else seed
