"""The OpSpecs of this package's ops. They are made in the first call, because each draws samples when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuassay.testing.opspec import OpSpec

__all__ = ["own_specs"]


def own_specs() -> tuple[OpSpec, ...]:
    """The OpSpecs of this package's ops."""
    from cuassay.testing.specs import SPECS

    return SPECS
