"""Device arrays between guard bands, at offsets that differ from call to call."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.core.device import Device
from cuassay.judging.arena import fill

__all__ = ["Guarded"]

#: The bytes of a band, and the step of its length, which keeps the alignment of an allocation.
_BAND_NBYTES, _STEP = 4096, 256


class Guarded:
    """One device array with random bytes before and after it.

    Parameters
    ----------
    contents : numpy.ndarray
        The initial contents; C-contiguous.
    device : Device
        The device of the array.
    """

    def __init__(self, contents: NDArray[Any], device: Device) -> None:
        self.shape, self.dtype, self.nbytes = contents.shape, contents.dtype, contents.nbytes
        self._low = _BAND_NBYTES + _STEP * (os.urandom(1)[0] % 16)
        pattern, high = os.urandom(64), self._low + self.nbytes
        self._host = np.empty(high + _BAND_NBYTES + -self.nbytes % _STEP, np.uint8)
        fill(self._host[: self._low], pattern)
        self._host[self._low : high] = contents.reshape(-1).view(np.uint8)
        fill(self._host[high:], pattern)
        self._buffer = devices.from_host(self._host, device)
        inside = self._buffer[self._low : high]
        self.array = inside.view(self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"Guarded({self.shape}, {self.dtype})"

    def read(self) -> NDArray[Any]:
        """Return a copy of the current contents on the host; waits for the current stream."""
        self._found = devices.to_host(self._buffer)
        inside: NDArray[Any] = self._found[self._low : self._low + self.nbytes]
        return inside.view(self.dtype).reshape(self.shape)

    def broken_nbytes(self) -> int:
        """Return how many bytes of the bands had changed at the last read."""
        high = self._low + self.nbytes
        bands = (slice(0, self._low), slice(high, None))
        return sum(int(np.count_nonzero(self._found[band] != self._host[band])) for band in bands)
