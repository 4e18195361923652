"""Where a call's result goes: to a new array, or to the caller's, which is checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.arrays import layout
from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from cuassay.ops import registry
from cuassay.ops.schema import Schema

__all__ = [
    "check_apart",
    "check_out",
    "check_outs",
    "check_written",
    "is_read_only",
    "overlaps_itself",
    "read_only",
    "refuse_out",
]


def refuse_out(schema: Schema, out: Any) -> None:
    """Raise `ArgumentError` if ``out=`` is given to an op that makes no array."""
    if out is not None:
        raise ArgumentError(f"{schema.name} makes no array, it writes its parameters; got out=; omit out=")


def check_out(
    schema: Schema,
    bound: Mapping[str, Any],
    operands: Sequence[Any],
    out: Any,
    *,
    backend: Backend,
    device: Device,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    name: str = "out",
) -> None:
    """Check that `out` can take a result of `shape` and `dtype` on `device` while the arrays of `bound` are read.

    Errors call it `name`.

    Raises
    ------
    DeviceError, ShapeError, DTypeError
        If its device, shape or dtype is wrong.
    ArgumentError
        If two of its elements share memory, or if it shares memory with an operand in another element order.
    """
    if not backend.owns(type(out)) or not _is_same(backend.device_of(out), device):
        owner = registry.backend_of(type(out))
        got = f"{out!r:.200}" if owner is None else f"one on {owner.device_of(out)}"
        raise DeviceError(f"{schema.name}'s {name} must be on {device}, as its arrays; got {got}; allocate it there")
    given = out.shape
    if given != shape and tuple(given) != shape:
        raise ShapeError(
            f"{schema.name}'s {name} must have shape {shape}; got {tuple(given)}; omit out=, or ask "
            f"ops.{schema.name}.meta(...) for its shape and dtype"
        )
    found = out.dtype
    if found is not dtype and found != dtype:
        raise DTypeError(
            f"{schema.name}'s {name} must be {dtype_name(dtype)}; got {dtype_name(found)}; cast after, not in, the op"
        )
    elementwise = schema.elementwise and schema.is_single  # the second is computed from what the first overwrote
    for operand in operands:
        if operand is out and elementwise:
            continue
        overlap = backend.overlap(operand, out)
        if overlap == "partial" or (overlap == "same" and not elementwise and not _takes_place(schema, bound, operand)):
            raise ArgumentError(
                f"{schema.name}'s {name} shares memory with {_name(schema, bound, operand)}, and would be read after "
                f"it is written; give out memory of its own"
            )
    if overlaps_itself(out):
        raise ArgumentError(
            f"{schema.name}'s {name} has several elements in one place (shape {tuple(out.shape)}, strides "
            f"{tuple(out.strides)} bytes), of which one would win; write into a contiguous array and copy from that"
        )


def check_outs(
    schema: Schema,
    bound: Mapping[str, Any],
    operands: Sequence[Any],
    outs: Any,
    *,
    backend: Backend,
    device: Device,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype[Any]],
) -> None:
    """Check as `check_out` does for several outputs: `outs` has an array for each, and no two share memory."""
    count = len(schema.outputs)
    if not isinstance(outs, tuple | list) or len(outs) != count:
        raise ArgumentError(
            f"{schema.name} has the outputs {', '.join(schema.outputs)}; got out={shown(outs)}; give a tuple of "
            f"{count} arrays"
        )
    for place, (out, shape, dtype) in enumerate(zip(outs, shapes, dtypes, strict=True)):
        check_out(
            schema, bound, operands, out, backend=backend, device=device, shape=shape, dtype=dtype,
            name=_place(schema, place),
        )  # fmt: skip
        for other in range(place):
            if backend.overlap(outs[other], out) != "none":
                raise ArgumentError(
                    f"{schema.name}'s out has {schema.outputs[other]} and {schema.outputs[place]} in one memory, of "
                    "which one would win; give each an array of its own"
                )


def check_apart(schema: Schema, outs: Sequence[Any], backend: Backend) -> None:
    """Raise `ArgumentError` if two of `outs` share memory."""
    for place, out in enumerate(outs):
        if any(backend.overlap(other, out) != "none" for other in outs[:place]):
            raise ArgumentError(f"{schema.name}'s out has two arrays in one memory; give each an array of its own")


def _place(schema: Schema, place: int) -> str:
    """What errors call the array of the output at `place`."""
    return "out" if schema.is_single else f"out[{place}] ({schema.outputs[place]})"


def _takes_place(schema: Schema, bound: Mapping[str, Any], operand: Any) -> bool:
    """Return whether `operand` is only the array that the op accumulates into, so that `out` may be that array."""
    names = [name for name in schema.array_names if bound[name] is operand]
    return names == [schema.accumulates]


def read_only(schema: Schema, out: Any, place: int = 0) -> ArgumentError:
    """Return the error for an `out` that cannot be written; made only after the kernel failed, to keep calls cheap."""
    return ArgumentError(
        f"{schema.name}'s {_place(schema, place)} is read-only; got {tuple(out.shape)} {dtype_name(out.dtype)}; give "
        "array.copy()"
    )


def check_written(schema: Schema, bound: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` if a parameter that the op writes is read-only, before anything is written.

    Only NumPy arrays are checked, because other kinds have no such flag. Names are built only for the message.
    """
    for param in schema.written:
        given = bound[param.name]
        for array in param.values(given):
            if isinstance(array, np.ndarray) and not array.flags.writeable:
                name = next(name for name, one in param.members(given) if one is array)
                raise ArgumentError(
                    f"{schema.name} writes {name}, which is read-only; got {tuple(array.shape)} "
                    f"{dtype_name(array.dtype)}; nothing was written; give a copy, or set flags.writeable"
                )


def is_read_only(array: Any) -> bool:
    """Return whether NumPy's flag forbids writing; CuPy's arrays have no such flag, and lists have no flags."""
    return not getattr(getattr(array, "flags", None), "writeable", True)


def _name(schema: Schema, bound: Mapping[str, Any], operand: Any) -> str:
    """Return the schema's name for `operand`."""
    members = (member for param in schema.arrays for member in param.members(bound[param.name]))
    return next(name for name, value in members if value is operand)


def overlaps_itself(array: Any) -> bool:
    """Return whether writing one element of `array` may change another."""
    strides: Sequence[int] = array.strides
    return not _nests(array.shape, strides, array.dtype.itemsize) and layout.has_internal_overlap(
        array.shape, strides, array.dtype.itemsize
    )


def _nests(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return whether each axis steps over the whole of the next: the array is in C order, with or without gaps."""
    reach = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride < reach and extent > 1:
            return False
        reach = stride * extent
    return True


def _is_same(a: Device, b: Device) -> bool:
    return a is b or a == b  # kinds usually return the same object, and comparing two costs 0.4 µs
