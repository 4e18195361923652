"""The OpSpecs of this package's own operations, declared at the first call: each draws its samples then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuassay.testing.opspec import OpSpec

__all__ = ["own_specs"]


def own_specs() -> tuple[OpSpec, ...]:
    """The OpSpecs of this package's own operations."""
    from cuassay.testing.specs import SPECS

    return SPECS
