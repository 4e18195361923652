"""The conditions under which a requirement applies: ``when=`` of `cuassay.testing.requires`.

A condition is a function of the test's parameters, or names of dtypes and devices.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuassay.core.capability import DTYPE_NAMES, dtype_word, unknown_dtype
from cuassay.core.device import Device
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CapabilityNameError, DeviceError

__all__ = ["Condition", "When", "parse_when"]

#: The values of ``when=``: a function of parameters by their names, or dtypes and devices.
Condition = Callable[..., object] | str | Sequence[str]


@dataclass(frozen=True, slots=True)
class When:
    """A function, and the names of the test's parameters that it takes."""

    function: Callable[..., object]
    names: tuple[str, ...]

    def holds(self, parameters: Mapping[str, Any]) -> bool:
        """Whether the requirement applies to this case.

        Raises
        ------
        ArgumentError
            If the test lacks a parameter that the function takes.
        """
        absent = [name for name in self.names if name not in parameters]
        if absent:
            here = ", ".join(parameters) or "none"
            raise ArgumentError(
                f"when= takes {absent[0]!r}, which is not a parameter of this test; its parameters: {here}; let the "
                "test take it as a parameter, or write another condition"
            )
        return bool(self.function(**{name: parameters[name] for name in self.names}))


def parse_when(given: Condition) -> When:
    """Parse a condition, and check what is possible without a case.

    Raises
    ------
    ArgumentError
        If it is neither a function of named parameters nor names.
    CapabilityNameError
        If a name is neither that of a dtype nor of a device.
    """
    if callable(given):
        return When(given, _parameters(given))
    words = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise ArgumentError(
            f"when= takes dtypes, devices or a function of the test's parameters; got {shown(given)}; write one such "
            "as 'float16', 'cuda' or lambda size: size > 4096"
        )
    return _of_words(words)


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of the parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY) for one in parameters):
        raise ArgumentError(
            f"when= takes a function of parameters by their names; got {inspect.signature(function)}; name each one"
        )
    return tuple(one.name for one in parameters if one.default is one.empty)


def _of_words(words: Sequence[str]) -> When:
    dtypes = [word for word in words if word in DTYPE_NAMES]
    selectors = [_selector(word) for word in words if word not in DTYPE_NAMES]

    def of_dtype(dtype: Any) -> bool:
        return dtype_word(dtype) in dtypes

    def on_device(device: Device) -> bool:
        return any(selector.matches(device) for selector in selectors)

    if not selectors:
        return When(of_dtype, ("dtype",))
    if not dtypes:
        return When(on_device, ("device",))
    return When(lambda device, dtype: on_device(device) and of_dtype(dtype), ("device", "dtype"))


def _selector(word: str) -> Any:
    """Parse a device selector; a kind alone means all of its devices."""
    from cuassay.devices import kinds
    from cuassay.testing.presence import parse_selector

    try:
        return parse_selector(f"{word}:*" if word in kinds() else word)
    except DeviceError as error:
        raise CapabilityNameError(f"when= names neither a dtype nor a device: {error}; {unknown_dtype(word)}") from None
