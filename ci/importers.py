"""Print the test files that import one of the given modules: first those that import it by name, then its package.

ci/importers.py cuassay.memory.segment_store.py cuassay_reports.load.py
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["importers", "imports_of"]

SUITES = Path(__file__).parents[1] / "suites"

#: Folders without tests for mutants: they need a GPU, measure time, or start many processes.
PASSED_OVER = ("nvidia", "speed", "benchmarks", "examples", "data")


def imports_of(text: str) -> Iterator[str]:
    """Yield the dotted names that a file imports: modules, and names from them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(modules: Sequence[str], folder: Path = SUITES) -> list[str]:
    """Return the test files below `folder` that import one of `modules`, then those that import its package."""
    wanted = {module.removesuffix(".py").removesuffix(".__init__") for module in modules}
    packages = {module.rpartition(".")[0] for module in wanted if module.count(".") > 1}
    by_name, by_package = [], []
    for path in sorted(folder.rglob("test_*.py")):
        if path.relative_to(folder).parts[0] not in PASSED_OVER:
            imported = set(imports_of(path.read_text(encoding="utf-8")))
            if imported & wanted:
                by_name.append(path.relative_to(folder.parent).as_posix())
            elif imported & packages:
                by_package.append(path.relative_to(folder.parent).as_posix())
    return by_name + by_package


if __name__ == "__main__":
    print("\n".join(importers(sys.argv[1:])))
