"""The decorators of torch's device-type tests, by the same names: a suite moves over by a change of its imports.

``from cuassay.testing.torchlike import TestCase, dtypes, instantiate_device_type_tests, onlyCUDA`` represents imports
from ``torch.testing._internal``. Classes are made for the devices that ``--device`` selects, so ``TestFoo`` becomes
``TestFooCPU``, ``TestFooSIM`` and ``TestFooCUDA``, and ``test_x`` becomes ``test_x_cpu_float32``. A device that lacks a
dtype skips the test with the reason. torch's own `TestCase`, `parametrize` and `ops` work with these classes, too.

Decorators for further device types, such as `skipMPS` or `dtypesIfXPU`, exist and act on a kind of that name.

What a decorator leaves on a function has torch's names (`dtypes`, `num_required_devices`, `precision_overrides`,
`tolerance_overrides`, `parametrize_fn`), so that theirs and ours can be mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial, wraps
from typing import Any
from unittest import SkipTest

import pytest

from cuassay.core.device import Device
from cuassay.core.precision import precision
from cuassay.core.units import format_bytes, parse_bytes
from cuassay.errors import DTypeError
from cuassay.testing.torchlike.cases import TestCase, run_tests
from cuassay.testing.torchlike.instantiate import (
    Decorator,
    Test,
    instantiate_device_type_tests,
    parametrize,
    subtest,
    tol,
    word,
)

__all__ = [
    "TestCase",
    "deviceCountAtLeast",
    "dtypes",
    "dtypesIfCPU",
    "dtypesIfCUDA",
    "expectedFailure",
    "expectedFailureCPU",
    "expectedFailureCUDA",
    "instantiate_device_type_tests",
    "largeTensorTest",
    "onlyAccelerator",
    "onlyCPU",
    "onlyCUDA",
    "onlyNativeDeviceTypes",
    "onlyNativeDeviceTypesAnd",
    "onlyOn",
    "parametrize",
    "precisionOverride",
    "run_tests",
    "skipCPUIf",
    "skipCUDAIf",
    "skipIf",
    "subtest",
    "tf32_on_and_off",
    "tol",
    "toleranceOverride",
    "with_tf32_off",
]

#: torch's "native" device types that are kinds of ours.
_NATIVE = ("cpu", "cuda")


def _skipped_where(reason: Callable[..., str | None]) -> Decorator:
    """Skip a test where `reason`, given what the test is given, has one."""

    def decorate(test: Test) -> Test:
        @wraps(test)
        def decorated(self: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            why = reason(self, *args, **kwargs)
            if why is not None:
                raise SkipTest(why)
            return test(self, *args, **kwargs)

        return decorated

    return decorate


def _are(device_type: str | Collection[str] | None, kind: str) -> bool:
    return device_type is None or kind in ((device_type,) if isinstance(device_type, str) else device_type)


def skipIf(dep: object, reason: str, device_type: str | Collection[str] | None = None) -> Decorator:
    """Skip where `dep` is true, or the attribute of the test's class that it names; on these device types only."""

    def why(self: Any, *_: Any, **__: Any) -> str | None:
        met = getattr(self, dep, True) if isinstance(dep, str) else dep
        return reason if met and _are(device_type, self.device_type) else None

    return _skipped_where(why)


skipCPUIf = partial(skipIf, device_type="cpu")
skipCUDAIf = partial(skipIf, device_type="cuda")


def onlyOn(device_type: str | Collection[str]) -> Decorator:
    """Skip on other device types."""
    return _skipped_where(
        lambda self, *_, **__: None if _are(device_type, self.device_type) else f"Only runs on {device_type}"
    )


onlyCPU = onlyOn("cpu")
onlyCUDA = onlyOn("cuda")
onlyNativeDeviceTypes = onlyOn(_NATIVE)


def onlyNativeDeviceTypesAnd(devices: Collection[str] = ()) -> Decorator:
    """Skip on other device types than torch's native ones, here cpu and cuda, and `devices`."""
    return onlyOn((*_NATIVE, *devices))


