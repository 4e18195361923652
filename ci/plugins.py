"""Run a suite that does not use cuassay among 74 pytest plugins, with and without cuassay, and compare.

``python ci/plugins.py`` makes an environment with the plugins below in a temporary folder; it needs uv and a package
index. A suite of 300 tests is collected and run there with and without ``-p no:cuassay``, in one process and under
pytest-xdist, and with ``--cuassay-isolate``. The exit status is 1 if a test's outcome differs, or if collection takes
more than 1.1 times as long.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree as ET

#: Omitted, because they do not load with the others on pytest 9.1: pytest-assume, -cases, -flake8, -openfiles,
#: -parallel, -snapshot (its option is syrupy's), -tldr, -tornado and -vcr; and pytest-django, which needs settings.
PLUGINS = """
allure-pytest anyio faker hypothesis nbval pyfakefs requests-mock syrupy pytest-aiohttp pytest-arraydiff
pytest-astropy-header pytest-asyncio pytest-base-url pytest-bdd pytest-benchmark pytest-check pytest-clarity
pytest-codspeed pytest-console-scripts pytest-cov pytest-custom-exit-code pytest-datadir pytest-deadfixtures
pytest-dependency pytest-docker pytest-doctestplus pytest-env pytest-examples pytest-filter-subpackage pytest-flask
pytest-forked pytest-freezer pytest-github-actions-annotate-failures pytest-html pytest-httpserver pytest-httpx
pytest-icdiff pytest-instafail pytest-json-report pytest-lazy-fixtures pytest-localftpserver pytest-localserver
pytest-memray pytest-metadata pytest-mock pytest-monitor pytest-mpl pytest-mypy pytest-order pytest-picked
pytest-pretty pytest-print pytest-profiling pytest-pylint pytest-randomly pytest-recording pytest-regressions
pytest-remotedata pytest-repeat pytest-reportlog pytest-rerunfailures pytest-ruff pytest-shutil pytest-socket
pytest-split pytest-subtests pytest-sugar pytest-testmon pytest-timeout pytest-trio pytest-unordered
pytest-virtualenv pytest-xdist pytest-xvfb
""".split()

FILES = 12
SUITE = """
import pytest, unittest

class TestGroup:
    @pytest.mark.parametrize("dtype", ["a", "b"])
    def test_dtype(self, dtype): assert dtype in "ab"
    @pytest.mark.parametrize("n", range(8))
    def test_n(self, n): assert n < 7
    def test_folder(self, tmp_path): (tmp_path / "x").write_text("1")

@pytest.fixture(params=["p", "q"])
def device(request): return request.param
def test_device(device): assert device in "pq"
@pytest.mark.xfail
def test_known(): assert 0
@pytest.mark.skip(reason="later")
def test_later(): pass
def test_error(no_such_fixture): pass
def test_output(capsys): print("x"); assert capsys.readouterr().out == "x\\n"
def test_mock(mocker): assert mocker.Mock()() is not None
def test_speed(benchmark): assert benchmark(sum, [1, 2]) == 3
@pytest.mark.asyncio
async def test_async(): assert True
@pytest.mark.flaky(reruns=1)
def test_flaky(_seen=[]): _seen.append(1); assert len(_seen) % 2 == 0
@pytest.mark.timeout(20)
def test_timed(): pass

class TestUnit(unittest.TestCase):
    def setUp(self): self.device = 1
    def test_one(self): self.assertEqual(self.device, 1)
    def test_parts(self):
        for k in range(3):
            with self.subTest(k=k): self.assertLess(k, 2)
    @unittest.expectedFailure
    def test_failing(self): self.fail()
"""
WITHOUT, XDIST = ("-p", "no:cuassay"), ("-n", "2")
COMMON = ("-q", "-p", "no:cacheprovider", "-p", "randomly", "--randomly-seed=1")


def main() -> int:
    """Compare; return 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pytest", default="9.1.1", help="the version of pytest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = _environment(Path(folder, "environment"), options.pytest)
        suite = Path(folder, "suite")
        suite.mkdir()
        for number in range(FILES):
            Path(suite, f"test_{number}.py").write_text(SUITE)
        alone = _outcomes(python, suite, *WITHOUT)
        differing = _differing("one process", alone, _outcomes(python, suite))
        differing += _differing("isolated", alone, _outcomes(python, suite, "--cuassay-isolate"))
        differing += _differing("xdist", _outcomes(python, suite, *XDIST, *WITHOUT), _outcomes(python, suite, *XDIST))
        return 1 if differing or _slowdown(python, suite) > 1.1 else 0


def _environment(folder: Path, version: str) -> Path:
    python, root = folder / "bin" / "python", Path(__file__).parents[1]
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    names = [*PLUGINS, f"pytest=={version}", str(root)]
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", str(python), *names], check=True)
    return python


def _differing(how: str, without: dict[str, list[str]], with_ours: dict[str, list[str]]) -> int:
    """Print the tests whose outcomes differ; return their number, or 1 if nothing ran."""
    unlike = [name for name in sorted(without.keys() | with_ours.keys()) if without.get(name) != with_ours.get(name)]
    print(f"{how}: {len(with_ours) - len(unlike)} of {len(with_ours)} tests alike", flush=True)
    for name in unlike[:20]:
        print(f"  {name}: without cuassay {without.get(name)}, with it {with_ours.get(name)}")
    return len(unlike) if with_ours else 1


def _outcomes(python: Path, suite: Path, *how: str) -> dict[str, list[str]]:
    report = suite.parent / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", *COMMON, *how, f"--junitxml={report}"]
    ended = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False)
    if not report.exists():
        sys.exit(f"the run ended with {ended.returncode}:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    found: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  just written by pytest
        outcome = "+".join(sorted(child.tag for child in case if child.tag != "properties")) or "passed"
        found.setdefault(f"{case.get('classname')}.{case.get('name')}", []).append(outcome)
    return found


def _slowdown(python: Path, suite: Path) -> float:
    """Return the median time of five collections with cuassay over that without, taken in turn."""
    seconds: dict[tuple[str, ...], list[float]] = {WITHOUT: [], (): []}
    for _ in range(5):
        for how, taken in seconds.items():
            begun = time.perf_counter()
            command = [str(python), "-m", "pytest", "--collect-only", *COMMON, *how]
            subprocess.run(command, cwd=suite, capture_output=True, check=True)
            taken.append(time.perf_counter() - begun)
    without, with_ours = (statistics.median(taken) for taken in seconds.values())
    print(f"collection: {without:.2f} s without cuassay, {with_ours:.2f} s with it: {with_ours / without:.2f}")
    return with_ours / without


if __name__ == "__main__":
    sys.exit(main())
