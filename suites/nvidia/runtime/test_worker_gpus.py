"""On a GPU: what a worker of xdist is given selects that GPU, and several workers of one reserve its memory."""

from __future__ import annotations

import os

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
