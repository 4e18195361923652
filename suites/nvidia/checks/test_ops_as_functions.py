"""Our ops on a CUDA device, put through the checks that functions of users get and declared ops do not.

These change what the samples of an op hold: rows of nothing but -inf, runs of NaN, sizes around each power of two,
options and extents drawn together. An op is declared once more, as a function that calls it. On the host its formula is
NumPy's, so that this is of devices only.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.testing import OpSpec, conformance, devices
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs

pytestmark = devices("cuda")

#: Checks that say nothing of a kernel: of the function around it, of graphs and streams that an op is checked with.
_AROUND = {"state", "aliasing", "captured", "bench", "lists", "wider_result", "full_precision", "constants", "threads"}


def as_function(spec: OpSpec) -> OpSpec:
    """The op of `spec` as a function of a user's, with the checks alone that the op itself does not get."""
    op = spec.declared

    def call(xp: Any, *arrays: Any, **options: Any) -> Any:
        return op(*arrays, **options)

    def samples(make: Any) -> list[Any]:  # cuBLASLt's own gelu is off by up to 5e-6, which the samples of ops allow for
        drawn = spec.samples(make) if spec.samples is not None else ()
        return [one for one in drawn if getattr(one, "kwargs", {}).get("activation") != "gelu_tanh"]

    others = {name: "the op is checked by it" for name, check in CHECKS.items() if check.applies(spec)}
    del others["inputs_unchanged"]  # whoever opts out of it is taken to work in place
    around = dict.fromkeys(_AROUND, "says nothing of a kernel")
    return OpSpec(
        fn=call, name=spec.name, samples=samples, reference=spec.reference, dtypes=spec.dtypes,
        tolerance=spec.rule, terms=spec.terms, magnitude=spec.magnitude, unclaimed=spec.unclaimed,
        requires=spec.requires, without=others | around,
    )  # fmt: skip


def _is_function(spec: OpSpec) -> bool:
    """Whether the op makes an array on the device of its arrays by a formula, and takes what a function would."""
    if spec.op is None or not spec.op.schema.outputs or spec.op.schema.place is not None:
        return False
    return spec.op_class != "random" and not spec.name.startswith("foreach_")  # whose lists have one dtype, contiguous


globals().update(
    {
        f"test_{spec.name.replace('.', '_')}": conformance(as_function(spec))
        for spec in own_specs()
        if _is_function(spec)
    }
)
