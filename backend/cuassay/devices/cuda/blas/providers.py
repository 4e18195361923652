"""Who offers ways to compute a product, for a tuner to choose among: cuBLASLt, cuBLAS, kernels of our own.

A provider is any object with the members of `Provider`. A module that has one calls ``register(MINE)`` when it is
imported, and is listed in `_MODULES`, so that it is imported when candidates are first asked for::

    class Skinny:
        name = "skinny"

        def version(self) -> str:
            return "1"                             # another one: results tuned with the former are not used any more

        def candidates(self, problem, device):
            if problem.n > 64 or problem.epilogue != "none":
                return ()                          # what it cannot compute, or never wins
            return tuple(Candidate.of("skinny", rows=rows, parts=parts) for rows in (1, 2, 4) for parts in (1, 4))

        def plan(self, problem, candidate, device):
            return SkinnyPlan(problem, rows=candidate["rows"], parts=candidate["parts"])

    register(Skinny())

What a provider must know:

- A `Problem` is in column-major words: a row-major ``(M, K) @ (K, N)`` comes as m = N, n = M, its `a` being the right
  operand. `alpha` and `beta` are on the host; with `beta` 0 what lies in `c` must not be read, it may be NaN.
- A choice made for one problem is used for all whose factors differ only in value (`problem.representative`): alpha is
  1 or not, beta 0, 1 or neither. `candidates` looks at no more of them; a plan is made for exactly its problem.
- Equal inputs must give equal bits: no atomic sums.
- A choice from a file of results may be of another day: `plan` raises `CuassayError` for what it cannot make.
- Plans belong to one thread and device; they allocate nothing but their workspace, and may be captured.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from cuassay.devices.cuda.blas.problem import Problem
from cuassay.errors import ArgumentError, CapabilityError
from cuassay.tune.space import Candidate, in_turn

__all__ = ["Candidate", "ProductPlan", "Provider", "candidates", "plan", "register", "versions"]


class ProductPlan(Protocol):
    """A problem ready to be computed by this thread on one device."""

    #: What `cuassay.ops.explain` prints: who computes it, and how (printed by ``str``, None: nothing to say).
    library: str
    algorithm: Any

    problem: Problem
    #: What a call needs in addition to the operands, bytes; from the allocator for each call, or given as `workspace`.
    workspace_nbytes: int

    def point(self, name: str, address: int) -> None:
        """Where the bias is (``BIAS_POINTER``), or a scale (``A_SCALE_POINTER``); before each `run` that has one."""

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; `c` is `d` where beta is 0.

        `workspace` is memory of the caller's, which lives until the call is done; 0: the plan takes some.
        """


class Provider(Protocol):
    """Offers ways to compute products."""

    #: The `Candidate.implementation` of all its candidates.
    name: str

    def version(self) -> str:
        """What its candidates mean, and how fast they are, depends on: a library's version, a number of ours."""

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        """Ways to compute `problem` on the current device, the likeliest first; none where it cannot."""

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> ProductPlan:
        """`problem` computed this way, for this thread and the current device."""


#: Modules that register a provider; imported when one is first asked for.
_MODULES: tuple[str, ...] = (
    "cuassay.devices.cuda.blas.libraries",
    "cuassay.devices.cuda.blas.padded",
    "cuassay.devices.cuda.blas.skinny",
)

_providers: dict[str, Provider] = {}


def register(provider: Provider) -> None:
    """`provider` takes part from here; another of its name is replaced."""
    _providers[provider.name] = provider


def _all() -> dict[str, Provider]:
    for module in _MODULES:
        importlib.import_module(module)
    return _providers


def versions() -> dict[str, str]:
    """The version of each provider: what results are bound to."""
    return {name: provider.version() for name, provider in sorted(_all().items())}


def candidates(problem: Problem, device: int) -> tuple[Candidate, ...]:
    """What every provider offers for `problem` on the current device `device`, the likeliest of each first."""
    return in_turn(*(provider.candidates(problem, device) for provider in _all().values()))


def plan(problem: Problem, candidate: Candidate, device: int) -> ProductPlan:
    """A plan of `candidate`, for this thread and the current device.

    Raises
    ------
    CapabilityError
        If nobody here offers it.
    CuassayError
        If who offers it cannot compute `problem` so.
    """
    found = _all().get(candidate.implementation)
    if found is None:
        raise CapabilityError(
            f"{candidate} is of no provider here ({', '.join(_providers) or 'there is none'}); tune again"
        )
    made = found.plan(problem, candidate, device)
    if made.problem != problem:
        raise ArgumentError(f"{candidate.implementation} made a plan of {made.problem} for {problem}; report this")
    return made
