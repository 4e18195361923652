"""How one range is made of free and new pages; `page_space` makes the plan, and `page_store` carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from cuassay.memory.blocks import Block, run_of

__all__ = ["StitchPlan"]


@dataclass(slots=True)
class StitchPlan:
    """How a range is made.

    Attributes
    ----------
    pieces : list of Block
        Lent ranges with memory, in order.
    growth : Block or None
        A lent range without memory, where pages will be mapped.
    position : int
        The growth's position among the pieces.
    needed : int
        The bytes of the growth that the range takes.
    is_contiguous : bool
        Whether the whole range is contiguous in one arena, so that no view is needed.
    """

    pieces: list[Block]
    growth: Block | None = None
    position: int = 0
    needed: int = 0
    is_contiguous: bool = False

    def pages(self) -> list[int]:
        """Return the pages that the pieces touch, in order."""
        return [page for arena, low, high in map(run_of, self.pieces) for page in arena.touched_pages(low, high)]
