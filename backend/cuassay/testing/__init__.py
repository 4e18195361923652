"""The test harness: declare where a test runs and what it needs, or declare an op once and test it on every device.

These names are for test files. Each is imported when it is first used, with NumPy and pytest, so that neither the
plugin nor a command costs a project much before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuassay.testing.compare import assert_close
    from cuassay.testing.declared import ErrorInput, KnownFailure, Work
    from cuassay.testing.generated import conformance
    from cuassay.testing.marks import devices, dtypes, exclusive, ops, racing, requires
    from cuassay.testing.opspec import OpSpec
    from cuassay.testing.samples import Sample
    from cuassay.testing.tolerance import Tolerance

__all__ = [
    "ErrorInput",
    "KnownFailure",
    "OpSpec",
    "Sample",
    "Tolerance",
    "Work",
    "assert_close",
    "conformance",
    "devices",
    "dtypes",
    "exclusive",
    "ops",
    "racing",
    "requires",
]

_LAZY = {
    "ErrorInput": "cuassay.testing.declared",
    "KnownFailure": "cuassay.testing.declared",
    "OpSpec": "cuassay.testing.opspec",
    "Sample": "cuassay.testing.samples",
    "Tolerance": "cuassay.testing.tolerance",
    "Work": "cuassay.testing.declared",
    "assert_close": "cuassay.testing.compare",
    "conformance": "cuassay.testing.generated",
    **dict.fromkeys(("devices", "dtypes", "exclusive", "ops", "racing", "requires"), "cuassay.testing.marks"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
