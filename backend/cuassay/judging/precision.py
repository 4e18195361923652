"""The precision that a candidate's errors suggest, by comparison with the errors of rounded inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.rounding import round_tf32, round_to
from cuassay.judging.probes import LARGE
from cuassay.testing.generated.execution import refusal_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample

__all__ = ["looks_like"]

#: The cosine of the angle between two error vectors from which on they count as alike.
_ALIKE = 0.7

#: The least size of a candidate's errors, relative to a format's errors.
_AS_LARGE = 0.25

#: Errors larger than this fraction of the result do not come from a format.
_PART = 2.0**-4

#: The fewest elements for a comparison.
_FEWEST = 16

_FORMATS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "bfloat16": lambda array: round_to(array, "bfloat16"),
    "tf32 or float16": round_tf32,  # both have 10 explicit mantissa bits, and errors do not reveal their ranges
}


def looks_like(spec: OpSpec, pairs: Sequence[tuple[Sample, NDArray[Any]]]) -> str:
    """Return the format whose rounding of float32 inputs or of the result explains the errors; empty if none does.

    Parameters
    ----------
    pairs : sequence
        Samples, and the candidate's outputs for them.
    """
    small = [(sample, output) for sample, output in pairs if output.size <= LARGE]
    for sample, output in small or pairs[:1]:  # only one if all are large, because each takes long
        if output.dtype != np.float32 or output.size < _FEWEST:
            continue
        exact = spec.expected(sample)
        if exact.shape != output.shape:
            continue
        error = _finite(output.astype(np.float64) - exact)
        if np.linalg.norm(error) > _PART * np.linalg.norm(_finite(exact)):
            continue  # wrong numbers rather than imprecise ones
        for name, rounded in _FORMATS.items():
            inputs = _rounded_inputs(sample, rounded)
            patterns = [rounded(exact.astype(np.float32)).astype(np.float64)]
            patterns += [spec.expected(inputs)] if refusal_of(spec, inputs) is None else []
            if any(_is_alike(error, _finite(pattern - exact)) for pattern in patterns if pattern.shape == exact.shape):
                return name
    return ""


def _rounded_inputs(sample: Sample, rounded: Callable[[NDArray[Any]], NDArray[Any]]) -> Sample:
    def put(value: Any) -> Any:
        is_float32 = isinstance(value, np.ndarray) and value.dtype == np.float32
        return HostArray(rounded(value)) if is_float32 else value

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs)


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.nan_to_num(array.reshape(-1), nan=0.0, posinf=0.0, neginf=0.0))


def _is_alike(error: NDArray[Any], pattern: NDArray[Any]) -> bool:
    sizes = float(np.linalg.norm(error)), float(np.linalg.norm(pattern))
    if not sizes[1] or sizes[0] < _AS_LARGE * sizes[1]:
        return False
    return float(error @ pattern) / (sizes[0] * sizes[1]) > _ALIKE
