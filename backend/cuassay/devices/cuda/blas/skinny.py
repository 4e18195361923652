"""Products of a tall matrix by few columns, by kernels of our own: the weights of a layer by a small batch of tokens.

In the words of `Problem`: `a` has m *rows*, `b` has n <= 128 columns, the *tokens*; k is the *depth*. Such a product
takes as long as reading `a` does. Where that is some tens of microseconds the libraries are near it; below, they lose a
third to half: to idle multiprocessors, to the time between two kernels. Here tiles have as few rows as fill the GPU,
terms are shared among blocks and added in a fixed order, and a launch begins early.

Kernels: kernels/skinny_narrow.cu and skinny_wide.cu. Called by `blas.providers`; a tuner decides where they win.
"""

from __future__ import annotations

import ctypes
import secrets
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import cupy

from cuassay.arrays.dtypes import HALVES
from cuassay.core import settings
from cuassay.core.handle import Handle
from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.blas.providers import Candidate, register
from cuassay.devices.cuda.block import STREAM_WORD, first_argument_word
from cuassay.devices.cuda.check import check, error_of
from cuassay.devices.cuda.launch import Launch, kernel
from cuassay.devices.cuda.memory import hook
from cuassay.errors import CapabilityError
from cuassay.tune.space import distinct

__all__ = ["SKINNY", "Plan", "Tiling", "why_not"]

#: Raised with every change of the kernels, or of what is offered: results of another version are not used.
_VERSION = "1"

#: Most blocks of a cluster on every device of compute capability 9.0.
_MOST_SPLITS = 8

#: Elements in a line of shared memory; `kPanel` of the kernels.
_PANEL = 64

#: Words of a tensor map.
_MAP_WORDS = 16

#: Shared memory that a block takes beside its own: the system's, and where the wide kernel has its barriers.
_SYSTEM_NBYTES, _BARRIERS_NBYTES = 1024, 1024

_ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a product is cut, and by which kernel.

    Attributes
    ----------
    kernel : str
        ``narrow``: warps of 16 or 32 rows; ``wide``: warpgroups of 64.
    rows, warps : int
        Rows of a warp (a warpgroup), and how many of these are side by side in a tile.
    depth, stages : int
        Terms of a stage, and stages of a block.
    splits : int
        Blocks that share the terms of a tile as a cluster; of the wide kernel 1, as it shares them otherwise.
    blocks : int
        Of the launch. A narrow cluster walks over tiles; wide ones have equal numbers of steps.
    """

    kernel: str
    rows: int
    warps: int
    depth: int
    stages: int
    splits: int = 1
    blocks: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kernel}, {self.warps} x {self.rows} rows, {self.stages} stages of {self.depth}, "
            f"{self.blocks} blocks, split by {self.splits}"
        )

    @property
    def is_wide(self) -> bool:
        """Whether warpgroups multiply."""
        return self.kernel == "wide"

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return self.rows * self.warps

    @property
    def slices(self) -> int:
        """Panels of a stage; in the narrow kernel each has warps of its own."""
        return self.depth // _PANEL

    @property
    def threads(self) -> int:
        """Of a block; the last warp of a wide one asks for the copies."""
        return 128 * self.warps + 32 if self.is_wide else 32 * self.warps * self.slices

    def tiles(self, problem: Problem) -> int:
        """Of all rows."""
        return -(-problem.m // self.tile_rows)

    def steps(self, problem: Problem) -> int:
        """Stages that the terms of a tile take."""
        return -(-problem.k // self.depth)

    def shared_nbytes(self, tokens: int) -> int:
        """Dynamic shared memory of a block: its stages, then the sums, of a narrow one those of each slice."""
        sums = tokens * (self.tile_rows + 4) * (1 if self.is_wide else self.slices)
        return 2 * self.stages * (self.tile_rows + tokens) * self.depth + 4 * sums

    def workspace_nbytes(self, problem: Problem) -> int:
        """A flag and a tile's sums for each block, where a tile is shared."""
        if not self.is_wide or self.tiles(problem) % self.blocks == 0:
            return 0
        return self.blocks * (8 + 4 * self.tile_rows * _padded(problem.n))


