"""Which devices a session tests. This is decided once, without creating a context in a driver.

Selectors are ``kind`` (index 0), ``kind:index``, ``kind:*`` and ``all``. A kind is loaded, and its devices are counted,
only when a selector names it. Under xdist the controller decides, and sends its decision to the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cuassay.core import settings
from cuassay.core.device import HOST_KINDS, VALUELESS_KINDS, Device
from cuassay.errors import CuassayError, DeviceError
from cuassay.testing.declared import GPT2, REDUCED, ModelSizes

__all__ = ["SESSIONS", "Presence", "Selector", "current_presence", "parse_selector", "sizes_for"]


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector. `kind` is None for every kind, and `index` is None for every index."""

    text: str
    kind: str | None
    index: int | None

    def __str__(self) -> str:
        return self.text

    def matches(self, device: Device) -> bool:
        """Whether this selects `device`."""
        return self.kind in (None, device.kind) and self.index in (None, device.index)


def parse_selector(text: str) -> Selector:
    """Parse ``cuda``, ``cuda:1``, ``cuda:*`` or ``all``.

    Raises
    ------
    DeviceError
        If the text has another form, no backend provides the kind, or its arrays hold no values.
    """
    from cuassay.devices import kinds, unknown_kind

    if text == "all":
        return Selector(text, None, 0)
    kind, _, rest = text.partition(":")
    device = Device(kind if rest == "*" else text)
    if device.kind not in kinds():
        raise DeviceError(f"{unknown_kind(device.kind)}, or give 'all'")
    if device.kind in VALUELESS_KINDS:
        raise DeviceError(
            f"arrays of kind {device.kind} hold no values, so nothing is tested or measured there; got {text!r}; give "
            "a kind that computes, such as cpu or sim"
        )
    return Selector(text, device.kind, None if rest == "*" else device.index)


