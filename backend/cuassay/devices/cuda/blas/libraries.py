"""The libraries as providers of candidates: cuBLASLt's algorithms, and cuBLAS.

cuBLASLt is asked for a hundred algorithms at each of four workspace limits, because each limit gives another list.
`neighbours` adds algorithms that it omits.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuassay.devices.cuda.blas import controls, cublas, cublaslt
from cuassay.devices.cuda.blas.cublaslt import Algorithm
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.blas.providers import register
from cuassay.devices.cuda.driver.libraries import why_no_cublaslt
from cuassay.errors import ArgumentError, CapabilityError
from cuassay.tune.space import Candidate, in_turn

__all__ = ["CUBLAS", "CUBLASLT", "algorithm_of", "candidate_of", "first_choices", "set_requested"]

#: The number of algorithms requested at each workspace limit.
_requested = 100

#: The size of a ``cublasLtMatmulAlgo_t``.
_ALGORITHM_NBYTES = 64

#: At this limit, which is torch's, the heuristic omits splits that it prefers at a larger limit. For few rows that
#: preference is wrong: on an H200 32 x 4096 x 4096 in bfloat16 takes 13.4 µs with the split chosen at 32 MiB, and 11.6
#: µs at this limit.
_LITTLE_WORKSPACE = 2**20


def set_requested(count: int) -> int:
    """Request up to `count` algorithms at each workspace limit from now on; return the previous number."""
    global _requested
    if count < 1:
        raise ArgumentError(f"the number of algorithms must be at least 1; got {count}")
    former, _requested = _requested, count
    return former


def candidate_of(algorithm: Algorithm) -> Candidate:
    """Return an algorithm as plain data: the library's bytes in hexadecimal, and the workspace."""
    return Candidate.of("cublaslt", algorithm=algorithm.data.hex(), workspace=algorithm.workspace_nbytes)


def algorithm_of(candidate: Candidate) -> Algorithm:
    """Return the algorithm of a candidate of cuBLASLt.

    Raises
    ------
    ArgumentError
        If the candidate's parameters do not describe an algorithm.
    """
    try:
        found = Algorithm(bytes.fromhex(candidate["algorithm"]), int(candidate["workspace"]))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{candidate} is not an algorithm of cuBLASLt: {error}; tune again") from error
    if len(found.data) != _ALGORITHM_NBYTES or found.workspace_nbytes < 0:  # the library would read beyond it
        raise ArgumentError(
            f"{candidate} is not an algorithm of cuBLASLt, which has {_ALGORITHM_NBYTES} bytes; tune again"
        )
    return found


class _CublasLt:
    name = "cublaslt"

    def version(self) -> str:
        return str(cublaslt.version())

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        return in_turn(*_by_limit(problem, device, _requested))

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> cublaslt.CublasLtPlan:
        algorithm, most = algorithm_of(candidate), controls.most_workspace_nbytes(device)
        if algorithm.workspace_nbytes > most:
            raise CapabilityError(f"{candidate} needs more workspace than the {most:,} bytes allowed; tune again")
        return cublaslt.CublasLtPlan(problem, algorithm, device)


def _by_limit(problem: Problem, device: int, count: int) -> list[list[Candidate]]:
    """Return up to `count` algorithms at each workspace limit."""
    most = controls.most_workspace_nbytes(device)
    limits = dict.fromkeys((controls.workspace_nbytes(device), 0, min(_LITTLE_WORKSPACE, most), most))
    found = (cublaslt.candidates(problem, device, count=count, workspace_nbytes=limit) for limit in limits)
    return [[candidate_of(one) for one in algorithms] for algorithms in found]


class _Cublas:
    name = "cublas"

    def version(self) -> str:
        return cublas.version()

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        return (Candidate.of("cublas"),) if _is_plain(problem) else ()

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> cublas.CublasPlan:
        if not _is_plain(problem):
            raise CapabilityError(f"cuBLAS fuses, scales and adds nothing; it cannot compute {problem}; tune again")
        return cublas.CublasPlan(problem, device)


def _is_plain(problem: Problem) -> bool:
    """Whether nothing is fused, scaled or added; cuBLAS can add only what is in the output."""
    return problem.epilogue == "none" and problem.scaling == "none" and not problem.beta


def first_choices(problem: Problem, device: int) -> tuple[Candidate, ...]:
    """Return what is used without a search: by cuBLAS, and by cuBLASLt at each workspace limit, torch's among them."""
    of_cublaslt = _by_limit(problem, device, 1) if why_no_cublaslt() is None else []
    return in_turn(*of_cublaslt, CUBLAS.candidates(problem, device))


CUBLASLT, CUBLAS = _CublasLt(), _Cublas()
if why_no_cublaslt() is None:
    register(CUBLASLT)
register(CUBLAS)
