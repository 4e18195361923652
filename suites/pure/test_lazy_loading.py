"""Whoever imports only the ops still finds the kinds of devices."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("imported", ["from cuassay import ops", "import cuassay.ops as ops"], ids=["from", "import"])
def test_first_array_loads_its_kind(imported: str) -> None:
    code = f"{imported}; import numpy; print(ops.add(numpy.ones(2), 1.0).tolist())"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("[2.0, 2.0]", "")
