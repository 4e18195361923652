"""Products of misaligned operands: copy them so that columns begin at multiples of 16 bytes, multiply, and copy back.

The library's fast kernels read and write with the tensor memory accelerator, which requires addresses and column
strides that are multiples of 16 bytes. Otherwise the library uses older kernels: on an H200, 1500 x 5124 x 2560 in
bfloat16 runs at 206 TFLOP/s instead of 780. The copies take a few per cent of the time of such a product if all its
extents are large.

The extents m and n are rounded up with the strides: the library also chooses by the extents, and for padded copies with
the original extents it would choose the same kernels as without padding. Elements of the output beyond the original
extents depend on whatever the padding holds, and nobody reads them. The product above takes 80 µs instead of 168 this
way; 7133 x 1760 x 1760 with a transposed left operand takes 91 µs instead of 325.

The kernel is kernels/pitched.cu. `blas.providers` calls this module, and a tuner decides where it wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas import controls, cublaslt
from cuassay.devices.cuda.blas.cublaslt import Algorithm
from cuassay.devices.cuda.blas.libraries import algorithm_of
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.blas.providers import Candidate, register
from cuassay.devices.cuda.driver.libraries import why_no_cublaslt
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import hook
from cuassay.errors import CapabilityError

__all__ = ["PADDED", "PaddedPlan", "may_round", "padded", "why_not"]

#: The alignment in bytes that the tensor memory accelerator requires of addresses and strides.
_ALIGNMENT = 16

#: Copies begin at multiples of this many bytes in the workspace.
_APART = 256

#: The number of the library's algorithms for the padded problem that become candidates.
_MOST = 4

_THREADS = 256  # of pitched.cu
_WORDS = {16: "int4", 8: "long long", 4: "int", 2: "short"}


def why_not(problem: Problem) -> str | None:
    """Return why there is nothing to pad, or None."""
    if problem.batch != 1 or problem.beta or problem.scaling != "none":
        return "stacks, what is added to and scaled operands are not copied"
    if not _misaligned(problem):
        return "its operands are aligned"
    return None


def _misaligned(problem: Problem) -> frozenset[str]:
    """Return which of a, b and d must be copied: all of them if an address is misaligned."""
    names = ("a", "b", "d")
    if problem.alignment < _ALIGNMENT:
        return frozenset(names)
    return frozenset(name for name in names if _distance(getattr(problem, name)) % _ALIGNMENT)


def _distance(operand: Operand) -> int:
    """Return the stride between two columns in bytes; 0 for a single column, whose stride does not matter."""
    return operand.leading * as_dtype(operand.dtype).itemsize if operand.columns > 1 else 0


def padded(problem: Problem, *, rounded: bool = False) -> Problem:
    """Return the same product of aligned operands; with `rounded`, the one with the extents of `_rounded`."""
    m, n = _rounded(problem) if rounded else (problem.m, problem.n)
    copied = _copied(problem, rounded=rounded)
    a = replace(problem.a, columns=m) if problem.transpose_a else replace(problem.a, rows=m)
    b = replace(problem.b, rows=n) if problem.transpose_b else replace(problem.b, columns=n)
    d = replace(problem.d, rows=m, columns=n)
    a, b, d = (_padded(one) if name in copied else one for name, one in zip("abd", (a, b, d), strict=True))
    return replace(problem, m=m, n=n, a=a, b=b, c=d, d=d, alignment=max(problem.alignment, _ALIGNMENT))


def may_round(problem: Problem) -> bool:
    """Whether a contiguous extent is not a multiple of what kernels read at once; a bias prevents rounding."""
    return _rounded(problem) != (problem.m, problem.n) and "bias" not in problem.epilogue


def _rounded(problem: Problem) -> tuple[int, int]:
    """Return the extents m and n, rounded up to 16 bytes if an operand that is contiguous along them is misaligned."""
    misaligned = _misaligned(problem)
    step = _ALIGNMENT // as_dtype(problem.a.dtype).itemsize
    along_m = "d" in misaligned or ("a" in misaligned and not problem.transpose_a)
    along_n = "b" in misaligned and problem.transpose_b
    return _up(problem.m, step) if along_m else problem.m, _up(problem.n, step) if along_n else problem.n


def _copied(problem: Problem, *, rounded: bool) -> frozenset[str]:
    """Return the operands to copy: those that are misaligned or have more rows or columns in the copy."""
    found = _misaligned(problem)
    if rounded:
        m, n = _rounded(problem)
        found |= {"a", "d"} if m != problem.m else set()
        found |= {"b", "d"} if n != problem.n else set()
    return found


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _padded(operand: Operand) -> Operand:
    elements = _ALIGNMENT // as_dtype(operand.dtype).itemsize
    return replace(operand, leading=_up(operand.rows, elements))


@dataclass(frozen=True, slots=True)
class _Copy:
    """The copy of one operand between its own address and its place in the workspace."""

    operand: Operand
    padded: Operand
    offset: int
    word: int

    @property
    def nbytes(self) -> int:
        """The size of the copy in the workspace."""
        return self.padded.columns * self.padded.leading * as_dtype(self.padded.dtype).itemsize

    def run(self, at: int, workspace: int, *, back: bool = False) -> None:
        """Copy to the workspace, or back, in order of the current stream."""
        itemsize = as_dtype(self.operand.dtype).itemsize
        outside = at, self.operand.leading * itemsize // self.word
        inside = workspace + self.offset, self.padded.leading * itemsize // self.word
        arguments = *(inside if back else outside), *(outside if back else inside)
        words = self.operand.rows * itemsize // self.word
        copy = kernel("pitched.cu", f"copy_columns<{_WORDS[self.word]}>")
        copy((self.operand.columns,), _THREADS, (*arguments, words))


def _copies(problem: Problem, inner: Problem, *, rounded: bool) -> tuple[dict[str, _Copy], int]:
    """Return the copies for `inner`, and the bytes they take in the workspace."""
    found, size = {}, 0
    for name in sorted(_copied(problem, rounded=rounded)):
        operand = getattr(problem, name)
        row = operand.rows * as_dtype(operand.dtype).itemsize
        word = math.gcd(_ALIGNMENT, row, _distance(operand), problem.alignment)
        found[name] = _Copy(operand, getattr(inner, name), size, word)
        size += _up(found[name].nbytes, _APART)
    return found, size


class PaddedPlan(Handle):
    """A problem computed on padded copies, ready to be called by this thread on the current device.

    Parameters
    ----------
    problem : Problem
        The problem to compute; see `why_not`.
    algorithm : Algorithm
        The library's algorithm for the `padded` problem.
    device : int
        The index of the current device.
    rounded : bool
        See `padded`.
    """

    library = "cuBLASLt on padded copies"

    def __init__(self, problem: Problem, algorithm: Algorithm, device: int, *, rounded: bool = False) -> None:
        self.problem, self.algorithm = problem, algorithm
        inner = padded(problem, rounded=rounded)
        self._inner = cublaslt.CublasLtPlan(inner, algorithm, device)
        self._copies, self._nbytes = _copies(problem, inner, rounded=rounded)
        self.workspace_nbytes = self._nbytes + self._inner.workspace_nbytes
        self.point = self._inner.point

    def __repr__(self) -> str:
        return f"PaddedPlan({self.problem}; {self.library}, {self.algorithm})"

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; see `cublaslt.CublasLtPlan.run`."""
        memory = None if workspace else hook.allocate(self.workspace_nbytes)
        at = workspace if memory is None else memory.ptr
        given = {"a": a, "b": b, "d": d}
        for name, copied in self._copies.items():
            if name != "d":
                copied.run(given[name], at)
        placed = {name: at + self._copies[name].offset if name in self._copies else given[name] for name in given}
        last = at + self._nbytes if self._inner.workspace_nbytes else 0
        self._inner.run(placed["a"], placed["b"], placed["d"], placed["d"], workspace=last)
        if "d" in self._copies:
            self._copies["d"].run(d, at, back=True)


