"""A device kind of another distribution: found by its entry point, tested like our own."""

from __future__ import annotations

import os

import pytest


def test_an_out_of_tree_kind_runs_a_users_spec(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_norm = conformance(OpSpec(fn=lambda xp, a: xp.linalg.norm(a), name="norm"))
    """)

    result = pytester.runpytest_subprocess("--require-device", "toy:0", "--device", "toy", "-v")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*test_norm::test_values?toy:0-float64? PASSED*"])


def test_an_out_of_tree_kind_runs_the_generated_suite_of_our_ops(pytester: pytest.Pytester, toy_kind: object) -> None:
    arguments = ("--device", "toy", "-k", "softmax or matmul", "-q", "--pyargs", "cuassay.testing.generated")

    result = pytester.runpytest_subprocess(*arguments)

    outcomes = result.parseoutcomes()
    assert result.ret == pytest.ExitCode.OK
    assert outcomes["passed"] > 100
    assert not {"failed", "errors", "error"} & outcomes.keys()


def test_a_test_runs_with_its_device_current_and_leaves_the_former_one(
    pytester: pytest.Pytester, toy_kind: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_DEVICES", "2")
    pytester.makepyfile("""
        import pytest
        from cuassay_toy import BACKEND

        @pytest.fixture
        def around(device):
            assert BACKEND.current == device.index
            yield
            assert BACKEND.current == device.index

        @pytest.fixture
        def broken(device):
            raise RuntimeError

        def test_current(device, around):
            assert BACKEND.current == device.index

        def test_failed(device):
            assert BACKEND.current != device.index

        def test_not_set_up(device, broken):
            pass

        def test_after():
            assert BACKEND.current == 0
    """)

    for chosen in ("toy:0", "toy:1"):
        result = pytester.runpytest_subprocess("--device", chosen)
        result.assert_outcomes(passed=2, failed=1, errors=1)


@pytest.mark.parametrize(
    ("module", "why"),
    [("no_such_module", "No module named 'no_such_module'"), ("raising", "*no attribute 'gone'")],
    ids=["absent", "raising"],
)
def test_a_kind_whose_module_is_broken_stops_no_other(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, module: str, why: str
) -> None:
    info = pytester.mkdir("broken-1.0.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[cuassay.devices]\nbroken = {module}\n")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=os.pathsep)
    (pytester.path / "raising.py").write_text("import json\njson.gone\n")
    pytester.makepyfile("def test_one(device): pass")

    result = pytester.runpytest_subprocess("--device", "cpu,broken:*")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"cuassay: no broken: its module cannot be loaded: {why}"])
