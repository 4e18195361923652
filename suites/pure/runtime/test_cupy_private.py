"""CuPy's private names are used in one file, which gives each its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CUDA = Path(__file__).parents[3] / "backend/cuassay/devices/cuda"
FILE = CUDA / "driver/cupy_private.py"
PACKAGES = ("cupy", "cupyx", "cupy_backends")


def table() -> dict[str, str]:
    """`PRIVATE` of that file, read without CuPy."""
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    (found,) = (
        one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "PRIVATE"
    )
    return dict(ast.literal_eval(found))


def is_private(dotted: str) -> bool:
    package, *parts = dotted.split(".")
    return package in PACKAGES and (package == "cupy_backends" or any(part.startswith("_") for part in parts))


def private_names(source: str) -> Iterator[str]:
    """What `source` uses of CuPy's private names: by import, by a dotted name, of an object, or by a string."""
    attributes = {part for name in table() for part in name.split(".") if part.startswith("_")} - {"__new__"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.ImportFrom):
            yield from (name for alias in node.names if is_private(name := f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if is_private(dotted) or (node.attr in attributes and ast.unparse(node.value) not in ("self", "cls")):
                yield dotted
        elif isinstance(node, ast.Constant) and node.value in attributes:
            yield str(node.value)


def test_one_file_uses_them() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in CUDA.parents[1].rglob("*.py") if path != FILE}
    found = {path.relative_to(CUDA.parents[1]).as_posix(): [*private_names(source)] for path, source in sources.items()}

    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "array._c_contiguous",
        "attrgetter('dtype', '_f_contiguous')",
        "memory._owner",
        "cupy.cuda._anything",
        "from cupy._core import core",
        "from cupy import _core",
        "import cupyx._runtime",
        "from cupy_backends.cuda.libs import cublas",
    ],
)
def test_each_way_to_use_one_is_seen(source: str) -> None:
    assert [*private_names(source)]


def test_no_other_private_attribute_of_a_foreign_object_is_read() -> None:
    allowed = {"memory/allocator.py: return bool(self.heap.lock._is_owned())"}  # threading's
    lines = {
        f"{path.relative_to(CUDA).as_posix()}: {line.partition('#')[0].strip()}"
        for path in CUDA.rglob("*.py")
        if path != FILE
        for line in path.read_text(encoding="utf-8").splitlines()
        if "SLF001" in line
    }

    assert lines == allowed
