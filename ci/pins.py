"""Print ci/constraints.txt with some of its pins replaced.

Pins on the command line replace pins of the same name in the file.

    ci/pins.py "pytest==9.2.*" "numpy==2.1.*"
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["constraints", "name_of", "replaced"]

CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def main(pins: list[str]) -> None:
    print(*replaced(constraints(), pins), sep="\n")


def constraints() -> list[str]:
    """Return the pins of the file, without comments."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text().splitlines())
    return [line for line in lines if line]


def replaced(base: Iterable[str], pins: Iterable[str]) -> list[str]:
    """Return `base` without the names in `pins`, followed by `pins`."""
    pins = list(pins)
    names = {name_of(pin) for pin in pins}
    return [line for line in base if name_of(line) not in names] + pins


def name_of(requirement: str) -> str:
    """Return the normalised name at the beginning of a requirement."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    if match is None:
        raise SystemExit(f"{requirement!r} is not a requirement; write NAME==VERSION")
    return re.sub(r"[-_.]+", "-", match[0]).lower()


if __name__ == "__main__":
    main(sys.argv[1:])
