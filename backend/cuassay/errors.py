"""All exceptions that this project raises.

Each message has three parts: what was wrong, what was given, what to do. Most classes also derive from the
built-in exception that a caller would already catch (``MemoryError``, ``TypeError``, ``ValueError``).

::

    CuassayError
    ├── DeviceError (RuntimeError)          a device that is absent, or cannot be used as requested
    │   ├── DeviceLostError                 its context is lost; nothing more can run on it
    │   └── ForkError                       it was initialised before this process was forked
    ├── CapabilityError (RuntimeError)      the device lacks a capability; the message says why
    │   ├── KernelNotFoundError             no implementation fits (op, kind, dtype); the message lists what exists
    │   └── MissingNameError (AttributeError)  a namespace does not offer the name; what to use instead
    ├── DriverError (RuntimeError)          a driver or library call failed; carries its status
    │   └── LibraryNotFoundError            a CUDA library could not be loaded
    ├── CompileError (RuntimeError)         a kernel did not compile; carries the compiler's log
    ├── CaptureError (RuntimeError)         illegal while a graph is being captured
    ├── RaceError (RuntimeError)            two unordered accesses to the same bytes, at least one of them a write
    ├── SynchronizationError (RuntimeError) the host would wait for a device where that is forbidden
    ├── GradientError (RuntimeError)        a derivative is not available; the message names the op, the line and a
    remedy
    ├── CandidateLostError (RuntimeError)   the process of a candidate under judgement ended, hung or broke the protocol
    ├── StateError (RuntimeError)           a call that is not allowed in the current state
    ├── MeasurementError (RuntimeError)     a measurement without any measured work
    ├── MutationError (RuntimeError)        tests that cannot judge mutants
    ├── JudgingError (RuntimeError)         a verdict that cannot be made or read
    ├── OutOfMemoryError (MemoryError)      not enough device memory
    ├── DTypeError (TypeError)              a dtype that does not exist or does not fit
    ├── LinAlgError (ValueError)            a matrix that is singular, not positive definite, or does not converge
    ├── ArgumentError (ValueError)          any other argument that is wrong
    │   ├── ShapeError                      shapes that do not fit together
    │   ├── CapabilityNameError             a requirement that is not defined
    │   ├── SettingError                    an environment variable or option with a bad value
    │   ├── SchemaError                     an op declared or registered wrongly
    │   └── SpecError                       an OpSpec that is incomplete or contradictory
    ├── ResultError (ValueError)            a result that does not follow the results schema
    └── TuningError (ValueError)            a tuning file that is unreadable, truncated, or of another machine
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "CandidateLostError",
    "CapabilityError",
    "CapabilityNameError",
    "CaptureError",
    "CompileError",
    "CuassayError",
    "DTypeError",
    "DeviceError",
    "DeviceLostError",
    "DriverError",
    "ForkError",
    "GradientError",
    "JudgingError",
    "KernelNotFoundError",
    "LibraryNotFoundError",
    "LinAlgError",
    "MeasurementError",
    "MissingNameError",
    "MutationError",
    "OutOfMemoryError",
    "RaceError",
    "ResultError",
    "SchemaError",
    "SettingError",
    "ShapeError",
    "SpecError",
    "StateError",
    "SynchronizationError",
    "TuningError",
]


_MOST = 4_000


class CuassayError(Exception):
    """The base class of all exceptions that this project raises on purpose.

    A message over 4,000 characters is cut in the middle, because it quotes an argument and its end says what to do.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_cut(arg) if isinstance(arg, str) and len(arg) > _MOST else arg for arg in args))


def _cut(message: str) -> str:
    head, tail = message[: _MOST // 2], message[-_MOST // 2 :]
    return f"{head} [... {len(message) - _MOST:,} characters left out ...] {tail}"


class DeviceError(CuassayError, RuntimeError):
    """A device is absent, or cannot be used as requested."""


class DeviceLostError(DeviceError):
    """The device's context is lost: only a new process can use the device again."""


class ForkError(DeviceError):
    """The device was initialised in the parent of this forked process."""


class CapabilityError(CuassayError, RuntimeError):
    """The device lacks a capability; the message gives the reason."""


class KernelNotFoundError(CapabilityError):
    """No implementation is registered for (op, device kind, dtype)."""


class MissingNameError(CapabilityError, AttributeError):
    """A device's namespace does not offer a name of NumPy or CuPy; ``hasattr`` then returns False."""


class GradientError(CuassayError, RuntimeError):
    """A derivative is not available: an op has no rule, a saved array was overwritten, or a traced one left the ops."""


class DriverError(CuassayError, RuntimeError):
    """A driver or library call failed.

    Attributes
    ----------
    status : str
        The library's name for the status, such as ``CUDA_ERROR_INVALID_VALUE``.
    code : int
        The number of the status.
    """

    def __init__(self, message: str, *, status: str = "", code: int = -1) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class LibraryNotFoundError(DriverError):
    """A CUDA library could not be loaded."""


class CompileError(CuassayError, RuntimeError):
    """A kernel did not compile.

    Attributes
    ----------
    log : str
        The complete log of the compiler.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class CaptureError(CuassayError, RuntimeError):
    """The call is illegal while a graph is being captured."""


class RaceError(CuassayError, RuntimeError):
    """Two accesses to the same bytes, at least one of them a write, are not ordered by any wait."""


class SynchronizationError(CuassayError, RuntimeError):
    """The host would wait for a device while the sync debug mode forbids it."""


class CandidateLostError(CuassayError, RuntimeError):
    """The process of a candidate under judgement ended, hung, or broke the protocol.

    Attributes
    ----------
    reason : str
        ``load``, ``crash``, ``exit``, ``hang``, ``memory``, ``processes``, ``protocol`` or ``jail``.
    detail : str
        What is known about the loss. Text from the candidate is shortened and escaped.
    """

    def __init__(self, message: str, *, reason: str, detail: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.detail = detail


class StateError(CuassayError, RuntimeError):
    """A call is not allowed in the current state; the message names the call that is needed first."""


class MeasurementError(CuassayError, RuntimeError):
    """A measurement measured nothing: its samples contain no work."""


class MutationError(CuassayError, RuntimeError):
    """The tests cannot judge mutants: none passes without a mutant, or there is nothing to mutate."""


class JudgingError(CuassayError, RuntimeError):
    """A verdict could not be made, or a file contains none."""


class OutOfMemoryError(CuassayError, MemoryError):
    """The device has not enough memory for the request."""


class DTypeError(CuassayError, TypeError):
    """A dtype is unknown, or does not fit the operation."""


class LinAlgError(CuassayError, ValueError):
    """A matrix is singular or not positive definite, or its decomposition did not converge.

    It is not NumPy's class of that name, which this module cannot import; both are `ValueError`.
    """


class ArgumentError(CuassayError, ValueError):
    """An argument is wrong."""


class ShapeError(ArgumentError):
    """Shapes do not fit together."""


class CapabilityNameError(ArgumentError):
    """A requirement names a capability that nobody defines."""


class SettingError(ArgumentError):
    """An environment variable or option has a value that cannot be read."""


class SchemaError(ArgumentError):
    """An op is declared, or an implementation is registered, wrongly."""


class SpecError(ArgumentError):
    """An OpSpec is incomplete or contradicts itself."""


class ResultError(CuassayError, ValueError):
    """A result does not follow the results schema."""


class TuningError(CuassayError, ValueError):
    """A file of tuning results, or of problems to tune, is unreadable, truncated, or of another machine."""
