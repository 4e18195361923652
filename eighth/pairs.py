"""What a pair is: a wrong function, its right twin, and the declaration that a maintainer writes for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PAIRS: list[Pair] = []


@dataclass(frozen=True)
class Pair:
    """`shows` says on which inputs the two differ; `checks` are the checks that would find it for that reason."""

    name: str
    kind: str
    origin: str
    shows: str
    checks: tuple[str, ...]
    make: Callable[[], tuple[Any, Any, Any]]


def pair(name: str, kind: str, origin: str, shows: str, *checks: str) -> Callable[[Any], Any]:
    """Register the function below, which returns the wrong function, the right one and the declaration."""

    def register(make: Callable[[], tuple[Any, Any, Any]]) -> Any:
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register
