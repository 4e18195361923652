"""The name of a device: parse, compare, hash and print it.

This module does not check whether the device exists; the device kind does (`cuassay.devices`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import DeviceError

__all__ = ["HOST_KINDS", "VALUELESS_KINDS", "Device", "index_on"]

HOST_KINDS = ("cpu", "sim")
"""Kinds that compute on the host: never chosen instead of the cpu by default, free to run in several workers at once.
"""

VALUELESS_KINDS = ("meta",)
"""Kinds whose arrays hold no values: functions are planned there, nothing is tested or measured."""


_FORM = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)(?::(?P<index>\d+))?")


@dataclass(frozen=True, slots=True, order=True, init=False, repr=False)
class Device:
    """One device: a kind and an index.

    Parameters
    ----------
    name : str or Device
        ``"cuda:1"``, or ``"cuda"`` for index 0, or another `Device`.
    index : int, optional
        The index, if `name` does not hold one.

    Raises
    ------
    DeviceError
        If `name` is not of the form ``kind`` or ``kind:index``, if the index is not a whole number of 0 or more, or if
        both `name` and `index` give an index.
    """

    kind: str
    index: int

    def __init__(self, name: str | Device, index: int | None = None) -> None:
        kind, number = _split(name)
        if index is not None and number is not None:
            raise DeviceError(f"device {name!r} already has an index; got another, {index!r}; give one of the two")
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "index", number or 0 if index is None else _checked(name, index))

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"Device('{self}')"


def _checked(name: object, index: object) -> int:
    whole = as_whole(index)
    if whole is None or whole < 0:
        raise DeviceError(f"device {shown(name)} has no such index; got {shown(index)}; give a whole number, 0 or more")
    return whole


def index_on(kind: str, device: int | str | Device) -> int:
    """Return the index of `device` among the devices of `kind`. An int is returned as it is.

    Raises
    ------
    DeviceError
        If `device` is of another kind or does not name a device.
    """
    if isinstance(device, int):
        return device
    named = Device(device)
    if named.kind != kind:
        raise DeviceError(f"{named} is not a {kind.upper()} device; give an index or '{kind}:<index>'")
    return named.index


def _split(name: str | Device) -> tuple[str, int | None]:
    if isinstance(name, Device):
        return name.kind, name.index
    text: object = name  # callers without a type checker pass anything
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        meant = f" (did you mean {text.lower()!r}?)" if isinstance(text, str) and _FORM.fullmatch(text.lower()) else ""
        raise DeviceError(
            f"{shown(name)} does not name a device{meant}; give 'kind' or 'kind:index', such as 'cpu' or 'cuda:1'"
        )
    index = match["index"]
    return match["kind"], None if index is None else int(index)
