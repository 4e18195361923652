"""The parts of an `OpSpec` that are not functions: sizes to measure at, work, calls that must raise, known failures.

`cuassay.testing.opspec` exports them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

from cuassay.core.capability import dtype_word
from cuassay.core.nearest import did_you_mean
from cuassay.errors import SpecError

__all__ = [
    "FORMS",
    "GPT2",
    "ONE_CALL",
    "REDUCED",
    "Declared",
    "ErrorInput",
    "KnownFailure",
    "ModelSizes",
    "Work",
    "several",
]

#: The fields of a spec that are functions, with an example of each.
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

#: Advice on the form of samples.
ONE_CALL = (
    "in the list of samples= a tuple is one call, as (make(3), make(3)), and options are given as "
    "Sample((a,), {'eps': 0.1})"
)


def index_advice(error: Exception) -> str:
    """Advice to append to the message of an `IndexError`; empty for other errors."""
    made = "; for indices into N places write make(shape, dtype='int64', low=0, high=N - 1)"
    return made if isinstance(error, IndexError) else ""


class Declared:
    """Base of dataclasses that users construct: an unknown field raises an error that lists the known ones."""

    __slots__ = ()

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Raise for arguments that ``__init__`` would reject, but name the fields in the error."""
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
    """The names of a dataclass's fields, and how many of them may be positional."""
    found = [field for field in fields(declared) if field.init]
    return [field.name for field in found], sum(not field.kw_only for field in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """The extents from which a benchmark makes its shapes."""

    batch: int
    length: int
    width: int
    heads: int
    vocabulary: int


#: GPT-2 small (Radford et al. 2019): the sizes on an accelerator.
GPT2 = ModelSizes(batch=8, length=1024, width=768, heads=12, vocabulary=50_257)

#: Smaller sizes for cpu and sim, so that the benchmarks end in minutes on two cores.
REDUCED = ModelSizes(batch=1, length=128, width=768, heads=12, vocabulary=50_257)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Declared):
    """The least work of a call: the bytes read and written, each counted once, and the operations by definition."""

    bytes: int
    flops: int = 0

    def columns(self) -> dict[str, int | None]:
        """Columns of a ``time`` row; None, which a row omits, if no operations are counted."""
        return {"bytes": self.bytes, "flops": self.flops or None}


@dataclass(frozen=True, slots=True)
class ErrorInput(Declared):
    """A call that must raise `error` with a message in which the regular expression `match` is found.

    The call is given as in `OpSpec.samples`: a `Sample`, a tuple of arguments, or a single array.
    """

    sample: Any
    error: type[BaseException]
    match: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure(Declared):
    """A check that is expected to fail, and the reason.

    Attributes
    ----------
    reason : str
        The reason, preferably with an issue.
    kind, dtype, check : str or None
        The device kind, dtype and check that fail; None means all. The check is a generated one, such as ``"values"``
        or ``"out"``, or a test of yours by its name without ``test_``. The dtype is a name, dtype or scalar type.
    strict : bool
        Whether it is a failure if the check passes.
    """

    reason: str
    kind: str | None = None
    dtype: str | None = None
    check: str | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_word(self.dtype))

    def covers(self, kind: str, dtype: str | None, check: str) -> bool:
        """Whether this entry covers that case."""
        wanted = (self.kind, kind), (self.dtype, dtype), (self.check, check)
        return all(mine in (None, theirs) for mine, theirs in wanted)


def several(names: Any) -> tuple[Any, ...]:
    """The names as a tuple; a single name or dtype need not be in a sequence."""
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, str | type) else (names,)
