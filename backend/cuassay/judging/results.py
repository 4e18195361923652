"""The results of a declaration's call, and the right answer for each of them.

A declared function may return one array or several. Each result is judged by a spec that returns only this result: its
dtype, its shape and its values are compared without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.arrays.rounding import narrowed
from cuassay.core.device import Device
from cuassay.testing.answers import members
from cuassay.testing.generated.comparison import on_host
from cuassay.testing.generated.execution import run_sample
from cuassay.testing.generated.result_dtypes import result_dtype
from cuassay.testing.opspec import OpSpec, Work
from cuassay.testing.samples import HostArray, Sample, over_arguments
from cuassay.testing.terms import arrays_of

__all__ = ["Outputs", "Results"]

#: The outputs of one call: an array for each result.
Outputs = tuple[NDArray[Any], ...]


class Results:
    """The results of a declaration's calls.

    Parameters
    ----------
    specs : sequence of OpSpec
        One spec, or one for each result if their dtypes are of several kinds, such as values and indices. The first
        spec then draws the samples for all.

    Attributes
    ----------
    spec : OpSpec
        The first spec.
    known : dict
        What the tolerances of the timed calls of a case have in common, by label and dtype; see `testing.once`.
    """

    def __init__(self, specs: Sequence[OpSpec]) -> None:
        self.spec, self._specs = specs[0], tuple(specs)
        self.known: dict[tuple[str, ...], dict[Any, Any]] = {}
        self._members: dict[int, OpSpec] = {}

    def __repr__(self) -> str:
        return f"Results({', '.join(spec.name for spec in self._specs)})"

    def of(self, sample: Sample) -> tuple[OpSpec, ...]:
        """Return a spec for each result of the call on `sample`; if the result is a list, its length may vary."""
        if not self._is_list:
            return self._specs
        return tuple(map(self._member, range(len(self.spec.answers(sample)))))

    @cached_property
    def _is_list(self) -> bool:
        """Whether the only spec's reference returns a list or tuple of arrays."""
        spec = self.spec
        if len(self._specs) > 1 or not spec.has_lists:
            return False
        taken = (one for one in spec.draw(0, spec.dtypes[0], "values") if spec.refusal(one) is None)
        first = next(taken, None)
        return first is not None and isinstance(spec.answers(first), list | tuple)

    def _member(self, place: int) -> OpSpec:
        if place not in self._members:
            spec = self.spec
            magnitude = None if spec.magnitude is None else _part(spec.magnitude, place, self._shapes)
            self._members[place] = replace(
                spec, fn=_at(spec.fn, place), reference=_at(spec.reference, place), name=f"{spec.name}[{place}]",
                magnitude=magnitude, bench=None, error_inputs=None, work=None, relations=(),
            )  # fmt: skip
        return self._members[place]

    def _shapes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[int, ...]]:
        """Return the shape of each result, from the reference."""
        return [np.shape(one) for one in members(self.spec.answers(Sample(tuple(args), kwargs)))]

    def refusal(self, sample: Sample) -> Exception | None:
        """Return why a reference rejects `sample`, or None."""
        return next((why for spec in self._specs if (why := spec.refusal(sample)) is not None), None)

    def takes(self, sample: Sample) -> bool:
        """Return whether the references, and the schema of an op, accept inputs that are not declared."""
        try:
            for spec in self.of(sample):
                spec.expected(sample)
                result_dtype(spec, sample)
        except Exception:  # noqa: BLE001  libraries reject inputs by their own errors
            return False
        return True

    def right(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        """Return the right results for host arrays, each in its dtype."""
        sample = _as_sample(args, kwargs)
        return tuple(_right(spec, sample) for spec in self.of(sample))

    def due(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[tuple[int, ...], Any], ...]:
        """Return the shape and dtype of each right result for host arrays."""
        sample = _as_sample(args, kwargs)
        answers = ((spec.expected(sample), result_dtype(spec, sample)) for spec in self.of(sample))
        return tuple((answer.shape, answer.dtype if dtype is None else dtype) for answer, dtype in answers)

    def run(self, device: Device, sample: Sample) -> Outputs:
        """Return the results of the declared implementation on `device`, copied to the host."""
        return tuple(on_host(run_sample(spec, device, sample)) for spec in self.of(sample))

    def call(self, device: Device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the first spec's implementation once, as it is measured, without joining several results."""
        if self.spec.fn is None:
            return self.spec.run(device, args, kwargs)
        with devices.backend(device.kind).activate(device.index):
            return self.spec.apply(device, args, kwargs)

    def least_work(self, sample: Sample) -> Work:
        """Return the least work of the call, for all results together."""
        if self.spec.work is not None or len(self._specs) == 1:
            return self.spec.least_work(sample)
        read = sum(one.nbytes for one in arrays_of(*sample.host()))
        return Work(bytes=read + sum(spec.touched(sample) - read for spec in self._specs))


def _at(function: Callable[..., Any] | None, place: int) -> Callable[..., Any] | None:
    """Return the function that returns one of the results of `function`."""
    if function is None:
        return None

    def one(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)[place]

    return wraps(function)(one)


def _part(
    magnitude: Callable[..., Any], place: int, shapes: Callable[..., list[tuple[int, ...]]]
) -> Callable[..., Any]:
    """Return the magnitude of one result, from a function that returns all of them flattened, or a single number."""

    def part(*args: Any, **kwargs: Any) -> Any:
        found = np.asarray(magnitude(*args, **kwargs))
        due = shapes(args, kwargs)
        counts = [prod(shape) for shape in due]
        if found.size != sum(counts):
            return found
        return found.reshape(-1)[sum(counts[:place]) : sum(counts[: place + 1])].reshape(due[place])

    return wraps(magnitude)(part)


def _right(spec: OpSpec, sample: Sample) -> NDArray[Any]:
    answer = spec.expected(sample)
    dtype = result_dtype(spec, sample)
    if dtype is None or dtype_name(answer.dtype) == dtype_name(dtype):
        return answer
    with np.errstate(all="ignore"):
        return narrowed(answer, dtype) if dtype.kind not in "biuc" else answer.astype(dtype)


def _as_sample(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sample:
    def put(value: Any) -> Any:
        return HostArray(np.ascontiguousarray(value).reshape(value.shape)) if isinstance(value, np.ndarray) else value

    return Sample(*over_arguments(args, kwargs, put))
