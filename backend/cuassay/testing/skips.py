"""Decide whether a case can run on its device. This is done just before it runs, and the reason is given in words.

Collection uses no device. A skip names the missing capability, never a platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cuassay.core.device import Device
from cuassay.errors import ArgumentError
from cuassay.testing.parametrize import OWN_NAMES, provider

__all__ = [
    "case_of",
    "check_of",
    "expect_known_failure",
    "is_nowhere",
    "is_of_check",
    "opted_out",
    "parameters_of",
    "requirements",
    "template_of",
    "why_skipped",
]


def case_of(item: pytest.Item) -> dict[str, Any]:
    """The item's `device`, `dtype` and `op`, if this plugin made them; empty for every other test."""
    params = parameters_of(item)
    if not isinstance(params.get("device"), Device):
        return {}
    return {name: params[name] for name, is_ours in _OURS.items() if is_ours(params.get(name))}


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    """The item's parameters of `NAMES`; a generated test's `OWN_NAMES` take precedence."""
    made = item.get_closest_marker("cuassay_case")
    params = getattr(getattr(item, "callspec", None), "params", {}) if made is None else made.kwargs
    return {name: params[argument] for name, argument in _ARGUMENTS if argument in params} if params else {}


#: Each parameter with the arguments that may hold it.
_ARGUMENTS = [(name, argument) for name, own in OWN_NAMES.items() for argument in (name, own)]


def template_of(item: pytest.Item) -> str | None:
    """The template ``TestFoo::test_x`` from which `cuassay.testing.torchlike` made this test; None for other tests."""
    made = item.get_closest_marker("cuassay_case")
    return None if made is None else made.kwargs["test"]


#: Parameter to a test of its value: a test with our `device` may have its own `dtype` or `op`.
_OURS: dict[str, Callable[[Any], bool]] = {
    "device": lambda value: isinstance(value, Device),
    "dtype": lambda value: hasattr(value, "itemsize") and hasattr(value, "name"),
    "op": lambda value: hasattr(value, "why_unsupported") and hasattr(value, "name"),
}


def is_nowhere(item: pytest.Item) -> bool:
    """Whether this is the placeholder for a test none of whose devices is selected."""
    return parameters_of(item).get("device", item) is None and _names_devices(item)


def _names_devices(item: pytest.Item) -> bool:
    return item.get_closest_marker("cuassay_devices") is not None


def why_skipped(item: pytest.Item, case: dict[str, Any]) -> str | None:
    """Everything that the device of this case lacks, in one line, or None.

    Raises
    ------
    pytest.UsageError
        If the test declares requirements but does not take this plugin's `device`; the message says whose it takes.
    """
    __tracebackhide__ = True
    if "device" not in case:
        if item.get_closest_marker("cuassay_requires") is not None and not _is_skipped(item):
            raise pytest.UsageError(f"{item.nodeid}: requires(...) {_no_device(item)}")
        return None
    return "; ".join(dict.fromkeys(_reasons(item, **case))) or None


def is_of_check(item: pytest.Item, case: dict[str, Any]) -> bool:
    """Whether a skipped case is a generated check, and the device lacks only what that check needs, such as graphs."""
    test = getattr(item, "obj", None)
    if "device" not in case or not hasattr(test, "cuassay_check"):
        return False
    from cuassay.devices import capabilities

    marks = getattr(test, "pytestmark", ())
    needs = [need for mark in marks if mark.name == "cuassay_requires" for need in mark.args]
    reasons = set(_reasons(item, **case))
    return bool(reasons) and reasons <= {capabilities(case["device"]).missing(need) for need in needs}


def opted_out(item: pytest.Item, case: dict[str, Any]) -> str | None:
    """Why a generated check is left out by its declaration's `without`, or None."""
    name, spec = getattr(getattr(item, "obj", None), "cuassay_check", None), case.get("op")
    reason = getattr(spec, "without", {}).get(name)
    return None if reason is None else f"{spec.name} opts out of {name}: {reason}"  # type: ignore[union-attr]


def _no_device(item: pytest.Item) -> str:
    if "device" not in getattr(item, "fixturenames", ()):
        return "needs a device; add the parameter `device` to the test"
    fixtures = item._fixtureinfo.name2fixturedefs.get("device")  # type: ignore[attr-defined] # noqa: SLF001  none public
    return (
        f"needs cuassay's `device`, and this test's `device` is {provider(fixtures)}; rename that, or omit "
        "requires(...)"
    )


def _is_skipped(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is not None


def _reasons(item: pytest.Item, device: Device, dtype: Any = None, op: Any = None) -> Iterator[str]:
    from cuassay.devices import capabilities

    can = capabilities(device)
    needs = list(requirements(item))
    if dtype is not None and not hasattr(op, "why_unsupported"):
        needs.append(dtype.name)
    yield from (reason for need in needs if (reason := can.missing(need)) is not None)
    if dtype is not None and hasattr(op, "why_unsupported") and (reason := op.why_unsupported(device, dtype.name)):
        yield reason


def requirements(item: pytest.Item) -> Iterator[str]:
    """The requirements that the test declares for this case."""
    return (need for mark in item.iter_markers("cuassay_requires") if _holds(item, mark) for need in mark.args)


def _holds(item: pytest.Item, mark: pytest.Mark) -> bool:
    """Whether the requirement applies to this case."""
    if "when" not in mark.kwargs:
        return True
    parameters = getattr(getattr(item, "callspec", None), "params", {}) | parameters_of(item)
    try:
        return bool(mark.kwargs["when"].holds(parameters))
    except ArgumentError as error:
        raise pytest.UsageError(f"{item.nodeid}: requires(...): {error}") from None


def expect_known_failure(item: pytest.Item, case: dict[str, Any]) -> None:
    """Mark the case as expected to fail, if its spec says so."""
    op = case.get("op")
    if op is None or not hasattr(op, "known_failure"):
        return
    dtype = case["dtype"].name if "dtype" in case else None
    failure = op.known_failure(case["device"], dtype, check_of(item))
    if failure is not None:
        item.add_marker(pytest.mark.xfail(reason=failure.reason, strict=failure.strict))


def check_of(item: pytest.Item) -> str:
    """The name of the tested property: the test function's name without ``test_``."""
    template = template_of(item)
    name: str = template.rpartition("::")[2] if template else getattr(item, "originalname", None) or item.name
    return name.removeprefix("test_")
