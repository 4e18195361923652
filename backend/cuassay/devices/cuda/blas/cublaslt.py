"""cuBLASLt: descriptors, candidates and calls of one problem, through nvmath's bindings.

The bindings take addresses as integers. On the H200 host a call from Python took 9.4 µs, only 0.5 µs more than the same
call in a C loop (1.5 to 2.5 µs more with ctypes). Handles and descriptors belong to one thread and device. The
allocator provides a workspace for each call, so that it is ordered with the stream; in a capture it comes from the
graph's pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.core import settings
from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas.handles import ThreadHandles
from cuassay.devices.cuda.blas.problem import COMPUTE_TYPES, DATA_TYPES, Operand, Problem
from cuassay.devices.cuda.driver.libraries import cublaslt as _lt
from cuassay.devices.cuda.launch.launch import conclude
from cuassay.devices.cuda.memory import hook
from cuassay.errors import DriverError

__all__ = ["Algorithm", "CublasLtPlan", "adjusted", "candidates", "handle", "tiles", "version"]

_CONFIG = (
    "ID", "TILE_ID", "STAGES_ID", "SPLITK_NUM", "REDUCTION_SCHEME", "CTA_SWIZZLING", "CUSTOM_OPTION", "INNER_SHAPE_ID",
    "CLUSTER_SHAPE_ID",
)  # fmt: skip
_SHOWN = {
    "algorithm": "ID", "tile": "TILE_ID", "stages": "STAGES_ID", "cluster": "CLUSTER_SHAPE_ID",
    "option": "CUSTOM_OPTION", "split-k": "SPLITK_NUM",
}  # fmt: skip
_ADVICE = {
    "NOT_INITIALIZED": "check that the driver serves this cuBLAS (cuassay devices -v)",
    "ALLOC_FAILED": "free memory on the device",
    "ARCH_MISMATCH": "this dtype needs a newer device",
    "NOT_SUPPORTED": "use another dtype, or contiguous operands",
}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm of the library for a problem, and the workspace it needs.

    Attributes
    ----------
    data : bytes
        64 bytes, valid only for this version of the library and this GPU.
    workspace_nbytes : int
        The size of the workspace that a call must provide.
    waves : float
        The number of times that the blocks fill the GPU.
    """

    data: bytes
    workspace_nbytes: int
    waves: float = 0.0

    def config(self) -> dict[str, int]:
        """Return its tile, stages, split along K and other settings, as the library's numbers."""
        lt, data = _lt(), np.frombuffer(self.data, np.uint8).copy()
        found = {}
        for name in _CONFIG:
            attribute = lt.MatmulAlgoConfigAttribute[name]
            value = np.zeros(1, lt.get_matmul_algo_config_attribute_dtype(attribute))
            written = np.zeros(1, np.uint64)
            lt.matmul_algo_config_get_attribute(
                data.ctypes.data, attribute, value.ctypes.data, value.nbytes, written.ctypes.data
            )
            found[name] = int(value[0])
        return found

    def __str__(self) -> str:
        config = self.config()
        words = [f"{word} {config[name]}" for word, name in _SHOWN.items()]
        return ", ".join([*words, f"workspace {self.workspace_nbytes:,} B"])


@cache
def tiles() -> dict[str, int]:
    """Return the library's numbers of tiles, by names such as ``TILE_128x64``."""
    return {tile.name: int(tile) for tile in _lt().MatmulTile}


def version() -> int:
    """Return the library's version, such as 130100; an `Algorithm` is valid for one version."""
    return int(_lt().get_version())


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    lt = _lt()
    try:
        yield
    except lt.cuBLASLtError as error:
        raise _driver_error(error, doing) from error


def _driver_error(error: Any, doing: str) -> DriverError:
    code = int(getattr(error, "status", -1))
    text = str(error)
    status = next((word.strip("().") for word in text.split() if "CUBLAS_STATUS_" in word), f"cublasStatus_t {code}")
    advice = _ADVICE.get(
        status.removeprefix("CUBLAS_STATUS_"), "run under compute-sanitizer; an earlier kernel may have failed"
    )
    return DriverError(f"{doing} failed: {status}; {advice}", status=status, code=code)


# ------------------------------------------------------------------------------------------------ handles


def _new_handle() -> int:
    with _translated("making a cuBLASLt handle"):
        return int(_lt().create())


#: The library may return the same handle to all callers on a device, as 13.1 does. Each thread has its own descriptors
#: and workspaces in any case.
_handles = ThreadHandles(_new_handle)


