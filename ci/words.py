"""Find phrases that are hard to read, in every tracked text file.

The phrases are in `ci/words.txt`, each with its replacement.

    ci/words.py [FILE...]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["found", "phrases"]

ROOT = Path(__file__).parent.parent
SUFFIXES = (".md", ".py", ".pyi", ".sh", ".toml", ".yml", ".j2", ".cu", ".cuh")

#: The list itself, its test, the page that shows phrases before and after, and generated files.
LEFT_OUT = (
    "ci/words",
    "suites/harness/ci/test_ci.py",
    "reports/docs/contributing/writing.md",
    "reports/ledger/",
    "suites/data/",
)


def main(files: list[str]) -> None:
    chosen = [Path(file) for file in files] or tracked()
    lines = [line for file in chosen for line in found(file)]
    if lines:
        print(*lines, sep="\n")
        raise SystemExit(f"{len(lines)} phrases to write in plain English; ci/words.txt says how")


def tracked() -> list[Path]:
    """Return the text files that git tracks."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name.endswith(SUFFIXES) and not name.startswith(LEFT_OUT)]
    return [ROOT / name for name in names]


def phrases() -> list[tuple[re.Pattern[str], str]]:
    """Return each phrase with its replacement."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.rsplit(" => ", 1) for line in lines if line and not line.startswith("#"))
    return [(re.compile(phrase), instead) for phrase, instead in pairs]


def found(file: Path) -> Iterator[str]:
    """Yield one line for each place in `file` that has a phrase."""
    known = phrases()
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        for phrase, instead in known:
            for match in phrase.finditer(line):
                yield f"{file}:{number}: {match[0].strip()!r}: write {instead!r}"


if __name__ == "__main__":
    main(sys.argv[1:])
