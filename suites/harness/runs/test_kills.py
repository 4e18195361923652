"""Sessions killed at random moments: nothing lost, nothing left, none called passed; `ci/run endurance` kills more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ci" / "kills.py"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["pytest", "pytest --cuassay-isolate", "pytest -n 2", "cuassay run"])
def test_a_session_killed_at_a_random_moment_is_found_out(kind: str) -> None:
    pytest.importorskip("xdist")
    command = [sys.executable, str(SCRIPT), "--kills", "1", "--kind", kind]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith(f"| {kind} | 1 | ")
