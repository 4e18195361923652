"""The default generators of CUDA devices, under ``torch.cuda.random``'s names; nothing here initialises CUDA.

Differences from torch: states are `bytes` of the same layout; seeding before CUDA is initialised takes effect at once;
`seed` and `seed_all` return the seed that they drew. `cuassay.random` draws the numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from cuassay import cuda
from cuassay.core.device import Device
from cuassay.core.generators import Generator, default_generator, seed_default_generators
from cuassay.cuda.naming import DeviceLike, index_of

__all__ = [
    "Generator",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device: DeviceLike) -> Generator:
    """Return the default generator of `device`; the current device is 0 until CUDA is initialised."""
    if device in (None, "cuda"):
        return default_generator(Device("cuda", cuda.current_device() if cuda.is_initialized() else 0))
    return default_generator(Device("cuda", index_of(device)))


def get_rng_state(device: DeviceLike = "cuda") -> bytes:
    """Return seed and offset of `device` (``"cuda"``: the current one) in 16 bytes; see `Generator.get_state`."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[bytes]:
    """Return the states of all devices."""
    return [get_rng_state(index) for index in range(cuda.device_count())]


def set_rng_state(new_state: bytes | bytearray | memoryview, device: DeviceLike = "cuda") -> None:
    """Set the state of `device` (``"cuda"``: the current one) to `new_state`; see `Generator.set_state`."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[bytes | bytearray | memoryview]) -> None:
    """Set the states of the devices, one state per device."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Restart the current device's default generator from `seed`; see `Generator.manual_seed`."""
    _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Restart the default generators of all devices from `seed`. Raises like `manual_seed`, and then changes none."""
    seed_default_generators("cuda", seed)


def seed() -> int:
    """Restart the current device's default generator from a seed that the operating system draws; return the seed."""
    return _generator(None).seed()


def seed_all() -> int:
    """Restart the default generators of all devices from one randomly drawn seed; return the seed."""
    drawn = secrets.randbits(64)
    manual_seed_all(drawn)
    return drawn


def initial_seed() -> int:
    """Return the seed of the current device's default generator."""
    return _generator(None).initial_seed()