class Presence:
    """The devices of one session.

    Parameters
    ----------
    wanted : sequence of str
        The selectors that the user gave. By default each kind of accelerator present, or cpu if there is none.
    required : sequence of str
        Selectors of devices that must be present; these devices are selected too.
    setting : str
        The setting that `wanted` comes from, which errors then name.

    Raises
    ------
    DeviceError
        If a selector cannot be parsed.
    """

    def __init__(self, wanted: Sequence[str] = (), required: Sequence[str] = (), *, setting: str = "") -> None:
        self._setting = setting
        with self._named():
            self._wanted = tuple(map(parse_selector, wanted))
        self._required = tuple(map(parse_selector, required))
        self._counts: dict[str, int] = {}
        self._reasons: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Presence({', '.join(map(str, self.devices))})"

    @property
    def is_explicit(self) -> bool:
        """Whether the user chose the devices."""
        return bool(self._wanted)

    @property
    def is_decided(self) -> bool:
        """Whether the devices have been looked for already."""
        return "devices" in self.__dict__

    @property
    def absent(self) -> Mapping[str, str]:
        """The kinds that were looked for and are absent, with the reasons."""
        return self._reasons

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The selected devices.

        Raises
        ------
        DeviceError
            If a device given by its index does not exist, or if ``kind:*`` selects none and nothing else is chosen.
        """
        with self._named():
            chosen = tuple(self._chosen())
        return _unique([*chosen, *self.required])

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the setting in an error about the devices that it gives."""
        try:
            yield
        except DeviceError as error:
            raise DeviceError(f"{self._setting}: {error}" if self._setting else str(error)) from error

    def _chosen(self) -> Iterable[Device]:
        if self.is_explicit:
            found = [device for selector in self._wanted for device in self.expand(selector)]
            if not found and not self._required:
                first = self._wanted[0]
                raise DeviceError(f"{first} selects no device: {self._shortage(first.kind or 'cpu')}")
            return found
        return self._accelerators() or [Device("cpu")]

    def _accelerators(self) -> list[Device]:
        from cuassay.devices import kinds

        others = (*HOST_KINDS, *VALUELESS_KINDS)
        return [Device(kind) for kind in kinds() if kind not in others and self.count(kind)]

    @cached_property
    def required(self) -> tuple[Device, ...]:
        """The required devices; raises `DeviceError` if one does not exist, or if ``kind:*`` selects none."""
        found = {selector: self.expand(selector) for selector in self._required}
        for selector, devices in found.items():
            if not devices:
                raise DeviceError(f"{selector} selects no device: {self._reasons[selector.kind or 'cpu']}")
        return _unique(device for devices in found.values() for device in devices)

    def matching(self, patterns: Sequence[str]) -> tuple[Device, ...]:
        """The devices for a test with patterns of its own: those among the user's choice, or else among all present."""
        selectors = tuple(map(parse_selector, patterns))
        if self.is_explicit:
            return tuple(device for device in self.devices if any(s.matches(device) for s in selectors))
        present = (s if s.index is None else Selector(s.text, s.kind, None) for s in selectors)
        found = _unique(device for selector in present for device in self.expand(selector))
        return tuple(device for device in found if any(s.matches(device) for s in selectors))

    def expand(self, selector: Selector) -> tuple[Device, ...]:
        """The existing devices that a selector selects; raises `DeviceError` for an index that does not exist."""
        from cuassay.devices import kinds

        if selector.kind is None:
            return tuple(Device(kind) for kind in kinds() if kind not in VALUELESS_KINDS and self.count(kind))
        count = self.count(selector.kind)
        if selector.index is None:
            return tuple(Device(selector.kind, index) for index in range(count))
        if selector.index >= count:
            raise DeviceError(
                f"{Device(selector.kind, selector.index)} does not exist: {self._shortage(selector.kind)}"
            )
        return (Device(selector.kind, selector.index),)

    def _shortage(self, kind: str) -> str:
        return self._reasons.get(kind) or f"the last is {kind}:{self.count(kind) - 1}"

    def count(self, kind: str) -> int:
        """The number of devices of `kind` that are present; counted once."""
        if kind not in self._counts:
            self._counts[kind], reason = _ask(kind)
            if not self._counts[kind]:
                self._reasons[kind] = reason
        return self._counts[kind]

    def to_worker(self) -> dict[str, Any]:
        """The decision as plain types, to be passed to `from_controller`."""
        return {
            "wanted": [selector.text for selector in self._wanted],
            "devices": list(map(str, self.devices)),
            "counts": dict(self._counts),
            "reasons": dict(self._reasons),
        }

    @classmethod
    def of_setting(cls, required: Sequence[str] = ()) -> Presence:
        """Return the presence of the devices that ``CUASSAY_DEVICES`` selects."""
        return cls(settings.get("CUASSAY_DEVICES"), required, setting="CUASSAY_DEVICES")

    @classmethod
    def from_controller(cls, told: Mapping[str, Any]) -> Presence:
        """Take the controller's decision: a worker might see fewer devices itself, and then collect other tests."""
        presence = cls(told["wanted"])
        presence._counts.update(told["counts"])
        presence._reasons.update(told["reasons"])
        presence.__dict__["devices"] = tuple(map(Device, told["devices"]))
        return presence


#: The presences of pytest sessions in this process, the innermost last; modules ask it for devices during import.
SESSIONS: list[Presence] = []


def current_presence() -> Presence:
    """The presence of the pytest session in this process; outside of a session, what ``CUASSAY_DEVICES`` selects."""
    return SESSIONS[-1] if SESSIONS else Presence.of_setting()


def _unique(devices: Iterable[Device]) -> tuple[Device, ...]:
    return tuple(dict.fromkeys(devices))


def _ask(kind: str) -> tuple[int, str]:
    """The number of devices of `kind`, and why there are none; a kind that fails must not affect the others."""
    from cuassay.devices import backend

    try:
        asked = backend(kind)
        reason = asked.why_absent()
        return (asked.count(), f"there are 0 {kind} devices") if reason is None else (0, reason)
    except (ImportError, AttributeError) as error:
        return 0, f"its module cannot be loaded: {error}"
    except CuassayError as error:
        return 0, f"it cannot be asked: {error}"


def sizes_for(device: str | Device) -> ModelSizes:
    """The sizes of GPT-2 small for accelerators, and smaller ones for cpu and sim, which compute on the host."""
    return REDUCED if Device(device).kind in HOST_KINDS else GPT2
