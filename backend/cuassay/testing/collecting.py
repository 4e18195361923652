"""Collect ``test_x = conformance(...)``, and report objects that were meant to be collected but cannot be."""

from __future__ import annotations

import sys
from types import FunctionType

import pytest

from cuassay.testing.parametrize import ConformanceClass

__all__ = ["collect_generated", "warn_of_unassigned"]


def collect_generated(collector: pytest.Module | pytest.Class, name: str, obj: object) -> ConformanceClass | None:
    """The class of tests that `obj` holds, or None; raises for an object that only resembles generated tests."""
    if type(obj) is FunctionType:
        return None  # a fast path for most objects
    generated = getattr(obj, "__cuassay_test_class__", None)
    if not isinstance(generated, type):
        if name.startswith("test"):
            _reject_near_miss(name, obj)
        return None
    if not name.lower().startswith("test"):
        _warn_of_name(collector, name, obj)
        return None
    vars(generated)["spec"].name_after(name)
    collected: ConformanceClass = ConformanceClass.from_parent(collector, name=name)
    return collected


def warn_of_unassigned(collector: pytest.Collector) -> None:
    """Warn of generated tests that a module has made and not assigned, because pytest cannot see them."""
    made = getattr(sys.modules.get("cuassay.testing.generated"), "MADE", ())
    if not made or not isinstance(collector, pytest.Module):
        return
    path = str(collector.path)
    ours = [one for one in made if one[0] == path]
    made[:] = [one for one in made if one[0] != path]
    for _, line, name, result in ours:
        if result() is None:
            test = f"test_{name}" if name.isidentifier() else "test_norm"
            collector.warn(
                pytest.PytestCollectionWarning(
                    f"the tests that conformance(...) makes in line {line} are not run, because they are not assigned; "
                    f"write {test} = conformance(...)"
                )
            )


def _reject_near_miss(name: str, obj: object) -> None:
    """Reject an object that was meant to hold generated tests, because pytest would silently collect nothing."""
    if _is_spec(obj):
        problem = f"an OpSpec, of which pytest collects nothing; write {name} = conformance(OpSpec(...))"
    elif isinstance(obj, list | tuple | dict) and any(map(_generates, obj.values() if isinstance(obj, dict) else obj)):
        problem = (
            f"a {type(obj).__name__} of generated tests, of which pytest collects nothing; give them a name each, "
            f'as by globals()["{name}_" + name] = conformance(spec) in a loop'
        )
    else:
        return
    raise pytest.Collector.CollectError(f"{name} is {problem}")


def _is_spec(obj: object) -> bool:
    specs = sys.modules.get("cuassay.testing.opspec")  # if the module is not loaded, there are no specs
    return specs is not None and isinstance(obj, specs.OpSpec)


def _generates(obj: object) -> bool:
    return isinstance(getattr(obj, "__cuassay_test_class__", None), type)


def _warn_of_name(collector: pytest.Module | pytest.Class, name: str, tests: object) -> None:
    """Warn that generated tests do not run, unless another variable with a test name holds them too."""
    names = (other for other, held in vars(collector.obj).items() if held is tests)
    if not any(other.lower().startswith("test") for other in names):
        collector.warn(
            pytest.PytestCollectionWarning(
                f"{name} holds generated tests, which are not run: pytest collects names that begin with test; "
                f"call it test_{name}"
            )
        )
