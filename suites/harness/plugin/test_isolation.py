"""Lost devices and hanging tests, on a device kind whose health a test can spoil."""

from __future__ import annotations

import faulthandler
from typing import Any

import pytest

from cuassay import Device
from cuassay.devices import backend
from cuassay.testing.isolation import HangGuard, LostDevices

POISONING = """
    import cuassay_toy
    import pytest

    @pytest.mark.parametrize("n", range(4))
    def test_step(device, n):
        if n == 1:
            if device.kind == "toy":
                cuassay_toy.BACKEND.illness = "an illegal address was read"
            raise RuntimeError("launch failed")
"""


#: The same before the test is called.
POISONING_FIRST = """
    import cuassay_toy
    import pytest

    @pytest.fixture
    def spoiled(device, n):
        if n == 1:
            cuassay_toy.BACKEND.illness = "an illegal address was read"
            raise RuntimeError("launch failed")

    @pytest.mark.parametrize("n", range(4))
    def test_step(device, n, spoiled): pass
"""


#: And what the test used cannot be undone.
POISONING_FOR_GOOD = """
    import cuassay_toy
    import pytest

    @pytest.fixture
    def spoiled(device, n):
        yield
        if n == 1:
            raise ValueError("cannot synchronize")

    @pytest.mark.parametrize("n", range(4))
    def test_step(device, n, spoiled):
        if n == 1:
            cuassay_toy.BACKEND.illness = "an illegal address was read"
            raise RuntimeError("launch failed")
"""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (POISONING, {"failed": 1, "errors": 1}),
        (POISONING_FIRST, {"errors": 2}),
        (POISONING_FOR_GOOD, {"failed": 1, "errors": 1}),
    ],
    ids=["call", "set-up", "call, then tear-down"],
)
def test_a_dead_device_is_one_error_and_the_rest_is_skipped(
    pytester: pytest.Pytester, toy_kind: object, source: str, found: dict[str, int]
) -> None:
    pytester.makepyfile(source)

    result = pytester.runpytest_subprocess("--device", "toy", "-rs")

    result.assert_outcomes(passed=1, skipped=2, **found)
    result.stdout.fnmatch_lines(
        ["device lost: toy:0: an illegal address was read; *", "*toy:0: device lost after *[[]toy:0-1]"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_device_is_lost_once_by_the_first_test_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backend("cpu")), "health", lambda self, index: "ill")
    lost, device = LostDevices(), Device("cpu")

    for nodeid in ("first", "second"):
        lost.check(device, nodeid)

    assert lost.why(device) == "cpu:0: device lost after first"
    assert lost.take_news("second") is None


def test_other_devices_go_on_after_one_is_lost(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile(POISONING)

    result = pytester.runpytest_subprocess("--device", "toy,cpu")

    result.assert_outcomes(passed=1 + 3, failed=2, errors=1, skipped=2)


def test_a_failure_on_a_well_device_is_only_a_failure(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile("def test_one(device): raise RuntimeError")

    pytester.runpytest_subprocess("--device", "toy").assert_outcomes(failed=1)


HANGING = """
    import time
    def test_fast(device): pass
    def test_slow(device): time.sleep(30)
"""


def test_a_hanging_test_ends_the_process_with_its_stack(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "1")
    pytester.makepyfile(HANGING)

    result = pytester.runpytest_subprocess("--device", "cpu")

    assert result.ret == 1
    result.stderr.fnmatch_lines(["Timeout (0:00:01)!", "*in test_slow"])


def test_the_clock_runs_within_a_test_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "100")
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **how: events.append(seconds))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: events.append("cancelled"))
    guard = HangGuard(request.config)

    with pytest.raises(KeyError), guard.around():
        raise KeyError
    guard.close()
    guard.close()
    with guard.around():
        pass

    assert events == [100.0, "cancelled"]


def test_pytests_own_timeout_goes_before_ours(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "0.2")
    pytester.makeini("[pytest]\nfaulthandler_timeout = 60")
    pytester.makepyfile("import time\ndef test_one(device): time.sleep(0.5)")

    result = pytester.runpytest_subprocess("--device", "cpu")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["cuassay: CUASSAY_HANG_SECONDS is not used: faulthandler_timeout is set*"])


def test_a_bad_setting_is_a_usage_error(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "soon")

    result = pytester.runpytest_subprocess("--device", "cpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*CUASSAY_HANG_SECONDS must be seconds, 0 or more; got 'soon'*"])
