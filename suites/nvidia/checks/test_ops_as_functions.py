"""Our ops on a CUDA device, put through the checks that functions of users get and declared ops do not.

These change what the samples of an op hold: rows of nothing but -inf, runs of NaN, sizes around each power of two,
options and extents drawn together. An op is declared once more, as a function that calls it. On the host its formula is
NumPy's, so that this is of devices only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.testing import OpSpec, Tolerance, devices
from cuassay.testing.generated import marked
from cuassay.testing.generated.checks import CHECKS, Check
from cuassay.testing.marks import ops
from cuassay.testing.own_specs import own_specs

pytestmark = devices("cuda")

#: Checks that say nothing of a kernel: of the function around it, of graphs and streams that an op is checked with.
#: Ops with more elements than 32 bits count have tests of their own, in test_beyond_32_bits.py.
_AROUND = {
    *("state", "aliasing", "captured", "bench", "lists", "wider_result", "full_precision", "constants", "threads"),
    "inputs_unchanged",
    "beyond_32_bits",
}

#: Numbers of any size are drawn, whose fp8 products lose a bit more than those of the samples.
_TOLERANCES = {"scaled_mm": Tolerance(ulps=2048)}


def as_function(spec: OpSpec) -> OpSpec:
    """The op of `spec` as a function of a user's."""
    op = spec.declared

    def call(xp: Any, *arrays: Any, **options: Any) -> Any:
        return op(*arrays, **options)

    def samples(make: Any) -> list[Any]:  # cuBLASLt's own gelu is off by up to 5e-6, which the samples of ops allow for
        drawn = spec.samples(make) if spec.samples is not None else ()
        return [one for one in drawn if getattr(one, "kwargs", {}).get("activation") != "gelu_tanh"]

    return OpSpec(
        fn=call, name=spec.name, samples=samples, reference=spec.reference, dtypes=spec.dtypes,
        tolerance=_TOLERANCES.get(spec.name, spec.rule), terms=spec.terms, magnitude=spec.magnitude,
        unclaimed=spec.unclaimed, requires=spec.requires,
    )  # fmt: skip


def _is_function(spec: OpSpec) -> bool:
    """Whether the op makes one array on the device of its arrays by a formula, and takes what a function would."""
    if spec.op is None or not spec.op.schema.is_single or spec.op.schema.place is not None:
        return False
    return spec.op_class != "random" and not spec.name.startswith("foreach_")  # whose lists have one dtype, contiguous


FUNCTIONS = [(spec, as_function(spec)) for spec in own_specs() if _is_function(spec)]


def _test(check: Check) -> Callable[..., None] | None:
    """The test of a check for each op that is not checked by it itself; None where there is no such op."""
    chosen = [found for spec, found in FUNCTIONS if check.applies(found) and not check.applies(spec)]

    def test(cuassay_device: Any, cuassay_dtype: Any, cuassay_op: OpSpec) -> None:
        check(cuassay_op, cuassay_device, cuassay_dtype)

    def test_once(cuassay_device: Any, cuassay_op: OpSpec) -> None:
        check(cuassay_op, cuassay_device)

    return marked(test if check.per_dtype else test_once, check, ops(*chosen)) if chosen else None


_TESTS = {f"test_{name}": _test(check) for name, check in CHECKS.items() if name not in _AROUND}
globals().update({name: test for name, test in _TESTS.items() if test is not None})
