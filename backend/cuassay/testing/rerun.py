"""The line that runs a test again, on the same numbers: printed with its failure, and kept in its row."""

from __future__ import annotations

import os
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from shlex import quote

import pytest

from cuassay.core import settings

__all__ = ["TARGET", "line", "target_of"]

#: What names the test that runs now; empty outside of one.
TARGET: ContextVar[str] = ContextVar("cuassay_rerun_target", default="")

#: Our own test module: where it lies is of no use to the reader, who names it by module.
_OWN = Path(__file__).parent / "generated" / "test_conformance.py"


def target_of(item: pytest.Item) -> str:
    """What names `item` on pytest's command line, in the folder where this session began."""
    test = item.nodeid.partition("::")[2]
    if item.path == _OWN:
        return f"--pyargs {quote(f'cuassay.testing.generated.test_conformance::{test}')}"
    return quote(f"{_relative(item.path, item.config.invocation_params.dir)}::{test}")


@lru_cache
def _relative(path: Path, folder: Path) -> str:
    """Where the file of many tests lies."""
    return os.path.relpath(path, folder)


def line(target: str, device: object = None) -> str:
    """The shell line for a `target`, on `device` where the test takes one."""
    chosen = "" if device is None else f" --cuassay-device {device}"
    return f"CUASSAY_SEED={settings.get('CUASSAY_SEED')} pytest{chosen} {target}"
