"""What generated checks try: every layout, and what becomes of errors inside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import devices
from cuassay.errors import RaceError
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs
from cuassay.testing.samples import LAYOUTS, Sample

LAID_OUT = {name for name in LAYOUTS if name != "contiguous"}


@pytest.mark.parametrize("name", ["add", "softmax", "matmul"])
def test_an_operation_meets_every_layout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,) = (spec for spec in own_specs() if spec.name == name)
    met: set[str] = set()
    plain = Sample.laid_out
    monkeypatch.setattr(Sample, "laid_out", lambda sample, layout: met.add(layout) or plain(sample, layout))

    CHECKS["layouts"](spec, "cpu", np.dtype("float32"))

    assert met == LAID_OUT


def test_a_function_meets_every_layout_for_each_number_of_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[tuple[int, str]] = set()
    plain = Sample.laid_out

    def watched(sample: Sample, layout: str) -> Sample:
        met.add((sample.args[0].values.ndim, layout))
        return plain(sample, layout)

    monkeypatch.setattr(Sample, "laid_out", watched)
    spec = OpSpec(fn=lambda xp, a: a * 2, name="doubled", samples=lambda make: [make(9), make((3, 5)), make((4, 5))])
    CHECKS["layouts"](spec, "cpu", np.dtype("float32"))

    assert met >= {(axes, layout) for axes in (1, 2) for layout in LAID_OUT if axes > 1 or layout != "transposed"}


def test_a_race_inside_a_capture_is_no_skip() -> None:
    backend = devices.backend("sim")

    def racing(xp: Any, a: Any) -> Any:
        if backend.current_stream(0).capturing:
            raise RaceError("planted")
        return a * 2

    raised: BaseException | None = None
    try:
        CHECKS["captured"](OpSpec(fn=racing, name="racing"), "sim")
    except (RaceError, pytest.skip.Exception) as error:
        raised = error

    assert isinstance(raised, RaceError)


@pytest.mark.parametrize("name", ["values", "stress", "signed_zeros"])
def test_bits_that_no_arithmetic_makes_are_a_failure_and_no_warning(name: str) -> None:
    def signalling(xp: Any, a: Any) -> Any:
        return np.full(a.shape, 0x7F800001, np.uint32).view(np.float32)

    spec = OpSpec(fn=signalling, name="signalling", dtypes=("float32",), reference=lambda a: 2 * a)
    with pytest.raises(AssertionError):
        CHECKS[name](spec, "cpu", np.dtype("float32"))
