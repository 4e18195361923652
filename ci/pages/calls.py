"""Four calls as pictures: the functions that each enters, in order, recorded while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import pytest

import cuassay
from cuassay import ops
from cuassay.memory import CachingAllocator, IntegerSource

__all__ = ["fill"]

_PACKAGE = str(Path(cuassay.__file__).parent)
_WIDTH, _LINE, _INDENT = 960, 26, 28

_DECLARED = """
from cuassay.testing import OpSpec, conformance

test_double = conformance(OpSpec(fn=lambda xp, a: xp.add(a, a), reference=lambda a: a + a, dtypes=("float32",)))
"""


@dataclass(frozen=True)
class _Entry:
    """A function that was called from another module of ours."""

    depth: int
    module: str
    name: str


def fill(text: str) -> str:
    """Return the page with each call drawn."""
    a, b = (cuassay.full((size, size), 1.0, "float32", "sim") for size in (4, 5))
    ops.mm(ops.add(a, a), a)  # before recording, so that one-time loading is not in the pictures
    allocator = CachingAllocator(IntegerSource())
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "add": (lambda: ops.add(b, b), 5),
        "mm": (lambda: ops.mm(b, b), 6),
        "allocation": (lambda: allocator.malloc(2**20, 0), 2),
        "declaration": (_session, 0),
    }
    for name, (call, depth) in calls.items():
        text = text.replace(f"<!-- picture: {name} -->", _picture(name, _entered(call, depth)))
    return text


def _session() -> None:
    """Run a pytest session with one declared operation and a record."""
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        Path(folder, "test_double.py").write_text(_DECLARED, encoding="utf-8")
        options = ["-k", "test_values", "--device", "cpu", "-p", "no:cacheprovider", "--rootdir", folder]
        status = pytest.main([*options, "--cuassay-record", f"{folder}/now.jsonl", f"{folder}/test_double.py"])
    if status:
        raise SystemExit(f"the session that the page about the architecture draws ended with {status!r}")


def _entered(call: Callable[[], object], most: int) -> list[_Entry]:
    """Return the functions that `call` enters from another module of the package, each once, down to a depth."""
    found: dict[_Entry, None] = {}
    stack: list[tuple[str, int]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return
        if event == "return" and stack:
            stack.pop()
        elif event == "call":
            module = frame.f_globals.get("__name__", "").removeprefix("cuassay.")
            above, depth = stack[-1] if stack else ("", -1)
            depth += module != above
            stack.append((module, depth))
            if module != above and depth <= most and not _is_small(code.co_qualname):
                found.setdefault(_Entry(depth, module, code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


def _is_small(name: str) -> bool:
    """Return whether a name says little to readers: a module's body, a local function, an object-protocol method."""
    return "<" in name or (name.rpartition(".")[2].startswith("__") and not name.endswith("__call__"))


def _picture(name: str, entries: list[_Entry]) -> str:
    height = len(entries) * _LINE + 8
    shapes = "".join(_line(entry, number) for number, entry in enumerate(entries))
    return (
        f'<svg class="diagram" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="What the call enters, in order: {name}">{shapes}</svg>'
    )


def _line(entry: _Entry, number: int) -> str:
    left, base = 6 + entry.depth * _INDENT, (number + 1) * _LINE - 6
    marks = "".join(
        f'<path d="M{12 + depth * _INDENT} {base - 20} v{_LINE}" stroke="currentColor" stroke-opacity=".25"/>'
        for depth in range(entry.depth)
    )
    return (
        f'{marks}<text x="{left}" y="{base}" font-size="16" fill="currentColor">'
        f'<tspan fill-opacity=".65">{_plain(entry.module)}</tspan> {_plain(entry.name)}</text>'
    )


def _plain(name: str) -> str:
    """Return a name in which Markdown finds no emphasis."""
    return escape(name).replace("_", "&#95;")
