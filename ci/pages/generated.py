"""The pages that are made from the code and from data, by their path."""

from __future__ import annotations

from pages import operations, tables
from pages.names import MODULES, shadowed

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """The text of each generated page, by its path in the site."""
    reference = {f"reference/{module}.md": _reference(module) for module in MODULES}
    return {**reference, "reference/cuassay.ops.md": operations.page(), **tables.pages()}


def _reference(module: str) -> str:
    described = f"# {module}\n\n::: {module}\n    options:\n      show_root_heading: false\n"
    return described + "".join(_shadowed(module, name, path) for name, path in shadowed(module))


def _shadowed(module: str, name: str, path: str) -> str:
    return f"\n## {name} {{ #{module}.{name} }}\n\n::: {path}\n    options:\n      show_root_heading: false\n"
