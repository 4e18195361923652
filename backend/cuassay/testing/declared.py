"""What an `OpSpec` declares in addition to functions: sizes to measure at, work, calls that must raise, known failures.

`cuassay.testing.opspec` hands all of it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

from cuassay.core.capability import dtype_word
from cuassay.core.nearest import did_you_mean
from cuassay.errors import SpecError

__all__ = ["FORMS", "GPT2", "REDUCED", "Declared", "ErrorInput", "KnownFailure", "ModelSizes", "Work", "several"]

#: Fields of a spec that are functions, with how each is written.
FORMS = {
    "fn": "lambda xp, a: ...",
    "samples": "lambda make: [make((3, 5))]",
    "error_inputs": "lambda make: [ErrorInput(make(3), ValueError, 'why')]",
    "reference": "lambda a: ...",
    "terms": "lambda a: ...",
    "magnitude": "lambda a: ...",
    "meaning": "lambda a: ...",
    "work": "lambda a: Work(bytes=...)",
    "bench": "lambda make, sizes: [make(sizes.width)]",
}


def index_advice(error: Exception) -> str:
    """What to add to a message where an index is out of range; empty for other errors."""
    made = "; for indices into N places write make(shape, dtype='int64', low=0, high=N - 1)"
    return made if isinstance(error, IndexError) else ""


class Declared:
    """A dataclass that users write: a field that there is not is told with those that there are."""

    __slots__ = ()

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Refuse what ``__init__`` would with the names of its fields."""
        declared: Any = cls
        known, positional = _fields_of(declared)
        unknown = next((name for name in named if name not in known), None)
        if unknown is not None:
            meant = did_you_mean(unknown, known)
            if unknown in ("rtol", "atol") and "ulps" in known:
                meant = "; ulps= counts in the dtype's epsilon: rtol=1e-5 in float32 is ulps=84"
            raise SpecError(f"{cls.__name__} has no field {unknown!r}{meant}; fields: {', '.join(known)}")
        if len(given) > positional:
            raise SpecError(
                f"{cls.__name__} takes its fields by name; got {given!r:.200}; write {cls.__name__}({known[0]}=...)"
            )
        return super().__new__(cls)


@cache
def _fields_of(declared: Any) -> tuple[list[str], int]:
    """The names of a dataclass's fields, and how many of them may be given by position."""
    found = fields(declared)
    return [field.name for field in found], sum(not field.kw_only for field in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """The extents a benchmark draws its shapes from."""

    batch: int
    length: int
    width: int
    heads: int
    vocabulary: int


#: GPT-2 small (Radford et al. 2019), the main job's input on an accelerator.
GPT2 = ModelSizes(batch=8, length=1024, width=768, heads=12, vocabulary=50_257)

#: The same on cpu and sim, so that the main job ends in minutes on two cores.
REDUCED = ModelSizes(batch=1, length=128, width=768, heads=12, vocabulary=50_257)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Declared):
    """What a call must at least move and compute: bytes read and written once, operations of the definition."""

    bytes: int
    flops: int = 0

    def columns(self) -> dict[str, int | None]:
        """Columns of a ``time`` row; None, which a row leaves out, where no operations are counted."""
        return {"bytes": self.bytes, "flops": self.flops or None}


@dataclass(frozen=True, slots=True)
class ErrorInput(Declared):
    """A call that must raise `error` with a message that `match` (a regular expression) is found in.

    The call is written as `OpSpec.samples` yields one: a `Sample`, a tuple of arguments, or the only array.
    """

    sample: Any
    error: type[BaseException]
    match: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure(Declared):
    """A check that is expected to fail, and why. None means all.

    Attributes
    ----------
    reason : str
        Why, best with an issue.
    kind, dtype, check : str or None
        Device kind, dtype and check it holds for: a generated one (``"values"``, ``"out"``...), or a test of yours, by
        its name without ``test_``. The dtype by name, object or scalar type.
    strict : bool
        Passing unexpectedly is a failure.
    """

    reason: str
    kind: str | None = None
    dtype: str | None = None
    check: str | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_word(self.dtype))

    def covers(self, kind: str, dtype: str | None, check: str) -> bool:
        """Whether this entry speaks of that case."""
        wanted = (self.kind, kind), (self.dtype, dtype), (self.check, check)
        return all(mine in (None, theirs) for mine, theirs in wanted)


def several(names: Any) -> tuple[Any, ...]:
    """As a tuple; one name, or one dtype, may stand alone."""
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, str | type) else (names,)
