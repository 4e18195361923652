"""Probes beyond the declared samples: only what the declared implementation and the reference take is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.judging.beyond import beyond
from cuassay.judging.probes import Probe
from cuassay.judging.results import Results
from cuassay.testing import OpSpec

Function = Callable[..., Any]


def doubled(xp: Any, a: Any) -> Any:
    return a * 2


def of_the_declared_length(xp: Any, a: Any) -> Any:
    if a.shape[-1] != 64:
        raise ValueError(f"rows have {a.shape[-1]} numbers; give 64")
    return a * 2


def probes(fn: Function, reference: Function) -> list[Probe]:
    spec = OpSpec(fn=fn, name="doubled", dtypes=("float32",), samples=lambda make: [make((3, 64))], reference=reference)
    samples = list(spec.draw(0, "float32", "values"))
    return list(beyond(Results([spec]), Device("cpu"), "float32", samples, np.random.default_rng(0), {}))


def promised(found: list[Probe], check: str) -> set[bool]:
    return {probe.promised() for probe in found if probe.check == check and probe.promised is not None}


def test_every_probe_is_promised_that_the_declared_function_and_the_reference_take() -> None:
    assert promised(probes(doubled, lambda a: 2 * a), "hidden shapes") == {True}


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        (of_the_declared_length, lambda a: 2 * a),
        (lambda xp, a: a * 2 if a.shape[-1] == 64 else a * 3, lambda a: 2 * a),
    ],
    ids=["refused", "wrong"],
)
def test_a_hidden_shape_is_not_promised_where_the_declared_function_is_not_for_it(
    fn: Function, reference: Function
) -> None:
    found = probes(fn, reference)
    lengths = {
        probe.promised(): probe.draws[0]().args[0].shape[-1] for probe in found if probe.check == "hidden shapes"
    }

    assert False in lengths
    assert lengths[False] != 64
