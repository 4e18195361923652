"""Which results share memory with an input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, to_host
from cuassay.testing import OpSpec
from cuassay.testing.generated.aliasing import assert_own, gives_own_arrays
from cuassay.testing.generated.checks import CHECKS

CPU = Device("cpu")


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (lambda xp, a: a + 1, True),
        (lambda xp, a: a, False),
        (lambda xp, a: a[1:], False),
        (lambda xp, a: a.copy(), False),
        (lambda xp, a: (a + 1, a[:1]), False),
        (lambda xp, a: xp.sum(a), True),
        (lambda xp, a: 1.0, False),
    ],
    ids=["computed", "the input", "a view", "moved", "one of two", "a scalar", "a number"],
)
def test_results_that_are_computed_in_memory_of_their_own(function: Any, own: bool) -> None:
    spec = OpSpec(fn=function, name="given", samples=lambda make: [make(9)])

    assert gives_own_arrays(spec, CPU, spec.draw(0, "float32")) is own


@pytest.mark.parametrize("check", ["aliasing", "inputs_unchanged"])
def test_what_says_that_it_shares_memory_is_not_asked(check: str) -> None:
    spec = OpSpec(fn=lambda xp, a: a + 1, name="given", samples=lambda make: [make(9)], without={check: "in place"})

    assert not gives_own_arrays(spec, CPU, spec.draw(0, "float32"))


@pytest.mark.parametrize(("place", "shares"), [(slice(0, 4), True), (slice(3, 4), True), (slice(4, 8), False)])
def test_a_view_of_an_input_is_not_its_own(place: slice, shares: bool) -> None:
    memory = np.zeros(8)
    message = ""
    try:
        assert_own(CPU, memory[place], [2.0, memory[:4], np.zeros(0)])
    except AssertionError as error:
        message = str(error)

    assert message.startswith("the result is an input, or a view of one, for this call") is shares


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(
    "function",
    [lambda xp, a: float(a.sum()), lambda xp, a: xp.sum(a), lambda xp, a: to_host(xp.sum(a))],
    ids=["number", "scalar", "on the host"],
)
def test_a_number_shares_no_memory(function: Any, device: str) -> None:
    CHECKS["aliasing"](OpSpec(fn=function, name="total", samples=lambda make: [make(9)]), device)
