"""A test that ends the process by `os._exit` is named, and the run is never green."""

from __future__ import annotations

import os
import sys

import pytest

ENDS = """
    import os
    def test_before(): pass
    def test_it(): {statement}
    def test_after(): pass
    """


@pytest.mark.parametrize(("status", "expected"), [("0", 1), ("False", 1), ("7", 7)])
@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_a_test_that_ends_the_process_is_named_and_fails_it(
    pytester: pytest.Pytester, status: str, expected: int, capture: str
) -> None:
    pytester.makepyfile(test_it=ENDS.format(statement=f"os._exit({status})"))

    done = pytester.runpytest_subprocess("--device=cpu", f"--capture={capture}")

    assert done.ret == expected
    done.stderr.fnmatch_lines(
        [f"cuassay: test_it.py::test_it (call) ended the process by os._exit({status}); the tests after it did not run"]
    )


def test_a_closed_stream_does_not_make_it_green(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=ENDS.format(statement="(__import__('sys').stderr.close(), os._exit(0))"))

    assert pytester.runpytest_subprocess("--device=cpu", "-s").ret == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_a_forked_child_ends_as_it_likes(pytester: pytest.Pytester) -> None:
    fork = "os._exit(0) if (child := os.fork()) == 0 else exec('assert os.waitpid(child, 0)[1] == 0')"
    pytester.makepyfile(test_it=ENDS.format(statement=fork))

    done = pytester.runpytest_subprocess("--device=cpu")

    done.assert_outcomes(passed=3)
    assert "ended the process" not in done.stderr.str()


def test_the_session_leaves_the_function_as_it_found_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_it(): pass")
    program = "import os, pytest; real = os._exit; pytest.main(['-q', '--device=cpu']); assert os._exit is real"

    assert pytester.run(sys.executable, "-c", program).ret == 0
