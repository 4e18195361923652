"""What the check of global state sees of the generators of other libraries, which are made up here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.devices import backend
from cuassay.devices.cuda.optional import OptionalMethods
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

Draw = Callable[[], object]


def said(draw: Draw, device: str = "cpu", *, deterministic: bool = True) -> str:
    """What the check says of a function that calls `draw`, from the check on: a declaration calls it too."""
    calls: list[Draw] = []

    def function(xp: Any, a: Any) -> Any:
        for call in calls:
            call()
        return a * 2

    spec = OpSpec(fn=function, name="drawing", samples=lambda make: [make(9)], deterministic=deterministic)
    calls.append(draw)
    return failure(CHECKS["state"], spec, Device(device))


# ------------------------------------------------------------------------------------------------ torch


class Generator:
    """A generator whose state is 5,056 bytes, as torch's is; drawing changes one in their middle."""

    def __init__(self) -> None:
        self.state = np.zeros(5056, np.uint8)

    def draw(self) -> None:
        self.state[16] += 1


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("torch")
    made.of_host, made.of_gpu = Generator(), Generator()
    made.get_rng_state = lambda: made.of_host.state.copy()
    made.cuda = SimpleNamespace(
        is_initialized=lambda: True, get_rng_state_all=lambda: [np.zeros(16, np.uint8), made.of_gpu.state.copy()]
    )
    for name in ("get_default_device", "get_default_dtype", "get_num_threads"):
        setattr(made, name, lambda: "as it was")
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.mark.parametrize("place", ["of_host", "of_gpu"])
def test_a_number_drawn_from_a_generator_of_torch_is_found(torch: Any, place: str) -> None:
    draw = getattr(torch, place).draw

    assert "leaves the state of torch's generators changed" in said(draw)
    assert said(draw, deterministic=False) == ""
    assert said(lambda: None) == ""


def test_torch_that_does_not_use_cuda_is_not_made_to(torch: Any) -> None:
    torch.cuda = SimpleNamespace(is_initialized=lambda: False)

    assert said(lambda: None) == ""


# ------------------------------------------------------------------------------------------------ CuPy


class RandomState(np.random.RandomState):
    """CuPy's, which has no `get_state`."""

    get_state = None  # type: ignore[assignment]


class Random:
    """The part of ``cupy.random`` with the default generator, of one device."""

    RandomState = RandomState

    def __init__(self) -> None:
        self.now = RandomState(1)

    def get_random_state(self) -> RandomState:
        return self.now

    def set_random_state(self, state: RandomState) -> None:
        self.now = state


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Random:
    """A made-up CuPy, whose generator the backend of `sim` watches as that of `cuda` does."""
    made = ModuleType("cupy")
    made.random = Random()  # type: ignore[attr-defined]
    made.cuda = SimpleNamespace(Device=lambda index: nullcontext())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", made)
    watched = OptionalMethods().watched_generators
    monkeypatch.setattr(type(backend("sim")), "watched_generators", lambda self, index: watched(index), raising=False)
    return made.random


@pytest.mark.parametrize(
    "change",
    [
        lambda random: random.now.random_sample(1),
        lambda random: random.now.seed(0),
        lambda random: random.set_random_state(RandomState(3)),
    ],
    ids=["drawn", "seeded", "replaced"],
)
def test_a_change_of_cupys_generator_is_found_and_undone(cupy: Random, change: Callable[[Random], Any]) -> None:
    held = cupy.now
    expected = RandomState(1).random_sample(3)

    message = said(lambda: change(cupy), "sim")

    assert "leaves the state of cupy.random changed" in message
    assert "deterministic=False" in message
    assert cupy.now is held
    np.testing.assert_array_equal(held.random_sample(3), expected)


def test_a_function_that_draws_nothing_or_may_draw_passes(cupy: Random) -> None:
    held = cupy.now

    assert said(lambda: None, "sim") == ""
    assert said(lambda: cupy.now.random_sample(1), "sim", deterministic=False) == ""
    assert cupy.now is held


def test_a_generator_is_put_back_after_an_error(cupy: Random) -> None:
    held = cupy.now

    @contextmanager
    def watched() -> Iterator[None]:
        with OptionalMethods().watched_generators(0):
            yield

    with pytest.raises(ZeroDivisionError), watched():
        raise ZeroDivisionError
    assert cupy.now is held


def test_a_function_passes_where_curand_is_not_installed(cupy: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise ImportError("libcurand.so")

    monkeypatch.setattr(cupy, "get_random_state", missing)
    monkeypatch.setattr(cupy, "RandomState", missing)

    assert said(lambda: None, "sim") == ""
