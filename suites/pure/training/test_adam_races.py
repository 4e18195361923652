"""The simulated device sees an optimizer's step that did not wait, and gradients written while it may still read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import devices, from_host, ops
from cuassay.errors import RaceError
from cuassay.optim import Adam

BACKEND = devices.backend("sim")


def drawn(seed: int) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [from_host(generator.standard_normal(size).astype(np.float32), "sim:0") for size in (5, 33)]


@pytest.fixture
def optimizer() -> Adam:
    made = Adam(drawn(0))
    BACKEND.synchronize(0)
    return made


def test_a_step_that_does_not_wait_for_its_gradients_is_a_race(optimizer: Adam) -> None:
    grads = drawn(1)
    side = BACKEND.new_stream(0)

    with BACKEND.use_stream(side), pytest.raises(RaceError, match="by fused_adam_ of"):
        optimizer.step(grads)

    side.wait_stream(BACKEND.current_stream(0))
    with BACKEND.use_stream(side):
        optimizer.step(grads)
    BACKEND.current_stream(0).wait_stream(side)


def test_gradients_written_next_to_a_step_are_a_race(optimizer: Adam) -> None:
    grads, fresh = drawn(1), drawn(2)
    BACKEND.synchronize(0)
    side = BACKEND.new_stream(0)
    with BACKEND.use_stream(side):
        optimizer.step(grads)

    with pytest.raises(RaceError, match="fused_adam_"):
        ops.foreach_copy_(grads, fresh)

    BACKEND.current_stream(0).wait_stream(side)
    ops.foreach_copy_(grads, fresh)


def test_a_norm_next_to_a_write_is_a_race() -> None:
    grads = drawn(1)
    norm = from_host(np.zeros((), np.float32), "sim:0")
    side = BACKEND.new_stream(0)

    with BACKEND.use_stream(side), pytest.raises(RaceError, match="by global_norm_ of"):
        ops.global_norm_(grads, norm)
