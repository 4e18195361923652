"""From a driver status to an exception: what failed, what the driver reported, and what to do.

`check` reads the tuples that every call of cuda.bindings returns. `guarded` handles the other way in which those calls
fail: an exception because the library is absent. One table has the advice for the statuses that users meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cuassay.core import extras
from cuassay.errors import (
    CaptureError,
    DeviceError,
    DeviceLostError,
    DriverError,
    LibraryNotFoundError,
    OutOfMemoryError,
)

__all__ = ["ADVICE", "advice", "check", "error_of", "guarded", "is_sticky"]

_LOST = (
    "the context is dead and every later call on this device fails: start a new process; to find the kernel, run "
    "with CUASSAY_LAUNCH_BLOCKING=1 or under compute-sanitizer"
)
_CAPTURE = "keep this call out of the capture, or end the capture first"
_ENDED = "end the capture, read the error of the call that broke it, and capture again"

#: Maps a driver status without its prefix to (exception, what to do). Statuses that are not listed raise `DriverError`.
ADVICE: dict[str, tuple[type[Exception], str]] = {
    "INVALID_VALUE": (DriverError, "check sizes, pointers and the launch shape: one of the arguments is out of range"),
    "OUT_OF_MEMORY": (
        OutOfMemoryError,
        "free arrays or cached blocks, use smaller inputs, or see what else is on the device",
    ),
    "NOT_INITIALIZED": (DriverError, "call cuassay.cuda.init() first"),
    "DEINITIALIZED": (DriverError, "the driver is shutting down: use nothing of CUDA in atexit handlers or finalizers"),
    "STUB_LIBRARY": (
        DriverError,
        "the loaded libcuda is the toolkit's stub: take the toolkit's stubs folder off LD_LIBRARY_PATH",
    ),
    "NO_DEVICE": (DeviceError, "check that a GPU is there (nvidia-smi) and that CUDA_VISIBLE_DEVICES does not hide it"),
    "INVALID_DEVICE": (DeviceError, "give an index below cuassay.cuda.device_count()"),
    "DEVICE_UNAVAILABLE": (
        DeviceError,
        "another process holds it in exclusive mode: wait for it, or use another device",
    ),
    "INVALID_IMAGE": (DriverError, "the kernel's binary is damaged: empty the folder CUASSAY_CACHE_DIR"),
    "INVALID_CONTEXT": (
        DriverError,
        "no context is current in this thread: call cuassay.cuda.set_device(index) in it first",
    ),
    "NO_BINARY_FOR_GPU": (
        DriverError,
        "the kernel was compiled for another architecture: compile it for this device's",
    ),
    "ECC_UNCORRECTABLE": (
        DeviceLostError,
        "memory of the card is failing: see `nvidia-smi -q -d ECC`; reset or replace the card",
    ),
    "UNSUPPORTED_PTX_VERSION": (
        DriverError,
        "the PTX is newer than the driver: compile to cubin, or update the driver",
    ),
    "NOT_FOUND": (DriverError, "check the name: templates are found by their lowered name"),
    "NOT_READY": (DriverError, "the work is not done: query again later, or synchronize"),
    "ILLEGAL_ADDRESS": (DeviceLostError, _LOST),
    "MISALIGNED_ADDRESS": (DeviceLostError, _LOST),
    "ILLEGAL_INSTRUCTION": (DeviceLostError, _LOST),
    "INVALID_ADDRESS_SPACE": (DeviceLostError, _LOST),
    "INVALID_PC": (DeviceLostError, _LOST),
    "HARDWARE_STACK_ERROR": (DeviceLostError, _LOST),
    "ASSERT": (DeviceLostError, "an assert in a kernel failed, its text is on stderr; " + _LOST),
    "LAUNCH_FAILED": (DeviceLostError, _LOST),
    "LAUNCH_TIMEOUT": (DeviceLostError, "the display watchdog stopped the kernel: split it up; " + _LOST),
    "CONTEXT_IS_DESTROYED": (DeviceLostError, _LOST),
    "LAUNCH_OUT_OF_RESOURCES": (
        DriverError,
        "the block needs more registers or threads than there are: launch fewer threads",
    ),
    "NOT_SUPPORTED": (DriverError, "this device or driver does not offer it"),
    "NOT_PERMITTED": (
        DriverError,
        "the call is forbidden here, such as waiting or allocating inside a capture or a host callback",
    ),
    "SYSTEM_DRIVER_MISMATCH": (
        DriverError,
        "kernel module and libcuda differ: reboot or reload the module after the update",
    ),
    "INSUFFICIENT_DRIVER": (
        DriverError,
        "the driver is older than the CUDA runtime, or absent: update it, or install the packages of CUDA 12: "
        + extras.pip_install("cuda12"),
    ),
    "STREAM_CAPTURE_UNSUPPORTED": (CaptureError, _CAPTURE),
    "STREAM_CAPTURE_INVALIDATED": (CaptureError, _ENDED),
    "STREAM_CAPTURE_MERGE": (CaptureError, "two captures were joined by an event: keep their streams apart"),
    "STREAM_CAPTURE_UNMATCHED": (CaptureError, "end the capture on the stream it was begun on"),
    "STREAM_CAPTURE_UNJOINED": (CaptureError, "let the capturing stream wait for every stream that was forked from it"),
    "STREAM_CAPTURE_ISOLATION": (CaptureError, "an event from outside the capture was waited for: record it inside"),
    "STREAM_CAPTURE_IMPLICIT": (CaptureError, "the legacy default stream joined in: use streams of your own only"),
    "CAPTURED_EVENT": (
        CaptureError,
        "the event was recorded in a capture: it cannot be queried or waited for by the host",
    ),
    "STREAM_CAPTURE_WRONG_THREAD": (CaptureError, "end the capture in the thread that began it"),
}

#: The runtime's status names that are not the driver's names in camel case.
_RUNTIME_NAMES = {
    "MEMORY_ALLOCATION": "OUT_OF_MEMORY",
    "INITIALIZATION_ERROR": "NOT_INITIALIZED",
    "CUDART_UNLOADING": "DEINITIALIZED",
    "NO_KERNEL_IMAGE_FOR_DEVICE": "NO_BINARY_FOR_GPU",
    "DEVICE_UNINITIALIZED": "INVALID_CONTEXT",
    "LAUNCH_FAILURE": "LAUNCH_FAILED",
}


def advice(status: str) -> tuple[type[Exception], str]:
    """Return the exception and the advice for `status`, as the driver (``CUDA_ERROR_...``) or the runtime spells it."""
    plain = status.removeprefix("CUDA_ERROR_")
    if status.startswith("cudaError"):
        words = status.removeprefix("cudaError")
        snake = "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(words)).upper()
        plain = _RUNTIME_NAMES.get(snake, snake)
    return ADVICE.get(plain, (DriverError, "see this status in the CUDA driver API's list of results"))


def is_sticky(status: str) -> bool:
    """Whether the context is dead after this status."""
    return advice(status)[0] is DeviceLostError


def check(result: tuple[Any, ...], doing: str = "") -> Any:
    """Return the values of a cuda.bindings call without the status: None, a single value, or a tuple.

    Parameters
    ----------
    result : tuple
        ``(status, *values)`` from the driver, the runtime or NVRTC.
    doing : str
        What the call does, for the message.

    Raises
    ------
    CuassayError
        If the call failed; `ADVICE` maps the status to the exception's class.
    """
    status = result[0]
    if status:
        raise error_of(status, doing)
    return None if len(result) == 1 else result[1] if len(result) == 2 else result[1:]


def error_of(status: Any, doing: str = "") -> Exception:
    """Return the exception for a status enum; whatever its class, it has ``status`` and ``code``."""
    kind, what_to_do = advice(status.name)
    message = f"{doing or 'a CUDA call'} failed: {status.name} ({int(status)}){_description(status)}; {what_to_do}"
    error = kind(message)
    error.status, error.code = status.name, int(status)  # type: ignore[attr-defined] # DriverError's, on the others too
    return error


def _description(status: Any) -> str:
    """Return the library's own description of a status, if the library is available."""
    try:
        from cuda.bindings import driver, nvrtc, runtime

        ask = {"CUresult": driver.cuGetErrorString, "nvrtcResult": nvrtc.nvrtcGetErrorString}
        _, text = ask.get(type(status).__name__, runtime.cudaGetErrorString)(status)
    except (ImportError, RuntimeError):
        return ""
    return f", {text.decode()}" if text else ""


@cache
def _not_found() -> type[Exception]:
    from cuda.pathfinder import DynamicLibNotFoundError

    absent: type[Exception] = DynamicLibNotFoundError
    return absent


@contextmanager
def guarded(library: str) -> Iterator[None]:
    """Raise `LibraryNotFoundError` if `library` turns out to be absent inside the block."""
    try:
        yield
    except ImportError as error:
        raise LibraryNotFoundError(
            f"{library} cannot be used: {error}; install what CUDA needs with: {extras.pip_install_cuda()}"
        ) from error
    except RuntimeError as error:
        # Some versions of cuda.bindings find a library by themselves, and report its absence as a bare RuntimeError.
        if not isinstance(error, _not_found()) and "Failed to dlopen" not in str(error):
            raise
        raise LibraryNotFoundError(
            f"{library} could not be loaded: {_first_line(error)}; {_install(library)}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(". ")


def _install(library: str) -> str:
    if library in ("libcuda", "nvml"):
        return "install NVIDIA's driver, or run where it is (in a container: with --gpus)"
    return f"set CUDA_HOME to a toolkit, or install what CUDA needs with: {extras.pip_install_cuda()}"
