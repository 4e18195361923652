"""The benchmark cases of an OpSpec: its benchmark samples on a device, and the result rows that record them.

``cuassay run`` and ``suites/speed`` measure the same cases. `timing` decides how time is measured.
"""

from __future__ import annotations

import inspect
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
    """One call that is ready to be measured.

    Attributes
    ----------
    spec, device, dtype
        The spec, the device, and the dtype of the inputs.
    label : str
        The problem size, such as ``8x1024x768``.
    arguments, keywords
        The arguments of the call, on the device.
    run : callable
        Calls the operation with these arguments. An op writes into an output array that was allocated before.
    work : Work
        The bytes that the operation must move, and the operations that it must compute.
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
    """Yield the spec's benchmark samples. Each is copied to `device` when it is reached."""
    found, name = devices.find(device), dtype_name(dtype)
    drawn = spec.draw_bench(int(settings.get("CUASSAY_SEED")), name, sizes_for(found))
    for sample, label in zip(drawn, case_labels(spec, found, name), strict=True):
        yield _case(spec, found, name, sample, label)


def _case(spec: OpSpec, device: Device, dtype: str, sample: Sample, label: str) -> Case:
    args, kwargs = sample.on(device)
    work = spec.least_work(sample)
    if spec.fn is not None:  # not by `spec.run`, whose overhead would be part of every sample
        with devices.backend(device.kind).activate(device.index):  # as when measured, where `xp` is the library itself
            xp = devices.namespace(device)
        run = partial(spec.fn, xp, *args, **kwargs)
        return Case(spec, device, dtype, label, args, kwargs, run, work)
    op = spec.declared
    if not op.schema.is_single:
        return Case(spec, device, dtype, label, args, kwargs, partial(_run_plan, op.prepare(*args, **kwargs)), work)
    meta = op.meta(*args, **kwargs)
    out = devices.empty(meta.shape, meta.dtype, device)
    return Case(spec, device, dtype, label, args, kwargs, lambda: spec.run(device, args, {**kwargs, "out": out}), work)


def _run_plan(plan: Plan) -> Any:
    """Run a prepared plan that does not return one array, and return the first array that it writes."""
    plan.run()
    if plan.out is not None:
        return plan.out[0]
    written = (param for param in plan.op.schema.arrays if param.access != "read")
    return next(array for param in written for _, array in param.members(plan.bound[param.name]))


def case_label(sample: Sample) -> str:
    """Return the shapes of a product's operands, or of the first array, and the scalars: ``8192x768, axis=0``."""
    arrays = [one for a in sample.args for one in (a if isinstance(a, list) else [a])]
    shapes = [a.shape for a in arrays if hasattr(a, "shape")]
    telling = [shape for shape in shapes[:2] if len(shape) > 1 and shape != shapes[0]]
    joined = " @ ".join("x".join(map(str, shape)) or "0-d" for shape in (*shapes[:1], *telling))
    return ", ".join([joined, *(f"{name}={value}" for name, value in sample.kwargs.items())])


def case_labels(spec: OpSpec, device: str | Device, dtype: Any) -> tuple[str, ...]:
    """Return the labels of `cases` without drawing their inputs.

    The sample's ``label=``, its layouts and its unnamed scalars are appended only if shapes and named scalars do not
    distinguish two cases of the spec, because the history of a case is found by its label.

    Raises
    ------
    SpecError
        If a sample has other arguments than the function takes, or two cases have the same label.
    """
    if spec.bench is None:
        return ()
    drawn = list(spec.bench(_Extents(0, dtype_name(dtype), spec.name), sizes_for(device)))
    given = [one.label if isinstance(one, Sample) else "" for one in drawn]
    samples = list(normalized(drawn))
    _refuse_other_calls(spec, samples)
    plain = list(map(case_label, samples))
    labels = tuple(
        ", ".join([label, *_details(sample, said)]) if plain.count(label) > 1 else label
        for label, sample, said in zip(plain, samples, given, strict=True)
    )
    _refuse_equal(spec, labels)
    return labels


def _details(sample: Sample, said: str) -> list[str]:
    """Return the parts of a label that distinguish a call from others with the same shapes."""
    parts = list(each(sample.args))
    layouts = [part.layout for part in parts if isinstance(part, HostArray) and part.layout != "contiguous"]
    scalars = [str(part) for part in parts if not hasattr(part, "shape")]
    return [*([said] if said else []), *layouts, *scalars]


def _refuse_other_calls(spec: OpSpec, samples: Sequence[Sample]) -> None:
    """Raise if the function cannot be called with the arguments of a sample."""
    if spec.fn is None:
        return
    try:
        signature = inspect.signature(spec.fn)
    except (TypeError, ValueError):  # a function of C, such as a ufunc, may not tell its parameters
        return
    for place, sample in enumerate(samples):
        try:
            signature.bind(None, *sample.args, **sample.kwargs)
        except TypeError as error:
            raise SpecError(
                f"{spec.name}: sample {place} of bench= does not fit the parameters of fn: {error}; in the list "
                "of bench= a tuple is one call: write bench=lambda make, sizes: [(make(3), make(3))]"
            ) from error


def _refuse_equal(spec: OpSpec, labels: Sequence[str]) -> None:
    """Raise if two cases have the same label, because a report would keep only the last of them."""
    for second, label in enumerate(labels):
        first = labels.index(label)
        if first != second:
            raise SpecError(
                f"{spec.name}: samples {first} and {second} of bench= are both the case {label!r} of a report; "
                "give each a name: Sample((...,), label='...')"
            )


class _Extents(Samples):
    """Make arrays that have the right shape but take no memory."""

    def _values(self, shape: Shape, dtype: np.dtype[Any], low: float, high: float) -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), dtype), shape)


def row(case: Case, implementation: str, timing: Timing) -> dict[str, object]:
    """Return the columns of a ``time`` row."""
    columns = {"case": case.label, "dtype": case.dtype, **case.work.columns()}
    return timing_row(case.spec.name, case.device, implementation, timing, **columns)


def _modes(timing: Timing) -> str | None:
    """Return text that says how far two groups of samples are apart, or None if there are not two groups."""
    found = modes_of(timing.samples_s)
    return None if found is None else f"two, {found[1] / found[0] - 1:.1%} apart"


def timing_row(
    benchmark: str, device: str | Device, implementation: str, timing: Timing, **more: object
) -> dict[str, object]:
    """Return the columns of a ``time`` row of any series; `more` are further columns, such as ``case``, ``dtype``."""
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
        **more,
    }
