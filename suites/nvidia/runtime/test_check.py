"""A driver's status becomes an exception that says what to do; no GPU."""

# ruff: noqa: E402  what is imported further down needs what is asked for first

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

from cuda.bindings import nvrtc, runtime

from cuassay.devices.cuda.driver.check import ADVICE, check, guarded, is_sticky
from cuassay.devices.cuda.driver.runtime import _ATTRIBUTES, Properties
from cuassay.errors import (
    CaptureError,
    CuassayError,
    DeviceError,
    DeviceLostError,
    DriverError,
    LibraryNotFoundError,
    OutOfMemoryError,
)

DRIVER, RUNTIME = driver.CUresult, runtime.cudaError_t


@pytest.mark.parametrize(
    ("values", "expected"), [((), None), ((7,), 7), ((7, 8), (7, 8))], ids=["none", "one", "several"]
)
def test_success_gives_the_values(values: tuple[Any, ...], expected: Any) -> None:
    assert check((DRIVER.CUDA_SUCCESS, *values)) == expected


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (DRIVER.CUDA_ERROR_OUT_OF_MEMORY, OutOfMemoryError),
        (DRIVER.CUDA_ERROR_OUT_OF_MEMORY, MemoryError),
        (DRIVER.CUDA_ERROR_ILLEGAL_ADDRESS, DeviceLostError),
        (DRIVER.CUDA_ERROR_NO_DEVICE, DeviceError),
        (DRIVER.CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CaptureError),
        (DRIVER.CUDA_ERROR_INVALID_VALUE, DriverError),
        (DRIVER.CUDA_ERROR_UNKNOWN, DriverError),
        (RUNTIME.cudaErrorMemoryAllocation, OutOfMemoryError),
        (RUNTIME.cudaErrorIllegalAddress, DeviceLostError),
        (RUNTIME.cudaErrorLaunchFailure, DeviceLostError),
        (RUNTIME.cudaErrorStreamCaptureImplicit, CaptureError),
        (RUNTIME.cudaErrorInsufficientDriver, DriverError),
        (nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION, DriverError),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_a_failure_raises_its_class_with_status_and_code(status: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=rf"mixing paint failed: {status.name} \({int(status)}\).*; ") as caught:
        check((status,), "mixing paint")

    assert isinstance(caught.value, CuassayError)
    assert (caught.value.status, caught.value.code) == (status.name, int(status))


def test_every_status_in_the_table_is_one_of_cudas() -> None:
    driver_names = {status.name.removeprefix("CUDA_ERROR_") for status in DRIVER}

    assert set(ADVICE) - driver_names == {"INSUFFICIENT_DRIVER"}  # the runtime's alone


@pytest.mark.parametrize("name", ["CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress", "CUDA_ERROR_ASSERT"])
def test_statuses_that_kill_the_context_are_sticky(name: str) -> None:
    assert is_sticky(name)


@pytest.mark.parametrize("name", ["CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_NOT_READY", "NVRTC_ERROR_COMPILATION"])
def test_statuses_that_leave_the_context_alive_are_not(name: str) -> None:
    assert not is_sticky(name)


def test_an_absent_library_is_an_exception_of_ours() -> None:
    from cuda.pathfinder import DynamicLibNotFoundError

    expected = "libcuda could not be loaded: nowhere; install NVIDIA's driver"
    with pytest.raises(LibraryNotFoundError, match=expected), guarded("libcuda"):
        raise DynamicLibNotFoundError("nowhere.")


def test_other_runtime_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match=r"^mine$"), guarded("libcuda"):
        raise RuntimeError("mine")


def test_every_property_asks_for_an_attribute_the_driver_has() -> None:
    known = {attribute.name for attribute in driver.CUdevice_attribute}

    assert {f"CU_DEVICE_ATTRIBUTE_{name}" for name in _ATTRIBUTES.values()} <= known
    assert set(_ATTRIBUTES) | {"name", "total_memory", "uuid"} == {field.name for field in fields(Properties)}
