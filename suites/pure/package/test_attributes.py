"""What `cuassay.<name>` says of a name that is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("testing", "it is a module; write import cuassay.testing"),
        ("precison", "did you mean 'precision'?"),
        ("quux", "it has Capabilities, Device"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_what_to_write(name: str, message: str) -> None:
    done = subprocess.run(  # a process of its own: this one has imported the modules
        [sys.executable, "-c", f"import cuassay; cuassay.{name}"], capture_output=True, text=True, check=False
    )

    assert message in done.stderr
