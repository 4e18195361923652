"""Choose the samples of a check: by kind, in dtypes that the device supports, and only a few where all cost too much.

A device may lack a dtype that only one operand or the result has. Such a sample is left out. If none remains, the test
is skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, dtype_name, is_complex, is_float
from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.errors import CuassayError, DTypeError, SpecError
from cuassay.testing.declared import ErrorInput, index_advice
from cuassay.testing.generated.cases import name_dtype
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Kind, Sample
from cuassay.testing.terms import arrays_of

__all__ = [
    "axes_of",
    "bad_inputs",
    "by_options",
    "few",
    "generator",
    "of_most_elements",
    "one",
    "options_key",
    "plainest",
    "promotions",
    "samples_of",
    "seed",
]


def seed() -> int:
    """The seed of this run's samples."""
    return int(settings.get("CUASSAY_SEED"))


def generator() -> np.random.Generator:
    """A random generator seeded with this run's seed."""
    return np.random.default_rng(seed())


def samples_of(spec: OpSpec, device: Device, dtype: Any, *kinds: Kind) -> Iterator[Sample]:
    """The spec's samples of these kinds, drawn with this run's seed, in dtypes that `device` supports."""
    drawn = spec.draw(seed(), dtype_name(dtype), *kinds)
    yield from _available((sample, why_absent(spec, device, sample)) for sample in drawn)


