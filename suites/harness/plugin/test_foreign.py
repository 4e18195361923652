"""Projects that never heard of the plugin, with names like ours of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

OWN_FIXTURE = """
    import pytest
    @pytest.fixture
    def device(): return "theirs"
"""

PROJECTS = {
    "fixture in the module": {"test_it": f"{OWN_FIXTURE}\n    def test_it(device): assert device == 'theirs'"},
    "fixture in the conftest": {
        "conftest": OWN_FIXTURE,
        "test_it": "def test_it(device): assert device == 'theirs'",
    },
    "fixture with parameters": {
        "conftest": "import pytest\n@pytest.fixture(params=['theirs'])\ndef device(request): return request.param",
        "test_it": "def test_it(device): assert device == 'theirs'",
    },
    "parametrize mark": {
        "test_it": """
            import pytest
            @pytest.mark.parametrize(("n", "device"), [(1, "theirs")])
            def test_it(device, n): assert device == "theirs"
        """
    },
    "hook in the conftest": {
        "conftest": """
            def pytest_generate_tests(metafunc):
                if "device" in metafunc.fixturenames:
                    metafunc.parametrize("device", ["theirs"])
        """,
        "test_it": "def test_it(device): assert device == 'theirs'",
    },
    "hook in the module": {
        "test_it": """
            def pytest_generate_tests(metafunc):
                metafunc.parametrize("dtype", ["theirs"])
            def test_it(dtype): assert dtype == "theirs"
        """
    },
    "fixture xp": {
        "conftest": "import pytest\n@pytest.fixture\ndef xp(): return 'theirs'",
        "test_it": "def test_it(xp): assert xp == 'theirs'",
    },
    "fixture device, and our xp": {
        "conftest": "import pytest\n@pytest.fixture\ndef device(): return 'cpu'",
        "test_it": "def test_it(device, xp): assert xp.__name__ == 'numpy'",
    },
    "fixture op": {
        "conftest": "import pytest\n@pytest.fixture\ndef op(): return 'theirs'",
        "test_it": "def test_it(op): assert op == 'theirs'",
    },
    "default value": {"test_it": "def test_it(device='theirs'): assert device == 'theirs'"},
    "unittest": {
        "test_it": """
            import unittest
            class TestIt(unittest.TestCase):
                device = "theirs"
                def test_it(self): assert self.device == "theirs"
        """
    },
}


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
@pytest.mark.parametrize("arguments", [(), ("--cuassay-device", "cpu")], ids=["unused", "used"])
def test_a_projects_own_names_are_left_alone(
    pytester: pytest.Pytester, project: dict[str, str], arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(**project)

    pytester.runpytest("--strict-markers", "--strict-config", *arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_ids_are_the_same_with_and_without_the_plugin(pytester: pytest.Pytester, project: dict[str, str]) -> None:
    pytester.makepyfile(**project)

    with_it = pytester.runpytest("--collect-only", "-q")
    without = pytester.runpytest("--collect-only", "-q", "-p", "no:cuassay")

    assert with_it.outlines[:-1] == without.outlines[:-1]


def test_an_unused_plugin_says_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass")

    result = pytester.runpytest()

    result.stdout.no_fnmatch_line("cuassay:*")
    result.stdout.no_fnmatch_line("*= cuassay =*")


def test_decorators_work_where_markers_are_strict(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --strict-markers --device cpu\nfilterwarnings = error")
    pytester.makepyfile("""
        from cuassay.testing import devices, dtypes, requires
        pytestmark = [devices("cpu"), requires("streams")]
        @dtypes("float32")
        def test_one(device, dtype): pass
    """)

    pytester.runpytest().assert_outcomes(passed=1)


def test_a_projects_own_device_fixture_and_our_dtypes_meet(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{OWN_FIXTURE}
    from cuassay.testing import dtypes
    @dtypes("float32", "int8")
    def test_one(device, dtype): assert device == "theirs"
    """)

    pytester.runpytest().assert_outcomes(passed=2)


GENERATED = """
    from cuassay.testing import OpSpec, conformance
    SEEN = []

    def double(xp, a):
        SEEN.append(type(a).__name__)
        return a + a

    bench = lambda make, sizes: [make(8)]
    test_double = conformance(OpSpec(fn=double, reference=lambda a: a + a, dtypes=("float32",), bench=bench))

    def test_where(): assert "SimArray" in SEEN
"""


