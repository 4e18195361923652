"""Memory that processes reserve from one another: what fits begins, in order, and a dead process holds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.testing.reservations import Need, Reservation

Reserve = Callable[..., Reservation]


@pytest.fixture
def reserve(tmp_path: Path) -> Reserve:
    def make(nbytes: int, *, alone: bool = False, device: str = "SIM-0") -> Reservation:
        return Reservation(tmp_path, Need(device, nbytes, 100, alone))

    return make


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ({"nbytes": 60}, {"nbytes": 40}, True),
        ({"nbytes": 60}, {"nbytes": 41}, False),
        ({"nbytes": 60}, {"nbytes": 60, "device": "SIM-1"}, True),
        ({"nbytes": 0, "alone": True}, {"nbytes": 0}, False),
        ({"nbytes": 0}, {"nbytes": 0, "alone": True}, False),
        ({"nbytes": 0, "alone": True}, {"nbytes": 0, "alone": True, "device": "SIM-1"}, True),
        ({"nbytes": 1}, {"nbytes": 1000}, False),
    ],
    ids=["fit", "too much", "devices", "after alone", "alone after", "alone devices", "more than all"],
)
def test_two_begin_together_if_they_fit(reserve: Reserve, first: Any, second: Any, fits: bool) -> None:
    with closing(reserve(**first)) as one, closing(reserve(**second)) as two:
        assert (one.try_begin(), two.try_begin()) == (True, fits)
        one.close()
        assert two.try_begin()


def test_a_small_one_does_not_pass_a_large_one_that_waits(reserve: Reserve) -> None:
    with closing(reserve(50)) as running, closing(reserve(100)) as large, closing(reserve(1)) as small:
        assert (running.try_begin(), large.try_begin(), small.try_begin()) == (True, False, False)

        running.close()

        assert (small.try_begin(), large.try_begin()) == (False, True)


@given(st.lists(st.tuples(st.integers(0, 120), st.booleans(), st.booleans()), max_size=12))
def test_what_runs_fits_and_the_first_that_waits_is_next(tmp_path_factory: Any, steps: Any) -> None:
    """Each step enters one; then, if it says so, the oldest that runs ends."""
    folder = tmp_path_factory.mktemp("reservations")
    entered: list[tuple[Reservation, int, bool]] = []
    for nbytes, alone, ends in steps:
        entered.append((Reservation(folder, Need("SIM-0", nbytes, 100, alone)), min(nbytes, 100), alone))
        if ends:
            entered.pop(0)[0].close()
        running = [one for one in entered if one[0].try_begin()]
        assert sum(nbytes for _, nbytes, _ in running) <= 100
        assert len(running) == 1 or not any(alone for *_, alone in running)
        assert not entered or running[0] is entered[0]
    for one, *_ in entered:
        one.close()


HOLDS = """
import sys, time
from pathlib import Path
from cuassay.testing.reservations import Need, Reservation
held = Reservation(Path(sys.argv[1]), Need("SIM-0", 100, 100))
print(held.try_begin(), flush=True)
time.sleep(60)
"""


def test_the_reservation_of_a_killed_process_is_free(reserve: Reserve, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with closing(reserve(1)) as waiting:
            assert not waiting.try_begin()

            holder.send_signal(signal.SIGKILL)
            holder.wait()

            assert waiting.try_begin()
            assert len(list((tmp_path / "SIM-0").glob("0*"))) == 1


def test_a_forked_child_does_not_prolong_a_reservation(reserve: Reserve) -> None:
    first = reserve(100)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.read(reader, 1)
        os._exit(0)
    first.close()

    with closing(reserve(100)) as second:
        assert second.try_begin()

    os.write(writer, b"x")
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


def test_waiting_ends_when_there_is_room(reserve: Reserve) -> None:
    held = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    with closing(reserve(100)) as first, closing(reserve(100)) as second:
        assert not second.try_begin()
        held.wait()
        first.close()

        second.wait()

        assert second.try_begin()


#: Eight workers, one device of 1 GiB, tests of 300 MiB: each writes when it has begun and ended.
TESTS = """
    import os, time
    import pytest
    from cuassay.testing import exclusive, requires

    def note(word):
        with open("notes", "a") as file:
            file.write(f"{word}\\n")

    @requires("memory>=300MiB")
    @pytest.mark.parametrize("n", range(8))
    def test_large(device, n):
        note(300)
        time.sleep(0.05)
        note(-300)

    @exclusive
    @pytest.mark.parametrize("n", range(2))
    def test_alone(device, n):
        note(1024)
        time.sleep(0.05)
        note(-1024)
"""


def test_a_test_that_needs_more_memory_than_there_is_waits_for_nobody(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is skipped, so that it does not need its device alone."""
    folder = pytester.path / "reserved"
    monkeypatch.setenv("CUASSAY_RESERVATIONS", str(folder))
    monkeypatch.setenv("CUASSAY_SIM_MEMORY", "1GiB")
    pytester.makepyfile(
        "from cuassay.testing import exclusive, requires\n"
        "@exclusive\n@requires('memory>=2GiB')\ndef test_large(device): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--cuassay-device=sim", "-p", "no:xdist", "-p", "no:cacheprovider"]

    with closing(Reservation(folder, Need("SIM-0", 0, 2**30))):
        done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, timeout=60, check=False)

    assert "1 skipped" in done.stdout


def most_at_once(notes: Path) -> int:
    """The most memory that tests held at one time."""
    held, most = 0, 0
    for word in notes.read_text().split():
        held += int(word)
        most = max(most, held)
    return most


def test_processes_that_share_a_device_do_not_run_each_other_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_RESERVATIONS", str(pytester.path / "reserved"))
    monkeypatch.setenv("CUASSAY_SIM_MEMORY", "1GiB")
    pytester.makepyfile(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "--cuassay-device=sim", "-p", "no:xdist", "-p", "no:cacheprovider"]

    parts = [subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL) for _ in range(4)]

    assert [part.wait() for part in parts] == [0] * 4
    assert most_at_once(pytester.path / "notes") in (300, 600, 900, 1024)
    assert list((pytester.path / "reserved" / "SIM-0").glob("0*")) == []


def test_the_time_of_a_test_does_not_run_while_it_waits(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.path / "reserved"
    monkeypatch.setenv("CUASSAY_RESERVATIONS", str(folder))
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "1")
    pytester.makepyfile("def test_one(device): pass")
    command = [sys.executable, "-m", "pytest", "-q", "--cuassay-device=sim", "--cuassay-isolate", "-p", "no:xdist"]

    with closing(Reservation(folder, Need("SIM-0", 0, 100, alone=True))) as held:
        session = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while len(list((folder / "SIM-0").glob("0*"))) < 2:
            time.sleep(0.02)
        with pytest.raises(subprocess.TimeoutExpired):
            session.wait(2.5)
        held.close()

    assert session.wait() == 0