def promotions(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """The samples of two dtypes whose promoted dtype `device` supports as well.

    The declared dtypes of a function limit the dtypes that are mixed: a function of truth values says nothing about
    integers, and one of integers nothing about floats. If `OpSpec.result_dtype` is a function of the input dtypes, only
    declared dtypes are mixed, unless the spec's own samples mix others.
    """
    drawn = (
        sample
        for sample in spec.draw(seed(), dtype_name(dtype), "promotion")
        if spec.op is not None or all(_is_covered(spec, dtype, array.dtype) for array in arrays_of(*sample.host()))
    )
    yield from _available(
        (sample, why_absent(spec, device, sample) or _why_not_promoted(spec, device, sample)) for sample in drawn
    )


def _is_covered(spec: OpSpec, dtype: Any, other: np.dtype[Any]) -> bool:
    if callable(spec.result_dtype):
        return not spec.has_default_samples or dtype_name(other) in spec.dtypes
    return _rank(other) <= max((_rank(as_dtype(name)) for name in spec.dtypes), default=_rank(as_dtype(dtype)))


def _rank(dtype: np.dtype[Any]) -> int:
    return 2 if is_complex(dtype) else 1 if is_float(dtype) else 0 if dtype.kind != "b" else -1


def bad_inputs(spec: OpSpec, device: Device, dtype: Any) -> Iterator[ErrorInput]:
    """The calls that must raise, in dtypes that `device` supports."""
    drawn = spec.draw_errors(seed(), dtype_name(dtype))
    yield from _available((bad, _why_unheld(device, _dtypes(bad.sample))) for bad in drawn)


_One = TypeVar("_One")


def _available(judged: Iterable[tuple[_One, str | None]]) -> Iterator[_One]:
    """The items without a reason against them; skips the test if there is a reason against each."""
    reasons: dict[str, None] = {}
    found = False
    for one, reason in judged:
        if reason is None:
            found = True
            yield one
        else:
            reasons[reason] = None
    if reasons and not found:
        pytest.skip("; ".join(reasons))


def why_absent(spec: OpSpec, device: Device, sample: Sample) -> str | None:
    """Why `device` cannot hold the arrays of this call or its result; None if it can."""
    return _why_unheld(device, _dtypes(sample) | _result_dtypes(spec, sample))


def _why_unheld(device: Device, dtypes: Iterable[str]) -> str | None:
    can = devices.capabilities(device)
    return next((reason for name in sorted(dtypes) if (reason := can.missing(f"storage:{name}"))), None)


def _dtypes(sample: Sample) -> set[str]:
    """The dtypes of the arrays, and the dtype requested by the option `dtype`."""
    named = sample.kwargs.get("dtype")
    asked = set() if named is None else {dtype_name(as_dtype(named))}
    return asked | {dtype_name(one.dtype) for one in arrays_of(*sample.host())}


def _result_dtypes(spec: OpSpec, sample: Sample) -> set[str]:
    if spec.op is None or not spec.op.schema.is_single:
        return set()
    args, kwargs = sample.host()
    try:
        return {dtype_name(spec.op.meta(*args, **kwargs).dtype)}
    except CuassayError:  # the check that runs the sample reports it
        return set()


def _why_not_promoted(spec: OpSpec, device: Device, sample: Sample) -> str | None:
    if spec.op is None:
        return None
    try:
        name = dtype_name(spec.op.schema.registry_dtype([array.dtype for array in arrays_of(sample.host()[0], {})]))
    except DTypeError as error:
        return str(error)
    return devices.why_unsupported(spec.op, device, name)


def few(spec: OpSpec, device: Device, dtype: Any) -> list[Sample]:
    """A few ordinary samples: some from all over the list, the last, which is usually the oddest, and the largest."""
    drawn = list(samples_of(spec, device, dtype, "values"))
    places = {0, len(drawn) // 4, len(drawn) // 2, 3 * len(drawn) // 4, len(drawn) - 1, of_most_elements(drawn)[0]}
    chosen = [drawn[place] for place in sorted(places)]
    return [sample for sample in chosen if spec.refusal(sample) is None] or [one(spec, device, dtype)]


def one(spec: OpSpec, device: Device, dtype: Any, *, most: int = 2**62, axes: int = 0) -> Sample:
    """The largest ordinary sample that the reference accepts, so that a kernel runs with several blocks.

    Parameters
    ----------
    most : int
        Prefer the largest sample of at most this many elements; if all are larger, take the smallest.
    axes : int
        Prefer samples in which an array has at least this many dimensions.

    Raises
    ------
    SpecError
        If the reference rejects all ordinary samples.
    """
    drawn = list(samples_of(spec, device, dtype, "values"))
    order = of_most_elements(drawn)
    fitting = [place for place in order if _elements(drawn[place]) <= most] or order[::-1]
    fitting = sorted(fitting, key=lambda place: axes_of(drawn[place]) < axes)
    refusal: Exception | None = None
    for place in fitting:
        refusal = spec.refusal(drawn[place])
        if refusal is None:
            return drawn[place]
    said = "" if refusal is None else f" ({type(refusal).__name__}: {refusal})"
    advice = "" if refusal is None else index_advice(refusal)
    raise SpecError(
        f"{spec.name} accepts none of its ordinary samples in {dtype_name(dtype)}{said}; give samples= that it "
        f"accepts{advice}"
    )


def by_options(
    spec: OpSpec, device: Device, dtype: Any, *, most: int, keep: Callable[[Sample], bool] | None = None
) -> list[Sample]:
    """For each set of options of the ordinary samples, the largest sample of at most `most` elements.

    With `keep`, only samples for which it is true are considered.
    """
    found: dict[str, Sample] = {}
    for sample in samples_of(spec, device, dtype, "values"):
        if keep is not None and not keep(sample):
            continue
        key = options_key(sample)
        held = found.get(key)
        if _elements(sample) <= most and (held is None or _elements(sample) > _elements(held)):
            found[key] = sample
    taken = [sample for sample in found.values() if spec.refusal(sample) is None]
    return taken[:_OPTIONS]


#: The most sets of options that are checked.
_OPTIONS = 6


def options_key(sample: Sample) -> str:
    """The options of a call as a text, which is equal for equal options; of a `HostArray` it holds only the shape."""
    return repr(sorted(sample.kwargs.items()))


def of_most_elements(drawn: Sequence[Sample]) -> list[int]:
    """The indices of the samples, the sample with the most elements first."""
    sizes = [_elements(sample) for sample in drawn]
    return sorted(range(len(drawn)), key=lambda place: -sizes[place])


def _elements(sample: Sample) -> int:
    return sum(np.size(array) for array in arrays_of(*sample.host()))


def axes_of(sample: Sample) -> int:
    """The largest number of dimensions of the call's arrays."""
    return max((array.ndim for array in arrays_of(*sample.host())), default=0)


def plainest(spec: OpSpec, device: Device) -> Any:
    """The dtype for checks that run once for all dtypes: float32, float64, or the first that runs on `device`.

    Failures of the check name it from then on.
    """
    reasons = {name: spec.why_unsupported(device, name) for name in spec.dtypes}
    order = sorted(reasons, key=lambda name: name not in ("float32", "float64"))
    found = next((name for name in order if reasons[name] is None), None)
    if found is None:
        pytest.skip("; ".join(dict.fromkeys(filter(None, reasons.values()))))
    name_dtype(found)
    return as_dtype(found)