@pytest.mark.parametrize("name", ["device", "dtype", "op"])
def test_generated_tests_run_where_their_ids_say_whatever_fixtures_there_are(
    pytester: pytest.Pytester, name: str
) -> None:
    pytester.makeconftest(f"import pytest\n@pytest.fixture\ndef {name}(): return 'theirs'")
    pytester.makepyfile(test_it=GENERATED)

    result = pytester.runpytest("--device", "sim", "-v", "-k", "values or speed or where")

    result.assert_outcomes(passed=3, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*::test_double::test_values[[]sim:0-float32] PASSED*"])


#: Conftests that parametrize the name that is put for NAME.
PARAMETRIZED = {
    "fixture": """
        import pytest
        @pytest.fixture(params=["theirs", "others"])
        def NAME(request): return request.param
    """,
    "session fixture": """
        import pytest
        @pytest.fixture(params=["theirs", "others"], scope="session")
        def NAME(request): return request.param
    """,
    "session fixture used everywhere": """
        import pytest
        @pytest.fixture(params=["theirs"], scope="session")
        def NAME(request): return request.param
        @pytest.fixture(autouse=True)
        def _settings(NAME): assert NAME == "theirs"
    """,
    "hook": """
        def pytest_generate_tests(metafunc):
            if "NAME" in metafunc.fixturenames:
                metafunc.parametrize("NAME", ["theirs", "others"])
    """,
    "indirect hook": """
        import pytest
        @pytest.fixture
        def NAME(request): return request.param
        def pytest_generate_tests(metafunc):
            if "NAME" in metafunc.fixturenames:
                metafunc.parametrize("NAME", ["theirs"], indirect=True)
    """,
}


@pytest.mark.parametrize("conftest", PARAMETRIZED.values(), ids=PARAMETRIZED)
@pytest.mark.parametrize("name", ["device", "dtype", "op"])
def test_generated_tests_and_parametrized_names_of_a_project_share_a_file(
    pytester: pytest.Pytester, conftest: str, name: str
) -> None:
    pytester.makeconftest(conftest.replace("NAME", name))
    pytester.makepyfile(test_it=f"{GENERATED}\n    def test_own({name}): assert {name} in ('theirs', 'others')")

    result = pytester.runpytest("--device", "sim", "-v", "-k", "values or speed or where or own")

    assert {"passed", "deselected"} == set(result.parseoutcomes())
    result.stdout.fnmatch_lines(["*::test_values[[]*sim:0-float32*] PASSED*", "*::test_own[[]theirs] PASSED*"])


MARKED = """
    @pytest.fixture
    def dtype(request): return request.param.upper()
    @pytest.mark.parametrize("dtype", ["theirs"], indirect=True)
    def test_indirect(dtype): assert dtype == "THEIRS"
    @pytest.mark.parametrize("device, dtype", [("theirs", "float32")], indirect=["dtype"])
    def test_both(device, dtype): assert (device, dtype) == ("theirs", "FLOAT32")
    @pytest.mark.parametrize("dtype", ["float32", "theirs"])
    def test_direct(dtype): assert dtype in ("float32", "theirs")
"""


@pytest.mark.parametrize("generated", ["    import pytest", f"{GENERATED}\n    import pytest"], ids=["alone", "both"])
def test_marked_parameters_named_like_ours_are_the_projects(pytester: pytest.Pytester, generated: str) -> None:
    pytester.makepyfile(test_it=generated + MARKED)

    result = pytester.runpytest("--device", "sim", "-k", "indirect or both or direct or values")

    assert {"passed", "deselected"} >= set(result.parseoutcomes())
    assert result.parseoutcomes()["passed"] == (5 if "conformance" in generated else 4)


def test_a_fixture_of_a_project_meets_generated_tests_on_their_device(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest
        @pytest.fixture(autouse=True, scope="module")
        def _warm(device): assert str(device) in ("cpu:0", "sim:0")
    """)
    pytester.makepyfile(test_it=GENERATED)

    result = pytester.runpytest("--device", "cpu", "--device", "sim", "-k", "values")

    assert result.parseoutcomes()["passed"] == 2


@pytest.mark.parametrize("decorator", ["devices('cpu')", "dtypes('int8')", "ops('add')"])
def test_a_decorator_without_effect_on_a_name_of_the_project_is_told(pytester: pytest.Pytester, decorator: str) -> None:
    name = decorator.partition("(")[0].removesuffix("s")
    pytester.makeconftest(f"import pytest\n@pytest.fixture\ndef {name}(): return 'theirs'")
    pytester.makepyfile(f"from cuassay.testing import *\n@{decorator}\ndef test_one({name}): pass")

    result = pytester.runpytest("--device", "cpu")

    told = f"*@{name}s has no effect here, as this test's `{name}` is a fixture of conftest.py:2; give that another*"
    result.stdout.fnmatch_lines([told])


def test_what_is_required_of_a_projects_own_device_is_told(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OWN_FIXTURE)
    pytester.makepyfile("""
        from cuassay.testing import requires
        @requires("graphs")
        def test_one(device): pass
    """)

    result = pytester.runpytest()

    told = "needs cuassay's `device`, and this test's `device` is a fixture of conftest.py:*; rename that"
    result.stdout.fnmatch_lines([f"*::test_one: requires(...) {told}*"])


def test_a_session_without_our_tests_imports_no_numpy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    pytester.makeconftest(
        """
        import sys
        def pytest_unconfigure(): print("heavy:", sorted({"numpy", "pandas", "cupy"} & set(sys.modules)))
        """
    )

    pytester.runpytest_subprocess("-p", "no:hypothesispytest").stdout.fnmatch_lines(["heavy: []"])


def test_the_plugin_loads_without_numpy_pandas_or_a_driver() -> None:
    heavy = "{'numpy', 'pandas', 'cupy', 'cuda', 'ml_dtypes', 'xdist', 'jinja2'}"
    code = f"import sys, cuassay.testing.plugin; print(sorted({heavy} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
