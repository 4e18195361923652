"""What generated checks try: every layout, and what becomes of errors inside them."""

from __future__ import annotations

from contextlib import suppress
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


def signalling(xp: Any, a: Any) -> Any:
    """Bits that no arithmetic makes, as memory that nobody wrote may hold."""
    return np.full(a.shape, 0x7F800001, np.uint32).view(np.float32)


SIGNALLING = OpSpec(fn=signalling, name="signalling", dtypes=("float32",), reference=lambda a: 2 * a)


def test_a_signalling_nan_is_a_wrong_result() -> None:
    with pytest.raises(AssertionError, match="out of tolerance"):
        CHECKS["values"](SIGNALLING, "cpu", np.dtype("float32"))


@pytest.mark.parametrize("name", ["stress", "signed_zeros", "units", "infinities"])
def test_a_signalling_nan_ends_no_check_with_a_warning(name: str) -> None:
    with suppress(AssertionError):  # what each of these says of it does not matter: warnings are errors here
        CHECKS[name](SIGNALLING, "cpu", np.dtype("float32"))
