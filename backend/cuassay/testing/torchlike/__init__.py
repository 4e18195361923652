"""The decorators of torch's device-type tests under the same names, so that a suite only needs other imports.

``from cuassay.testing.torchlike import TestCase, dtypes, instantiate_device_type_tests, onlyCUDA`` replaces imports
from ``torch.testing._internal``. Classes are made for the devices that ``--device`` selects: ``TestFoo`` becomes
``TestFooCPU``, ``TestFooSIM`` and ``TestFooCUDA``, and ``test_x`` becomes ``test_x_cpu_float32``. A test is skipped
with the reason on a device that lacks its dtype. torch's `TestCase`, `parametrize` and `ops` work with these classes
too.

Decorators for further device types, such as `skipMPS` or `dtypesIfXPU`, exist and act on a kind of that name.

The attributes that decorators set on a function have torch's names (`dtypes`, `num_required_devices`,
`precision_overrides`, `tolerance_overrides`, `parametrize_fn`), so that both kinds of decorators can be mixed.
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

#: torch's "native" device types that are also kinds of this package.
_NATIVE = ("cpu", "cuda")


def _skipped_where(reason: Callable[..., str | None]) -> Decorator:
    """Skip a test if `reason`, which is called with the test's arguments, returns a text."""

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
    """Skip a test on some device types if a condition is true.

    Parameters
    ----------
    dep : object
        The condition, or the name of an attribute of the test's class.
    reason : str
        The reason for the skip.
    device_type : str or collection of str, optional
        The device types; by default all.
    """

    def why(self: Any, *_: Any, **__: Any) -> str | None:
        met = getattr(self, dep, True) if isinstance(dep, str) else dep
        return reason if met and _are(device_type, self.device_type) else None

    return _skipped_where(why)


skipCPUIf = partial(skipIf, device_type="cpu")
skipCUDAIf = partial(skipIf, device_type="cuda")


def onlyOn(device_type: str | Collection[str]) -> Decorator:
    """Skip the test on other device types than these."""
    return _skipped_where(
        lambda self, *_, **__: None if _are(device_type, self.device_type) else f"Only runs on {device_type}"
    )


onlyCPU = onlyOn("cpu")
onlyCUDA = onlyOn("cuda")
onlyNativeDeviceTypes = onlyOn(_NATIVE)


def onlyNativeDeviceTypesAnd(devices: Collection[str] = ()) -> Decorator:
    """Skip the test except on torch's native device types, which are cpu and cuda here, and on `devices`."""
    return onlyOn((*_NATIVE, *devices))


onlyAccelerator = _skipped_where(
    lambda self, *_, **__: "Only runs on accelerators" if self.device_type == "cpu" else None
)


def expectedFailure(device_type: str | None, dtype: Any = None) -> Decorator:
    """Expect a failure on a device type in a dtype: it is reported as xfailed, and a pass is a failure."""

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
    """Pass `devices`, the names of all selected devices of its kind, to the test; skip it if there are too few."""

    def decorate(test: Test) -> Test:
        test.num_required_devices = num_required_devices  # type: ignore[attr-defined]
        return _skipped_where(_too_few)(test)

    def _too_few(self: Any, devices: Collection[str], *_: Any, **__: Any) -> str | None:
        missing = len(devices) < num_required_devices
        return f"fewer than {num_required_devices} devices are selected: {', '.join(devices)}" if missing else None

    return decorate


def largeTensorTest(size: int | str | Callable[..., int], device: str | None = None) -> Decorator:
    """Skip the test if the device has less free memory than `size`.

    Parameters
    ----------
    size : int, str or callable
        Bytes, a text such as ``"12GB"`` (GiB), or a function of the test's arguments that returns bytes.
    device : str, optional
        The device; by default that of the test.

    Raises
    ------
    ArgumentError
        If a text has another form.
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
    """Make a test for each dtype, or for each tuple of dtypes.

    Parameters
    ----------
    *args : dtype or tuple of dtypes
        Each is a dtype of NumPy or torch, a scalar type such as ``numpy.float32``, or a name. The test gets a NumPy
        dtype for a name, and other dtypes as they are.
    device_type : str
        The device type with these dtypes; it takes precedence over ``"all"``.

    Raises
    ------
    DTypeError
        If an argument is none of these, if tuples and single dtypes are mixed, or if the test already has dtypes for
        `device_type`.
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
    """Set `self.precision` and `self.rel_tol` by dtype; this takes precedence over `precisionOverride`."""
    return partial(_override, "tolerance_overrides", {word(dtype): tol(*value) for dtype, value in d.items()})


def _override(name: str, by_dtype: Mapping[str, Any], test: Test) -> Test:
    setattr(test, name, by_dtype)
    return test


def tf32_on_and_off(tf32_precision: float = 1e-5, *, only_if: bool = True) -> Decorator:
    """Run the test without TF32, then with TF32 and this `self.precision`; once if device or dtype has no TF32.

    This sets cuassay's precision (`cuassay.core.precision`), not torch's switches.
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
    """Run the test with float32 products computed in float32."""
    return wraps(test)(precision("ieee")(test))


# ---------------------------------------------------------------------------------------------- other names of torch's

_OF_A_KIND = re.compile(r"(only|dtypesIf|expectedFailure|skip)(SIM|MPS|XPU|HPU|XLA|Meta|Lazy|PRIVATEUSE1)(If)?")

#: Conditions that all devices meet: NumPy has LAPACK and FFT, cuda uses cuSOLVER instead of MAGMA, and none is ROCm.
_ALWAYS_MET = re.compile("skipCPUIfNo(Lapack|FFT)|skipCUDAIf(NoCusolver|NoMagma|NoMagmaAndNoCusolver|Rocm|Miopen)")

#: Conditions that no device meets.
_NEVER_MET = re.compile("skipCUDAIfNot(Rocm|MiopenSuggestNHWC)")

#: Regular expressions of names that cannot be supported, and what to use instead.
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
    if instead is not None:  # `from ... import` shows the message of an ImportError, but not of an AttributeError
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
