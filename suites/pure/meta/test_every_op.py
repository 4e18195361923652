"""Every declared op on arrays without memory: the shapes, dtypes, strides and errors of kind cpu."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.testing import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.specs import SPECS

SEED = 2026

CASES = [
    pytest.param(spec, dtype, id=f"{spec.name}-{dtype}")
    for spec in SPECS
    if spec.op is not None
    for dtype in spec.dtypes
]
FIRST = [pytest.param(spec, spec.dtypes[0], id=spec.name) for spec in SPECS if spec.op is not None]


def outcome(spec: OpSpec, device: str, sample: Sample) -> Any:
    """What a call gives: shape, dtype and strides of each result; or its error."""
    try:
        args, kwargs = sample.on(device)
        with np.errstate(all="ignore"):
            result = spec.declared(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  the other kind must raise the same, whatever it is
        return type(error), _without_place(str(error))
    results = result if isinstance(result, tuple) else () if result is None else (result,)
    return [(one.shape, one.dtype, one.strides if one.size else ()) for one in results]


def _without_place(message: str) -> str:
    """A message without the name of the device and without arrays, which each kind prints in its own way."""
    named = re.sub(r"(cpu|meta):0", "DEVICE", message)
    return re.sub(r"array\(.*?\](, dtype=\w+)?\)|MetaArray\(.*?'\)", "ARRAY", named)


@pytest.mark.parametrize(("spec", "dtype"), CASES)
def test_results_are_those_of_cpu(spec: OpSpec, dtype: str) -> None:
    samples = list(spec.draw(SEED, dtype))

    assert [outcome(spec, "meta", one) for one in samples] == [outcome(spec, "cpu", one) for one in samples]


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed"])
@pytest.mark.parametrize(("spec", "dtype"), FIRST)
def test_results_of_views_are_those_of_cpu(spec: OpSpec, dtype: str, layout: str) -> None:
    samples = [one.laid_out(layout) for one in spec.draw(SEED, dtype, "values")]

    assert [outcome(spec, "meta", one) for one in samples] == [outcome(spec, "cpu", one) for one in samples]


@pytest.mark.parametrize(("spec", "dtype"), [case for case in CASES if case.values[0].error_inputs is not None])
def test_bad_input_raises_the_error_of_cpu(spec: OpSpec, dtype: str) -> None:
    bad = [one.sample for one in spec.draw_errors(SEED, dtype)]
    found = [outcome(spec, "meta", one) for one in bad]

    assert found == [outcome(spec, "cpu", one) for one in bad]
    assert all(issubclass(error, Exception) for error, _ in found)


def test_every_op_of_the_catalog_has_samples_here() -> None:
    assert {op.name for op in ops.ops() if op.name in ops.__all__} - {spec.name for spec in SPECS} == set()
