"""How arrays with any strides become a `Problem`: which can be read in place, and which must be copied first.

Only arithmetic.

Row-major ``D = A B`` is computed by the column-major library as ``D^T = B^T A^T``: a row-major matrix is its transpose
in column-major order, without a copy. If `d` itself is column-major, nothing is swapped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from cuassay.arrays.layout import has_internal_overlap
from cuassay.devices.cuda.blas.problem import Operand, Problem

__all__ = ["Placed", "Stack", "collapse", "merged", "place"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` matrices of (rows, columns), strides in elements: an array whose leading axes are collapsed into one."""

    count: int
    rows: int
    columns: int
    batch_stride: int
    row_stride: int
    column_stride: int
    dtype: str

    @property
    def transposed(self) -> Stack:
        """The same elements with rows and columns exchanged."""
        return Stack(
            self.count, self.columns, self.rows, self.batch_stride, self.column_stride, self.row_stride, self.dtype
        )

    def stored(self) -> tuple[bool, Operand] | None:
        """Return whether the columns (not the rows) are contiguous, and the matrix as the library reads it.

        None if it cannot.
        """
        if self.batch_stride < 0:
            return None
        for flipped, one in ((False, self), (True, self.transposed)):
            leading = one.leading()
            if leading is not None:
                return flipped, Operand(one.columns, one.rows, leading, self.batch_stride, self.dtype)
        return None

    def tall(self) -> Stack | None:
        """Return all matrices stacked into one tall matrix, or None if their rows do not have one common stride."""
        step = self.batch_stride if self.rows == 1 else self.row_stride
        if self.batch_stride != self.rows * step:
            return None
        return replace(self, count=1, rows=self.count * self.rows, batch_stride=0, row_stride=step)

    @property
    def extents_and_strides(self) -> tuple[Shape, Shape]:
        """The extents and strides as those of an array of three dimensions."""
        extents = self.count, self.rows, self.columns
        return extents, (self.batch_stride, self.row_stride, self.column_stride)

    def leading(self) -> int | None:
        """The stride between rows whose elements are contiguous, or None.

        The stride along an extent of 1 is ignored.
        """
        if self.columns > 1 and self.column_stride != 1:
            return None
        if self.rows > 1 and self.row_stride < self.columns:
            return None
        return max(self.row_stride if self.rows > 1 else 0, self.columns, 1)


def collapse(shape: Shape, strides: Sequence[int], itemsize: int, dtype: str, stack: Shape) -> Stack | None:
    """Return an array of (..., rows, columns), strides in bytes, broadcast over `stack`; None if that needs a copy."""
    if any(stride % itemsize for stride in strides):
        return None
    steps = [stride // itemsize for stride in strides]
    own = (0 if extent == 1 else step for extent, step in zip(shape[:-2], steps[:-2], strict=True))
    leading = [*(0 for _ in range(len(stack) + 2 - len(shape))), *own]
    axes = [(extent, step) for extent, step in zip(stack, leading, strict=True) if extent != 1]
    if any(outer != extent * inner for (_, outer), (extent, inner) in pairwise(axes)):
        return None
    rows, columns = shape[-2:]
    return Stack(math.prod(stack), rows, columns, axes[-1][1] if axes else 0, steps[-2], steps[-1], dtype)


@dataclass(frozen=True, slots=True)
class Placed:
    """A problem, and whether its `a` and `b` are the caller's `b` and `a`."""

    problem: Problem
    swapped: bool


def place(a: Stack, b: Stack, c: Stack | None, d: Stack, **more: Any) -> Placed | str:
    """Return the problem of ``d = a b (+ c)``, or the name of the array that must be copied first: a, b, c or d.

    Parameters
    ----------
    a, b, c, d : Stack
        (rows, inner), (inner, columns) and twice (rows, columns); `c` is None if beta is 0.
    **more
        Fields of `Problem`.
    """
    target = d.stored()
    if target is None or has_internal_overlap(*d.extents_and_strides, 1):
        return "d"
    if not target[0]:
        return _row_major(a, b, c, d, "abcd", more)
    if str(more.get("epilogue", "")).endswith("bias"):
        return "d"  # the library's bias runs along its columns, which are our rows
    return _row_major(b.transposed, a.transposed, c and c.transposed, d.transposed, "bacd", more)


def _row_major(a: Stack, b: Stack, c: Stack | None, d: Stack, names: str, more: dict[str, Any]) -> Placed | str:
    """Place a row-major `d`: the library's first operand is `b`, its second is `a`."""
    a, b, c, d = merged(a, b, c, d)
    found = {}
    for name, one in zip(names, (a, b, c or d, d), strict=True):
        stored = one.stored()
        if stored is None or (name in "cd" and stored[0]):
            return name
        found[name] = stored
    (a_flipped, right), (b_flipped, left), (_, third), (_, last) = found.values()
    return Placed(
        Problem(
            m=b.columns, n=a.rows, k=a.columns, batch=d.count, transpose_a=b_flipped, transpose_b=a_flipped,
            a=left, b=right, c=third, d=last, **more,
        ),
        names == "abcd",
    )  # fmt: skip


def merged(a: Stack, b: Stack, c: Stack | None, d: Stack) -> tuple[Stack, Stack, Stack | None, Stack]:
    """Return one tall product instead of many that share `b`, if the other arrays' rows have one common stride."""
    tall = [None if stack is None else stack.tall() for stack in (a, c, d)]
    if a.count == 1 or b.batch_stride or tall[0] is None or tall[2] is None or (c is not None and tall[1] is None):
        return a, b, c, d
    return tall[0], replace(b, count=1), tall[1], tall[2]
