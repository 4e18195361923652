"""Every segment and block as plain data, in the schema of ``torch.cuda.memory._snapshot``."""

from __future__ import annotations

from typing import Any

from cuassay.memory.blocks import Block, Segment

__all__ = ["describe_block", "describe_segment"]


def describe_segment(segment: Segment) -> dict[str, Any]:
    """One entry of ``segments``: its figures, and its blocks by address."""
    blocks = list(segment)
    live = [block for block in blocks if block.is_live]
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.nbytes,
        "allocated_size": sum(block.nbytes for block in live),
        "active_size": sum(block.nbytes for block in blocks if block.state != "inactive"),
        "requested_size": sum(block.requested for block in live),
        "stream": segment.lane.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": segment.lane.pool.id,
        "is_expandable": False,
        "frames": [],
        "blocks": [describe_block(block) for block in blocks],
    }


def describe_block(block: Block) -> dict[str, Any]:
    """One entry of a segment's ``blocks``."""
    return {
        "address": block.address,
        "size": block.nbytes,
        "requested_size": 0 if block.state == "inactive" else block.requested,
        "state": block.state,
        "frames": [],
    }