def handle(device: int) -> int:
    """Return the address of this thread's ``cublasLtHandle_t`` on the current device `device`."""
    return _handles.on(device)


# ------------------------------------------------------------------------------------------------ descriptors


class _Descriptors(Handle):
    """The library's descriptors of a problem, which are destroyed with this object."""

    def __init__(self, problem: Problem) -> None:
        lt = _lt()
        self._undo: list[tuple[Callable[[int], Any], int]] = []
        scale = DATA_TYPES[problem.scale_dtype.name]
        self.operation = self._made(
            lt.matmul_desc_create(COMPUTE_TYPES[problem.compute], scale), lt.matmul_desc_destroy
        )
        for name, value in _operation(problem).items():
            self.set(name, value)
        self.a, self.b, self.c, self.d = (
            self._layout(operand, problem.batch) for operand in (problem.a, problem.b, problem.c, problem.d)
        )

    def _made(self, address: int, destroy: Callable[[int], Any]) -> int:
        self._undo.append((destroy, address))
        return int(address)

    def _layout(self, operand: Operand, batch: int) -> int:
        lt = _lt()
        size = DATA_TYPES[operand.dtype], operand.rows, operand.columns, operand.leading
        layout = self._made(lt.matrix_layout_create(*size), lt.matrix_layout_destroy)
        if batch > 1:
            names = lt.MatrixLayoutAttribute
            for attribute, value in ((names.BATCH_COUNT, batch), (names.STRIDED_BATCH_OFFSET, operand.batch_stride)):
                number = np.array([value], lt.get_matrix_layout_attribute_dtype(attribute))
                lt.matrix_layout_set_attribute(layout, attribute, number.ctypes.data, number.nbytes)
        return layout

    def set(self, name: str, value: int) -> None:
        """Set an attribute of the operation."""
        lt = _lt()
        attribute = lt.MatmulDescAttribute[name]
        number = np.array([value], lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(self.operation, attribute, number.ctypes.data, number.nbytes)

    def __del__(self) -> None:
        for destroy, address in reversed(self._undo):
            destroy(address)


def _operation(problem: Problem) -> dict[str, int]:
    """Return attributes of the operation by name; omitted attributes have the library's defaults."""
    lt = _lt()
    found = {"TRANSA": int(problem.transpose_a), "TRANSB": int(problem.transpose_b)}
    if problem.epilogue != "none":
        found["EPILOGUE"] = int(lt.Epilogue[problem.epilogue.upper()])
    if problem.fast_accumulation:
        found["FAST_ACCUM"] = 1
    if problem.scaling == "outer":
        found |= dict.fromkeys(("A_SCALE_MODE", "B_SCALE_MODE"), int(lt.MatmulMatrixScale.OUTER_VEC_32F))
    return found


#: Replaces addresses that only a call knows: the search checks only whether there is an address.
_SOME_ADDRESS = 256


def candidates(problem: Problem, device: int, *, count: int = 1, workspace_nbytes: int = 0) -> tuple[Algorithm, ...]:
    """Return up to `count` algorithms for `problem` on the current device `device`, the library's favourite first.

    The result is empty if the library has no algorithm for the problem.
    """
    lt, described = _lt(), _searched(problem)
    results = np.zeros(count, lt.matmul_heuristic_result_dtype)
    found = np.zeros(1, np.int32)
    with _preference(problem, workspace_nbytes) as preference:
        try:
            lt.matmul_algo_get_heuristic(
                handle(device), described.operation, described.a, described.b, described.c, described.d, preference,
                count, results.ctypes.data, found.ctypes.data,
            )  # fmt: skip
        except lt.cuBLASLtError:  # NOT_SUPPORTED, or INVALID_VALUE where a combination does not exist
            return ()
    usable = (row for row in results[: found[0]] if row["state"] == 0)
    return tuple(
        Algorithm(row["algo"].tobytes(), int(row["workspace_size"]), float(row["waves_count"])) for row in usable
    )


def _searched(problem: Problem) -> _Descriptors:
    described = _Descriptors(problem)
    if "bias" in problem.epilogue:
        described.set("BIAS_POINTER", _SOME_ADDRESS)
    if problem.scaling != "none":
        described.set("A_SCALE_POINTER", _SOME_ADDRESS)
        described.set("B_SCALE_POINTER", _SOME_ADDRESS)
    return described


def adjusted(problem: Problem, algorithm: Algorithm, device: int, **config: int) -> Algorithm | None:
    """Return `algorithm` with some numbers of its config changed, or None if the library rejects the change."""
    lt, described = _lt(), _searched(problem)
    data = np.frombuffer(algorithm.data, np.uint8).copy()
    result = np.zeros(1, lt.matmul_heuristic_result_dtype)
    layouts = described.a, described.b, described.c, described.d
    try:
        for name, value in config.items():
            attribute = lt.MatmulAlgoConfigAttribute[name]
            number = np.array([value], lt.get_matmul_algo_config_attribute_dtype(attribute))
            lt.matmul_algo_config_set_attribute(data.ctypes.data, attribute, number.ctypes.data, number.nbytes)
        lt.matmul_algo_check(handle(device), described.operation, *layouts, data.ctypes.data, result.ctypes.data)
    except lt.cuBLASLtError:  # NOT_SUPPORTED, or INVALID_VALUE where a combination does not exist
        return None
    # The check reports what the algorithm needs, and does not change the algorithm.
    found = result[0]
    return Algorithm(data.tobytes(), int(found["workspace_size"]), float(found["waves_count"]))


@contextmanager
def _preference(problem: Problem, workspace_nbytes: int) -> Iterator[int]:
    lt = _lt()
    names = lt.MatmulPreferenceAttribute
    wanted = {
        names.MAX_WORKSPACE_BYTES: workspace_nbytes,
        names.REDUCTION_SCHEME_MASK: problem.reductions,
        **{names[f"MIN_ALIGNMENT_{operand}_BYTES"]: problem.alignment for operand in "ABCD"},
    }
    preference = lt.matmul_preference_create()
    try:
        for attribute, value in wanted.items():
            number = np.array([value], lt.get_matmul_preference_attribute_dtype(attribute))
            lt.matmul_preference_set_attribute(preference, attribute, number.ctypes.data, number.nbytes)
        yield int(preference)
    finally:
        lt.matmul_preference_destroy(preference)


# ------------------------------------------------------------------------------------------------ plans


class CublasLtPlan(Handle):
    """A problem and an algorithm, ready to be called by this thread on the current device.

    Parameters
    ----------
    problem : Problem
        The problem to compute.
    algorithm : Algorithm
        The algorithm to use.
    device : int
        The index of the current device.
    """

    library = "cuBLASLt"

    def __init__(self, problem: Problem, algorithm: Algorithm, device: int) -> None:
        self.problem, self.algorithm = problem, algorithm
        self.workspace_nbytes = algorithm.workspace_nbytes
        with _translated(f"describing {problem}"):
            self._described = described = _Descriptors(problem)
        self._factors: np.ndarray[Any, Any] = np.array([problem.alpha, problem.beta], problem.scale_dtype)
        self._data = np.frombuffer(algorithm.data, np.uint64).copy()
        alpha = self._factors.ctypes.data
        self._before = handle(device), described.operation, alpha
        self._layouts = described.a, described.b, alpha + self._factors.itemsize, described.c, described.d
        self._algorithm = self._data.ctypes.data
        self._pointers: dict[str, int] = {}
        self._matmul, self._error = _lt().matmul, _lt().cuBLASLtError
        self._allocate, self._stream = hook.allocate, cupy.cuda.get_current_stream
        self._blocking: bool = settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"CublasLtPlan({self.problem}; {self.library}, {self.algorithm})"

    def point(self, name: str, address: int) -> None:
        """Set the address of the bias (``BIAS_POINTER``) or of a scale (``A_SCALE_POINTER``)."""
        if self._pointers.get(name) != address:
            self._described.set(name, address)
            self._pointers[name] = address

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; `c` must equal `d` if beta is 0.

        Parameters
        ----------
        a, b, c, d : int
            Addresses of the operands and the result, in the library's order.
        workspace : int
            The address of memory that the caller keeps until the call is done; 0 allocates a workspace for this call.

        Raises
        ------
        DriverError
            If the library reports an error.
        """
        nbytes, stream = self.workspace_nbytes, self._stream().ptr
        memory = self._allocate(nbytes) if nbytes and not workspace else None
        of_a, of_b, beta, of_c, of_d = self._layouts
        try:
            self._matmul(
                *self._before, a, of_a, b, of_b, beta, c, of_c, d, of_d, self._algorithm,
                workspace if memory is None else memory.ptr, nbytes, stream,
            )  # fmt: skip
        except self._error as error:
            raise _driver_error(error, str(self.problem)) from error
        if self._blocking:
            conclude(0, stream, repr(self))
