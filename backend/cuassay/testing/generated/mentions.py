"""What the code of a reference mentions: NaN, finite numbers, angles. It tells what the reference is meant for."""

from __future__ import annotations

from typing import Any

from cuassay.testing.generated.named import nested_codes, unwrapped

__all__ = ["names_angles", "names_finite", "names_nan", "names_of", "tests_nan"]


def names_nan(reference: Any) -> bool:
    """Whether a function mentions NaN, as `nanmean`, `isnan` and `fmax` do, so that its result for NaN is intended."""
    return any("nan" in name or name in ("fmax", "fmin") for name in names_of(reference))


def names_finite(reference: Any) -> bool:
    """Whether a function mentions NaN or tests for finite numbers, so that its result for NaN is intended."""
    return names_nan(reference) or "isfinite" in names_of(reference)


def tests_nan(reference: Any) -> bool:
    """Whether a function asks which numbers are NaN or finite, so that a NaN that it gives is intended."""
    return not {"isnan", "isfinite"}.isdisjoint(names_of(reference))


def names_angles(reference: Any) -> bool:
    """Whether a function mentions pi or a Fourier transform, so that it rounds angles of many turns."""
    return any(name == "pi" or "fft" in name for name in names_of(reference))


def names_of(function: Any) -> set[str]:
    """The names that a function and the functions nested in it use; for one without Python code, its own name."""
    function = unwrapped(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return {getattr(function, "__name__", "")}
    return {name for one in nested_codes(code) for name in one.co_names}
