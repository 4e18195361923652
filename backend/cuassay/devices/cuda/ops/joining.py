"""`cat` and `stack` on CuPy arrays: cuassay's kernels join up to 64 contiguous arrays a launch; CuPy copies others.

Kernels: kernels/joining.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.joining`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from cuassay.arrays.layout import normalize_axis
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

_BLOCK = 256

#: Arrays of a launch: a few are separate arguments of the kernel, by which a graph finds its inputs.
_FEW, _MANY = 8, 64

#: The type that moves this many bytes.
_WORDS = {16: "int4", 8: "long long", 4: "int", 2: "short", 1: "char"}


def _parts(most: int) -> type[ctypes.Structure]:
    """``Parts`` of joining.cu."""
    numbers = [(name, ctypes.c_int64) for name in ("n", "columns", "step")]
    return type(f"Parts{most}", (ctypes.Structure,), {"_fields_": (*numbers, ("end", ctypes.c_int64 * most))})


_FEW_PARTS, _MANY_PARTS = _parts(_FEW), _parts(_MANY)


class _Sources(ctypes.Structure):
    """``Sources`` of joining.cu."""

    _fields_ = (("at", ctypes.c_uint64 * _MANY),)


def cat(a: Sequence[Array], *, axis: int, out: Array) -> None:
    """Join arrays along `axis`, each cast to the dtype of `out`."""
    place = normalize_axis(axis, out.ndim)
    if _join(a, out, place):
        return
    start = 0
    for one in a:
        end = start + one.shape[place]
        _put(one, out[(*(slice(None),) * place, slice(start, end))])
        start = end


def stack(a: Sequence[Array], *, axis: int, out: Array) -> None:
    """Join arrays along a new axis."""
    axis = normalize_axis(axis, out.ndim)
    if _join(a, out, axis):
        return
    for place, one in enumerate(a):
        _put(one, out[(*(slice(None),) * axis, place)])


def _put(one: Array, part: Array) -> None:
    if one.size:
        alignment.copyto(part, alignment.aligned(one).astype(part.dtype, copy=False))


def _join(a: Sequence[Array], out: Array, axis: int) -> bool:
    """Write the arrays next to each other into rows of `out`, split at `axis`; False if a layout or dtype differs."""
    if not all(one.dtype == out.dtype and is_c_contiguous(one) for one in (*a, out)):
        return False
    if not out.size:
        return True
    parts = [one for one in a if one.size]
    rows, itemsize = math.prod(out.shape[:axis]), out.dtype.itemsize
    widths = [one.size // rows * itemsize for one in parts]  # the bytes of a row of each array
    addresses = [one.data.ptr for one in (*parts, out)]
    nbytes = math.gcd(max(_WORDS), *addresses, *widths)
    begins = [0, *accumulate(width // nbytes for width in widths)]
    most, kind = (_FEW, _FEW_PARTS) if len(parts) <= _FEW else (_MANY, _MANY_PARTS)
    run = kernel("joining.cu", f"{'join_few' if most == _FEW else 'join_many'}<{_WORDS[nbytes]}>")
    for first in range(0, len(parts), most):
        chosen = parts[first : first + most]
        ends = [end - begins[first] for end in begins[first + 1 : first + 1 + len(chosen)]]
        missing = most - len(chosen)
        described = kind(rows * ends[-1], ends[-1], begins[-1], (*ends, *[ends[-1]] * missing))
        sources = (*chosen, *[0] * missing) if most == _FEW else (_Sources(tuple(one.data.ptr for one in chosen)),)
        target = out.reshape(-1).view("uint8")[begins[first] * nbytes :]
        run(-(-rows * ends[-1] // _BLOCK), _BLOCK, (*sources, target, described))
    return True


def register() -> None:
    """Add these implementations to the registry."""
    for name, implementation in (("cat", cat), ("stack", stack)):
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