onlyAccelerator = _skipped_where(
    lambda self, *_, **__: "Only runs on accelerators" if self.device_type == "cpu" else None
)


def expectedFailure(device_type: str | None, dtype: Any = None) -> Decorator:
    """Expect a failure on a device type, in a dtype: reported as xfailed, and a failure if the test passes."""

    def decorate(test: Test) -> Test:
        @wraps(test)
        def decorated(self: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not _are(device_type, self.device_type) or dtype not in (None, kwargs.get("dtype")):
                return test(self, *args, **kwargs)
            try:
                test(self, *args, **kwargs)
            except SkipTest:
                raise
            except Exception as error:  # noqa: BLE001  any error is the expected failure
                pytest.xfail(f"expected failure on {self.device_type}: {error!r:.200}")
            return self.fail("expected test to fail, but it passed")

        return decorated

    return decorate


expectedFailureCPU = expectedFailure("cpu")
expectedFailureCUDA = expectedFailure("cuda")


def deviceCountAtLeast(num_required_devices: int) -> Decorator:
    """Give the test `devices`, the names of all selected devices of its kind; skip where they are fewer."""

    def decorate(test: Test) -> Test:
        test.num_required_devices = num_required_devices  # type: ignore[attr-defined]
        return _skipped_where(_too_few)(test)

    def _too_few(self: Any, devices: Collection[str], *_: Any, **__: Any) -> str | None:
        missing = len(devices) < num_required_devices
        return f"fewer than {num_required_devices} devices are selected: {', '.join(devices)}" if missing else None

    return decorate


def largeTensorTest(size: int | str | Callable[..., int], device: str | None = None) -> Decorator:
    """Skip where the device, or `device`, has less free memory than `size`: bytes, ``"12GB"`` (GiB), or what gives it.

    Raises
    ------
    ArgumentError
        If a text is not of this form.
    """
    needed = parse_bytes(re.sub("GB|gb", "GiB", size)) if isinstance(size, str) else size

    def why(self: Any, *args: Any, **kwargs: Any) -> str | None:
        from cuassay.devices import backend

        found = Device(device or self.get_primary_device())
        nbytes = needed(self, *args, **kwargs) if callable(needed) else int(needed)
        free, _ = backend(found.kind).memory_info(found.index)
        short = f"{found}: {format_bytes(nbytes)} of free memory needed; it has {format_bytes(free)}"
        return short if free < nbytes else None

    return _skipped_where(why)


def dtypes(*args: Any, device_type: str = "all") -> Decorator:
    """Make a test for each dtype, or for each tuple of dtypes; those of `device_type` go before those of all.

    A dtype is NumPy's, torch's, a scalar type such as ``numpy.float32``, or a name. The test gets a name as a NumPy
    dtype, the others as they are.

    Raises
    ------
    DTypeError
        If one is none of these, tuples and others are mixed, or the test has dtypes for `device_type` already.
    """
    if len({isinstance(arg, tuple | list) for arg in args}) > 1:
        raise DTypeError(f"one variant of @dtypes is a tuple and one is not: {args!r}; give all as tuples")
    for arg in args:
        word(arg)

    def decorate(test: Test) -> Test:
        given: dict[str, tuple[Any, ...]] = getattr(test, "dtypes", {})
        if device_type in given:
            raise DTypeError(f"{test.__name__} has @dtypes for {device_type} twice; leave one out")
        test.dtypes = {**given, device_type: args}  # type: ignore[attr-defined]
        return test

    return decorate


dtypesIfCPU = partial(dtypes, device_type="cpu")
dtypesIfCUDA = partial(dtypes, device_type="cuda")


def precisionOverride(d: Mapping[Any, float]) -> Decorator:
    """Set `self.precision`, the absolute tolerance of `assertEqual`, by dtype."""
    return partial(_override, "precision_overrides", {word(dtype): value for dtype, value in d.items()})


def toleranceOverride(d: Mapping[Any, tol]) -> Decorator:
    """Set `self.precision` and `self.rel_tol` by dtype; this goes before `precisionOverride`."""
    return partial(_override, "tolerance_overrides", {word(dtype): tol(*value) for dtype, value in d.items()})


def _override(name: str, by_dtype: Mapping[str, Any], test: Test) -> Test:
    setattr(test, name, by_dtype)
    return test


def tf32_on_and_off(tf32_precision: float = 1e-5, *, only_if: bool = True) -> Decorator:
    """Run the body without TF32, then with TF32 and this `self.precision`; once where a device or dtype has no TF32.

    It sets cuassay's precision (`cuassay.core.precision`), not torch's switches.
    """

    def decorate(test: Test) -> Test:
        @wraps(test)
        def decorated(self: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not only_if or not _has_tf32(self, kwargs.get("dtype")):
                return test(self, *args, **kwargs)
            with precision("ieee"):
                test(self, *args, **kwargs)
            former, self.precision = self.precision, tf32_precision
            try:
                with precision("tf32"):
                    return test(self, *args, **kwargs)
            finally:
                self.precision = former

        return decorated

    return decorate


def _has_tf32(self: Any, dtype: Any) -> bool:
    from cuassay.devices import capabilities

    is_single = dtype is None or word(dtype) in {"float32", "complex64"}
    return is_single and capabilities(self.get_primary_device()).missing("tf32") is None


def with_tf32_off(test: Test) -> Test:
    """Run the test with float32 products in float32."""
    return wraps(test)(precision("ieee")(test))


# ---------------------------------------------------------------------------------------------- other names of torch's

_OF_A_KIND = re.compile(r"(only|dtypesIf|expectedFailure|skip)(SIM|MPS|XPU|HPU|XLA|Meta|Lazy|PRIVATEUSE1)(If)?")

#: Every device of ours meets these: NumPy has LAPACK and FFT, cuda has cuSOLVER in MAGMA's place, and none is ROCm.
_ALWAYS_MET = re.compile("skipCPUIfNo(Lapack|FFT)|skipCUDAIf(NoCusolver|NoMagma|NoMagmaAndNoCusolver|Rocm|Miopen)")

#: No device of ours meets these.
_NEVER_MET = re.compile("skipCUDAIfNot(Rocm|MiopenSuggestNHWC)")

#: What cannot be supported (a regular expression), and what to use instead.
_INSTEAD = {
    "ops|OpDTypes|modules|OpInfo|op_db": "write conformance(OpSpec(...)); for OpInfos import ops from torch, as before",
    "skip(OpsIn|Ops)|xfail|skip|DecorateInfo": "give the OpSpec known_failures=[KnownFailure(reason=..., kind=...)]",
    "requires_capabilities": "cuassay.testing.requires, with names of `cuassay devices -v`",
    "skipCUDA(VersionIn|If.*Version.*)": "skipCUDAIf(condition, reason), the condition from cuassay.cuda's versions",
    "(skipC|disable|expectedFailureIf).*": "leave it out: no kind of ours uses this library",
    "instantiate_parametrized_tests": "instantiate_device_type_tests, or pytest.mark.parametrize",
}


def __getattr__(name: str) -> Callable[..., Any]:
    if _ALWAYS_MET.fullmatch(name):
        return lambda test: test
    if _NEVER_MET.fullmatch(name):
        return skipIf(True, "the test is for ROCm, which no kind of ours uses", device_type="cuda")
    found = _OF_A_KIND.fullmatch(name)
    if found is not None:
        return _of_a_kind(found[1] + (found[3] or ""), found[2].lower())
    instead = next((text for form, text in _INSTEAD.items() if re.fullmatch(form, name)), None)
    if instead is not None:  # an ImportError is what `from ... import` shows as it is
        raise ImportError(f"cuassay.testing.torchlike does not offer {name}; {instead}", name=name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def _of_a_kind(family: str, kind: str) -> Callable[..., Any]:
    families: dict[str, Callable[..., Any]] = {
        "only": onlyOn(kind),
        "dtypesIf": partial(dtypes, device_type=kind),
        "expectedFailure": expectedFailure(kind),
        "skip": skipIf(True, f"marked as skipped on {kind}", device_type=kind),
        "skipIf": partial(skipIf, device_type=kind),
    }
    return families[family]
