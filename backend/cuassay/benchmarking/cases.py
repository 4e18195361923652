"""What is measured of an OpSpec: its benchmark samples made ready on a device, and the rows that record them.

The command's ``run`` and ``suites/speed`` measure the same cases. How time is taken is decided in `timing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.benchmarking.settling import modes_of
from cuassay.benchmarking.timing import Timing
from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.errors import SpecError
from cuassay.ops import Plan
from cuassay.testing.opspec import OpSpec, Work
from cuassay.testing.presence import sizes_for
from cuassay.testing.samples import HostArray, Sample, Samples, Shape, each, normalized

__all__ = ["DTYPES", "Case", "case_label", "case_labels", "cases", "row", "timing_row"]

#: The dtypes that are measured by default: those that models are trained in.
DTYPES: tuple[str, ...] = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Case:
    """One call made ready.

    Attributes
    ----------
    spec, device, dtype
        What, where, in what.
    label : str
        The problem, such as ``8x1024x768``.
    arguments, keywords
        The call's, on the device.
    run : callable
        Calls the operation on them; an op writes one output array, made beforehand.
    work : Work
        What it must move and compute.
    """

    spec: OpSpec
    device: Device
    dtype: str
    label: str
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    run: Callable[[], Any]
    work: Work


def cases(spec: OpSpec, device: str | Device, dtype: Any) -> Iterator[Case]:
    """The spec's benchmark samples, each on `device` when its turn comes."""
    found, name = devices.find(device), dtype_name(dtype)
    drawn = spec.draw_bench(int(settings.get("CUASSAY_SEED")), name, sizes_for(found))
    for sample, label in zip(drawn, case_labels(spec, found, name), strict=True):
        yield _case(spec, found, name, sample, label)


def _case(spec: OpSpec, device: Device, dtype: str, sample: Sample, label: str) -> Case:
    args, kwargs = sample.on(device)
    work = spec.least_work(sample)
    if spec.fn is not None:  # without `spec.run`: what that does in addition would be in every sample
        with devices.backend(device.kind).activate(device.index):  # as it is when measured: the library itself
            xp = devices.namespace(device)
        run = partial(spec.fn, xp, *args, **kwargs)
        return Case(spec, device, dtype, label, args, kwargs, run, work)
    op = spec.declared
    if not op.schema.is_single:
        return Case(spec, device, dtype, label, args, kwargs, partial(_again, op.prepare(*args, **kwargs)), work)
    meta = op.meta(*args, **kwargs)
    out = devices.empty(meta.shape, meta.dtype, device)
    return Case(spec, device, dtype, label, args, kwargs, lambda: spec.run(device, args, {**kwargs, "out": out}), work)


def _again(plan: Plan) -> Any:
    """Run a prepared plan that does not return one array; gives the first that it writes."""
    plan.run()
    if plan.out is not None:
        return plan.out[0]
    written = (param for param in plan.op.schema.arrays if param.access != "read")
    return next(array for param in written for _, array in param.members(plan.bound[param.name]))


def case_label(sample: Sample) -> str:
    """The shapes of a product's operands, or of the first array, and the scalars, such as ``8192x768, axis=0``."""
    arrays = [one for a in sample.args for one in (a if isinstance(a, list) else [a])]
    shapes = [a.shape for a in arrays if hasattr(a, "shape")]
    telling = [shape for shape in shapes[:2] if len(shape) > 1 and shape != shapes[0]]
    joined = " @ ".join("x".join(map(str, shape)) or "0-d" for shape in (*shapes[:1], *telling))
    return ", ".join([joined, *(f"{name}={value}" for name, value in sample.kwargs.items())])


def case_labels(spec: OpSpec, device: str | Device, dtype: Any) -> tuple[str, ...]:
    """The labels of `cases`, without the cost of their numbers.

    If shapes and named scalars do not distinguish two cases of the spec, the sample's ``label=``, its layouts and its
    unnamed scalars follow. Otherwise they do not: the history of a case is found by its label.

    Raises
    ------
    SpecError
        If two cases have one label.
    """
    if spec.bench is None:
        return ()
    drawn = list(spec.bench(_Extents(0, dtype_name(dtype), spec.name), sizes_for(device)))
    given = [one.label if isinstance(one, Sample) else "" for one in drawn]
    samples = list(normalized(drawn))
    plain = list(map(case_label, samples))
    labels = tuple(
        ", ".join([label, *_details(sample, said)]) if plain.count(label) > 1 else label
        for label, sample, said in zip(plain, samples, given, strict=True)
    )
    _refuse_equal(spec, labels)
    return labels


def _details(sample: Sample, said: str) -> list[str]:
    """What distinguishes a call from others with the same shapes."""
    parts = list(each(sample.args))
    layouts = [part.layout for part in parts if isinstance(part, HostArray) and part.layout != "contiguous"]
    scalars = [str(part) for part in parts if not hasattr(part, "shape")]
    return [*([said] if said else []), *layouts, *scalars]


def _refuse_equal(spec: OpSpec, labels: Sequence[str]) -> None:
    """Refuse two cases with one label: a report would keep only the last, and lose a slow-down of the other."""
    for second, label in enumerate(labels):
        first = labels.index(label)
        if first != second:
            raise SpecError(
                f"{spec.name}: samples {first} and {second} of bench= are both the case {label!r} of a report; "
                "give each a name: Sample((...,), label='...')"
            )


class _Extents(Samples):
    """Makes arrays that have the right shape and take no memory."""

    def _values(self, shape: Shape, dtype: np.dtype[Any], low: float, high: float) -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), dtype), shape)


def row(case: Case, implementation: str, timing: Timing) -> dict[str, object]:
    """Columns of a ``time`` row."""
    told = {"case": case.label, "dtype": case.dtype, **case.work.columns()}
    return timing_row(case.spec.name, case.device, implementation, timing, **told)


def _modes(timing: Timing) -> str | None:
    """How far two groups of samples are apart; None if there are not two."""
    found = modes_of(timing.samples_s)
    return None if found is None else f"two, {found[1] / found[0] - 1:.1%} apart"


def timing_row(
    benchmark: str, device: str | Device, implementation: str, timing: Timing, **told: object
) -> dict[str, object]:
    """Columns of a ``time`` row of any series; `told` are further columns, such as ``case`` and ``dtype``."""
    low, high = timing.quartiles_s
    return {
        "benchmark": benchmark,
        "device": str(device),
        "implementation": implementation,
        "clock": timing.clock,
        "median": timing.median_s,
        "n": len(timing.samples_s),
        "cache": timing.cache,
        "mode": timing.mode,
        "launches": timing.launches,
        "empty": timing.empty_s or None,
        "settled": timing.settled,
        "throttled": timing.throttled,
        "unit": timing.unit,
        "modes": _modes(timing),
        "minimum": min(timing.samples_s),
        "q25": low,
        "q75": high,
        "samples": list(timing.samples_s),
        **told,
    }