class _Padded:
    name = "padded"

    def version(self) -> str:
        return f"2, cublaslt {cublaslt.version()}"

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        if why_not(problem) is not None:
            return ()
        rounded = may_round(problem)
        inner = padded(problem, rounded=rounded)
        left = controls.most_copied_nbytes(device) - _copies(problem, inner, rounded=rounded)[1]
        if left < 0:
            return ()
        limit = min(left, controls.workspace_nbytes(device))
        return tuple(
            Candidate.of("padded", algorithm=one.data.hex(), workspace=one.workspace_nbytes, rounded=rounded)
            for one in cublaslt.candidates(inner, device, count=_MOST, workspace_nbytes=limit)
        )

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> PaddedPlan:
        reason = why_not(problem)
        if reason is None and candidate["rounded"] and not may_round(problem):
            reason = "no extent of it can be rounded up"
        if reason is not None:
            raise CapabilityError(f"{problem} is not computed on padded copies: {reason}; tune again")
        found = PaddedPlan(problem, algorithm_of(candidate), device, rounded=candidate["rounded"])
        if found.workspace_nbytes > (most := controls.most_copied_nbytes(device)):
            raise CapabilityError(
                f"copies of the operands of {problem} and its workspace take {found.workspace_nbytes:,} bytes, of "
                f"{most:,} allowed on cuda:{device}; tune again, or allow more"
            )
        return found


PADDED = _Padded()
if why_no_cublaslt() is None:
    register(PADDED)
