"""Elementwise kernels from a text of C++, by ``torch.cuda.jiterator``'s names; the work is done in `cuassay.jit`.

Where we differ from torch: scalars are found by name and not by their order, what is wrong with a text is said with
line and column before anything is compiled, and the same function takes arrays of every kind of device.
"""

from __future__ import annotations

from cuassay.errors import ArgumentError
from cuassay.jit import Elementwise, elementwise

__all__ = ["_create_jit_fn", "_create_multi_output_jit_fn"]


def _create_jit_fn(code_string: str, **kwargs: float) -> Elementwise:
    """A function of up to eight arrays; see `cuassay.jit.elementwise` for parameters and errors."""
    return elementwise(code_string, **kwargs)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: float) -> Elementwise:
    """A function of up to eight arrays that writes `num_outputs` parameters declared as references, such as ``T& out``.

    Raises
    ------
    ArgumentError
        If the text writes another number; and as `cuassay.jit.elementwise`.
    """
    found = elementwise(code_string, **kwargs)
    if len(found.body.outputs) != num_outputs:
        raise ArgumentError(
            f"{found.body.entry.name} writes {len(found.body.outputs)} references; got num_outputs={num_outputs}; "
            "write void and one T& for each output"
        )
    return found
