"""The public names, and those without a docstring or a place in the built reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import griffe

from cuassay import ops

__all__ = ["MODULES", "missing_from", "public", "shadowed", "undocumented"]

ROOT = Path(__file__).parents[2]

#: The modules whose ``__all__`` is public, each with its own reference page.
MODULES = (
    "cuassay",
    "cuassay.ops",
    "cuassay.jit",
    "cuassay.testing",
    "cuassay.autograd",
    "cuassay.amp",
    "cuassay.optim",
    "cuassay.linalg",
    "cuassay.random",
    "cuassay.memory",
    "cuassay.devices",
    "cuassay.cuda",
    "cuassay.cuda.tunable",
    "cuassay.cuda.nvtx",
    "cuassay.cuda.profiler",
    "cuassay.cuda.jiterator",
    "cuassay.cuda._sanitizer",
    "cuassay.cuda._gpu_trace",
    "cuassay.errors",
    "cuassay_reports.columns",
    "cuassay_reports.load",
    "cuassay_reports.compare",
    "cuassay_reports.history",
    "cuassay_reports.analysis",
)


def undocumented() -> list[str]:
    """Return one line for each public name without a docstring, with the file that defines it."""
    return [f"{name} has no docstring ({where})" for name, where in sorted(set(_bare()))]


def missing_from(site: Path) -> list[str]:
    """Return one line for each public name that no reference page describes."""
    anchors: set[str] = set()
    for page in (site / "reference").glob("*.html"):
        anchors |= set(re.findall(r'id="?([\w.]+)', page.read_text(encoding="utf-8")))
    wanted = (f"{module}.{name}" for module in MODULES for name in public(module))
    return [f"{name} is not on any page of the reference" for name in wanted if name not in anchors | set(MODULES)]


def shadowed(module: str) -> list[tuple[str, str]]:
    """Return public names that a module of the same name hides from a source parser, each with its full path."""
    return [
        (name, f"{module}.{name}.{name}")
        for name in public(module)
        if f"{module}.{name}" not in MODULES
        and _collection()[f"{module}.{name}"].is_module
        and name in _collection()[f"{module}.{name}"].members
    ]


def public(module: str) -> list[str]:
    """Return the names in ``__all__`` of a module."""
    return list(import_module(module).__all__)


def _bare() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        for name in public(module):
            whole = f"{module}.{name}"
            if whole in _ops():
                continue  # an op's description is a required argument of its declaration
            found = _collection()[whole]
            target = found.final_target if isinstance(found, griffe.Alias) else found
            yield from _bare_in(whole, target)


def _bare_in(name: str, found: griffe.Object) -> Iterator[tuple[str, str]]:
    if not found.has_docstring:
        yield name, f"{found.relative_filepath}:{found.lineno}"
    for member in found.members.values() if found.is_class else ():
        if member.is_function and not member.name.startswith("_") and not member.has_docstring:
            yield f"{name}.{member.name}", f"{found.relative_filepath}:{member.lineno}"


@cache
def _ops() -> set[str]:
    return {f"cuassay.ops.{name}" for name in ops.__all__ if isinstance(getattr(ops, name), ops.Op)}


@cache
def _collection() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(search_paths=[ROOT / "backend", ROOT / "reports"], docstring_parser="numpy")
    for package in ("cuassay", "cuassay_reports"):
        loader.load(package)
    loader.resolve_aliases()
    return loader.modules_collection
