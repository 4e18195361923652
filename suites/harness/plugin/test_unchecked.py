"""``--cuassay-fail-unchecked``: tests that pass and check nothing."""

from __future__ import annotations

import pytest

#: Bodies of a test that check something.
CHECKS = {
    "assert": "assert device",
    "assert of several lines": "assert (\n        device\n        is not None\n    )",
    "assert in a thread": "run = lambda: helped(device)\n    t = Thread(target=run); t.start(); t.join()",
    "raises": "with pytest.raises(ValueError): int('x')",
    "raises of a call": "pytest.raises(ValueError, int, 'x')",
    "warns": "with pytest.warns(UserWarning): warnings.warn('x')",
    "numpy": "np.testing.assert_allclose(1.0, 1.0)",
    "numpy raises": "np.testing.assert_raises(ValueError, int, 'x')",
    "ours": "cuassay.testing.assert_close(np.ones(2), np.ones(2))",
    "helper": "helped(device)",
    "helper elsewhere": "below.helpers.helped(device)",
    "explicit": "if not device: raise AssertionError('no device')",
    "explicit, below": "if not device:\n        raise AssertionError('no device')",
    "loop": "for one in [device]: assert one",
    "mock": "m = Mock(); m(); m.assert_called_once()",
}

#: Bodies that check nothing.
NOTHING = {
    "empty": "pass",
    "call": "np.linalg.inv(np.eye(2))",
    "loop over nothing": "for one in []:\n        assert one",
    "condition": "if device is None:\n        assert False",
    "after a return": "return\n    assert device",
    "value": "device is not None",
    "definition": "def check(): assert device",
    "assert in a library": "library.f(device)",
    "raise of another error": "if not device: raise ValueError('AssertionError')",
}

TEST = """
    import warnings
    from threading import Thread
    from unittest.mock import Mock
    import numpy as np
    import pytest
    import cuassay.testing
    import below.helpers
    import library

def helped(device):
    assert device

def test_it(device):
    {body}
""".replace("\n    import", "\nimport").replace("\n    from", "\nfrom")


def write(pytester: pytest.Pytester, body: str) -> None:
    """A test, a helper below its folder, and a library next to it."""
    for name in ("tests/below/helpers.py", "library.py"):
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def helped(device):\n    assert device\nf = helped\n")
    (pytester.path / "tests/test_it.py").write_text(TEST.format(body=body))
    pytester.syspathinsert()


@pytest.mark.parametrize("body", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("how", ["rewrite", "plain"])
def test_what_checks_passes(pytester: pytest.Pytester, body: str, how: str) -> None:
    write(pytester, body)

    result = pytester.runpytest("--device=cpu", "--cuassay-fail-unchecked", f"--assert={how}")

    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("body", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("how", ["rewrite", "plain"])
def test_what_checks_nothing_fails_the_session(pytester: pytest.Pytester, body: str, how: str) -> None:
    write(pytester, body)

    result = pytester.runpytest("--device=cpu", "--cuassay-fail-unchecked", f"--assert={how}")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["ERROR 1 test passed and checked nothing:", "  tests/test_it.py::test_it?cpu:0?"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_only_functions_that_passed_and_do_not_measure_are_judged(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        '''
        >>> 1 + 1
        2
        '''
        import unittest
        import pytest
        from cuassay.testing import OpSpec, conformance
        test_sine = conformance(OpSpec(fn=lambda xp, a: xp.sin(a)))
        def test_measured(benchmark): benchmark(int)
        def test_failed(): raise ValueError
        def test_skipped(): pytest.skip("later")
        @pytest.mark.xfail
        def test_expected(): raise ValueError
        class TestOfUnittest(unittest.TestCase):
            def test_equal(self): self.assertEqual(1, 1)
            def test_raises(self):
                with self.assertRaises(ValueError): int("x")
            def test_nothing(self): int("1")
    """)

    result = pytester.runpytest("--device=cpu", "--cuassay-fail-unchecked", "--doctest-modules")

    told = result.stdout.str().partition("checked nothing:\n")[2].splitlines()
    assert told[0].endswith("::TestOfUnittest::test_nothing")
    assert not told[1].startswith("  ")
    result.stdout.fnmatch_lines(["ERROR 1 test passed and checked nothing:"])


@pytest.mark.parametrize("way", [["--cuassay-isolate"], ["-n2"]], ids=["isolated", "xdist"])
def test_workers_tell_what_checked_nothing(pytester: pytest.Pytester, way: list[str]) -> None:
    pytester.makepyfile("def test_nothing(device): pass\ndef test_something(device): assert device")

    result = pytester.runpytest_subprocess("--device=cpu", "--cuassay-fail-unchecked", *way)

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["ERROR 1 test passed and checked nothing:", "  *::test_nothing?cpu:0?"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_another_tracer_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.settrace(lambda *_: None)")

    result = pytester.runpytest_subprocess("--cuassay-fail-unchecked")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*traces this process already; leave out the debugger or the measurement*"])
