"""No module imports another that imports it back, not even inside a function.

Read from the source: all imports except those for type checkers only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def modules(source_root: Path) -> dict[str, Path]:
    """The name and the file of each module under a source root."""
    names = {}
    for path in source_root.rglob("*.py"):
        parts = path.relative_to(source_root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(tree: ast.AST) -> Iterator[str]:
    """What a module names in imports that run at any time; a name of a package may be a module of it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from (name for branch in node.orelse for name in imported(branch))
        else:
            yield from imported(node)


def edges(names: dict[str, Path]) -> dict[str, set[str]]:
    """Module to the modules of ours that it imports."""
    found = {}
    for name, path in names.items():
        wanted = imported(ast.parse(path.read_text(encoding="utf-8")))
        ours = {one if one in names else one.rpartition(".")[0] for one in wanted}
        found[name] = {one for one in ours if one in names} - {name}
    return found


@pytest.mark.parametrize("source_root", ["backend", "reports"])
def test_modules_import_one_another_one_way(source_root: str) -> None:
    graph = edges(modules(ROOT / source_root))

    assert sum(map(len, graph.values())) > 50
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import one another in a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(
    "back",
    [
        pytest.param("try:\n    import a\nexcept ImportError:\n    pass\n", id="at-import"),
        pytest.param("def late():\n    import a\n", id="in-a-function"),
        pytest.param("class Thing:\n    def late(self):\n        from a import other\n", id="in-a-method"),
    ],
)
def test_a_circle_is_found(tmp_path: Path, back: str) -> None:
    (tmp_path / "a.py").write_text("from b import thing\n")
    (tmp_path / "b.py").write_text(back)

    with pytest.raises(CycleError):
        TopologicalSorter(edges(modules(tmp_path))).prepare()


def test_an_import_for_types_does_not_make_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import thing\n")
    (tmp_path / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n")

    TopologicalSorter(edges(modules(tmp_path))).prepare()
