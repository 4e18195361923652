"""What is chosen among: a `Candidate` is one implementation with its parameters, as plain data that a file can hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from cuassay.errors import ArgumentError

__all__ = ["Candidate", "Plain", "distinct", "in_turn"]

#: A parameter's value: what JSON gives back as it was.
Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute something: whose implementation, and with which parameters.

    Equal candidates compute the same in the same way; they hash, and go through JSON unchanged.

    Attributes
    ----------
    implementation : str
        Who understands the parameters, such as ``cublaslt``.
    parameters : tuple of (str, value)
        By name, in the order of the names; values are strings, numbers, flags or None.
    """

    implementation: str
    parameters: tuple[tuple[str, Plain], ...] = ()

    @classmethod
    def of(cls, implementation: str, /, **parameters: Plain) -> Candidate:
        """With parameters by name.

        Raises
        ------
        ArgumentError
            If a value is not plain.
        """
        for name, value in parameters.items():
            if not isinstance(value, Plain):
                raise ArgumentError(
                    f"parameter {name} of {implementation} must be a string, number, flag or None; got {value!r}"
                )
        return cls(implementation, tuple(sorted(parameters.items())))

    def __getitem__(self, name: str) -> Any:
        """The value of a parameter."""
        for found, value in self.parameters:
            if found == name:
                return value
        names = ", ".join(name for name, _ in self.parameters) or "none"
        raise ArgumentError(f"{self.implementation} has no parameter {name!r} here; it has {names}")

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return {"implementation": self.implementation, "parameters": dict(self.parameters)}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Candidate:
        """From what `plain` gave.

        Raises
        ------
        ArgumentError
            If it is something else.
        """
        implementation, parameters = data.get("implementation"), data.get("parameters")
        if not isinstance(implementation, str) or not isinstance(parameters, Mapping):
            raise ArgumentError(f"a candidate has an implementation and parameters; got {dict(data)!r}")
        return cls.of(implementation, **parameters)

    def __str__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.implementation}({parameters})" if parameters else self.implementation


def distinct(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each once, in the order they first come."""
    return tuple(dict.fromkeys(candidates))


def in_turn(*lists: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The first of each list, then the second of each, and so on; each once.

    Where the time does not suffice for all, no list is left out for another's last.
    """
    return distinct(one for one in chain.from_iterable(zip_longest(*lists)) if one is not None)