def _narrow(rows: int, warps: int, depth: int, stages: int) -> Tiling:
    return Tiling(kernel="narrow", rows=rows, warps=warps, depth=depth, stages=stages)


def _wide(warps: int, depth: int, stages: int) -> Tiling:
    return Tiling(kernel="wide", rows=64, warps=warps, depth=depth, stages=stages)


#: By tokens, rounded up: what is offered, the likeliest first. Stages fill the shared memory of a multiprocessor with
#: one block, or with two.
_TILINGS: dict[int, tuple[Tiling, ...]] = {
    8: (_narrow(16, 1, 512, 4), _narrow(32, 1, 512, 3), _narrow(16, 1, 256, 6), _wide(1, 128, 6), _wide(2, 64, 12)),
    16: (_narrow(16, 1, 512, 4), _narrow(32, 1, 512, 3), _narrow(16, 1, 256, 6), _wide(1, 128, 10), _wide(2, 64, 11)),
    32: (_narrow(32, 1, 256, 4), _wide(1, 128, 4), _wide(1, 128, 9), _wide(2, 64, 10), _wide(3, 64, 7)),
    64: (_wide(1, 128, 6), _wide(1, 64, 5), _wide(2, 64, 8), _wide(3, 64, 5), _wide(2, 64, 3)),
    128: (_wide(1, 64, 7), _wide(1, 64, 3), _wide(2, 64, 4), _wide(3, 64, 3)),
}

#: Where the rows of a term lie together a narrow tile has a multiple of 64 rows.
_TURNED: dict[int, tuple[Tiling, ...]] = {
    tokens: (
        *((_narrow(16, 4, 128, 6),) if tokens <= 16 else ()),
        *(one for one in tilings if one.is_wide),
    )
    for tokens, tilings in _TILINGS.items()
}


def _padded(tokens: int) -> int:
    return next(padded for padded in _TILINGS if tokens <= padded)


def _offered(problem: Problem) -> tuple[Tiling, ...]:
    return (_TILINGS if problem.transpose_a else _TURNED)[_padded(problem.n)]


# ------------------------------------------------------------------------------------------------ what is offered


def why_not(device: int) -> str | None:
    """Why `device` cannot run the kernels, or None."""
    capability = runtime.get_device_capability(device)
    if capability != (9, 0):
        return f"cuda:{device} has compute capability {capability[0]}.{capability[1]}; they are for 9.0"
    return None


def _refusal(problem: Problem) -> str | None:
    """Why the kernels cannot compute `problem`, or None."""
    p = problem
    contiguous = p.k if p.transpose_a else p.m
    refusals = {
        f"{p.n} columns, of at most 128": not 1 <= p.n <= max(_TILINGS),
        f"{p.batch} of them": p.batch != 1,
        "nothing to add": not (p.m and p.k),
        f"operands of {p.a.dtype} and {p.b.dtype}": p.a.dtype != p.b.dtype or p.a.dtype not in HALVES,
        f"results of {p.d.dtype}": p.d.dtype not in (p.a.dtype, "float32") or p.c.dtype != p.d.dtype,
        f"sums in {p.compute}": p.compute != "32F",
        "b transposed": p.transpose_b,
        f"scales by {p.scaling}": p.scaling != "none",
        f"complex factors, {p.alpha} and {p.beta}": bool(complex(p.alpha).imag or complex(p.beta).imag),
        f"addresses aligned to {p.alignment} bytes, and lines of {p.a.leading} and {p.b.leading} elements": (
            p.alignment < 16 or any(extent % 8 for extent in (p.a.leading, p.b.leading, contiguous, p.k))
        ),
    }
    return next((reason for reason, holds in refusals.items() if holds), None)


def _cuts(problem: Problem, device: int) -> Iterator[Tiling]:
    """What is offered, with numbers of blocks."""
    for tiling in _offered(problem):
        yield from _with_blocks(problem, tiling, device)


