"""Peers that compute matrix products: torch with both libraries, cuBLASLt's first choice, and the array library.

Each peer provides a pass: one call on every set of operands, on the current stream, into the same outputs as ours. A
pass does not allocate. A peer that is not installed or does not support a dtype is omitted.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.benchmarking.operands import Arena, Operands, Region
from cuassay.core.device import Device
from cuassay.errors import ShapeError

__all__ = ["LIVE", "passes"]

Pass = Callable[[], None]

#: Peers that cannot be captured, so that their calls are launched one by one. CuPy's cuBLAS calls reject a capture.
LIVE = frozenset({"cupy"})


def passes(operands: Operands, device: Device) -> dict[str, Pass]:
    """Return the peers' passes by name."""
    if device.kind == "cpu":
        # Not in bfloat16, where NumPy rounds after every operation and so computes something else.
        return {"numpy": _array_library(operands, device)} if operands.shape.dtype != "bfloat16" else {}
    if device.kind != "cuda":
        return {}
    can = devices.capabilities(device)
    found = {"cublaslt first": _first_of_cublaslt(operands)} if can.answer("cublaslt") else {}
    if operands.shape.out_dtype == operands.shape.dtype:
        found["cupy"] = _array_library(operands, device)
    if importlib.util.find_spec("torch") is not None:
        found |= {f"torch {library}": _torch(operands, library) for library in ("cublas", "cublaslt")}
    return found


def _array_library(operands: Operands, device: Device) -> Pass:
    matmul = devices.namespace(device).matmul
    calls = [partial(matmul, a, b, out=out) for a, b, out in zip(operands.a, operands.b, operands.out, strict=True)]
    return partial(_each, calls)


def _each(calls: Sequence[Callable[[], Any]]) -> None:
    for call in calls:
        call()


# ------------------------------------------------------------------------------------------------ torch


@cache
def _imported() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings at torch's import are not ours
        torch = importlib.import_module("torch")
        torch.cuda.is_available()
    return torch


def _torch(operands: Operands, library: str) -> Pass:
    torch, shape = _imported(), operands.shape
    a = _torch_matrices(operands.sources, operands.at_a, shape.dtype)
    b = _torch_matrices(operands.sources, operands.at_b, shape.dtype)
    out = _torch_matrices(operands.results, operands.at_out, shape.out_dtype)
    a, b = (
        [one if lies == "N" else one.t() for one in matrices]
        for matrices, lies in zip((a, b), shape.layout, strict=True)
    )
    wider = {} if shape.out_dtype == shape.dtype else {"out_dtype": getattr(torch, shape.out_dtype)}
    calls = [partial(torch.mm, *ab, **wider, out=into) for *ab, into in zip(a, b, out, strict=True)]

    def run() -> None:
        from cuassay import cuda

        prefer = torch.backends.cuda.preferred_blas_library
        former = prefer()
        prefer(library)
        try:
            with torch.cuda.stream(torch.cuda.ExternalStream(cuda.current_stream().cuda_stream)):
                _each(calls)
        finally:
            prefer(former)

    return run


def _torch_matrices(arena: Arena, region: Region, dtype: str) -> list[Any]:
    """Return the matrices as torch tensors on the same memory, by way of integers: torch rejects CuPy's bfloat16."""
    torch = _imported()
    whole = torch.as_tensor(arena.array.view(f"i{arena.array.dtype.itemsize}"), device="cuda")
    flat = whole.view(getattr(torch, dtype))
    extents, strides = (region.count, region.rows, region.columns), (region.step, region.columns, 1)
    return list(flat.as_strided(extents, strides, region.start).unbind(0))


# ------------------------------------------------------------------------------------------------ cuBLASLt


def _first_of_cublaslt(operands: Operands) -> Pass:
    """Return a pass of the algorithm that the library's heuristic ranks first, with as little host code as possible."""
    from cuassay.core.precision import matmul_options
    from cuassay.devices.cuda.blas import plans
    from cuassay.devices.cuda.blas.layouts import place
    from cuassay.devices.cuda.blas.problem import compute_of, reductions_of

    shape, options = operands.shape, matmul_options()
    a, b, d = (_stack(one) for one in (operands.a[0], operands.b[0], operands.out[0]))
    fields = {"compute": compute_of(shape.dtype, "ieee", options), "reductions": reductions_of(shape.dtype, options)}
    placed = place(a, b, None, d, **fields)
    if isinstance(placed, str):
        raise ShapeError(f"cuBLASLt cannot read {placed} of {shape} as it lies; leave the shape out")
    plan = plans.plan_on_current_device(placed.problem, plans.candidates(placed.problem, count=1)[0])
    sources = (operands.b, operands.a) if placed.swapped else (operands.a, operands.b)
    calls = [
        partial(plan.run, *(one.data.ptr for one in (first, second, out, out)))
        for first, second, out in zip(*sources, operands.out, strict=True)
    ]
    return partial(_each, calls)


def _stack(matrix: Any) -> Any:
    from cuassay.devices.cuda.blas.layouts import Stack

    rows, columns = matrix.shape
    of_row, of_column = (stride // matrix.dtype.itemsize for stride in matrix.strides)
    return Stack(1, rows, columns, 0, of_row, of_column, dtype_name(matrix.dtype))
