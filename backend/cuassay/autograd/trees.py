"""Arguments and results as trees: nested lists, tuples and dicts whose leaves are arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cuassay.ops import registry

__all__ = ["is_array", "leaves", "mapped"]


def is_array(value: Any) -> bool:
    """Return whether `value` is an array of a device kind or represents one."""
    return registry.backend_for(value) is not None


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves in order; those of a dict in insertion order."""
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, list | tuple):
        for branch in tree:
            yield from leaves(branch)
    else:
        yield tree


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of the same form with `change` applied to each leaf."""
    if isinstance(tree, dict):
        return {key: mapped(change, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):  # the constructor of a named tuple takes separate fields
        return type(tree)(*(mapped(change, branch) for branch in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(change, branch) for branch in tree)
    return change(tree)
