"""Make the cases of a test from its arguments `device`, `dtype` and `op`, in this order in the id.

A name that a project provides itself, by a fixture, a parametrize mark or its own hook, is left alone. Generated tests
take arguments of other names, `OWN_NAMES`, so that in every project they run on the device that their id says. The list
of cases is made once for each combination and shared, because a session may have fifty thousand cases.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core.device import Device
from cuassay.errors import DeviceError

if TYPE_CHECKING:
    from cuassay.testing.marks import SpecLike
    from cuassay.testing.presence import Presence

__all__ = ["DEFAULT_DTYPES", "NAMES", "OWN_NAMES", "ConformanceClass", "Parametrizer", "provider"]

#: The arguments that this plugin parametrizes, in the order of the id.
NAMES = ("device", "dtype", "op")

#: The names of these arguments in generated tests. A project may have a fixture `device` that means something else.
OWN_NAMES = {name: f"cuassay_{name}" for name in NAMES}

_OURS = frozenset((*NAMES, *OWN_NAMES.values()))

#: The dtypes of a test without ``@dtypes`` and without an op: the floats that most accelerators support.
DEFAULT_DTYPES = ("float32", "float16", "bfloat16", "float64")

_SCOPES = ("function", "class", "module", "package", "session")


class ConformanceClass(pytest.Class):
    """The generated tests of one spec, collected from a module's variable under that variable's name."""

    def _getobj(self) -> type:
        found: type = getattr(self.parent.obj, self.name).__cuassay_test_class__  # type: ignore[union-attr]
        return found

    def funcnamefilter(self, name: str) -> bool:
        """Accept ``test_*``, the names of generated tests, whatever the project calls its own."""
        return name.startswith("test_")


class Parametrizer:
    """Parametrizes tests.

    Parameters
    ----------
    presence : Presence
        The session's devices; they are looked for when the first test takes one.
    """

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._cases: dict[tuple[object, ...], list[Any]] = {}

    def __call__(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize one test function."""
        if _OURS.isdisjoint(metafunc.fixturenames) and not metafunc.definition.own_markers:
            return  # the common case in projects that do not use this plugin
        arguments = _arguments(metafunc)
        _reject_idle_marks(arguments, metafunc)
        if not arguments:
            return
        specs = _specs(metafunc)
        if specs is None:
            arguments = {argument: name for argument, name in arguments.items() if name != "op"}
        if arguments:
            cases = self._cases_for(arguments, metafunc, specs)
            metafunc.parametrize(",".join(arguments), cases, scope=_scope(arguments, metafunc))

    def _cases_for(
        self, arguments: Mapping[str, str], metafunc: pytest.Metafunc, specs: tuple[SpecLike, ...] | None
    ) -> list[Any]:
        dtypes = _closest(metafunc, "cuassay_dtypes")
        devices: Sequence[Device | None] = (None,)
        names = tuple(arguments.values())
        if "device" in names:
            patterns = _closest(metafunc, "cuassay_devices")
            devices = self._devices(patterns, metafunc)
            if not devices:
                return [_nowhere(names, patterns or (), self._presence.devices)]
        generated = metafunc.definition.getparent(ConformanceClass) is not None
        shown = tuple(name for name in NAMES if name in names and (name != "op" or not generated))
        check = getattr(metafunc.function, "cuassay_check", "")
        left = _left_to_others(check, devices, specs)
        key = names, shown, devices, dtypes, tuple(map(id, specs or ())), left
        if key not in self._cases:
            self._cases[key] = list(_cases(names, shown, devices, dtypes, specs, left))
        return self._cases[key]

    def _devices(self, patterns: tuple[str, ...] | None, metafunc: pytest.Metafunc) -> tuple[Device, ...]:
        try:
            return self._presence.devices if patterns is None else self._presence.matching(patterns)
        except DeviceError as error:
            raise pytest.UsageError(f"{_where(metafunc)}: {error}") from None


def _arguments(metafunc: pytest.Metafunc) -> dict[str, str]:
    """The arguments to parametrize, each with its name in `NAMES`."""
    asked = metafunc.fixturenames
    own = {argument: name for name, argument in OWN_NAMES.items() if argument in asked}
    return own | {name: name for name in NAMES if name in asked and not _is_taken(name, metafunc)}


def _reject_idle_marks(arguments: Mapping[str, str], metafunc: pytest.Metafunc) -> None:
    """Reject a mark without effect: the test would run once, and seem to pass for all the marked cases."""
    own = {mark.name for mark in metafunc.definition.own_markers}  # a class's mark may be for some of its tests only
    for name in NAMES:
        if f"cuassay_{name}s" not in own or name in arguments.values():
            continue
        if name not in metafunc.fixturenames:
            raise pytest.UsageError(f"{_where(metafunc)}: @{name}s has no effect on a test that does not take `{name}`")
        who = provider(metafunc._arg2fixturedefs.get(name))  # noqa: SLF001
        raise pytest.UsageError(
            f"{_where(metafunc)}: @{name}s has no effect here, as this test's `{name}` is {who}; give that another "
            f"name, or leave @{name}s out"
        )


