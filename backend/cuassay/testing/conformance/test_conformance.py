"""The generated tests of our own ops: one function a check, parametrized over device, dtype and op."""

from __future__ import annotations

from typing import Any

from cuassay.testing.conformance.checks import CHECKS, applies
from cuassay.testing.marks import ops, requires
from cuassay.testing.opspec import OpSpec, own_specs


def _make(name: str) -> Any:
    check = CHECKS[name]
    if name == "dtypes":

        def test(device: Any, op: OpSpec) -> None:
            __tracebackhide__ = True
            check(op, device)

    else:

        def test(device: Any, dtype: Any, op: OpSpec) -> None:  # type: ignore[misc]
            __tracebackhide__ = True
            check(op, device, dtype)

    test.__name__, test.__doc__ = f"test_{name}", check.__doc__
    marked = ops(*(spec for spec in own_specs() if applies(name, spec)))(test)
    needs = getattr(check, "needs", ())
    return requires(*needs)(marked) if needs else marked


for _name in CHECKS:
    globals()[f"test_{_name}"] = _make(_name)
