"""Every exception this project raises.

Each message has three parts: what was wrong, what was got, what to do. The classes double as the
built-in a caller would already catch (``MemoryError``, ``TypeError``, ``ValueError``).

::

    CuassayError
    ├── DeviceError (RuntimeError)          a device that is absent, or unusable as asked
    │   ├── DeviceLostError                 its context is dead; nothing more can run on it
    │   └── ForkError                       it was initialised before this process was forked
    ├── CapabilityError (RuntimeError)      the device lacks something; the reason in words
    │   ├── KernelNotFoundError             no implementation fits (op, kind, dtype); what exists
    │   └── MissingNameError (AttributeError)  a namespace does not offer the name; what to use instead
    ├── DriverError (RuntimeError)          a driver or library call failed; carries its status
    │   └── LibraryNotFoundError            a CUDA library could not be loaded
    ├── CompileError (RuntimeError)         a kernel did not compile; carries the compiler's log
    ├── CaptureError (RuntimeError)         illegal while a graph is being captured
    ├── RaceError (RuntimeError)            two unordered accesses to the same bytes, one a write
    ├── SynchronizationError (RuntimeError) the host would wait for a device where that is forbidden
    ├── GradientError (RuntimeError)        a derivative that cannot be had; the op, the line and what to do
    ├── CandidateLostError (RuntimeError)   the process of a candidate under judgement ended, hung or broke the protocol
    ├── StateError (RuntimeError)           a call that an earlier one does not allow
    ├── MeasurementError (RuntimeError)     a measurement that measured nothing
    ├── MutationError (RuntimeError)        tests that cannot judge mutants as they are
    ├── JudgingError (RuntimeError)         a verdict that cannot be made or read
    ├── OutOfMemoryError (MemoryError)      no device memory left
    ├── DTypeError (TypeError)              a dtype that does not exist or does not fit
    ├── LinAlgError (ValueError)            a matrix that is singular, not positive definite, or does not converge
    ├── ArgumentError (ValueError)          any other argument that is wrong
    │   ├── ShapeError                      shapes that do not fit together
    │   ├── CapabilityNameError             a requirement nobody defines
    │   ├── SettingError                    an environment variable or option with a bad value
    │   ├── SchemaError                     an op declared or registered wrongly
    │   └── SpecError                       an OpSpec that says nothing testable
    ├── ResultError (ValueError)            a result that does not follow the schema of results
    └── TuningError (ValueError)            a file of tuning that is unreadable, cut off, or of another machine
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
    """Base of everything raised on purpose here.

    A message over 4,000 characters is cut in the middle: it quotes an argument, and its last words say what to do.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_cut(arg) if isinstance(arg, str) and len(arg) > _MOST else arg for arg in args))


def _cut(message: str) -> str:
    head, tail = message[: _MOST // 2], message[-_MOST // 2 :]
    return f"{head} [... {len(message) - _MOST:,} characters left out ...] {tail}"


class DeviceError(CuassayError, RuntimeError):
    """A device is absent, or cannot be used as asked."""


class DeviceLostError(DeviceError):
    """The device's context is dead: only a new process can use it again."""


class ForkError(DeviceError):
    """The device was initialised in the parent of this forked process."""


class CapabilityError(CuassayError, RuntimeError):
    """The device lacks what was asked; the message gives the reason in words."""


class KernelNotFoundError(CapabilityError):
    """No implementation is registered for (op, device kind, dtype)."""


class MissingNameError(CapabilityError, AttributeError):
    """A device's namespace does not offer a name of NumPy or CuPy; so ``hasattr`` says False."""


class GradientError(CuassayError, RuntimeError):
    """A derivative cannot be had: an op has no rule, a saved array was overwritten, or a traced one left the ops."""


class DriverError(CuassayError, RuntimeError):
    """A driver or library call failed.

    Attributes
    ----------
    status : str
        The library's own name of the status, such as ``CUDA_ERROR_INVALID_VALUE``.
    code : int
        Its number.
    """

    def __init__(self, message: str, *, status: str = "", code: int = -1) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class LibraryNotFoundError(DriverError):
    """A CUDA library could not be loaded at all."""


class CompileError(CuassayError, RuntimeError):
    """A kernel did not compile.

    Attributes
    ----------
    log : str
        The compiler's log, whole.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class CaptureError(CuassayError, RuntimeError):
    """The call is illegal while a graph is being captured."""


class RaceError(CuassayError, RuntimeError):
    """Two accesses to the same bytes, at least one a write, are not ordered by any wait."""


class SynchronizationError(CuassayError, RuntimeError):
    """The host would wait for a device while the sync debug mode forbids it."""


class CandidateLostError(CuassayError, RuntimeError):
    """The process of a candidate under judgement is gone: it ended, hung, or did not follow the protocol.

    Attributes
    ----------
    reason : str
        ``load``, ``crash``, ``exit``, ``hang``, ``memory``, ``processes``, ``protocol`` or ``jail``.
    detail : str
        What is known of it. Words of the candidate are cut and escaped.
    """

    def __init__(self, message: str, *, reason: str, detail: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.detail = detail


class StateError(CuassayError, RuntimeError):
    """A call that what came before does not allow; the message says which call is due."""


class MeasurementError(CuassayError, RuntimeError):
    """A measurement that measured nothing: its samples are those of no work."""


class MutationError(CuassayError, RuntimeError):
    """The tests cannot judge mutants as they are: none passes, or there is nothing to change."""


class JudgingError(CuassayError, RuntimeError):
    """A verdict could not be made, or a file holds none."""


class OutOfMemoryError(CuassayError, MemoryError):
    """The device has no room for what was asked."""


class DTypeError(CuassayError, TypeError):
    """A dtype is unknown, or does not fit the operation."""


class LinAlgError(CuassayError, ValueError):
    """A matrix is singular, not positive definite, or its decomposition did not converge.

    Not NumPy's class of that name, which words like these cannot import; both are `ValueError`.
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
    """An op is declared, or an implementation registered, wrongly."""


class SpecError(ArgumentError):
    """An OpSpec is incomplete or contradicts itself."""


class ResultError(CuassayError, ValueError):
    """A result does not follow the one schema of results."""


class TuningError(CuassayError, ValueError):
    """A file of tuning results, or of problems to tune, is unreadable, cut off, or of another machine."""
