"""How one range is made out of free pages and new ones; `page_space` decides, `page_store` does it."""

from __future__ import annotations

from dataclasses import dataclass

from cuassay.memory.blocks import Block, split
from cuassay.memory.page_segments import run_of

__all__ = ["StitchPlan"]


@dataclass(slots=True)
class StitchPlan:
    """How a range is made.

    Attributes
    ----------
    pieces : list of Block
        Lent ranges with memory, in order.
    growth : Block or None
        A lent range without memory, to be given pages.
    position : int
        Where among the pieces the growth comes.
    needed : int
        Bytes of the growth that the range takes.
    is_contiguous : bool
        Whether all lies side by side at home: no alias is needed.
    """

    pieces: list[Block]
    growth: Block | None = None
    position: int = 0
    needed: int = 0
    is_contiguous: bool = False

    @property
    def missing(self) -> int:
        """Bytes to be taken from the device."""
        return 0 if self.growth is None else self.growth.nbytes

    def pages(self) -> list[int]:
        """The pages that the pieces touch, in order."""
        return [page for arena, low, high in map(run_of, self.pieces) for page in arena.touched_pages(low, high)]

    def settle(self) -> Block | None:
        """The growth has its pages now, and is a piece like the others; gives what is not needed, to be set free."""
        growth, rest = self.growth, None
        if growth is not None:
            run_of(growth)[0].mapped += self.missing
            if self.needed < growth.nbytes:
                rest = split(growth, self.needed)
            self.pieces.insert(self.position, growth)
            self.growth = None
        return rest
