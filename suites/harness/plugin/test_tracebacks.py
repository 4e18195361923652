"""What a failure shows: the caller's line where the message names it, and not our insides."""

from __future__ import annotations

import gc

import pytest

RACE = """
    from cuassay import devices, ops, zeros

    def test_race():
        sim = devices.backend("sim")
        one, other = sim.new_stream(0), sim.new_stream(0)
        a = zeros(4, "float32", "sim")
        sim.synchronize(0)
        with sim.use_stream(one):
            ops.add(a, 1.0, out=a)
        with sim.use_stream(other):
            ops.mul(a, 2.0)  # here
"""


def test_a_race_ends_at_the_callers_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RACE)

    result = pytester.runpytest("--device", "sim")

    result.stdout.fnmatch_lines(
        ["> *ops.mul(a, 2.0)  # here", "E *RaceError: *insert * before the read*", "*:11: Race*"]
    )
    result.stdout.no_fnmatch_line("*dispatch.py*")
    result.stdout.no_fnmatch_line("*accesses.py*")


def test_all_of_it_is_shown_when_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RACE)

    result = pytester.runpytest("--device", "sim", "--full-trace")

    result.stdout.fnmatch_lines(["*dispatch.py:*", "*accesses.py:*RaceError*"])


def test_another_error_keeps_its_way(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay import ops
        def test_wrong():
            ops.add([1], [2])
    """)

    result = pytester.runpytest("--device", "sim")

    result.stdout.fnmatch_lines(["*ops.add(*", "*ArgumentError*", "*cuassay*.py:*: ArgumentError"])


def test_a_leak_says_how_much_and_where_to_look(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        KEPT = []

        def leaks(xp, a):
            KEPT.append(a * 2)
            return KEPT[-1]

        test_leaks = conformance(OpSpec(fn=leaks, dtypes=("float32",)))
    """)

    gc.collect()  # what earlier tests left in this process is not collected during the leak, which would hide it
    result = pytester.runpytest("--device", "sim", "-k", "test_values")

    result.stdout.fnmatch_lines(
        ["*bytes) of device memory are still in use after the test; a cache*", "*op: leaks on sim:0*"]
    )
    result.stdout.no_fnmatch_line("*contextlib.py*")


WRONG = """
    import numpy as np
    from cuassay.testing import OpSpec, conformance

    def halved(xp, a):
        return a * 0.5 if xp is np else a * 0.51

    def nothing(xp, a):
        return a * 0.5 if xp is np else a.nothing

    test_halved = conformance(OpSpec(fn=halved, dtypes=("float32",)))
    test_nothing = conformance(OpSpec(fn=nothing, dtypes=("float32",)))
"""


@pytest.mark.parametrize("check", ["values", "units"])
def test_a_failed_check_shows_its_message_and_no_source_of_ours(pytester: pytest.Pytester, check: str) -> None:
    pytester.makepyfile(WRONG)

    result = pytester.runpytest("--device", "sim", "-k", f"test_halved and test_{check}")

    result.stdout.fnmatch_lines(
        ["_*test_halved.test_*", "", "E   AssertionError: * out of tolerance"], consecutive=True
    )
    result.stdout.fnmatch_lines([f" * check: {check}: *", " *reproduce: *"])
    result.stdout.no_fnmatch_line("*--full-trace*")
    result.stdout.no_fnmatch_line("*def check_*")
    result.stdout.no_fnmatch_line("*.py:*: AssertionError")


def test_an_error_of_the_users_function_begins_at_its_own_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WRONG)

    result = pytester.runpytest("--device", "sim", "-k", "test_nothing and test_values")

    result.stdout.fnmatch_lines(
        ["*FAILURES*", "_*", "", "xp = *", "a = *", "*a.nothing*", "E *AttributeError: *'nothing'*", "E *reproduce: *"]
    )
    result.stdout.no_fnmatch_line("*def check_*")
    result.stdout.no_fnmatch_line("*opspec.py*")


def test_a_race_of_the_users_function_ends_at_its_own_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        KEPT = {}

        def kept(xp, a):
            out = KEPT.setdefault((a.shape, xp), xp.empty_like(a))
            out[...] = 0
            return a * 2

        test_kept = conformance(OpSpec(fn=kept, dtypes=("float32",)))
    """)

    result = pytester.runpytest("--device", "sim", "-k", "test_side_stream")

    result.stdout.fnmatch_lines(
        ["*FAILURES*", "xp = *", ">       out[[]...] = 0", "E *RaceError: *", "E *reproduce: *", "*.py:6: RaceError"]
    )
    result.stdout.no_fnmatch_line("*def check*")
    result.stdout.no_fnmatch_line("*cuassay/devices/*")
    result.stdout.no_fnmatch_line("*accesses.py*")


def test_an_error_inside_numpy_ends_at_the_line_of_the_users_function(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance

        def clipped(xp, a):
            xp.clip(a, -1.0, 1.0, out=a)  # here
            return a

        test_clipped = conformance(OpSpec(fn=clipped, reference=lambda a: a, dtypes=("int32",)))
    """)

    result = pytester.runpytest("--device", "sim", "-k", "test_values")

    result.stdout.fnmatch_lines(["> *# here", "E *Cannot cast ufunc 'clip'*", "*:4: *Error"])
    result.stdout.no_fnmatch_line("*fromnumeric.py*")
    result.stdout.no_fnmatch_line("*During handling of the above exception*")
    result.stdout.no_fnmatch_line("*calls.py*")


def test_a_race_of_an_operator_ends_at_the_callers_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RACE.replace("ops.mul(a, 2.0)", "a * 2.0"))

    result = pytester.runpytest("--device", "sim")

    result.stdout.fnmatch_lines(["> *a * 2.0  # here", "E *RaceError: *", "*:11: Race*"])
    result.stdout.no_fnmatch_line("*mixins.py*")


def test_a_failed_check_shows_our_source_when_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WRONG)

    result = pytester.runpytest("--device", "sim", "-k", "test_halved and test_values", "--full-trace")

    result.stdout.fnmatch_lines(["*def check_values*", "E *AssertionError: *"])


def test_a_failure_with_a_note_is_shown_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_it = conformance(OpSpec(fn=lambda xp, a: a * 2, reference=lambda a: a.sum(), dtypes=("float32",)))
    """)

    result = pytester.runpytest("--device", "cpu", "-k", "values")

    result.stdout.fnmatch_lines(["E *AssertionError: shape is *", "* note: the expected shape is that of reference="])
    result.stdout.no_fnmatch_line("During handling of the above exception*")


def test_an_error_of_a_declaration_shows_little_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        def total(a, b):
            return a + b
        test_it = conformance(OpSpec(
            fn=lambda xp, a, b: a + b, reference=total, name="total", samples=lambda make: [make(3), make(3)],
        ))
    """)

    result = pytester.runpytest("--device", "cpu")

    result.stdout.fnmatch_lines(
        ["*here an array (3,)*; correct it, or correct samples=; in the list of samples= a tuple is one call*"]
    )
    shown = [line for line in result.outlines if ".py:" in line and ": in " in line]
    assert len(shown) <= 3
    assert not any("_as_spec_error" in line or "_computed" in line for line in shown)
