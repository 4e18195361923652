"""Peers of products: each computes what ours does, on every set, into the same outputs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay import Device, devices, ops, to_host
from cuassay.benchmarking import product_peers
from cuassay.benchmarking.operands import Arena, Operands, elements_of
from cuassay.tune.shapes import GemmShape

SETS = 3


@pytest.fixture
def cuda(on_cuda: None) -> Device:
    return Device("cuda:0")


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    ("dtype", "out_dtype"), [("bfloat16", "bfloat16"), ("float16", "float16"), ("bfloat16", "float32")]
)
def test_every_peer_computes_what_ours_does(cuda: Device, layout: str, dtype: str, out_dtype: str) -> None:
    shape = GemmShape(m=24, n=40, k=72, layout=layout, dtype=dtype, out_dtype=out_dtype)
    of_inputs, of_results = elements_of(shape, SETS)
    operands = Operands.of(shape, SETS, Arena(cuda, dtype, of_inputs, seed=1), Arena(cuda, out_dtype, of_results))
    expected = [
        to_host(ops.mm(a, b, out_dtype=out_dtype)).astype(np.float32)
        for a, b in zip(operands.a, operands.b, strict=True)
    ]

    found = product_peers.passes(operands, cuda)

    assert ("cublaslt first" in found) == bool(devices.capabilities(cuda).answer("cublaslt"))
    assert ("cupy" in found) == (dtype == out_dtype)
    for name, run in found.items():
        operands.results.array.fill(0)
        devices.backend("cuda").synchronize(0)
        run()
        devices.backend("cuda").synchronize(0)
        for out, wanted in zip(operands.out, expected, strict=True):
            np.testing.assert_allclose(to_host(out).astype(np.float32), wanted, rtol=2e-2, atol=0.1, err_msg=name)
