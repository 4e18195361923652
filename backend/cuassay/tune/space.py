"""`Candidate`: one implementation with its parameters, as plain data that can be stored in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from cuassay.errors import ArgumentError

__all__ = ["Candidate", "Plain", "distinct", "in_turn"]

#: The types of a parameter's value: those that JSON preserves.
Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute something: an implementation and its parameters.

    Equal candidates compute the same in the same way. Candidates are hashable, and JSON preserves them.

    Attributes
    ----------
    implementation : str
        The implementation that interprets the parameters, such as ``cublaslt``.
    parameters : tuple of (str, value)
        Names and values, sorted by name. Values are strings, numbers, flags or None.
    """

    implementation: str
    parameters: tuple[tuple[str, Plain], ...] = ()

    @classmethod
    def of(cls, implementation: str, /, **parameters: Plain) -> Candidate:
        """Make a candidate with parameters by name.

        Raises
        ------
        ArgumentError
            If a value is not a string, number, flag or None.
        """
        for name, value in parameters.items():
            if not isinstance(value, Plain):
                raise ArgumentError(
                    f"parameter {name} of {implementation} must be a string, number, flag or None; got {value!r}"
                )
        return cls(implementation, tuple(sorted(parameters.items())))

    def __getitem__(self, name: str) -> Any:
        """Return the value of a parameter."""
        for found, value in self.parameters:
            if found == name:
                return value
        names = ", ".join(name for name, _ in self.parameters) or "none"
        raise ArgumentError(f"{self.implementation} has no parameter {name!r} here; it has {names}")

    def plain(self) -> dict[str, Any]:
        """Return the candidate as JSON data."""
        return {"implementation": self.implementation, "parameters": dict(self.parameters)}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Candidate:
        """Make a candidate from the data that `plain` returned.

        Raises
        ------
        ArgumentError
            If the data has another form.
        """
        implementation, parameters = data.get("implementation"), data.get("parameters")
        if not isinstance(implementation, str) or not isinstance(parameters, Mapping):
            raise ArgumentError(f"a candidate has an implementation and parameters; got {dict(data)!r}")
        return cls.of(implementation, **parameters)

    def __str__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.implementation}({parameters})" if parameters else self.implementation


def distinct(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the distinct candidates, in the order of their first occurrence."""
    return tuple(dict.fromkeys(candidates))


def in_turn(*lists: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the first candidate of each list, then the second of each, and so on, without repetitions.

    If there is not enough time for all, every list is then tried about equally far.
    """
    return distinct(one for one in chain.from_iterable(zip_longest(*lists)) if one is not None)
