"""What tests of arrays of the simulated device ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cuassay.devices.sim import BACKEND


@pytest.fixture
def xp() -> Iterator[Any]:
    """The namespace of the first of two devices of 4 MiB."""
    with BACKEND.simulated(devices=2, memory=2**22):
        yield BACKEND.namespace(0)
