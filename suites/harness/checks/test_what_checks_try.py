"""What generated checks try: every layout, and what becomes of errors inside them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
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


def test_a_first_number_as_maximum_is_found_where_other_results_are_minus_infinity() -> None:
    """These are the reference's too, so nothing is lost wherever the large number is."""

    def by(first: Any, a: Any) -> Any:
        share = np.exp(a - first)
        return np.log(np.where(a < 0, 0, share / share.sum(axis=-1, keepdims=True)).astype(a.dtype))

    spec = OpSpec(
        fn=lambda xp, a: by(a[..., :1], a), reference=lambda a: by(a.max(axis=-1, keepdims=True), a), name="shares",
        dtypes=("float32",), samples=lambda make: [make((3, 16))],
    )  # fmt: skip
    with pytest.raises(AssertionError, match="right where the first number is 10000, wrong where the last one is"):
        CHECKS["stress"](spec, "cpu", np.dtype("float32"))


def test_a_reference_that_takes_long_is_not_given_long_arrays() -> None:
    """One with three loops in Python over the length: a square of 1,031 would take it a quarter of an hour."""
    lengths: set[int] = set()

    def slow(a: Any) -> Any:
        lengths.add(max(a.shape))
        for _ in range(min(max(a.shape), 600) ** 3 // 8):
            pass
        return a * 2

    spec = OpSpec(
        fn=lambda xp, a: a * 2, name="doubled", dtypes=("float64",), samples=lambda make: [make((5, 5))], reference=slow
    )
    CHECKS["sizes"](spec, "cpu")

    assert 64 < max(lengths) < 1000


def test_a_new_shape_is_not_tried_where_the_reference_would_take_long() -> None:
    """One with two loops in Python over the elements: 144 take a hundredth of a second, 6,084 would take 18."""
    sizes: set[int] = set()

    def slow(a: Any) -> Any:
        sizes.add(a.size)
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return a * 2

    spec = OpSpec(
        fn=lambda xp, a: a * 2, name="doubled", dtypes=("float32", "float64"), samples=lambda make: [make((12, 12))],
        reference=slow,
    )  # fmt: skip
    CHECKS["second_call"](spec, "cpu")

    assert max(sizes) < 1000


def _doubled(a: Any, races: bool) -> Any:
    """Twice `a`; on sim, another stream doubles it if asked for, and nobody waits for that stream."""
    if not races or isinstance(a, np.ndarray):
        return a * 2
    stream = devices.backend("sim").new_stream(0)
    with stream:
        return a * 2


def test_a_race_that_only_undeclared_shapes_meet_is_reported() -> None:
    spec = OpSpec(
        fn=lambda xp, a: _doubled(a, races=len(a) > 30), name="doubled", dtypes=("float64",), reference=lambda a: a * 2,
        samples=lambda make: [make(9)],
    )  # fmt: skip
    with pytest.raises(RaceError):
        CHECKS["second_call"](spec, "sim")


def test_a_race_that_only_other_layouts_of_out_meet_is_reported() -> None:
    def doubled(xp: Any, a: Any, out: Any = None) -> Any:
        found = _doubled(a, races=out is not None and not out.flags.c_contiguous)
        if out is None:
            return found
        out[...] = found
        return out

    spec = OpSpec(
        fn=doubled, name="doubled", dtypes=("float64",), reference=lambda a: a * 2, samples=lambda make: [make((4, 5))]
    )
    with pytest.raises(RaceError):
        CHECKS["out"](spec, "sim", np.dtype("float64"))


def test_a_number_of_things_is_not_made_zero() -> None:
    """A reference that steps by it would never end."""
    strides: set[int] = set()

    def every(a: Any, stride: int | None = None) -> Any:
        strides.add(-1 if stride is None else stride)
        return a[:: stride or 2]

    spec = OpSpec(
        fn=lambda xp, a, stride=None: a[:: stride or 2].copy(), name="every", dtypes=("float64",), reference=every,
        samples=lambda make: [make(9), Sample((make(9),), {"stride": 3})],
    )  # fmt: skip
    CHECKS["second_call"](spec, "cpu")

    assert 4 in strides
    assert 0 not in strides


def test_what_depends_on_the_shape_alone_is_found_out_once_for_large_calls() -> None:
    calls = 0

    def reference(a: Any) -> Any:
        nonlocal calls
        calls += 1
        return a * 2

    spec = OpSpec(fn=lambda xp, a: a * 2, name="doubled", dtypes=("float64",), reference=reference)
    small, large = Sample((np.arange(3.0),)), Sample((np.arange(2.0**20),))
    for sample, most in ((small, 6), (large, 3)):
        calls = 0
        terms = [spec.scale(sample, sample.args[0] * 2)[1] for _ in range(2)]

        assert terms == [1, 1]
        assert calls == most
    other = replace(large, args=(np.arange(2.0**20 + 8),))
    spec.scale(other, other.args[0] * 2)
    assert calls == 6


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_numbers_on_descending_edges_show_which_side_is_closed(dtype: str, side: str) -> None:
    edges = [900, 700, 400, 150]

    def bins(xp: Any, a: Any, edges: Any) -> Any:
        return len(edges) - xp.searchsorted(edges[::-1], a, side=side)

    spec = OpSpec(
        fn=bins, name="bins", dtypes=(dtype,), reference=lambda a, edges: np.digitize(a, edges),
        samples=lambda make: [(make((5, 7), low=0, high=1000), make.of(edges))],
    )  # fmt: skip
    if side == "right":
        CHECKS["halves"](spec, "cpu", np.dtype(dtype))
    else:
        with pytest.raises(AssertionError, match="half of the numbers of input 0 are also in input 1"):
            CHECKS["halves"](spec, "cpu", np.dtype(dtype))
