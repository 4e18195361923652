"""The libraries as providers of candidates: cuBLASLt's algorithms and what is near them, and cuBLAS.

cuBLASLt is asked for a hundred algorithms at each of four limits of workspace, as another limit gives another list.
Near the best of them are the same kernels split otherwise along K, reduced otherwise, or with other stages or order
of blocks: its heuristic leaves most of these out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from cuassay.devices.cuda.blas import controls, cublas, cublaslt
from cuassay.devices.cuda.blas.cublaslt import Algorithm
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.blas.providers import register
from cuassay.errors import ArgumentError, CapabilityError
from cuassay.tune.space import Candidate, distinct

__all__ = ["CUBLAS", "CUBLASLT", "algorithm_of", "candidate_of", "near", "set_requested"]

#: Algorithms asked for at each limit of workspace.
_requested = 100

_SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)

#: At this limit, torch's own, the heuristic leaves splits that it prefers at a larger one, wrongly so for few rows: on
#: an H200 32 x 4096 x 4096 in bfloat16 takes 13.4 µs as it is split at 32 MiB, and 11.6 as at this.
_LITTLE_WORKSPACE = 2**20

#: ``cublasLtReductionScheme_t``.
_NONE, _IN_PLACE, _COMPUTE_TYPE, _OUTPUT_TYPE = 0, 1, 2, 4


def set_requested(count: int) -> int:
    """Ask for up to `count` algorithms at each limit of workspace from here; gives the former number."""
    global _requested
    if count < 1:
        raise ArgumentError(f"at least 1 algorithm must be asked for; got {count}")
    former, _requested = _requested, count
    return former


def candidate_of(algorithm: Algorithm) -> Candidate:
    """As plain data: the library's 64 bytes in hexadecimal, and the workspace."""
    return Candidate.of("cublaslt", algorithm=algorithm.data.hex(), workspace=algorithm.workspace_nbytes)


def algorithm_of(candidate: Candidate) -> Algorithm:
    """Of a candidate that has one.

    Raises
    ------
    ArgumentError
        If its parameters are none.
    """
    try:
        return Algorithm(bytes.fromhex(candidate["algorithm"]), int(candidate["workspace"]))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{candidate} is no algorithm of cuBLASLt: {error}; tune again") from error


class _CublasLt:
    name = "cublaslt"

    def version(self) -> str:
        return str(cublaslt.version())

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        most = controls.most_workspace_nbytes(device)
        limits = dict.fromkeys((controls.workspace_nbytes(device), 0, min(_LITTLE_WORKSPACE, most), most))
        return distinct(
            candidate_of(algorithm)
            for limit in limits
            for algorithm in cublaslt.candidates(problem, device, count=_requested, workspace_nbytes=limit)
        )

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> cublaslt.Plan:
        most = controls.most_workspace_nbytes(device)
        if candidate["workspace"] > most:
            raise CapabilityError(f"{candidate} needs more workspace than the {most:,} bytes allowed; tune again")
        return cublaslt.Plan(problem, algorithm_of(candidate), device)


def near(problem: Problem, candidates: Sequence[Candidate], device: int) -> Iterator[Candidate]:
    """What differs in one or two numbers from those of `candidates` that are cuBLASLt's."""
    most = controls.most_workspace_nbytes(device)
    for candidate in candidates:
        if candidate.implementation == "cublaslt":
            algorithm = algorithm_of(candidate)
            for change in _changes(problem, algorithm.config()):
                found = cublaslt.adjusted(problem, algorithm, device, **change)
                if found is not None and found.workspace_nbytes <= most:
                    yield candidate_of(found)


def _changes(problem: Problem, config: dict[str, int]) -> Iterator[dict[str, int]]:
    yield {"CTA_SWIZZLING": 1 - config["CTA_SWIZZLING"]}
    for split in _SPLITS:
        if split != config["SPLITK_NUM"] and (split == 1 or problem.k >= 128 * split):
            for scheme in _schemes(problem, split):
                yield {"SPLITK_NUM": split, "REDUCTION_SCHEME": scheme}


def _schemes(problem: Problem, split: int) -> tuple[int, ...]:
    """The reductions allowed; in place adds in the output's type, which is less where that has 16 bits."""
    if split == 1:
        return (_NONE,)
    is_wide = problem.d.dtype in ("float32", "float64", "complex64", "complex128")
    masks = problem.reductions if is_wide or problem.reductions & _OUTPUT_TYPE else problem.reductions & ~_IN_PLACE
    return tuple(scheme for scheme in (_COMPUTE_TYPE, _IN_PLACE, _OUTPUT_TYPE) if masks & scheme)


class _Cublas:
    name = "cublas"

    def version(self) -> str:
        return cublas.version()

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        return (Candidate.of("cublas"),) if _is_plain(problem) else ()

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> cublas.Plan:
        if not _is_plain(problem):
            raise CapabilityError(f"cuBLAS fuses, scales and adds nothing; it cannot compute {problem}; tune again")
        return cublas.Plan(problem, device)


def _is_plain(problem: Problem) -> bool:
    """Nothing fused or scaled; and nothing added, as the library adds only what lies in the output."""
    return problem.epilogue == "none" and problem.scaling == "none" and not problem.beta


CUBLASLT, CUBLAS = _CublasLt(), _Cublas()
if find_spec("nvmath") is not None:
    register(CUBLASLT)
register(CUBLAS)
