"""Autocast and GradScaler do what torch does, case by case: its answers stand in ``suites/data/amp``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, ops
from cuassay.amp import GradScaler, autocast
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.optim import Adam

CASES = json.loads((Path(__file__).parents[2] / "data" / "amp" / "amp_cases.json").read_text())

#: The calls of ``make_amp_cases.py``, with our ops; `a` is (4, 4).
OPS = {
    "mm": lambda a: ops.mm(a, a),
    "matmul": lambda a: ops.matmul(a, a),
    "bmm": lambda a: ops.bmm(a.reshape(1, 4, 4), a.reshape(1, 4, 4)),
    "addmm": lambda a: ops.addmm(a, a, a),
    "baddbmm": lambda a: ops.baddbmm(*[a.reshape(1, 4, 4)] * 3),
    "linear": lambda a: ops.linear(a, a, a[0]),
    "exp": ops.exp,
    "softmax": ops.softmax,
    "sum": ops.sum,
    "layer_norm": lambda a: ops.layer_norm(a, a[0], a[0]),
    "relu": ops.relu,
    "gelu": ops.gelu,
    "add": lambda a: ops.add(a, a),
    "mul": lambda a: ops.mul(a, a),
}

CASTS = [
    pytest.param(case["given"], case["region"], op, wanted, id=f"{op} of {case['given']} in {case['region'] or 'none'}")
    for case in CASES["casts"]
    for op, wanted in case["results"].items()
]


@pytest.mark.parametrize(("given", "region", "op", "wanted"), CASTS)
def test_autocast_computes_in_the_dtype_that_torch_computes_in(
    device: Device, given: str, region: str | None, op: str, wanted: str
) -> None:
    operand = devices.from_host(np.ones((4, 4), as_dtype(given)), device)

    with autocast(str(device).partition(":")[0], region or "float16", enabled=region is not None):
        assert dtype_name(OPS[op](operand).dtype) == wanted


class Descent:
    """``p -= g``: what torch's SGD does with a rate of 1."""

    def __init__(self, param: Any) -> None:
        self._params = [param]

    def step(self, grads: Any) -> None:
        ops.foreach_add_(self._params, list(grads), alpha=-1.0)


@pytest.mark.parametrize("case", CASES["scalers"].values(), ids=CASES["scalers"])
def test_a_scaler_moves_as_torchs_does(device: Device, case: dict[str, Any]) -> None:
    params = [on(device, 0.0) for _ in range(2)]

    for seen in followed(device, case, [Descent(param) for param in params]):
        stepped = params[: len(seen["grads"])]
        assert [float(devices.to_host(param)[0]) for param in stepped] == seen["params"]


@pytest.mark.parametrize("case", CASES["scalers"].values(), ids=CASES["scalers"])
def test_with_our_optimizer_the_scale_moves_the_same_way(device: Device, case: dict[str, Any]) -> None:
    """Scale and flag stay on the device then: another way through, to the same numbers."""
    steps = list(followed(device, case, [Adam([on(device, 0.0)]) for _ in range(2)]))

    assert len(steps) == len(case["seen"])


def followed(device: Device, case: dict[str, Any], optimizers: Sequence[Any]) -> Iterator[Any]:
    """The steps of a case, after each was taken and its scale held to torch's."""
    scaler = GradScaler(str(device).partition(":")[0], **case["options"])
    scaler.scale(on(device, 1.0))
    for seen in case["seen"]:
        values = [float(text) for text in seen["grads"]]
        if seen["how"] == "update":
            scaler.update(values[0])
        else:
            for value, optimizer in zip(values, optimizers, strict=False):
                one_step(scaler, optimizer, value, seen["how"], device)
            scaler.update()
        assert scaler.get_scale() == pytest.approx(seen["scale"], rel=1e-7)
        assert scaler.get_growth_tracker() == seen["tracker"]
        yield seen


def one_step(scaler: GradScaler, optimizer: Any, value: float, how: str, device: Device) -> None:
    grad = on(device, value)
    if how == "loss":
        grad = ops.cast(scaler.scale(on(device, value, dtype="float16")), dtype="float32")
    if how == "unscale":
        scaler.unscale_(optimizer, [grad])
    scaler.step(optimizer, [grad])


def on(device: Device, value: float, dtype: str = "float32") -> Any:
    return devices.from_host(np.full((1,), value, as_dtype(dtype)), device)
