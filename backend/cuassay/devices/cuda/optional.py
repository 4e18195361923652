"""Optional methods of a backend, as `cuassay.core.protocols` names them, for the kind `cuda`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cuassay.devices.cuda.driver import runtime

__all__ = ["OptionalMethods"]

#: A seed that no function would choose.
_SEED = 0x5EED_FAC4

#: The numbers that are drawn to find out whether a generator is where it was.
_DRAWN = 4


class OptionalMethods:
    """What a backend may offer besides the methods that all of them have."""

    def bandwidth(self, index: int) -> float:
        """Return the peak rate of the memory of device `index` in bytes per second, from its clock and bus width."""
        return runtime.get_device_properties(index).bandwidth

    @contextmanager
    def watched_generators(self, index: int) -> Iterator[dict[str, Callable[[], Any]]]:
        """Yield getters of the state of other libraries' default generators: that of CuPy on device `index`.

        cuRAND does not tell its state. So CuPy gets another default generator inside the block, and the getter draws
        from it and from one that nobody else knows: as long as nothing else was drawn or seeded, the numbers are equal.
        Without cuRAND nothing can be drawn, and there is no getter.
        """
        import cupy

        with cupy.cuda.Device(index):
            held = _default_generator(cupy)
        if held is None:
            yield {}
            return
        with cupy.cuda.Device(index):
            own, twin = (cupy.random.RandomState(_SEED) for _ in range(2))
            cupy.random.set_random_state(own)

        def is_unchanged() -> bool:
            with cupy.cuda.Device(index):
                now = cupy.random.get_random_state()
                drawn, expected = (one.random_sample(_DRAWN).tolist() for one in (now, twin))
            return bool(now is own and drawn == expected)

        try:
            yield {"the state of cupy.random": is_unchanged}
        finally:
            with cupy.cuda.Device(index):
                cupy.random.set_random_state(held)


def _default_generator(cupy: Any) -> Any:
    """Return CuPy's default generator on the current device, or None if cuRAND is not installed."""
    try:
        return cupy.random.get_random_state()
    except ImportError:
        return None
