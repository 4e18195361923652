"""Where a call's arrays are: on one device of one kind, or an error that names two that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import ArgumentError, DeviceError
from cuassay.ops import registry
from cuassay.ops.schema import NUMBERS, Schema

if TYPE_CHECKING:
    from cuassay.ops.operation import Op

__all__ = ["arrays", "destination", "is_number", "place_of"]


def arrays(schema: Schema, bound: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each array with its name, including Python numbers given for arrays; lists are flattened."""
    for param in schema.params:
        if param.form != "scalar":
            yield from param.members(bound[param.name])


def is_number(value: Any) -> bool:
    """Return whether `value` is exactly a Python number; ``numpy.float64`` subclasses `float`, but is not weak."""
    return type(value) in NUMBERS


def place_of(op: Op, bound: Mapping[str, Any]) -> tuple[Backend, Device]:
    """Return the common backend and device of all array arguments."""
    place: tuple[Backend, Device] | None = None
    first = ""
    for name, value in arrays(op.schema, bound):
        if is_number(value) and op.schema.elementwise and not op.schema.is_irregular:
            continue
        backend = registry.backend_of(type(value))
        if backend is None:  # checked first, because building the message costs as much as the look-up
            backend = registry.owner_of(value, f"{op.name}'s {name}")
        device = backend.device_of(value)
        if place is None:
            place, first = (backend, device), name
        elif place[1] != device:
            if isinstance(value, np.generic):
                raise ArgumentError(
                    f"{op.name}'s {name} is a NumPy number, {value!r}, which lives on the host, and {first} is on "
                    f"{place[1]}; give a Python number: {name}.item()"
                )
            raise DeviceError(
                f"{op.name} needs all arrays on one device; {first} is on {place[1]}, {name} on {device}; "
                f"move one with cuassay.ops.copy(array, device=...)"
            )
    if place is None and op.schema.lists:
        name = op.schema.lists[0].name
        raise ArgumentError(f"{op.name} needs at least one array in {name}; got an empty list; give one")
    if place is None:
        raise ArgumentError(f"{op.name} needs at least one array to know its device; got only Python numbers")
    return place


def destination(op: Op, bound: Mapping[str, Any], out: Any, device: Device) -> Device:
    """Return the device of the output of an op that moves arrays. Raises `DeviceError` if it does not exist."""
    assigned = op.schema.place
    target = device if assigned is None else assigned(bound, out, device)
    if target != device and out is None:
        _check_exists(registry.backend(target.kind), target)
    return target


def _check_exists(backend: Backend, device: Device) -> None:
    reason = backend.why_absent()
    if reason is not None:
        raise DeviceError(f"{device} does not exist: {reason}; give one of a kind that is here, such as 'cpu'")
    count = backend.count()
    if device.index >= count:
        raise DeviceError(
            f"{device} does not exist; {count} {device.kind} devices are here; give an index below {count}"
        )
