"""Subjects answer the calls of a trial, whose arrays are on the host.

A candidate in its own process is a subject. Trusted functions, such as stock mutants, are subjects that run in this
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cuassay.judging.arena import same_bits
from cuassay.testing.samples import over_arguments
from cuassay.testing.terms import arrays_of

__all__ = ["Answer", "LocalSubject", "Status", "Subject"]

Status = Literal["ok", "raised", "unusable", "died", "hung", "malformed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of one call.

    Attributes
    ----------
    status : str
        ``ok``, or how the call failed.
    outputs : tuple of numpy.ndarray
        Copies that no other process can write.
    changed : tuple of int
        The positions of the input arrays that the call changed, counting only arrays.
    seconds : float
        The time from the release of the arguments to the end of the snapshot, by the judge's clock.
    waited : float
        Seconds until the subject was ready for the call; not included in `seconds`.
    device_s : float
        In the kernel tier, seconds by the device's clock, including the empty interval; else 0.
    text : str
        The candidate's message, shortened and printable. It has no effect on the verdict.
    """

    status: Status
    outputs: tuple[NDArray[Any], ...] = ()
    changed: tuple[int, ...] = ()
    seconds: float = 0.0
    waited: float = 0.0
    device_s: float = 0.0
    text: str = ""


class Subject(Protocol):
    """Answers calls."""

    @property
    def takes_layouts(self) -> bool:
        """Whether arrays may be non-contiguous."""

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Make one call. It returns whatever the candidate does."""

    def empty(self) -> float | None:
        """Make the last call again without the candidate's function; return its seconds, None if there are none."""


class LocalSubject:
    """A trusted function of NumPy arrays, in this process.

    Parameters
    ----------
    function : callable
        ``function(*args, **kwargs)`` returns an array or a number, or a list or tuple of them.
    """

    takes_layouts = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"LocalSubject({getattr(self._function, '__name__', self._function)})"

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Call the function on copies."""

        def copied(value: Any) -> Any:
            return value.copy(order="K") if isinstance(value, np.ndarray) else value

        own = over_arguments(args, kwargs, copied)
        given, after = arrays_of(args, kwargs), arrays_of(*own)
        began = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                result = self._function(*own[0], **own[1])
        except Exception as error:  # noqa: BLE001  a mutant may fail in any way
            return Answer(status="raised", text=f"{type(error).__name__}: {error}"[:500])
        seconds = time.perf_counter() - began
        changed = tuple(place for place, (a, b) in enumerate(zip(given, after, strict=True)) if differs(a, b))
        outputs = tuple(map(np.array, result if isinstance(result, list | tuple) else [result]))
        return Answer(status="ok", outputs=outputs, changed=changed, seconds=seconds)

    def empty(self) -> None:
        """Return None: there is no protocol whose time would be taken off."""


def differs(before: NDArray[Any], after: NDArray[Any]) -> bool:
    """Return whether two arrays of the same shape differ in any bit."""
    return not same_bits(before, after)
