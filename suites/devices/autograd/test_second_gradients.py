"""Second derivatives of the declared ops: a formula is made of ops, and these have formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.autograd import gradgradcheck
from cuassay.autograd.trees import leaves
from cuassay.errors import GradientError
from cuassay.ops.rules import Formula, derivative_of
from cuassay.testing import requires
from cuassay.testing.opspec import OpSpec
from cuassay.testing.own_specs import own_specs
from cuassay.testing.samples import HostArray, Sample, Samples, each

pytestmark = requires("float64")

SPECS = {spec.name: spec for spec in own_specs() if spec.supports_grad and "float64" in spec.dtypes}

#: Formulas that a derivative does not go through, with what the error says.
WITHOUT = {"grouped_mm": "has no second derivative by its matrices"}


def chosen(spec: OpSpec) -> list[Sample]:
    """Of the samples of ordinary numbers and 11 to 300 elements, the first one, and the smallest one of most axes."""
    samples = [one for one in spec.samples(Samples(3, "float64")) if one.kind == "values"]
    sized = []
    for place, sample in enumerate(samples):
        arrays = [one.values for one in each(sample.args) if isinstance(one, HostArray)]
        sized.append((sum(one.size for one in arrays), max((one.ndim for one in arrays), default=0), place))
    fit = [one for one in sized if 10 < one[0] <= 300] or [min(one for one in sized if one[0] > 3)]
    deepest = min(fit, key=lambda one: (-one[1], one[0]))
    return [defined(spec, samples[place]) for place in sorted({fit[0][2], deepest[2]})]


def defined(spec: OpSpec, found: Sample) -> Sample:
    """The sample, or where its result is not finite the same with positive numbers."""
    with np.errstate(all="ignore"):
        is_defined = np.isfinite(spec.expected(found)).all()
    positive, _ = found.changed(lambda one: np.abs(one) + 0.25 if isinstance(one, np.ndarray) else one)
    return found if is_defined else replace(found, args=positive)


@pytest.mark.parametrize("name", SPECS)
def test_second_gradients_are_those_of_differences(device: Device, name: str) -> None:
    for sample in chosen(SPECS[name]):
        check(device, SPECS[name], sample)


def check(device: Device, spec: OpSpec, sample: Sample) -> None:
    formulas = derivative_of(spec.name)
    names = [param.name for param in spec.declared.schema.arrays]
    given = list(sample.on(device)[0])
    places = [place for place, one in enumerate(names) if isinstance(formulas.get(one), Formula)]
    places = [place for place in places if all(getattr(one, "dtype", 0) == np.float64 for one in leaves(given[place]))]

    def function(*values: Any) -> Any:
        args = list(given)
        for place, value in zip(places, values, strict=True):
            args[place] = value
        return spec.declared(*args, **sample.host()[1])

    at = [given[place] for place in places]
    if spec.name in WITHOUT:
        with pytest.raises(GradientError, match=WITHOUT[spec.name]):
            gradgradcheck(function, at, elements=2)
    else:
        gradgradcheck(function, at, elements=2)
