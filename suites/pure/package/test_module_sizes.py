"""No module of ours has more than 400 lines: one that grows beyond is split by what its functions decide."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

MOST_LINES = 400

#: Modules that may be longer, each with its reason: only tables, whose rows are read one by one.
TABLES: dict[str, str] = {"cuassay/ops/catalog.py": "operations, of which each takes some seven lines"}


def too_long(root: Path) -> list[str]:
    """The modules below `root` that are longer, and their numbers of lines."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in sorted(root.rglob("*.py"))}
    return [f"{path.relative_to(root)}: {count}" for path, count in lines.items() if count > MOST_LINES]


@pytest.mark.parametrize("source_root", ["backend", "reports/cuassay_reports", "ci"])
def test_modules_stay_below_the_limit(source_root: str) -> None:
    assert [found for found in too_long(ROOT / source_root) if found.split(":")[0] not in TABLES] == []


def test_long_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("\n" * (MOST_LINES + 1))
    (tmp_path / "short.py").write_text("\n" * MOST_LINES)

    assert too_long(tmp_path) == [f"long.py: {MOST_LINES + 1}"]
