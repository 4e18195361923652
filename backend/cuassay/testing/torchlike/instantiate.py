"""Make a class for each selected kind of device from a template class, and a test for each case from its tests.

Such a test has the mark ``cuassay_case``. The plugin reads its device and dtype from there, as it does from the
parameters of other tests, so that skips, records and the final table treat both alike.

Parametrization follows torch's protocol, so that torch's own `ops` and `parametrize` work too. A decorator sets
`parametrize_fn` on the test. Called with the test, its class and the class for one device kind, it yields ``(test, part
of the name, arguments, function that returns decorators for these arguments)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import pytest

from cuassay.core.capability import DTYPE_NAMES, dtype_word
from cuassay.core.device import VALUELESS_KINDS, Device
from cuassay.core.words import shown
from cuassay.errors import DTypeError, SpecError
from cuassay.testing.presence import current_presence

Test: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Test], Test]
Decorators: TypeAlias = Callable[[dict[str, Any]], Iterable[Decorator]]
Variant: TypeAlias = tuple[Test, str, dict[str, Any], Decorators]
Variants: TypeAlias = Callable[[Test, type, Any], Iterable[Variant]]


class tol(NamedTuple):
    """An absolute and a relative tolerance."""

    atol: float
    rtol: float


class _OnDevice:
    """The attributes of a class for one kind of device, with torch's names."""

    device_type = ""
    cuassay_devices: tuple[Device, ...] = ()
    precision = 0.0
    rel_tol = 0.0

    @classmethod
    def get_all_devices(cls) -> list[str]:
        """Names of the selected devices of this kind, the test's own first; the cpu has torch's name."""
        return ["cpu" if device.kind == "cpu" else str(device) for device in cls.cuassay_devices]

    @classmethod
    def get_primary_device(cls) -> str:
        """The name of the device on which tests of a single device run."""
        return cls.get_all_devices()[0]


def instantiate_device_type_tests(
    generic_test_class: type,
    scope: MutableMapping[str, Any],
    except_for: str | Collection[str] | None = None,
    only_for: str | Collection[str] | None = None,
    **_: bool,
) -> None:
    """Replace a template in `scope` by a class for each kind of selected device, such as ``TestFooCUDA``.

    If no selected device is left, ``TestFooNOWHERE`` has a skipped test for each test of the template, so that they are
    reported. torch's ``include_lazy``, ``allow_mps`` and ``allow_xpu`` are accepted and ignored.

    Parameters
    ----------
    generic_test_class : type
        The template.
    scope : mapping
        The module's ``globals()``.
    except_for, only_for : str or collection of str, optional
        The kinds to leave out, and the only kinds to use.
    """
    templates = {name: test for name, test in vars(generic_test_class).items() if name.startswith("test")}
    for name in templates:
        delattr(generic_test_class, name)
    del scope[generic_test_class.__name__]
    devices = _selected(except_for, only_for)
    for kind, group in groupby(sorted(devices, key=attrgetter("kind")), attrgetter("kind")):
        made = scope[f"{generic_test_class.__name__}{kind.upper()}"] = _made(generic_test_class, kind, tuple(group))
        for name, test in templates.items():
            _add_tests(made, generic_test_class, name, test)
    if not devices:
        made = scope[f"{generic_test_class.__name__}NOWHERE"] = _made(generic_test_class, "nowhere", ())
        reason = f"needs a device of {only_for or 'any kind'}, not of {except_for or 'none'}; choose more with --device"
        for name, test in templates.items():
            _set_test(made, f"{name}_nowhere", _skipped(test, f"{generic_test_class.__name__}::{name}", reason))


def _skipped(test: Test, label: str, reason: str) -> Test:
    @wraps(test)
    def case(self: Any) -> None: ...

    marks = pytest.mark.cuassay_case(test=label, device=None), pytest.mark.cuassay_devices(), pytest.mark.skip(reason)
    case.pytestmark = [mark.mark for mark in marks]  # type: ignore[attr-defined]
    return case


