"""Random operands of a problem, with its layout and alignment, its bias and its scales; the pool provides the memory.

Zeros are not realistic: on an H200 a product of zeros runs 13 % faster than a product of random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.memory import hook
from cuassay.errors import OutOfMemoryError

__all__ = ["Operands", "extras", "nbytes_of", "sets"]

#: Operands begin at multiples of this many bytes.
_APART = 512

#: The random numbers in one block, which is repeated. A prime number makes the rows of a matrix differ.
_BLOCK = 1_048_573


@dataclass(frozen=True, slots=True)
class Operands:
    """The addresses of one set, and the memory that holds them."""

    a: int
    b: int
    c: int
    d: int
    memory: Any

    @property
    def nbytes(self) -> int:
        """The bytes of all operands together."""
        return int(self.memory.mem.size)


def nbytes_of(operand: Operand, batch: int) -> int:
    """Return the bytes from the first element to the end of the last, including gaps."""
    elements = (operand.columns - 1) * operand.leading + operand.rows + (batch - 1) * operand.batch_stride
    return elements * as_dtype(operand.dtype).itemsize


def sets(problem: Problem) -> Iterator[Operands]:
    """Yield one set after another until the memory is full; `c` is separate from `d` only if it is read.

    Raises
    ------
    OutOfMemoryError
        If there is no memory for the first set.
    """
    yield _set(problem)
    while True:
        try:
            yield _set(problem)
        except OutOfMemoryError:
            return


def _set(problem: Problem) -> Operands:
    parts = {"a": problem.a, "b": problem.b, "d": problem.d} | ({"c": problem.c} if problem.beta else {})
    places, size = {}, 0
    for name, operand in parts.items():
        places[name] = size + problem.alignment  # a multiple of the alignment, and of no larger power of two
        size += -(-(nbytes_of(operand, problem.batch) + problem.alignment) // _APART) * _APART
    memory = hook.allocate(size)
    at = {name: memory.ptr + place for name, place in places.items()}
    for seed, (name, operand) in enumerate(parts.items()):
        if name != "d":
            _fill(at[name], nbytes_of(operand, problem.batch), operand.dtype, seed)
    return Operands(at["a"], at["b"], at.get("c", at["d"]), at["d"], memory)


def _fill(address: int, nbytes: int, dtype: str, seed: int) -> None:
    """Fill with random numbers, by doubling one block until it is large enough, in order of the current stream."""
    block = _block(cupy.cuda.runtime.getDevice(), dtype, seed)
    stream, done = cupy.cuda.get_current_stream().ptr, min(block.nbytes, nbytes)
    copy, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDeviceToDevice
    copy(address, block.data.ptr, done, kind, stream)
    while done < nbytes:
        length = min(done, nbytes - done)
        copy(address + done, address, length, kind, stream)
        done += length


@cache
def _block(device: int, dtype: str, seed: int) -> Any:
    """Return normal random numbers of `dtype` as bytes on the current device `device`."""
    wanted, random = as_dtype(dtype), np.random.default_rng(seed)
    numbers: Any = random.standard_normal(_BLOCK, np.float32)
    if wanted.kind == "c":
        numbers = numbers + 1j * random.standard_normal(_BLOCK, np.float32)
    return cupy.asarray(numbers.astype(wanted).view(np.uint8))


def extras(problem: Problem) -> dict[str, Any]:
    """Return arrays by the plan's name for their pointer: a bias, and scales that are all 1."""
    found: dict[str, Any] = {}
    if "bias" in problem.epilogue:
        nbytes = problem.m * as_dtype(problem.d.dtype).itemsize
        found["BIAS_POINTER"] = hook.empty((nbytes,), np.uint8, cupy.cuda.runtime.getDevice())
        _fill(found["BIAS_POINTER"].data.ptr, nbytes, problem.d.dtype, len(found))
    lengths = {"none": (), "tensor": (1, 1), "outer": (problem.m, problem.n)}[problem.scaling]
    for name, length in zip(("A_SCALE_POINTER", "B_SCALE_POINTER"), lengths, strict=False):
        found[name] = cupy.asarray(np.ones(length, np.float32))
    return found
