"""Providers offer ways to compute a product, among which a tuner chooses: cuBLASLt, cuBLAS, and cuassay's own kernels.

A provider is any object with the members of `Provider`. Its module calls ``register(MINE)`` when it is imported, and is
listed in `_MODULES`, so that it is imported when candidates are first requested::

    class Skinny:
        name = "skinny"

        def version(self) -> str:
            return "1"                             # a change invalidates results of the old one

        def candidates(self, problem, device):
            if problem.n > 64 or problem.epilogue != "none":
                return ()                          # a problem it cannot compute or never wins
            return tuple(Candidate.of("skinny", rows=rows, parts=parts) for rows in (1, 2, 4) for parts in (1, 4))

        def plan(self, problem, candidate, device):
            return SkinnyPlan(problem, rows=candidate["rows"], parts=candidate["parts"])

    register(Skinny())

What a provider must respect:

- A `Problem` is in column-major terms: a row-major ``(M, K) @ (K, N)`` becomes m = N, n = M, and its `a` is the right
  operand. `alpha` and `beta` are on the host. If `beta` is 0, `c` must not be read, because it may hold NaN.
- A choice for one problem is used for all problems that differ only in the values of the factors
  (`problem.representative`): alpha is 1 or not; beta is 0, 1 or neither. `candidates` may depend on no more than that.
  A plan is made for exactly its problem.
- Equal inputs must give equal bits: no atomic sums.
- A choice from a file of results may be out of date: `plan` raises `CuassayError` for a choice that it cannot make.
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
    """A problem that is ready to be computed by this thread on one device."""

    #: Printed by `cuassay.ops.explain`: what computes the product, and how (printed by ``str``; None: nothing to add).
    library: str
    algorithm: Any

    problem: Problem
    #: The bytes that a call needs in addition to the operands; allocated for each call, or passed as `workspace`.
    workspace_nbytes: int

    def point(self, name: str, address: int) -> None:
        """Set the address of a bias (``BIAS_POINTER``) or scale (``A_SCALE_POINTER``) before each `run` with it."""

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; `c` must equal `d` if beta is 0.

        `workspace` is the address of memory that the caller keeps until the call is done; if it is 0, the plan
        allocates.
        """


class Provider(Protocol):
    """Offers ways to compute products."""

    #: The `Candidate.implementation` of all its candidates.
    name: str

    def version(self) -> str:
        """Return the version of what its candidates depend on: a library's version, or a number of cuassay's."""

    def candidates(self, problem: Problem, device: int) -> Sequence[Candidate]:
        """Return ways to compute `problem` on the current device, the most promising first; empty if there is none."""

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> ProductPlan:
        """Return a plan that computes `problem` this way, for this thread and the current device."""


#: Modules that register a provider; they are imported when a provider is first needed.
_MODULES: tuple[str, ...] = (
    "cuassay.devices.cuda.blas.libraries",
    "cuassay.devices.cuda.blas.padded",
    "cuassay.devices.cuda.blas.skinny",
)

_providers: dict[str, Provider] = {}


def register(provider: Provider) -> None:
    """Add `provider`; it replaces a provider of the same name."""
    _providers[provider.name] = provider


def _all() -> dict[str, Provider]:
    for module in _MODULES:
        importlib.import_module(module)
    return _providers


def versions() -> dict[str, str]:
    """Return the version of each provider; results are valid for these versions."""
    return {name: provider.version() for name, provider in sorted(_all().items())}


def candidates(problem: Problem, device: int) -> tuple[Candidate, ...]:
    """Return the candidates of all providers for `problem` on the current device, each one's most promising first."""
    return in_turn(*(provider.candidates(problem, device) for provider in _all().values()))


def plan(problem: Problem, candidate: Candidate, device: int) -> ProductPlan:
    """Make a plan of `candidate`, for this thread and the current device.

    Raises
    ------
    CapabilityError
        If no provider here offers it.
    CuassayError
        If its provider cannot compute `problem` this way.
    """
    found = _all().get(candidate.implementation)
    if found is None:
        raise CapabilityError(
            f"{candidate} is not offered by any provider here ({', '.join(_providers) or 'there is none'}); tune again"
        )
    made = found.plan(problem, candidate, device)
    if made.problem != problem:
        raise ArgumentError(f"{candidate.implementation} made a plan of {made.problem} for {problem}; report this")
    return made
