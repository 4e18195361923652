"""On GPUs: workers of xdist own one each or reserve its memory, one that dies is replaced, a benchmark is alone."""

from __future__ import annotations

import os
import subprocess
import sys

import own_plugin
import pytest

from cuassay.devices import backend

pytest.importorskip("xdist")

TESTS = """
    import os, time
    import pytest
    from cuassay.devices import backend
    from cuassay.testing import requires

    def note(word=""):
        uuid = backend("cuda").identity(0)["uuid"]
        with open("notes", "a") as file:
            file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {uuid} {word}\\n")

    @pytest.mark.parametrize("n", range(8))
    def test_where(device, xp, n):
        assert backend("cuda").count() == 1
        assert float(xp.ones(4).sum()) == 4
        note()
        time.sleep(0.1)

    @requires("memory>=NBYTESB")
    @pytest.mark.parametrize("n", range(4))
    def test_large(device, xp, n):
        held = xp.empty(NBYTES, "uint8")
        held[:] = 1
        backend("cuda").synchronize(0)
        del held
"""

#: A test that kills its worker, or spoils its context, and others.
DYING = """
    import ctypes, os
    import pytest
    import cuassay.cuda
    from cuassay.devices import backend

    spoil = cuassay.cuda.compile_kernel("__global__ void spoil(int* a) { *(volatile int*)0 = 1; }", "spoil")

    @pytest.mark.parametrize("n", range(8))
    def test_where(device, xp, n):
        if n == 3:
            if os.environ["DEATH"] == "kill":
                os.kill(os.getpid(), 9)
            spoil(1, 1, (xp.zeros(1, "int32"),))
        with open("notes", "a") as file:
            file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {backend('cuda').identity(0)['uuid']}\\n")
        assert float(xp.ones(4).sum()) == 4
"""

#: A benchmark of GPU 0, and tests of any GPU: each notes when it uses which.
BESIDE = """
    import time
    import pytest
    from cuassay.devices import backend

    class Noting:
        def __init__(self, word):
            self.word, self.uuid = word, backend("cuda").identity(0)["uuid"]

        def __enter__(self):
            self.begin = time.monotonic()

        def __exit__(self, *error):
            with open("times", "a") as file:
                file.write(f"{self.word} {self.uuid} {self.begin} {time.monotonic()}\\n")

    @pytest.mark.parametrize("n", range(6))
    def test_timed(device_benchmark, device, xp, n):
        a = xp.ones(1 << 20, "float32")
        with Noting("timed"):
            device_benchmark(lambda: xp.add(a, a), device, max_seconds=0.2)

    @pytest.mark.parametrize("n", range(60))
    def test_plain(device, xp, n):
        with Noting("plain"):
            assert float(xp.ones(4).sum()) == 4
            time.sleep(0.1)
"""


@pytest.fixture(autouse=True)
def cuda(on_cuda: object, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PYTEST_XDIST", "CUASSAY_RESERVATIONS"))]:
        monkeypatch.delenv(name)
    if own_plugin.words():
        monkeypatch.setenv("PYTEST_PLUGINS", own_plugin.NAME)
    nbytes = int(backend("cuda").probe(0, "memory").value * 0.4)
    pytester.makepyfile(TESTS.replace("NBYTES", str(nbytes)))


def devices_by_worker(pytester: pytest.Pytester) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for worker, uuid in map(str.split, (pytester.path / "notes").read_text().splitlines()):
        found.setdefault(worker, set()).add(uuid)
    return found


def test_each_worker_owns_a_gpu(pytester: pytest.Pytester) -> None:
    number = backend("cuda").count()

    result = pytester.runpytest_subprocess(f"-n{number + 1}", "--device=cuda", "--cuassay-workers=own", "-k", "where")

    result.assert_outcomes(passed=8)
    found = devices_by_worker(pytester)
    assert all(len(uuids) == 1 for uuids in found.values())
    assert len(set.union(*found.values())) == len(found) == number


def test_workers_of_one_gpu_do_not_run_each_other_out(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("-n4", "--device=cuda", "--cuassay-workers=share")

    result.assert_outcomes(passed=12)


@pytest.mark.parametrize("death", ["kill", "illegal address"])
def test_a_worker_that_dies_is_replaced_and_its_gpu_is_given_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    monkeypatch.setenv("DEATH", death)
    pytester.makepyfile(DYING)
    number = backend("cuda").count()

    result = pytester.runpytest_subprocess(f"-n{number}", "--device=cuda", "--cuassay-workers=own")

    result.assert_outcomes(passed=7, failed=1)
    found = devices_by_worker(pytester)
    assert len(found) >= number
    assert all(len(uuids) == 1 for uuids in found.values())
    assert len(set.union(*found.values())) == number


def test_a_benchmark_has_its_gpu_alone_beside_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_RESERVATIONS", str(pytester.path / "reserved"))
    pytester.makepyfile(BESIDE)
    command = (sys.executable, "-m", "pytest", "-q", "--device=cuda", "-p", "no:cacheprovider")
    uuid = backend("cuda").identity(0)["uuid"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": f"GPU-{uuid}"}
    alone = [*command, "-p", "no:xdist", "-k", "timed"]

    with (
        (pytester.path / "timing.log").open("w") as log,
        subprocess.Popen(alone, env=environment, stdout=log) as timing,
    ):
        tests = subprocess.run([*command, "-n4", "--cuassay-workers=share", "-k", "plain"], check=False)
    ended = timing.returncode

    assert (ended, tests.returncode) == (0, 0), (pytester.path / "timing.log").read_text()
    noted = [line.split() for line in (pytester.path / "times").read_text().splitlines()]
    timed = [(uuid, float(begin), float(end)) for kind, uuid, begin, end in noted if kind == "timed"]
    plain = [(uuid, float(begin), float(end)) for kind, uuid, begin, end in noted if kind == "plain"]
    assert len(timed) == 6
    assert len(plain) == 60
    assert [
        (one, other)
        for one in timed
        for other in plain
        if one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
    ] == []
    assert len({uuid for uuid, *_ in plain}) == backend("cuda").count()
