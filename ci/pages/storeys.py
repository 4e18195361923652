"""The storeys of the package as a picture, drawn from the contract in pyproject.toml and from the imports."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from html import escape
from pathlib import Path

__all__ = ["fill"]

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "backend" / "cuassay"

_WIDTH, _HEIGHT, _GAP = 960, 46, 20


def fill(text: str) -> str:
    """Return the page with its comments replaced by the picture and by the table of imports."""
    storeys = _storeys()
    return text.replace("<!-- picture: storeys -->", _picture(storeys)).replace(
        "<!-- table: rooms -->", _rooms(storeys)
    )


def _storeys() -> list[list[str]]:
    """Return the existing rooms of each storey, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    split = ([re.sub(r"[()\s]|cuassay\.", "", room) for room in re.split(r"[|:]", layer)] for layer in layers)
    return [[room for room in rooms if _path(room) is not None] for rooms in split]


def _path(room: str) -> Path | None:
    path = PACKAGE.joinpath(*room.split("."))
    return path if path.is_dir() else path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


def _picture(storeys: list[list[str]]) -> str:
    """Draw one row of boxes per storey, the top storey first; each may import those in the rows below."""
    height = len(storeys) * (_HEIGHT + _GAP)
    shapes = "".join(_row(rooms, number * (_HEIGHT + _GAP)) for number, rooms in enumerate(storeys))
    return (
        f'<svg class="diagram" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="The storeys of the package, from the top">{shapes}</svg>'
    )


def _row(rooms: list[str], top: int) -> str:
    width = (_WIDTH - 2) / len(rooms)
    return "".join(_box(room, 1 + place * width, top + 1, width - 8) for place, room in enumerate(rooms))


def _box(room: str, left: float, top: int, width: float) -> str:
    return (
        f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{_HEIGHT}" rx="6" fill="none" '
        'stroke="currentColor"/>'
        f'<text x="{left + width / 2:.0f}" y="{top + _HEIGHT / 2 + 5:.0f}" text-anchor="middle" font-size="18" '
        f'fill="currentColor">{escape(room)}</text>'
    )


def _rooms(storeys: list[list[str]]) -> str:
    rooms = [room for storey in storeys for room in storey]
    lines = ["| room | modules | imports |", "|---|---|---|"]
    for room in rooms:
        files = _files(room)
        used = Counter(found for file in files for found in _imported(file, rooms) if found != room)
        below = ", ".join(f"`{name}` ({count})" for name, count in used.most_common())
        lines.append(f"| `{room}` | {len(files)} | {below} |")
    return "\n".join(lines) + "\n"


def _files(room: str) -> list[Path]:
    path = _path(room)
    assert path is not None  # noqa: S101  _storeys() checked it
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _imported(file: Path, rooms: list[str]) -> list[str]:
    """Return the rooms that the import statements of a file name."""
    text = file.read_text(encoding="utf-8")
    names = re.findall(r"^\s*(?:from cuassay\.([\w.]+) import|import cuassay\.([\w.]+))", text, re.MULTILINE)
    plain = re.findall(r"^\s*from cuassay import ([\w, ]+)", text, re.MULTILINE)
    found = [first or second for first, second in names] + [name.strip() for line in plain for name in line.split(",")]
    return [room for name in found for room in rooms if name == room or name.startswith(f"{room}.")]