def _with_blocks(problem: Problem, tiling: Tiling, device: int) -> Iterator[Tiling]:
    """`tiling` with numbers of blocks that leave few multiprocessors idle."""
    properties = runtime.get_device_properties(device)
    own = tiling.shared_nbytes(_padded(problem.n)) + _SYSTEM_NBYTES + (_BARRIERS_NBYTES if tiling.is_wide else 0)
    resident = max(1, min(2, properties.shared_memory_per_multiprocessor // own))
    few, many = properties.multi_processor_count, properties.multi_processor_count * resident
    tiles, steps = tiling.tiles(problem), tiling.steps(problem)
    if tiling.is_wide:
        for blocks in (many, few, tiles * max(1, min(many // tiles, steps // 2))):
            yield replace(tiling, blocks=min(blocks, tiles * steps))
        return
    yield replace(tiling, blocks=min(tiles, many))
    for splits in range(2, min(_MOST_SPLITS, steps // 2) + 1):
        if few <= 2 * tiles * splits <= 2 * many:
            yield replace(tiling, blocks=tiles * splits, splits=splits)


class _Skinny:
    name = "skinny"

    def version(self) -> str:
        return _VERSION

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        if why_not(device) is not None or _refusal(problem) is not None:
            return ()
        return distinct(Candidate.of(self.name, **asdict(cut)) for cut in _cuts(problem, device))

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> Plan:
        reason = why_not(device) or _refusal(problem)
        if reason is not None:
            raise CapabilityError(f"no kernel for few columns computes {problem}: {reason}; tune again")
        for cut in _cuts(problem, device):
            if asdict(cut) == dict(candidate.parameters):
                return Plan(problem, cut, device)
        raise CapabilityError(f"{candidate} is not offered for {problem} on cuda:{device}; tune again")


# ------------------------------------------------------------------------------------------------ plans


class _Extents(ctypes.Structure):
    """``Extents`` of skinny.cuh."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("rows", "tokens", "depth")),
        *((name, ctypes.c_int64) for name in ("weights", "inputs", "third", "out")),
    )


class _Finish(ctypes.Structure):
    """``Finish`` of skinny.cuh."""

    _fields_ = (("alpha", ctypes.c_float), ("beta", ctypes.c_float), ("activation", ctypes.c_int32))


class _TensorMap(ctypes.Structure):
    """``TensorMap`` of skinny_wide.cu."""

    _fields_ = (("words", ctypes.c_uint64 * _MAP_WORDS),)


#: What a block writes where its sums are complete, another number in each process: memory that a workspace gets holds
#: it by a chance of 2**-64, and no launch leaves it behind.
_READY = secrets.randbits(64) | 1

#: Tensor maps that a plan keeps, of the last addresses.
_MOST_MAPS = 256


class Plan(Handle):
    """A problem and a tiling, ready to be called by this thread on the current device.

    Parameters
    ----------
    problem : Problem
        What to compute.
    tiling : Tiling
        How.
    device : int
        The current device.
    """

    library = "cuassay"

    def __init__(self, problem: Problem, tiling: Tiling, device: int) -> None:
        self.problem, self.algorithm = problem, tiling
        self.workspace_nbytes = tiling.workspace_nbytes(problem)
        self._boxes = _boxes(problem, tiling)
        self._maps: dict[tuple[int, int], memoryview] = {}
        self._launch, self._first = _ready_launch(problem, tiling)
        self._fire = self._launch.bind(tiling.blocks, tiling.threads, tiling.shared_nbytes(_padded(problem.n)))
        self._allocate, self._stream = hook.allocate, cupy.cuda.get_current_stream
        self._blocking: bool = settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"Plan({self.problem}; {self.library}, {self.algorithm})"

    def point(self, name: str, address: int) -> None:
        """Where the bias is read from (``BIAS_POINTER``)."""
        if name != "BIAS_POINTER":
            raise CapabilityError(f"the kernels of few columns read no {name}; report this")
        self._launch.words[self._first + 2] = address

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; as of `cublaslt.Plan`.

        Raises
        ------
        CuassayError
            What the driver answered.
        """
        words, first, stream = self._launch.words, self._first, self._stream().ptr
        memory = self._allocate(self.workspace_nbytes) if self.workspace_nbytes and not workspace else None
        if self.algorithm.is_wide:
            words[first + 3] = workspace if memory is None else memory.ptr
            words[first - 2 * _MAP_WORDS : first] = self._maps.get((a, b)) or self._encoded(a, b)
        else:
            words[first - 2], words[first - 1] = a, b
        words[first], words[first + 1], words[STREAM_WORD] = c, d, stream
        status = self._fire()
        if status:
            from cuda.bindings import driver

            raise error_of(driver.CUresult(status), f"launching {self!r}")
        if self._blocking:
            cupy.cuda.runtime.streamSynchronize(stream)

    def _encoded(self, a: int, b: int) -> memoryview:
        """The words of both tensor maps."""
        if len(self._maps) >= _MOST_MAPS:
            self._maps.clear()
        of_a, of_b = self._boxes
        words = self._maps[a, b] = memoryview(array("Q", (*_tensor_map(a, *of_a), *_tensor_map(b, *of_b))))
        return words


def _boxes(problem: Problem, tiling: Tiling) -> tuple[tuple[Operand, tuple[int, int]], tuple[Operand, tuple[int, int]]]:
    """Of both operands what a bulk copy takes: contiguous elements by lines."""
    lines = tiling.tile_rows if problem.transpose_a else _PANEL
    return (problem.a, (_PANEL, lines)), (problem.b, (_PANEL, _padded(problem.n)))


def _ready_launch(problem: Problem, tiling: Tiling) -> tuple[Launch, int]:
    """The argument block, filled but for addresses; and the word of the third operand's, after the operands' own."""
    p, tokens = problem, _padded(problem.n)
    extents = _Extents(p.m, p.n, p.k, p.a.leading, p.b.leading, p.c.leading, p.d.leading)
    activation, _, _ = p.epilogue.partition("_")
    finish = _Finish(complex(p.alpha).real, complex(p.beta).real, _ACTIVATIONS.get(activation, 0))
    types = ", ".join((p.a.dtype, p.d.dtype, "true" if p.transpose_a else "false"))
    arguments: tuple[Any, ...]
    numbers: tuple[int, ...]
    if tiling.is_wide:
        numbers = tokens, tiling.warps, tiling.slices, tiling.stages
        arguments, before = (_TensorMap(), _TensorMap(), 0, 0, 0, 0, _READY, extents, finish), 2 * _MAP_WORDS
    else:
        numbers = tokens, tiling.rows, tiling.warps, tiling.slices, tiling.stages
        arguments, before = (0, 0, 0, 0, 0, extents, finish), 2
    name = f"skinny_{tiling.kernel}<{types}, {', '.join(map(str, numbers))}>"
    made = kernel(f"skinny_{tiling.kernel}.cu", name, own_features=True)
    launch = made.prepare(tuple(map(type, arguments)), shared=tiling.shared_nbytes(tokens))
    launch.write(arguments)
    launch.arrange(cluster=tiling.splits, early=True)
    return launch, first_argument_word(len(arguments)) + before


def _tensor_map(address: int, operand: Operand, box: tuple[int, int]) -> tuple[int, ...]:
    """A matrix at `address`, copied in boxes swizzled by 128 bytes, zeros beyond; sizes from the inner to the outer."""
    from cuda.bindings import driver

    kinds = driver.CUtensorMapDataType
    kind = {
        "bfloat16": kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        "float16": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    }[operand.dtype]
    integers, sizes = driver.cuuint64_t, driver.cuuint32_t
    made = check(
        driver.cuTensorMapEncodeTiled(
            kind, 2, address, [integers(operand.rows), integers(operand.columns)], [integers(2 * operand.leading)],
            [sizes(extent) for extent in box], [sizes(1), sizes(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        f"describing a matrix of {operand.rows:,} x {operand.columns:,} {operand.dtype} at {address:#x}",
    )  # fmt: skip
    return tuple(int(word) for word in made.opaque)


SKINNY = _Skinny()
register(SKINNY)