def _selected(except_for: str | Collection[str] | None, only_for: str | Collection[str] | None) -> list[Device]:
    from cuassay.devices import kinds

    presence = current_presence()
    left_out = _words(except_for)
    known = set(kinds()) - set(VALUELESS_KINDS)
    wanted = [kind for kind in _words(only_for) if kind in known]  # torch's files name types that do not exist here
    found = presence.matching([f"{kind}:*" for kind in wanted]) if only_for else presence.devices
    return [device for device in found if device.kind not in left_out]


def _words(given: str | Collection[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _made(template: type, kind: str, devices: tuple[Device, ...]) -> Any:
    told = {"device_type": kind, "cuassay_devices": devices, "__module__": template.__module__}
    return type(f"{template.__name__}{kind.upper()}", (template, _OnDevice), told)


def _add_tests(made: Any, template: type, name: str, test: Test) -> None:
    """Add a test for each case, named ``<name>_<parameters>_<kind>_<dtypes>`` as in torch."""
    variants = getattr(test, "parametrize_fn", _unchanged)
    if hasattr(test, "dtypes"):
        variants = product(_by_dtype, variants)
    for function, middle, kwargs, decorators in variants(test, template, made):
        decorated = function
        for decorator in decorators(kwargs):
            decorated = decorator(decorated)
        dtype = kwargs.get("dtypes", kwargs.get("dtype"))
        parts = name, middle, made.device_type, "" if dtype is None else word(dtype)
        _set_test(made, "_".join(filter(None, parts)), _case(made, f"{template.__name__}::{name}", decorated, kwargs))


def _unchanged(test: Test, *_: Any) -> Iterator[Variant]:
    yield test, "", {}, partial(_fixed_decorators, ())


def _by_dtype(test: Any, template: type, device_class: Any) -> Iterator[Variant]:
    if "all" not in test.dtypes:
        raise SpecError(f"{template.__name__}.{test.__name__} has dtypes of one device type only; add @dtypes(...)")
    for dtype in test.dtypes.get(device_class.device_type, test.dtypes["all"]):
        yield (
            test,
            "",
            {"dtypes" if isinstance(dtype, tuple | list) else "dtype": value(dtype)},
            partial(_fixed_decorators, ()),
        )


def _case(made: Any, label: str, test: Any, kwargs: dict[str, Any]) -> Test:
    """Bind a test's arguments, tolerances and marks."""
    dtype = kwargs.get("dtypes", kwargs.get("dtype"))
    given = {**_devices(made, label, test, kwargs), **kwargs}

    @wraps(test)
    def case(self: Any) -> Any:
        __tracebackhide__ = True
        with _tolerances(self, test, dtype):
            return test(self, **given)

    found = () if dtype is None else names(dtype)
    told = {"device": made.cuassay_devices[0], "dtype": value(found[0]) if found else None}
    case.pytestmark = [  # type: ignore[attr-defined]
        *getattr(test, "pytestmark", ()),
        pytest.mark.cuassay_case(test=label, **told).mark,
        pytest.mark.cuassay_requires(*found).mark,
    ]
    return case


def _devices(made: Any, label: str, test: Test, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The argument `device` or `devices`, if the test takes it; decorators must provide all other arguments."""
    _, *arguments = inspect.signature(test).parameters.values()
    many = hasattr(test, "num_required_devices")
    own = {"devices": made.get_all_devices()} if many else {"device": made.get_primary_device()}
    for argument in arguments:
        is_needed = argument.default is argument.empty and argument.kind == argument.POSITIONAL_OR_KEYWORD
        if is_needed and argument.name not in {**own, **kwargs}:
            raise SpecError(f"{label} takes {argument.name!r}, which no decorator gives; add @dtypes or @parametrize")
    return {name: given for name, given in own.items() if name in {argument.name for argument in arguments}}


@contextmanager
def _tolerances(self: Any, test: Any, dtype: Any) -> Iterator[None]:
    former = self.precision, self.rel_tol
    found = getattr(test, "precision_overrides", {}), getattr(test, "tolerance_overrides", {})
    precisions, tolerances = ({word(key): given for key, given in overrides.items()} for overrides in found)
    name = "" if dtype is None else word(dtype)
    self.precision, self.rel_tol = tolerances.get(name, tol(precisions.get(name, former[0]), former[1]))
    try:
        yield
    finally:
        self.precision, self.rel_tol = former


def _set_test(made: Any, name: str, test: Any) -> None:
    if hasattr(made, name):
        raise SpecError(f"{made.__name__} has two tests named {name}; give one of them another name")
    test.__name__, test.__qualname__ = name, f"{made.__name__}.{name}"
    setattr(made, name, test)


# -------------------------------------------------------------------------------------------------- parameters


def product(first: Variants, second: Variants) -> Variants:
    """Combine each variant of `first` with each of `second`, whose part of the name comes first."""

    def variants(test: Test, template: type, device_class: Any) -> Iterator[Variant]:
        for inner, ending, kwargs, old in first(test, template, device_class):
            for outer, beginning, more, new in second(inner, template, device_class):
                name = "_".join(filter(None, (beginning, ending)))
                yield outer, name, {**kwargs, **more}, partial(_both, old, new)

    return variants


def _fixed_decorators(decorators: Iterable[Decorator], _: dict[str, Any]) -> Iterable[Decorator]:
    return decorators


def _both(old: Decorators, new: Decorators, kwargs: dict[str, Any]) -> list[Decorator]:
    return [*old(kwargs), *new(kwargs)]


@dataclass(frozen=True, slots=True)
class subtest:
    """A value of `parametrize` with its own name and decorators."""

    arg_values: Any
    name: str | None = None
    decorators: Iterable[Decorator] = ()


def parametrize(arg_str: str, arg_values: Iterable[Any], name_fn: Callable[..., str] | None = None) -> Decorator:
    """Make a test for each value of an argument, or for each tuple of values of several arguments.

    Parameters
    ----------
    arg_str : str
        The names of the arguments, separated by commas.
    arg_values : iterable
        The values, the tuples of values, or `subtest` objects.
    name_fn : callable, optional
        Makes a part of the test's name from the values.
    """
    arguments = [name.strip() for name in arg_str.split(",") if name.strip()]
    given = [found if isinstance(found, subtest) else subtest(found) for found in arg_values]

    def variants(test: Test, *_: Any) -> Iterator[Variant]:
        for place, one in enumerate(given):
            values = tuple(one.arg_values) if len(arguments) > 1 else (one.arg_values,)
            pairs = dict(zip(arguments, values, strict=True))
            by_default = "_".join(_part(place, *pair) for pair in pairs.items())
            name = one.name or (by_default if name_fn is None else name_fn(*values))
            yield test, name, pairs, partial(_fixed_decorators, one.decorators)

    def decorate(test: Test) -> Test:
        former = getattr(test, "parametrize_fn", None)
        test.parametrize_fn = variants if former is None else product(former, variants)  # type: ignore[attr-defined]
        return test

    return decorate


def _part(place: int, name: str, given: Any) -> str:
    if isinstance(given, int | float | str):
        return f"{name}_{given}".replace(".", "_")
    return word(given) if type(given).__name__ == "dtype" or isinstance(given, type) else f"{name}{place}"


# -------------------------------------------------------------------------------------------------- dtypes


def word(dtype: Any) -> str:
    """The name of a dtype in any form; of a tuple, such as ``float32_int64``. Raises `DTypeError`."""
    if isinstance(dtype, tuple | list):
        return "_".join(map(word, dtype))
    found = dtype_word(dtype)
    if not isinstance(found, str):
        found = str(found).removeprefix("torch.")
    if not found.isidentifier():
        raise DTypeError(f"{shown(dtype)} is not a dtype; give one of NumPy's or torch's, or a name such as 'float32'")
    return found


def names(dtype: Any) -> tuple[str, ...]:
    """The names among these that are dtypes of this package, which the device must support."""
    single = dtype if isinstance(dtype, tuple | list) else (dtype,)
    return tuple(name for name in map(word, single) if name in DTYPE_NAMES)


def value(dtype: Any) -> Any:
    """The value that a test gets: a NumPy dtype for a name, other dtypes as they are."""
    from cuassay.arrays.dtypes import as_dtype

    if isinstance(dtype, tuple | list):
        return tuple(map(value, dtype))
    return as_dtype(dtype) if isinstance(dtype, str) else dtype
