"""Elementwise kernels from C++ source text, under ``torch.cuda.jiterator``'s names; `cuassay.jit` implements them.

Differences from torch: scalars are matched by name and not by order; errors in the source are reported with line and
column before anything is compiled; and the same function takes arrays of every device kind.
"""

from __future__ import annotations

from cuassay.errors import ArgumentError
from cuassay.jit import Elementwise, elementwise

__all__ = ["_create_jit_fn", "_create_multi_output_jit_fn"]


def _create_jit_fn(code_string: str, **kwargs: float) -> Elementwise:
    """Return a function of up to eight arrays; see `cuassay.jit.elementwise` for parameters and errors."""
    return elementwise(code_string, **kwargs)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: float) -> Elementwise:
    """Return a function of up to eight arrays that writes `num_outputs` reference parameters, such as ``T& out``.

    Raises
    ------
    ArgumentError
        If the source writes another number of outputs; other errors as in `cuassay.jit.elementwise`.
    """
    found = elementwise(code_string, **kwargs)
    if len(found.body.outputs) != num_outputs:
        raise ArgumentError(
            f"{found.body.entry.name} writes {len(found.body.outputs)} references; got num_outputs={num_outputs}; "
            "write void and one T& for each output"
        )
    return found
