"""``pytest --cuassay-sanitize`` fails the test that makes a race; here on a simulated device that computes on."""

from __future__ import annotations

import pytest

TESTS = """
import numpy as np
import pytest
from cuassay import ops
from cuassay.devices.sim import BACKEND
from cuassay.testing import racing


@pytest.fixture(autouse=True, scope="module")
def machine():
    with BACKEND.simulated(devices=1, finds_races=False):
        yield


def written():
    array = BACKEND.from_host(np.ones(4, np.float32), 0)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(BACKEND.new_stream(0)) as stream:
        ops.mul(array, 2.0, out=array)
    return array, stream


def test_waits():
    array, stream = written()
    BACKEND.current_stream(0).wait_stream(stream)
    ops.add(array, 1.0)


def test_races():
    array, _ = written()
    ops.add(array, 1.0)


def test_frees():
    array, _ = written()
    del array


@racing
def test_races_on_purpose():
    array, _ = written()
    ops.add(array, 1.0)
"""


def test_races_and_early_frees_fail_their_tests_and_are_counted(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # a narrow terminal leaves the reason out
    pytester.makepyfile(TESTS)

    found = pytester.runpytest("-p", "no:cacheprovider", "--cuassay-sanitize")

    found.assert_outcomes(passed=2, failed=2)
    failed = [f"FAILED *::test_{name} - *RaceError*" for name in ("races", "frees")]
    found.stdout.fnmatch_lines(["cuassay sanitizer: 2 errors found", *failed])


def test_without_a_device_to_check_the_end_of_the_run_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuassay.devices.cuda.BACKEND.why_absent", lambda: "there is no NVIDIA driver")
    pytester.makepyfile("def test_good(): pass")

    found = pytester.runpytest("-p", "no:cacheprovider", "--cuassay-sanitize")

    found.stdout.fnmatch_lines(
        [
            "cuassay sanitizer: 0 errors found",
            "cuassay sanitizer: no CUDA device was checked: there is no NVIDIA driver",
        ]
    )


def test_without_the_option_nothing_is_judged(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)

    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=4)
