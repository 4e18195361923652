"""The name of a device, and nothing else: parse it, compare it, hash it, print it.

Whether the device exists is asked of its kind (`cuassay.devices`), never here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuassay.errors import DeviceError

__all__ = ["Device", "index_on"]

_FORM = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)(?::(?P<index>\d+))?")


@dataclass(frozen=True, slots=True, order=True, init=False, repr=False)
class Device:
    """One device: a kind and an index.

    Parameters
    ----------
    name : str or Device
        ``"cuda:1"``, or ``"cuda"`` for index 0. A `Device` gives itself.

    Raises
    ------
    DeviceError
        If `name` is not of the form ``kind`` or ``kind:index``.
    """

    kind: str
    index: int

    def __init__(self, name: str | Device, index: int | None = None) -> None:
        kind, number = _split(name)
        if index is not None and number is not None:
            raise DeviceError(f"device {name!r} already has an index; got another, {index!r}; give one of the two")
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "index", int(index if number is None and index is not None else number or 0))

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"Device('{self}')"


def index_on(kind: str, device: int | str | Device) -> int:
    """The index that `device` names among those of `kind`; an int is one.

    Raises
    ------
    DeviceError
        If it names a device of another kind, or none.
    """
    if isinstance(device, int):
        return device
    named = Device(device)
    if named.kind != kind:
        raise DeviceError(f"{named} is no {kind.upper()} device; give an index or '{kind}:<index>'")
    return named.index


def _split(name: str | Device) -> tuple[str, int | None]:
    if isinstance(name, Device):
        return name.kind, name.index
    text: object = name  # callers without a type checker pass anything
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise DeviceError(f"{name!r} does not name a device; give 'kind' or 'kind:index', such as 'cpu' or 'cuda:1'")
    index = match["index"]
    return match["kind"], None if index is None else int(index)
