"""Whether a declaration can judge: stock mutants, which are wrong, must all fail by it.

They are tried by the same schedule as candidates, in this process. One that passes is named; what the declaration
then calls correct says little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name
from cuassay.arrays.rounding import narrowed
from cuassay.judging.schedule import Schedule, by_size
from cuassay.judging.subject import LocalSubject, differs
from cuassay.judging.trial import hear
from cuassay.mutation.stock import STOCK, Function
from cuassay.testing.generated.comparison import result_dtype
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, over_lists

__all__ = ["right_answer", "weaknesses"]

#: Mutants whose output does not depend on the input: where that is right, any constant is.
_CONSTANT = ("zeros", "stale answer", "constant")


def weaknesses(spec: OpSpec, plan: Schedule, nonce: int) -> Iterator[str]:
    """The names of the stock mutants that pass `plan`, which must hold no timed calls.

    A mutant that never differs from the right answer does not count, such as rounding where results are whole numbers.
    But where an output that does not depend on the input is right, the declaration is weak. Small samples come first:
    most mutants fail by one of them.
    """
    plan = by_size(plan)
    for name, mutation in STOCK.items():
        watched = _Watched(spec, mutation)
        trial = hear(LocalSubject(watched), plan, nonce)
        if trial.finding is None and (watched.differed or name in _CONSTANT):
            yield name


class _Watched:
    """A mutant that notes whether it ever differed from the right answer."""

    def __init__(self, spec: OpSpec, mutation: Any) -> None:
        self._right = right_answer(spec)
        self._mutant: Function = mutation(self._right)
        self.differed = False

    def __call__(self, *args: Any, **kwargs: Any) -> NDArray[Any]:
        out: NDArray[Any] = self._mutant(*args, **kwargs)
        self.differed = self.differed or differs(out, self._right(*args, **kwargs))
        return out


def right_answer(spec: OpSpec) -> Function:
    """The reference's answer in the dtype of the result."""

    def right(*args: Any, **kwargs: Any) -> NDArray[Any]:
        sample = _as_sample(args, kwargs)
        answer = spec.expected(sample)
        dtype = result_dtype(spec, sample)
        if dtype is None or dtype_name(answer.dtype) == dtype_name(dtype):
            return answer
        with np.errstate(all="ignore"):
            return narrowed(answer, dtype) if dtype.kind not in "biuc" else answer.astype(dtype)

    return right


def _as_sample(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sample:
    def put(value: Any) -> Any:
        return HostArray(np.ascontiguousarray(value).reshape(value.shape)) if isinstance(value, np.ndarray) else value

    named = {name: over_lists(one, put) for name, one in kwargs.items()}
    return Sample(tuple(over_lists(one, put) for one in args), named)
