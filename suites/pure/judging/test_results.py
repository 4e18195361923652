"""Several results of one call: each is judged by a spec of its own, and each stock mutant changes one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from referees import DATA

from cuassay import Device
from cuassay.judging.precision import looks_like
from cuassay.judging.probes import Finding, judged_values
from cuassay.judging.results import Results
from cuassay.judging.schedule import claimed, schedule
from cuassay.judging.spec_file import load_declaration
from cuassay.judging.strength import weaknesses
from cuassay.testing import OpSpec, Sample

CPU = Device("cpu")


def results(name: str) -> Results:
    return Results(load_declaration(f"{DATA}/spec.py::{name}").specs)


def first_sample(of: Results) -> Sample:
    return next(of.spec.draw(3, "float32", "values"))


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [("rms_norm", ["float32"]), ("moments", ["float32", "float32"]), ("top", ["float32", "int64"])],
)
def test_each_result_has_its_own_dtype(name: str, dtypes: list[str]) -> None:
    found = results(name)

    right = found.right(*first_sample(found).host())

    assert [str(one.dtype) for one in right] == dtypes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("name", ["rms_norm", "moments", "top", "affine"])
def test_shapes_and_dtypes_that_are_due_are_those_of_the_right_results(name: str, dtype: str) -> None:
    found = results(name)
    sample = next(found.spec.draw(3, dtype, "values"))

    right = found.right(*sample.host())

    assert found.due(*sample.host()) == tuple((one.shape, one.dtype) for one in right)


def judged(change: Callable[[Any, Any], tuple[Any, ...]]) -> Finding | None:
    found = results("top")
    sample = first_sample(found)
    values, places = found.right(*sample.host())
    return judged_values(found, "float32", "values", [sample], [change(values, places)], {})


def test_right_results_are_right() -> None:
    assert judged(lambda values, places: (values, places)) is None


def test_headroom_is_that_of_the_whole_tolerance() -> None:
    """Also for a result that is right to the last digits, of which other checks do not find the tolerance."""
    found, figures = results("rms_norm"), {"headroom": 0.0}
    sample = first_sample(found)
    (right,) = found.right(*sample.host())
    output = np.nextafter(right.astype(np.float32), np.float32(9))

    assert judged_values(found, "float32", "values", [sample], [(output,)], figures) is None
    assert 0 < figures["headroom"] < 0.5


def test_headroom_is_that_of_the_worst_result_so_far() -> None:
    found, figures = results("rms_norm"), {"headroom": 0.75}
    sample = first_sample(found)
    (right,) = found.right(*sample.host())

    judged_values(found, "float32", "values", [sample], [(right,)], figures)

    assert figures["headroom"] == 0.75


@pytest.mark.parametrize(
    ("change", "place", "text"),
    [
        (lambda values, places: (values,), 0, "the call gave 1 result; 2 results are due"),
        (lambda values, places: (values, places, places), 0, "the call gave 3 results; 2 results are due"),
        (lambda values, places: (values, places.astype(np.int32)), 1, "result 1: dtype is int32; expected int64"),
        (lambda values, places: (values, places[..., :2]), 1, "result 1: shape is"),
        (lambda values, places: (values, places[..., ::-1]), 1, "result 1: 10 of 15 elements"),
        (lambda values, places: (-values, places), 0, "result 0: 15 of 15 elements"),
    ],
    ids=["missing", "too many", "dtype", "shape", "values of the second", "values of the first"],
)
def test_a_wrong_result_is_named(change: Callable[[Any, Any], tuple[Any, ...]], place: int, text: str) -> None:
    finding = judged(change)

    assert finding is not None
    assert (finding.result, finding.text.partition(text)[1]) == (place, text)


def test_a_mutant_of_one_result_is_found_by_what_is_declared_of_it() -> None:
    found = results("moments")
    plan = schedule(found, CPU, 7, dtypes=claimed(found.spec, CPU), layouts=False, times=False)

    assert list(weaknesses(found, plan, 7)) == []


def test_a_result_that_hardly_depends_on_the_input_is_weak() -> None:
    spec = OpSpec(
        fn=lambda xp, a: (a * 2, xp.zeros_like(a)), name="half", dtypes=("float32",),
        samples=lambda make: [make((3, 65))], reference=lambda a: (a * 2, np.zeros_like(a)),
    )  # fmt: skip
    found = Results([spec])
    plan = schedule(found, CPU, 7, dtypes=("float32",), layouts=False, times=False)

    assert "zeros in result 1" in list(weaknesses(found, plan, 7))
    assert not [name for name in weaknesses(found, plan, 7) if name.endswith("result 0")]


def test_a_list_has_a_spec_for_each_of_its_results_however_many() -> None:
    spec = OpSpec(
        fn=lambda xp, several: [one * 2 for one in several], name="doubled", dtypes=("float32",),
        samples=lambda make: [([make(5), make((2, 3))],), ([make(4)],)],
        reference=lambda several: [one * 2 for one in several],
    )  # fmt: skip
    found = Results([spec])

    assert [len(found.of(sample)) for sample in spec.draw(1, "float32", "values")] == [2, 1]


def test_the_magnitude_of_a_result_is_its_part_of_all_magnitudes() -> None:
    spec = replace(
        results("moments").spec,
        magnitude=lambda a: np.concatenate([np.full(a.shape[0], 5.0), np.full(a.shape[0], 7.0)]),
        samples=lambda make: [make((4, 33))],
    )
    found = Results([spec])
    sample = first_sample(found)

    assert [set(one.scale(sample, one.expected(sample))[0]) for one in found.of(sample)] == [{5.0}, {7.0}]


def test_all_results_count_as_work() -> None:
    found = results("top")
    sample = Sample((np.zeros((4, 33), np.float32),))

    assert found.least_work(sample).bytes == 4 * 33 * 4 + 4 * 3 * 4 + 4 * 3 * 8


def test_the_precision_of_one_result_is_seen() -> None:
    found = results("moments")
    sample = Sample((np.random.default_rng(2).uniform(-3, 3, (64, 33)).astype(np.float32),))
    second = found.of(sample)[1]

    right = found.right(*sample.host())[1]

    assert looks_like(second, [(sample, right.astype(np.float16).astype(np.float32))]) == "tf32 or float16"