def _is_taken(name: str, metafunc: pytest.Metafunc) -> bool:
    """Whether the project provides `name` itself."""
    # Both are private: pytest has no public way to ask. Tested on 8.4, 9.1 and 9.2.
    fixtures = metafunc._arg2fixturedefs.get(name)  # noqa: SLF001
    called = any(name in call.params for call in metafunc._calls)  # noqa: SLF001
    marked = any(name in _argument_names(mark) for mark in metafunc.definition.iter_markers("parametrize"))
    return bool(fixtures) or called or marked


def provider(fixtures: Sequence[Any] | None) -> str:
    """Say who provides an argument, from pytest's definitions of the fixture, if there is one."""
    function = None if not fixtures else inspect.unwrap(fixtures[-1].func)
    code = getattr(function, "__code__", None)
    if code is None or "_pytest" in Path(code.co_filename).parts:  # pytest defines a fixture for each parametrization
        return "another plugin or conftest"
    return f"a fixture of {os.path.relpath(code.co_filename)}:{code.co_firstlineno}"


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _closest(metafunc: pytest.Metafunc, mark: str) -> tuple[str, ...] | None:
    found = metafunc.definition.get_closest_marker(mark)
    return None if found is None else found.args


def _specs(metafunc: pytest.Metafunc) -> tuple[SpecLike, ...] | None:
    """The specs of the test's ``@ops``, or of its generated class; None if it has neither."""
    mark = metafunc.definition.get_closest_marker("cuassay_ops")
    if mark is None:
        generated = metafunc.definition.getparent(ConformanceClass)
        return None if generated is None else (generated.obj.spec,)
    if mark.args and not any(isinstance(spec, str) for spec in mark.args):
        return mark.args
    from cuassay.testing.own_specs import own_specs

    ours = {spec.name: spec for spec in own_specs()}
    unknown = [spec for spec in mark.args if isinstance(spec, str) and spec not in ours]
    if unknown:
        raise pytest.UsageError(f"{_where(metafunc)}: {unknown[0]!r} is not one of our ops; ops: {', '.join(ours)}")
    return tuple(ours[spec] if isinstance(spec, str) else spec for spec in mark.args or ours.values())


def _where(metafunc: pytest.Metafunc) -> str:
    path, line, _ = metafunc.definition.reportinfo()
    return f"{os.path.relpath(path)}:{(line or 0) + 1}"


def _cases(
    names: tuple[str, ...],
    shown: tuple[str, ...],
    devices: Sequence[Device | None],
    dtypes: tuple[str, ...] | None,
    specs: tuple[SpecLike, ...] | None,
    left: frozenset[tuple[Device | None, int]],
) -> Iterable[Any]:
    for device in devices:
        for spec in specs if specs is not None else (None,):
            if (device, id(spec)) in left:
                continue
            for dtype in _dtypes(names, dtypes, spec):
                values = {"device": device, "dtype": _dtype_object(dtype), "op": spec}
                words = {"device": str(device), "dtype": dtype, "op": spec.name if spec is not None else ""}
                yield pytest.param(*(values[name] for name in names), id="-".join(words[name] for name in shown))


def _left_to_others(
    check: str, devices: Sequence[Device | None], specs: tuple[SpecLike, ...] | None
) -> frozenset[tuple[Device | None, int]]:
    """The pairs of device and spec (by id) whose generated check another op or kind covers."""
    pairs = ((device, spec) for device in devices if device is not None for spec in specs or () if check)
    return frozenset((device, id(spec)) for device, spec in pairs if spec.leaves_to_other(check, device.kind))


def _dtypes(names: tuple[str, ...], dtypes: tuple[str, ...] | None, spec: SpecLike | None) -> Sequence[str]:
    if "dtype" not in names:
        return ("",)
    if spec is None:
        return DEFAULT_DTYPES if dtypes is None else dtypes
    return tuple(dtype for dtype in spec.dtypes if dtypes is None or dtype in dtypes)


def _dtype_object(name: str) -> Any:
    if not name:
        return None
    from cuassay.arrays.dtypes import as_dtype

    return as_dtype(name)


def _nowhere(names: tuple[str, ...], patterns: tuple[str, ...], selected: Sequence[Device]) -> Any:
    """One skipped case, so that a test for devices that were not selected appears in the report."""
    here = ", ".join(map(str, selected)) or "none"
    reason = f"needs a device of {', '.join(patterns) or 'some kind'}; selected: {here}; choose more with --device"
    return pytest.param(*(None for _ in names), id="nowhere", marks=pytest.mark.skip(reason=reason))


def _scope(names: Iterable[str], metafunc: pytest.Metafunc) -> Any:
    """The widest scope among the fixtures that ask for one of `names`, because a module's fixture may use `device`."""
    found = [
        definitions[-1].scope
        for definitions in metafunc._arg2fixturedefs.values()  # noqa: SLF001
        if any(name in definitions[-1].argnames for name in names)
    ]
    return max(found, key=_SCOPES.index, default="function")
