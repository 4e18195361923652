"""Gradients compared with torch's, on the same numbers: by op, dtype and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from cuassay import Device, from_host, ops, to_host
from cuassay.autograd import vjp
from cuassay.testing import devices
from cuassay.testing.compare import assert_close

Function = Callable[..., Any]

F = torch.nn.functional

SQUARE = ((12, 12), (12, 12))

#: By name: shapes of the arrays, ours, torch's. Numbers are from 0.3 to 2.
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Function, Function]] = {
    "add": (((12, 7), (7,)), ops.add, torch.add),
    "sub": (((12, 7), (12, 1)), ops.sub, torch.sub),
    "mul": (((12, 7), (7,)), ops.mul, torch.mul),
    "div": (((12, 7), (12, 1)), ops.div, torch.div),
    "neg": (((12, 7),), ops.neg, torch.neg),
    "sqrt": (((12, 7),), ops.sqrt, torch.sqrt),
    "log": (((12, 7),), ops.log, torch.log),
    "exp": (((12, 7),), ops.exp, torch.exp),
    "tanh": (((12, 7),), ops.tanh, torch.tanh),
    "sigmoid": (((12, 7),), ops.sigmoid, torch.sigmoid),
    **{
        name: (((12, 7),), getattr(ops, name), getattr(torch, name))
        for name in ("abs", "rsqrt", "reciprocal", "expm1", "log1p", "sin", "cos", "erf")
    },
    "silu": (((12, 7),), ops.silu, F.silu),
    "pow": (((12, 7), (12, 1)), ops.pow, torch.pow),
    "maximum": (((12, 7), (12, 1)), ops.maximum, torch.maximum),
    "minimum": (((12, 7), (7,)), ops.minimum, torch.minimum),
    "clamp": (
        ((12, 7),),
        lambda a: ops.clamp(a, min=0.6, max=1.5),
        lambda a: torch.clamp(a, 0.6, 1.5),
    ),
    "relu": (((12, 7),), lambda a: ops.relu(ops.sub(a, 1.0)), lambda a: torch.relu(a - 1.0)),
    "gelu": (((12, 7),), ops.gelu, F.gelu),
    "gelu_tanh": (
        ((12, 7),),
        lambda a: ops.gelu(a, approximate="tanh"),
        lambda a: F.gelu(a, approximate="tanh"),
    ),
    "softmax": (((12, 37),), ops.softmax, lambda a: torch.softmax(a, -1)),
    "layer_norm": (
        ((12, 37), (37,), (37,)),
        ops.layer_norm,
        lambda a, weight, bias: F.layer_norm(a, (37,), weight, bias),
    ),
    "sum": (((12, 7),), lambda a: ops.sum(a, axis=0), lambda a: torch.sum(a, 0)),
    "amax": (((12, 7),), lambda a: ops.amax(a, axis=1), lambda a: torch.amax(a, 1)),
    "cat": (((12, 7), (12, 3)), lambda a, b: ops.cat([a, b], axis=1), lambda a, b: torch.cat([a, b], 1)),
    "stack": (((12, 7), (12, 7)), lambda a, b: ops.stack([a, b], axis=-1), lambda a, b: torch.stack([a, b], -1)),
    "matmul": (((3, 12, 7), (7, 5)), ops.matmul, torch.matmul),
    "linear": (((12, 7), (5, 7), (5,)), ops.linear, F.linear),
    "baddbmm": (((3, 12, 5), (3, 12, 7), (3, 7, 5)), ops.baddbmm, torch.baddbmm),
}


@devices("cuda:*")
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_torch(device: Device, name: str, dtype: str, layout: str) -> None:
    shapes, ours, theirs = CASES[name]
    generator = np.random.default_rng(7)
    hosts = [generator.uniform(0.3, 2, shape).astype(dtype) for shape in shapes]
    arrays = [_laid_out(from_host(host, device), layout) for host in hosts]
    tensors = [torch.tensor(host, device=str(device), dtype=torch.float64, requires_grad=True) for host in hosts]

    value, pull = vjp(ours, *arrays)
    expected = theirs(*tensors)
    incoming = generator.uniform(-1, 1, tuple(expected.shape)).astype(dtype)
    found = pull(from_host(incoming, device))
    expected.backward(torch.tensor(incoming, device=str(device), dtype=torch.float64))

    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-5, "atol": 2e-5}
    assert_close(to_host(value), expected.detach().cpu().numpy().astype(dtype), **tolerance)
    for one, tensor in zip(found if isinstance(found, tuple) else (found,), tensors, strict=True):
        assert_close(to_host(one), tensor.grad.cpu().numpy().astype(dtype), **tolerance)


def _laid_out(array: Any, layout: str) -> Any:
    """The same numbers, in C order or with the strides of a transposed array."""
    return array if layout == "contiguous" or array.ndim < 2 else ops.copy(array.swapaxes(-1, -2)).swapaxes(-1, -2)
