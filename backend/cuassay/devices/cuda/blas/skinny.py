"""Products of a tall matrix and few columns (a layer's weights and a small batch of tokens), by cuassay's own kernels.

In the terms of `Problem`: `a` has m *rows*, `b` has n <= 128 columns, the *tokens*; k is the *depth*. Such a product
takes as long as reading `a`. If that is some tens of microseconds, the libraries are close to this limit. For shorter
products they lose a third to a half of it, to idle multiprocessors and to the time between two kernels. These kernels
use tiles with just enough rows to fill the GPU, share the terms among blocks, add them in a fixed order, and start
early.

The kernels are kernels/skinny_narrow.cu and skinny_wide.cu; `tilings` decides how products are cut for them.
`blas.providers` calls this module, and a tuner decides where it wins.
"""

from __future__ import annotations

import ctypes
import secrets
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import cupy

from cuassay.core import settings
from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas import controls
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.blas.providers import Candidate, register
from cuassay.devices.cuda.blas.tilings import PANEL, Tiling, cuts, padded, refusal
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.launch.block import STREAM_WORD, first_argument_word
from cuassay.devices.cuda.launch.launch import Launch, conclude, kernel
from cuassay.devices.cuda.memory import hook
from cuassay.errors import CapabilityError, CuassayError
from cuassay.tune.space import distinct

__all__ = ["ACTIVATIONS", "SKINNY", "Extents", "SkinnyPlan", "why_not"]

#: Increased with every change of the kernels or of the offered candidates: results of other versions are not used.
_VERSION = "4"

#: 64-bit words of a tensor map.
_MAP_WORDS = 16

#: The kernels' numbers of activations, by the names of epilogues and of ops.
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, None: 0, "gelu_tanh": 2}


def why_not(device: int) -> str | None:
    """Return why `device` cannot run the kernels, or None."""
    capability = runtime.get_device_capability(device)
    if capability != (9, 0):
        return f"cuda:{device} has compute capability {capability[0]}.{capability[1]}; they are for 9.0"
    return None


class _Skinny:
    name = "skinny"

    def version(self) -> str:
        return _VERSION

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        if why_not(device) is not None or refusal(problem) is not None:
            return ()
        found = _cuts(problem, device)
        try:
            _compile(problem, found, device)
        except CuassayError:  # there is no compiler, or no memory to load the kernels
            return ()
        return distinct(Candidate.of(self.name, **asdict(cut)) for cut in found)

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> SkinnyPlan:
        reason = why_not(device) or refusal(problem)
        if reason is not None:
            raise CapabilityError(f"no kernel for few columns computes {problem}: {reason}; tune again")
        for cut in _cuts(problem, device):
            if asdict(cut) == dict(candidate.parameters):
                return SkinnyPlan(problem, cut, device)
        raise CapabilityError(
            f"{candidate} is not offered for {problem} on cuda:{device}, with a workspace of "
            f"{controls.most_workspace_nbytes(device):,} bytes; tune again"
        )


def _cuts(problem: Problem, device: int) -> list[Tiling]:
    """Return the tilings that are offered and stay within the workspace limit."""
    properties, most = runtime.get_device_properties(device), controls.most_workspace_nbytes(device)
    found = cuts(problem, properties.multi_processor_count, properties.shared_memory_per_multiprocessor)
    return [cut for cut in found if cut.workspace_nbytes(problem) <= most]


def _compile(problem: Problem, found: Iterable[Tiling], device: int) -> None:
    """Load the kernels of `found`, concurrently and before the search is timed.

    Each compiles once, in half a second.
    """

    def load(tiling: Tiling) -> None:
        with cupy.cuda.Device(device):
            _ready_launch(problem, tiling)

    with ThreadPoolExecutor() as pool:
        list(pool.map(load, {replace(tiling, blocks=0, splits=1) for tiling in found}))


# ------------------------------------------------------------------------------------------------ plans


class Extents(ctypes.Structure):
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


#: A block writes this number when its sums are complete. It differs in each process: memory allocated for a workspace
#: contains it by chance with a probability of 2**-64, and every launch clears it.
_READY = secrets.randbits(64) | 1

#: The most tensor maps that a plan caches, by addresses.
_MOST_MAPS = 256


class SkinnyPlan(Handle):
    """A problem and a tiling, ready to be called by this thread on the current device.

    Parameters
    ----------
    problem : Problem
        The problem to compute.
    tiling : Tiling
        The tiling to use.
    device : int
        The index of the current device.
    """

    library = "cuassay"

    def __init__(self, problem: Problem, tiling: Tiling, device: int) -> None:
        self.problem, self.algorithm = problem, tiling
        self.workspace_nbytes = tiling.workspace_nbytes(problem)
        self._boxes = _boxes(problem, tiling)
        self._maps: dict[tuple[int, int], memoryview] = {}
        self._launch, self._first = _ready_launch(problem, tiling)
        self._fire = self._launch.bind(tiling.blocks, tiling.threads, tiling.shared_nbytes(padded(problem.n)))
        self._allocate, self._stream = hook.allocate, cupy.cuda.get_current_stream
        self._blocking: bool = settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"SkinnyPlan({self.problem}; {self.library}, {self.algorithm})"

    def point(self, name: str, address: int) -> None:
        """Set the address of the bias (``BIAS_POINTER``)."""
        if name != "BIAS_POINTER":
            raise CapabilityError(f"the kernels of few columns read no {name}; report this")
        self._launch.words[self._first + 2] = address

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; see `cublaslt.CublasLtPlan.run`.

        Raises
        ------
        CuassayError
            If the driver reports an error.
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
        if status or self._blocking:
            conclude(status, stream, repr(self))

    def _encoded(self, a: int, b: int) -> memoryview:
        """Return the words of both tensor maps."""
        if len(self._maps) >= _MOST_MAPS:
            self._maps.clear()
        of_a, of_b = self._boxes
        words = self._maps[a, b] = memoryview(array("Q", (*_tensor_map(a, *of_a), *_tensor_map(b, *of_b))))
        return words


def _boxes(problem: Problem, tiling: Tiling) -> tuple[tuple[Operand, tuple[int, int]], tuple[Operand, tuple[int, int]]]:
    """Return, for both operands, the box that one bulk copy takes: contiguous elements by lines."""
    lines = tiling.tile_rows if problem.transpose_a else PANEL
    return (problem.a, (PANEL, lines)), (problem.b, (PANEL, padded(problem.n)))


def _ready_launch(problem: Problem, tiling: Tiling) -> tuple[Launch, int]:
    """Return the launch with every argument but the addresses set, and the word of `third` (a and b precede it)."""
    p, tokens = problem, padded(problem.n)
    extents = Extents(p.m, p.n, p.k, p.a.leading, p.b.leading, p.c.leading, p.d.leading)
    activation, _, _ = p.epilogue.partition("_")
    finish = _Finish(complex(p.alpha).real, complex(p.beta).real, ACTIVATIONS.get(activation, 0))
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
    """Encode a matrix at `address` with the 128-byte swizzle and zeros beyond it.

    Sizes go from the inner to the outer.
    """
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
