"""The command that repeats a test with the same numbers: printed with a failure, and stored in the test's row."""

from __future__ import annotations

import os
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from shlex import quote

import pytest

from cuassay.core import settings

__all__ = ["TARGET", "line", "target_of"]

#: The command-line argument that selects the running test; empty outside of a test.
TARGET: ContextVar[str] = ContextVar("cuassay_rerun_target", default="")

#: This package's own test module, which the command names by module instead of by path.
_OWN = Path(__file__).parent / "generated" / "test_conformance.py"


def target_of(item: pytest.Item) -> str:
    """The argument that selects `item` on pytest's command line, relative to the folder where the session started."""
    test = item.nodeid.partition("::")[2]
    if item.path == _OWN:
        return f"--pyargs {quote(f'cuassay.testing.generated.test_conformance::{test}')}"
    return quote(f"{_relative(item.path, item.config.invocation_params.dir)}::{test}")


@lru_cache
def _relative(path: Path, folder: Path) -> str:
    """The relative path of a test file; cached because a file has many tests."""
    return os.path.relpath(path, folder)


def line(target: str, device: object = None) -> str:
    """The shell command for a `target`, on `device` if the test takes one."""
    chosen = "" if device is None else f" --cuassay-device {device}"
    return f"CUASSAY_SEED={settings.get('CUASSAY_SEED')} pytest{chosen} {target}"
