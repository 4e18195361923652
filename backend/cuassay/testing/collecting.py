"""What pytest collects of ``test_x = conformance(...)``, and what it says of an object that only looks so."""

from __future__ import annotations

import sys
from types import FunctionType

import pytest

from cuassay.testing.parametrize import ConformanceClass

__all__ = ["collect_generated"]


def collect_generated(collector: pytest.Module | pytest.Class, name: str, obj: object) -> ConformanceClass | None:
    """The class of tests that `obj` names, or None; raises for what only looks like one."""
    if type(obj) is FunctionType:
        return None  # most objects that pytest asks about
    generated = getattr(obj, "__cuassay_test_class__", None)
    if not isinstance(generated, type):
        if name.startswith("test"):
            _refuse_near_miss(name, obj)
        return None
    if not name.lower().startswith("test"):
        _warn_of_name(collector, name, obj)
        return None
    vars(generated)["spec"].name_after(name)
    collected: ConformanceClass = ConformanceClass.from_parent(collector, name=name)
    return collected


def _refuse_near_miss(name: str, obj: object) -> None:
    """Refuse an object that was meant for generated tests and has none, as pytest would collect nothing."""
    if _is_spec(obj):
        told = f"an OpSpec, of which pytest collects nothing; write {name} = conformance(OpSpec(...))"
    elif isinstance(obj, list | tuple | dict) and any(map(_generates, obj.values() if isinstance(obj, dict) else obj)):
        told = (
            f"a {type(obj).__name__} of generated tests, of which pytest collects nothing; give them a name each, "
            f'as by globals()["{name}_" + name] = conformance(spec) in a loop'
        )
    else:
        return
    raise pytest.Collector.CollectError(f"{name} is {told}")


def _is_spec(obj: object) -> bool:
    specs = sys.modules.get("cuassay.testing.opspec")  # where it is not loaded there are none
    return specs is not None and isinstance(obj, specs.OpSpec)


def _generates(obj: object) -> bool:
    return isinstance(getattr(obj, "__cuassay_test_class__", None), type)


def _warn_of_name(collector: pytest.Module | pytest.Class, name: str, tests: object) -> None:
    """Say that generated tests are not run, unless another name of theirs lets them."""
    names = (other for other, held in vars(collector.obj).items() if held is tests)
    if not any(other.lower().startswith("test") for other in names):
        collector.warn(
            pytest.PytestCollectionWarning(
                f"{name} holds generated tests, which are not run: pytest collects names that begin with test; "
                f"call it test_{name}"
            )
        )
