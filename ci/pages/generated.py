"""The pages that are generated from code and data, by their path."""

from __future__ import annotations

from pathlib import Path

from pages import calls, drawings, operations, performance, storeys, tables, torch_names
from pages.names import MODULES, public, shadowed

__all__ = ["pages"]

DOCS = Path(__file__).parents[2] / "reports" / "docs"

#: Written pages with pictures or tables that are generated from code and data.
_FILLED = {
    "performance.md": performance.fill,
    "explanation/architecture.md": lambda text: calls.fill(storeys.fill(text)),
    "explanation/allocator.md": drawings.fill_allocator,
    "explanation/sim-clock.md": drawings.fill_clock,
}


def pages() -> dict[str, str]:
    """Return the text of each generated page, by its path in the site."""
    reference = {f"reference/{module}.md": _reference(module) for module in MODULES}
    made = {**reference, "reference/cuassay.ops.md": operations.page(), **tables.pages()}
    made["reference/torch.md"] = torch_names.page()
    for path, fill in _FILLED.items():
        made[path] = fill((DOCS / path).read_text(encoding="utf-8"))
    return made


def _reference(module: str) -> str:
    described = f"# {module}\n\n::: {module}\n    options:\n      show_root_heading: false\n"
    names = public(module)
    if any(name.startswith("_") for name in names):  # torch's names: private ones are left out unless they are listed
        described += f"      members: [{', '.join(names)}]\n"
    return described + "".join(_shadowed(module, name, path) for name, path in shadowed(module))


def _shadowed(module: str, name: str, path: str) -> str:
    return f"\n## {name} {{ #{module}.{name} }}\n\n::: {path}\n    options:\n      show_root_heading: false\n"
