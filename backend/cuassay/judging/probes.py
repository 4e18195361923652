"""Probes, and how the results of their calls are judged.

A probe is one call of a candidate, or several calls that are judged together. `beyond` decides which probes there are
beyond the declared samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
from cuassay.testing.once import keeping
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

#: The elements from which on a sample is large. Probes with many calls use smaller samples.
LARGE = 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """A failed probe: check, inputs, description, indicated cheats, index of the result, and the probe's dtype."""

    check: str
    sample: str
    text: str
    cheat: tuple[Evidence, ...] = ()
    result: int = 0
    dtype: str = ""


Draw = Callable[[], Sample]
Judge = Callable[[Sequence[Sample], Sequence[Outputs], dict[str, float]], Finding | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """Calls that are judged together.

    Attributes
    ----------
    check : str
        The name of the check.
    dtype : str
        The dtype.
    draws : tuple of callable
        One function per call, which draws its sample when its turn comes.
    judge : callable
        From the samples and the results of each call to a finding or None; it stores ``headroom`` in the mapping that
        it is given.
    case : str
        The label of the case that the call times; empty if it is not timed.
    optional : bool
        Whether it is a timed call, of which only some are judged.
    promised : callable, optional
        Returns whether the declared implementation passes the probe; called if a candidate fails. None: it is declared.
    varies : str
        The name of the scalar argument that is changed; empty if there is none.
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
    """Return a probe of one call, compared with the reference within the declared tolerance."""
    known = results.known.setdefault((case, dtype), {}) if case else None
    judge = partial(judged_values, results, dtype, check, known=known)
    return Probe(check, dtype, (draw,), judge, case, optional=bool(case), varies=varies)


def probe_of_chosen(results: Results, dtype: str, check: str, draw: Draw) -> Probe:
    """Return a probe of one call with numbers that the judge chose, which may cancel more than drawn numbers do.

    A result is wrong if it is neither within the declared tolerance nor within what rounding explains.
    """
    known = results.known.setdefault(("chosen", check, dtype), {})
    return Probe(check, dtype, (draw,), partial(judged_values, results, dtype, check, is_chosen=True, known=known))


#: The most elements of a call whose headroom is found even if it is plainly right: for each, the reference runs again.
_SMALL = 2**16


def judged_values(
    results: Results,
    dtype: str,
    check: str,
    samples: Sequence[Sample],
    outputs: Sequence[Outputs],
    figures: dict[str, float],
    *,
    is_chosen: bool = False,
    known: dict[Any, Any] | None = None,
) -> Finding | None:
    """Check the number of results of each call, and the values, dtype and shape of each result.

    `known` keeps what the tolerances of calls with the same shapes and options have in common.
    """
    for sample, given in zip(samples, outputs, strict=True):
        specs = results.of(sample)
        if len(given) != len(specs):
            text = (
                f"the call gave {_counted(len(given))}; {_counted(len(specs))} {'is' if len(specs) == 1 else 'are'} due"
            )
            return Finding(check, sample.label, text)
        for place, (spec, output) in enumerate(zip(specs, given, strict=True)):
            found: dict[str, Any] = {}
            is_small = elements_of(sample) <= _SMALL
            keeps_none = known is None or (is_chosen and is_small)
            kept = nullcontext() if keeps_none or known is None else keeping(known.setdefault(place, {}))
            try:
                with collecting(found), np.errstate(all="ignore"), kept:
                    compare(spec, _HOST, as_dtype(dtype), sample, output, keeps_ratio=is_small)
            except AssertionError as error:
                if is_chosen and _is_explained(spec, dtype, sample, output):
                    continue
                which = f"result {place}: " if len(specs) > 1 else ""
                return Finding(check, sample.label, f"{which}{error}", result=place)
            finally:
                figures["headroom"] = max(figures.get("headroom", 0.0), float(found.get("headroom", 0.0)))
    return None


def _is_explained(spec: OpSpec, dtype: str, sample: Sample, output: NDArray[Any]) -> bool:
    """Return whether rounding of the declared function on the host explains the distance from the reference."""
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


#: How many times as large the rounding of the same operations in another order may be.
_OTHER_ORDER = 4.0


def _counted(count: int) -> str:
    return f"{count} result{'s' * (count != 1)}"


def equal_runs(results: Results, dtype: str, sample: Sample) -> Probe:
    """Return a probe that checks that three calls with the same numbers give the same bits."""

    def judge(samples: Sequence[Sample], outputs: Sequence[Outputs], figures: dict[str, float]) -> Finding | None:
        first, *others = outputs
        if all(_are_equal(one, first) for one in others):
            return judged_values(results, dtype, "equal runs", samples[:1], outputs[:1], figures)
        seen = Evidence(id="C16", certainty="indicated", evidence="equal calls gave different bits")
        return Finding("equal runs", sample.label, "three calls with the same inputs differ in their bits", (seen,))

    return Probe("equal runs", dtype, (partial(same, sample),) * 3, judge)


def _are_equal(some: Outputs, others: Outputs) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and not differs(one, other)
        for one, other in zip(some, others, strict=True)
    )


def same(sample: Sample) -> Sample:
    """Return the sample itself, as the draw of a probe."""
    return sample


def elements_of(sample: Sample) -> int:
    """Return the number of elements of all arrays of a call."""
    return sum(array.size for array in arrays_of(*sample.host()))
