"""The generated tests of this package's ops: one function for each check, parametrized over device, dtype and op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuassay.testing.generated import marked
from cuassay.testing.generated.checks import CHECKS, Check
from cuassay.testing.marks import ops
from cuassay.testing.opspec import OpSpec
from cuassay.testing.own_specs import own_specs


def _function(check: Check) -> Callable[..., None]:
    def test(cuassay_device: Any, cuassay_dtype: Any, cuassay_op: OpSpec) -> None:
        __tracebackhide__ = True
        check(cuassay_op, cuassay_device, cuassay_dtype)

    def test_once(cuassay_device: Any, cuassay_op: OpSpec) -> None:
        __tracebackhide__ = True
        check(cuassay_op, cuassay_device)

    specs = (spec for spec in own_specs() if check.applies(spec))
    return marked(test if check.per_dtype else test_once, check, ops(*specs))


# Checks that apply to users' functions only are left out: ``ops()`` without arguments would select all ops.
_OF_OURS = {name: check for name, check in CHECKS.items() if any(map(check.applies, own_specs()))}
globals().update({f"test_{name}": _function(check) for name, check in _OF_OURS.items()})
