"""Tags in both ends of every block of the arena, which reveal blocks that share memory by mistake."""

from __future__ import annotations

from typing import cast

from cuassay.devices.sim.memory_source import SimSource
from cuassay.memory import Block

__all__ = ["SimTagger"]

_WORDS = 2


class SimTagger:
    """Writes and checks tags for `cuassay.memory.trace.replay`; every call is synchronous."""

    def write(self, block: Block, tag: int) -> None:
        """Write `tag` to both ends of `block`."""
        for address in _ends(block):
            _source(block).write(address, tag.to_bytes(8, "little") * _WORDS)

    def check(self, block: Block, tag: int) -> None:
        """Raise `AssertionError` unless both ends hold `tag`."""
        for address in _ends(block):
            found = _source(block).read(address, 8 * _WORDS)
            if found != tag.to_bytes(8, "little") * _WORDS:
                raise AssertionError(
                    f"{block!r} should hold tag {tag} at {address:#x} and holds {found.hex()}: two blocks share memory"
                )

    def finish(self) -> None:
        """Do nothing: there is nothing to wait for."""


def _ends(block: Block) -> tuple[int, int]:
    return block.address, block.address + block.nbytes - 8 * _WORDS


def _source(block: Block) -> SimSource:
    return cast("SimSource", block.stream_pool.pool.source)
