"""The code on a page of the documentation, and how it is run as the page says.

A page is run in a folder of its own, from top to bottom:

- a code block that begins with a comment such as ``# test_norm.py`` is a file, and is written;
- the lines of a ``console`` block that begin with ``$`` are run by bash; the lines below a command are what it prints,
  with ``...`` for anything. Times, sizes and fractions may differ, because machines do; counts and percentages may
  not, and neither may any number in the row of a test on the simulator, whose times are virtual;
- every other ``python`` block is run with those before it in one process, at the place of the first of them. A line
  whose comment begins with an error's name, such as ``# RaceError:``, must raise it.

A comment in the line above a block changes that: ``<!-- cuda -->`` runs it only where there is a GPU,
``<!-- fails -->`` says that its commands exit with a status other than 0, and ``<!-- not run: REASON -->`` leaves it
out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "blocks", "run"]

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"\A(?:#|//) ([\w./-]+\.\w+)\n")
_UNIT = "(?:ns|us|µs|ms|s|B|KiB|MiB|GiB)"
_MEASURED = re.compile(rf"\d[\d.,]* ?{_UNIT}\b|\d+(?:\.\d+)+(?![\d.]| ?%)")
_VIRTUAL = "[sim:"
_DRIVER = Path(__file__).with_name("run_blocks.py")
_TIME_LIMIT = 120


@dataclass(frozen=True)
class Block:
    """One code block: where it is, what it is, and the words of the comment above it."""

    place: str
    language: str
    text: str
    mark: str = ""

    @property
    def line(self) -> int:
        """Where it begins on its page."""
        return int(self.place.rpartition(":")[2])

    @property
    def file(self) -> str | None:
        """The name of the file that the block shows."""
        found = _FILE.match(self.text)
        return None if found is None or self.language in ("console", "text") else found[1]

    @property
    def is_run(self) -> bool:
        """Whether it is more than text to look at."""
        return self.file is not None or self.language in ("console", "python")

    @property
    def is_loose(self) -> bool:
        """Whether it is Python that belongs to no file."""
        return self.language == "python" and self.file is None


def blocks(page: Path) -> Iterator[Block]:
    """Every code block of the page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Block(f"{page.name}:{line}", found["language"], found["text"], found["mark"] or "")


class Page:
    """Runs the blocks of one page in `folder`."""

    def __init__(self, path: Path, folder: Path, *, cuda: bool) -> None:
        self.folder = folder
        self.blocks = [block for block in blocks(path) if _is_run(block, cuda=cuda)]
        self._commands = _commands_in(folder)

    def run(self) -> None:
        """Run all; raises `AssertionError` at the first block that does otherwise than the page says."""
        done = False
        for block in self.blocks:
            if block.file is not None:
                self._write(block.file, block.text)
            elif block.is_loose and not done:
                done = True
                self._run_loose([one for one in self.blocks if one.is_loose])
            elif block.language == "console":
                self._run_console(block)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _run_loose(self, loose: list[Block]) -> None:
        given = json.dumps([[block.place, block.text] for block in loose])
        done = self._start([sys.executable, str(_DRIVER)], given)
        assert done.returncode == 0, f"{loose[0].place}: {done.stdout}"

    def _run_console(self, block: Block) -> None:
        for command, expected in _dialogue(block.text):
            done = self._start(["bash", "-o", "pipefail", "-c", command])
            assert (done.returncode != 0) == (block.mark == "fails"), f"{block.place}: $ {command}\n{done.stdout}"
            said = done.stdout.replace(f"{self.folder}/", "")
            assert _matches(expected, said), (
                f"{block.place}: $ {command}\nprinted\n{said}\nand the page has\n{expected}"
            )

    def _start(self, command: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=_environment(self._commands),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )


def run(path: Path, folder: Path, *, cuda: bool) -> None:
    """Run every block of the page at `path` in `folder`, those marked ``cuda`` only if `cuda`."""
    Page(path, folder, cuda=cuda).run()


def _is_run(block: Block, *, cuda: bool) -> bool:
    return not block.mark.startswith("not run: ") and (cuda or block.mark != "cuda")


def _commands_in(folder: Path) -> Path:
    """A folder of commands that run with this interpreter, whether or not it has them as scripts."""
    made = folder.parent / f"{folder.name}-commands"
    made.mkdir()
    for name, words in (("python", ""), ("pytest", "-m pytest -p no:cacheprovider"), ("cuassay", "-m cuassay")):
        script = made / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        script.chmod(0o755)
    return made


def _environment(commands: Path) -> dict[str, str]:
    """Ours, without what a session of pytest or of this project has set; a line is 110 columns, without colour."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUASSAY_", "PYTEST_XDIST"))}
    kept.pop("PYTEST_CURRENT_TEST", None)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "COLUMNS": "110", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _dialogue(text: str) -> Iterator[tuple[str, str]]:
    """Each command with the lines that follow it; a backslash at the end of a line joins the next to it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", " ").partition("\n")
        yield re.sub(r"\s+# .*", "", command), output


def _matches(expected: str, said: str) -> bool:
    """Whether `said` has what is `expected`: what machines measure may differ, and ``...`` matches anything."""
    parts = [" ".join(part.split()) for part in _plain(expected).split("...")]
    return re.search(".*?".join(map(re.escape, parts)), " ".join(_plain(said).split()), re.DOTALL) is not None


def _plain(text: str) -> str:
    """The text without rules, and with ``#`` for each number that another machine would measure differently."""
    lines = re.sub(r"[-=_]{3,}", " ", text).splitlines()
    return "\n".join(line if _VIRTUAL in line else _MEASURED.sub("#", line) for line in lines)
