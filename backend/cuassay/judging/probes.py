"""What a probe is, and how the results of its calls are judged.

A probe is one call of a candidate, or several that are judged together. Which probes there are beyond the declared
samples is decided in `beyond`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.judging.results import Outputs, Results
from cuassay.judging.subject import differs
from cuassay.judging.verdict import Evidence
from cuassay.testing.compare import collecting
from cuassay.testing.generated.comparison import compare, compare_values, explained_rounding
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = [
    "LARGE",
    "Draw",
    "Finding",
    "Probe",
    "declared_probe",
    "elements_of",
    "equal_runs",
    "judged_values",
    "probe_of_chosen",
    "same",
]

_HOST = Device("cpu")

#: Elements of a large sample. Probes that make many calls are for smaller ones.
LARGE = 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """A probe that failed: the check, the inputs, what was found, the cheats that it indicates, and in which result."""

    check: str
    sample: str
    text: str
    cheat: tuple[Evidence, ...] = ()
    result: int = 0


Draw = Callable[[], Sample]
Judge = Callable[[Sequence[Sample], Sequence[Outputs], dict[str, float]], Finding | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """Calls that are judged together.

    Attributes
    ----------
    check : str
        What is probed.
    dtype : str
        In which dtype.
    draws : tuple of callable
        One for each call: draws its sample, when its turn comes.
    judge : callable
        From the samples, and the results of each call, to what was found; leaves ``headroom`` in the mapping that it is
        given.
    case : str
        The label of the case whose time is taken; empty where none is.
    optional : bool
        A timed call, of which only some are judged.
    promised : callable, optional
        Tells whether the declared implementation passes it; asked where a candidate does not. None: it is declared.
    varies : str
        The name of the scalar argument that is changed; empty if none is.
    """

    check: str
    dtype: str
    draws: tuple[Draw, ...]
    judge: Judge
    case: str = ""
    optional: bool = field(default=False, kw_only=True)
    promised: Callable[[], bool] | None = field(default=None, kw_only=True)
    varies: str = field(default="", kw_only=True)


def declared_probe(results: Results, dtype: str, check: str, draw: Draw, *, case: str = "", varies: str = "") -> Probe:
    """One call, compared with the reference within the declared tolerance."""
    judge = partial(judged_values, results, dtype, check)
    return Probe(check, dtype, (draw,), judge, case, optional=bool(case), varies=varies)


def probe_of_chosen(results: Results, dtype: str, check: str, draw: Draw) -> Probe:
    """One call with numbers that the judge has chosen, which may cancel more than drawn ones do.

    A result is wrong where it is neither within the declared tolerance nor within what rounding explains.
    """
    return Probe(check, dtype, (draw,), partial(judged_values, results, dtype, check, is_chosen=True))


def judged_values(
    results: Results,
    dtype: str,
    check: str,
    samples: Sequence[Sample],
    outputs: Sequence[Outputs],
    told: dict[str, float],
    *,
    is_chosen: bool = False,
) -> Finding | None:
    """What is wrong with the number of results of each call, or with the values, dtype or shape of one of them."""
    for sample, given in zip(samples, outputs, strict=True):
        specs = results.of(sample)
        if len(given) != len(specs):
            text = (
                f"the call gave {_counted(len(given))}; {_counted(len(specs))} {'is' if len(specs) == 1 else 'are'} due"
            )
            return Finding(check, sample.label, text)
        for place, (spec, output) in enumerate(zip(specs, given, strict=True)):
            found: dict[str, Any] = {}
            try:
                with collecting(found), np.errstate(all="ignore"):
                    compare(spec, _HOST, as_dtype(dtype), sample, output)
            except AssertionError as error:
                if is_chosen and _is_explained(spec, dtype, sample, output):
                    continue
                which = f"result {place}: " if len(specs) > 1 else ""
                return Finding(check, sample.label, f"{which}{error}", result=place)
            finally:
                told["headroom"] = max(told.get("headroom", 0.0), float(found.get("headroom", 0.0)))
    return None


def _is_explained(spec: OpSpec, dtype: str, sample: Sample, output: NDArray[Any]) -> bool:
    """Whether rounding explains how far a result is from the reference: that of the declared function on the host."""
    expected = spec.expected(sample)
    with np.errstate(all="ignore"):
        limit = _OTHER_ORDER * explained_rounding(spec, as_dtype(dtype), sample, expected)
        if not np.isfinite(limit).all():
            return False
        try:
            compare_values(spec, _HOST, as_dtype(dtype), sample, output, expected=expected, limit=limit)
        except AssertionError:
            return False
    return True


#: Rounding in another order of the same operations may be this many times as large.
_OTHER_ORDER = 4.0


def _counted(count: int) -> str:
    return f"{count} result{'s' * (count != 1)}"


def equal_runs(results: Results, dtype: str, sample: Sample) -> Probe:
    """Three calls with the same numbers give the same bits."""

    def judge(samples: Sequence[Sample], outputs: Sequence[Outputs], told: dict[str, float]) -> Finding | None:
        first, *others = outputs
        if all(_are_equal(one, first) for one in others):
            return judged_values(results, dtype, "equal runs", samples[:1], outputs[:1], told)
        seen = Evidence(id="C16", certainty="indicated", evidence="equal calls gave different bits")
        return Finding("equal runs", sample.label, "three calls with the same inputs differ in their bits", (seen,))

    return Probe("equal runs", dtype, (partial(same, sample),) * 3, judge)


def _are_equal(some: Outputs, others: Outputs) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and not differs(one, other)
        for one, other in zip(some, others, strict=True)
    )


def same(sample: Sample) -> Sample:
    """The sample itself, as the draw of a probe."""
    return sample


def elements_of(sample: Sample) -> int:
    """Elements of all arrays of a call."""
    return sum(array.size for array in arrays_of(*sample.host()))
