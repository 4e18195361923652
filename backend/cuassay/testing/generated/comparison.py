"""Compare one result with the reference: dtype, device, shape, and values within a tolerance chosen here."""

from __future__ import annotations

import functools
import warnings
from contextlib import suppress
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_complex, is_float
from cuassay.core.device import Device
from cuassay.devices import to_host
from cuassay.testing.answers import as_one, widened
from cuassay.testing.compare import assert_close, collecting, is_within_units
from cuassay.testing.generated.cases import retold
from cuassay.testing.generated.doubts import counts_of_results, doubts, places_in_list
from cuassay.testing.generated.hints import hint_at
from cuassay.testing.generated.reference_errors import for_long_sums, reference_errors
from cuassay.testing.generated.result_dtypes import coarsest, floats_of, result_dtype
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse, rounding_error, rounding_errors
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of, is_elementwise
from cuassay.testing.tolerance import FUNCTION, allowed, by_rounding_error, finite_size, largest_size, rounding_limit

__all__ = [
    "compare",
    "compare_values",
    "explained_rounding",
    "host_rounding",
    "of_reference",
    "on_host",
    "reference_rounding",
]


def of_reference(
    spec: OpSpec, sample: Sample, *, errors: Literal["ignore", "raise", "of casts"] = "ignore"
) -> NDArray[Any] | None:
    """Run the reference in the sample's own dtype, rather than in float64.

    Parameters
    ----------
    errors : {"ignore", "raise", "of casts"}
        With "raise", a floating-point error such as overflow, underflow or division by zero counts as a failure. With
        "of casts", only a cast of a float to an integer that cannot represent it does.

    Returns
    -------
    numpy.ndarray or None
        None if the reference raises, or if there is none.
    """
    args, kwargs = sample.copied()
    try:
        with warnings.catch_warnings(), np.errstate(**_ERRORS[errors]):
            if errors == "of casts":
                warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
                warnings.filterwarnings("error", "invalid value encountered in cast", RuntimeWarning)  # comes first
            return np.asarray(as_one(spec.reference(*args, **kwargs))) if spec.reference is not None else None
    except Exception:  # noqa: BLE001  the reference was declared for wide dtypes and may fail in any way
        return None


_ERRORS: dict[str, Any] = {
    "ignore": {"all": "ignore"},
    "raise": {"all": "raise"},
    "of casts": {"all": "ignore", "invalid": "warn"},
}


def on_host(result: Any) -> NDArray[Any]:
    """The result as a NumPy array."""
    return np.asarray(to_host(result)) if hasattr(result, "shape") else np.asarray(result)


def compare(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    sample: Sample,
    actual: Any,
    *,
    expected: Any = None,
    keeps_ratio: bool = False,
) -> None:
    """Assert that `actual` has the dtype, shape, device and values of `expected`, by default the reference's result.

    With `keeps_ratio`, the error is always divided by the whole tolerance, for the ``headroom`` of the test.
    """
    __tracebackhide__ = True
    expected = spec.expected(sample) if expected is None else expected
    wanted = result_dtype(spec, sample)
    precise = coarsest(sample, dtype if wanted is None else wanted) if spec.op is None else wanted
    if not keeps_ratio and spec.rule is FUNCTION and _is_within_units(spec, device, actual, expected, precise, wanted):
        return
    magnitude, terms = spec.scale(sample, expected)
    matmul = spec.op_class == "matmul"
    limit = allowed(spec.rule, precise, terms=terms, magnitude=magnitude, matmul=matmul)
    if spec.rule is FUNCTION:
        limit = _narrowed_limit(limit, spec, sample, wanted, precise, expected, terms, magnitude)
    _assert_agrees(spec, device, sample, actual, expected, limit, wanted)


def _is_within_units(
    spec: OpSpec, device: Device, actual: Any, expected: NDArray[Any], precise: Any, wanted: Any
) -> bool:
    """Whether a function's result is off by so few units of itself that every tolerance of such a function allows it.

    To find the whole tolerance, the reference is run several times.
    """
    if spec.op is not None or spec.magnitude is not None:
        return False
    is_host = isinstance(actual, np.ndarray) and device.kind == "cpu"
    # Not `wanted in (None, actual.dtype)`: in NumPy the dtype float64 equals None.
    is_plain = is_host and (wanted is None or actual.dtype == wanted) and is_float(precise)
    if is_plain and is_within_units(actual, expected, _units_of(precise)):
        return True
    size = finite_size(expected) if is_float(precise) or is_complex(precise) else 0.0
    units = _units_of(precise) if np.ndim(size) else 0.0
    try:
        with collecting({}):
            assert_close(
                actual, expected,
                tolerance=units * size, dtype=wanted, device=_place_of(actual, device), check_dtype=wanted is not None,
            )  # fmt: skip
    except AssertionError:
        return False
    return True


def _units_of(precise: Any) -> float:
    return min(FUNCTION.ulps * epsilon(precise), FUNCTION.most)


def _place_of(actual: Any, device: Device) -> Device | None:
    return None if isinstance(actual, (bool, int, float, complex)) else device


def _assert_agrees(
    spec: OpSpec, device: Device, sample: Sample, actual: Any, expected: Any, limit: Any, wanted: Any
) -> None:
    __tracebackhide__ = True
    place = _place_of(actual, device)
    compared = functools.partial(
        assert_close, *(actual, expected),
        tolerance=limit, dtype=wanted, device=place, check_dtype=wanted is not None, inputs=sample.host(),
    )  # fmt: skip
    try:
        compared(note=_OWN_REFERENCE if spec.is_its_own_reference else "")
    except AssertionError as error:
        failure = error
    else:
        return
    if on_host(actual).shape != expected.shape and (counts := counts_of_results(spec, sample)) is not None:
        raise retold(counts, failure)
    if isinstance(spec.result_dtype, str) and str(failure).startswith("dtype is "):
        raise retold(f"the declared result_dtype= is {spec.result_dtype!r}", failure)
    # Outside of the block, because pytest would print an error that is raised inside together with the first one.
    if (same := _accepting_own_dtype(spec, sample, actual, expected)) is not None:
        _assert_agrees(spec, device, sample, actual, same, limit, wanted)
        return
    got = on_host(actual)
    if spec.rule is FUNCTION and (wider := for_long_sums(spec, sample, got, expected, limit)) is not None:
        with suppress(AssertionError):
            compared(tolerance=wider)
            return
    if (errors := reference_errors(spec, sample, expected)) is not None:
        with suppress(AssertionError):
            compared(tolerance=limit + errors)
            return
    cause = doubts(spec, sample, got, expected) or hint_at(spec, sample, got, expected)
    note = "; ".join(filter(None, (cause, places_in_list(spec, sample)))) or None
    if note is None:
        raise failure
    compared(note=note)


def _accepting_own_dtype(spec: OpSpec, sample: Sample, actual: Any, expected: NDArray[Any]) -> NDArray[Any] | None:
    """`expected` with those integers and truth values accepted that the reference gives in the sample's own dtype.

    A rounding error before a floor or a comparison may change its result. Where the reference gives NaN or infinity,
    any integer is accepted. None if this changes no element.
    """
    got = on_host(actual)
    if spec.op is not None or got.dtype.kind not in "iub" or got.shape != expected.shape or not floats_of(sample):
        return None
    same = (
        ~np.isfinite(expected)
        if expected.dtype.kind == "f" and got.dtype.kind != "b"
        else np.zeros(got.shape, np.bool_)
    )
    narrow = of_reference(spec, sample)
    if narrow is not None and narrow.shape == got.shape:
        same |= (narrow == got) & (got != expected)
    return np.where(same, got, expected) if same.any() else None


#: If a function is its own reference, a failure must not claim that the expected numbers are right.
_OWN_REFERENCE = (
    "expected is what the same function gives for NumPy arrays in a wide dtype (there is no reference=); "
    "either result may be wrong"
)


def compare_values(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    sample: Sample,
    actual: Any,
    *,
    expected: Any = None,
    limit: Any = None,
    excuse: bool = False,
    floor: float = 0.0,
    each: bool = False,
) -> None:
    """Assert that `actual` is what the reference gives for numbers that a check has chosen.

    Parameters
    ----------
    expected : numpy.ndarray, optional
        The expected result. By default it is computed by the reference.
    limit : numpy.ndarray, optional
        The absolute tolerance. By default it allows some units of the result, and no more than the rounding errors of
        the function on the host explain.
    excuse : bool
        Ignore elements that leave the range of the dtype in an intermediate step on the host as well.
    floor : float
        Added to the tolerance: the size below which a device flushes numbers to zero.
    each : bool
        Use the rounding error of each element instead of the largest one.
    """
    __tracebackhide__ = True
    expected = spec.expected(sample) if expected is None else expected
    wanted = result_dtype(spec, sample)
    if wanted is not None and not (is_float(wanted) or is_complex(wanted)):
        _assert_agrees(spec, device, sample, actual, expected, 0.0, wanted)
        return
    if on_host(actual).shape != expected.shape:
        _assert_agrees(spec, device, sample, actual, expected, 0.0, wanted)
    precise = coarsest(sample, dtype if wanted is None else wanted)
    if limit is None and _is_within_units(spec, device, actual, expected, precise, wanted):
        return
    own = _rounding_errors(spec, sample) if excuse or limit is None else None
    if own is not None and excuse and own[1].shape == expected.shape and own[1].any():
        got = on_host(actual)
        if got.shape == expected.shape:
            expected = np.where(own[1], got.astype(expected.dtype), expected)
    if limit is None:
        magnitude, terms = spec.scale(sample, expected)
        limit = allowed(FUNCTION, precise, terms=terms, magnitude=magnitude)
        if own is not None and epsilon(precise) > epsilon("float64"):
            limit = np.minimum(limit, rounding_limit(own[0] if each else _largest(own[0]), precise, expected))
    if spec.tolerance is not None and spec.op is None:  # the declared tolerance is the least that is allowed
        magnitude, terms = spec.scale(sample, expected)
        size = np.nan_to_num(magnitude, posinf=0.0, neginf=0.0)
        limit = np.maximum(limit, allowed(spec.tolerance, precise, terms=terms, magnitude=size))
    _assert_agrees(spec, device, sample, actual, expected, limit + floor, wanted)


def explained_rounding(spec: OpSpec, dtype: Any, sample: Sample, expected: Any) -> Any:
    """The tolerance for numbers that a check has chosen: some units of the result, plus the effect of rounding.

    The effect of rounding is measured by running the function on the host. In 16 bits, if there is a reference, it
    counts only up to a multiple of the reference's own rounding errors: a far less precise function is wrong.
    """
    if not (is_float(expected.dtype) or is_complex(expected.dtype)):
        return 0.0
    precise = coarsest(sample, dtype)
    magnitude, terms = spec.scale(sample, expected)
    if epsilon(precise) <= epsilon("float64"):  # no wider dtype can tell the effect of rounding
        return allowed(FUNCTION, precise, terms=terms, magnitude=np.nan_to_num(magnitude, posinf=0.0))
    own = _rounding_errors(spec, sample)
    errors = 0.0 if own is None else _largest(own[0])
    if spec.reference is not None and is_coarse(precise):
        errors = min(errors, _PRECISION_FACTOR * reference_rounding(spec, sample))
    size = finite_size(expected)
    return allowed(FUNCTION, precise, terms=terms, magnitude=size) + rounding_limit(errors, precise, expected)


#: In 16 bits a function may be this many times less precise than its reference.
_PRECISION_FACTOR = 8.0


def reference_rounding(spec: OpSpec, sample: Sample) -> float:
    """The largest rounding error of the reference in the sample's own dtype; infinite if it does not run in it."""
    reference = spec.reference
    if reference is None:
        return np.inf
    own = rounding_error(lambda args, kwargs: np.asarray(as_one(reference(*args, **kwargs))), *sample.on("cpu"))
    return np.inf if own is None else max(own.rounding, own.inputs)


def host_rounding(spec: OpSpec, sample: Sample) -> float:
    """The largest rounding error of the function on the host; 0 if it does not run there."""
    own = rounding_errors(lambda args, kwargs: spec.run("cpu", args, kwargs), *sample.on("cpu"), runs=1)
    return 0.0 if own is None else _largest(own[0])


def _rounding_errors(spec: OpSpec, sample: Sample) -> Any:
    """The rounding error of each element on the host, and whether it left the range of the dtype; or None.

    If the function computes in float32 whatever dtype it is given, the reference's rounding errors count as well.
    """
    args, kwargs = sample.on("cpu")
    own = rounding_errors(lambda args, kwargs: spec.run("cpu", args, kwargs), args, kwargs)
    if own is None or not _computes_in_float32(spec, sample):
        return own
    there = _in_float32(spec, sample)
    return own if there is None or there.shape != own[0].shape else (np.maximum(own[0], there), own[1])


def _computes_in_float32(spec: OpSpec, sample: Sample) -> bool:
    """Whether the function's results in float64 are all float32 numbers, unlike those of the reference.

    Such a function computes in float32 internally, so a run in float64 does not show its rounding errors.
    """
    if spec.reference is None or not all(epsilon(x.dtype) > epsilon("float64") for x in floats_of(sample)):
        return False
    with np.errstate(all="ignore"):
        wide, exact = np.asarray(spec.run("cpu", *widened(sample))), spec.expected(sample)
        if wide.dtype != np.float64 or wide.shape != exact.shape:
            return False
        finite = np.isfinite(wide) & np.isfinite(exact)
        return bool((wide == wide.astype(np.float32))[finite].all() and (wide != exact)[finite].any())


def _in_float32(spec: OpSpec, sample: Sample) -> Any:
    """The rounding error of each element of the reference in float32; None if it does not run in float32."""

    def single(value: Any) -> Any:
        is_narrow = isinstance(value, np.ndarray) and is_coarse(value.dtype)
        return value.astype(np.float32) if is_narrow else value

    reference = spec.reference
    if reference is None:
        return None
    narrow = Sample(*sample.changed(single))
    answer = of_reference(spec, narrow)
    if answer is not None and answer.dtype == np.float64:  # a float64 scalar promotes it, so nothing is rounded here
        magnitude, _ = spec.scale(sample, spec.expected(sample))
        return epsilon("float32") * np.nan_to_num(magnitude, posinf=0.0, neginf=0.0)
    args, kwargs = narrow.on("cpu")
    own = rounding_errors(lambda args, kwargs: as_one(reference(*args, **kwargs)), args, kwargs)
    return None if own is None else own[0]


def _largest(errors: Any) -> float:
    return float(np.max(errors, initial=0.0))


#: A tolerance above this fraction of the largest result must be explained by the function's own rounding errors.
_SHARE = 1 / 16


def _narrowed_limit(
    limit: Any, spec: OpSpec, sample: Sample, wanted: Any, precise: Any, expected: Any, terms: int, magnitude: Any
) -> Any:
    """Narrow the general bound for a user's function: integers are exact, and floats may be off by rounding only."""
    if wanted is not None and not (is_float(wanted) or is_complex(wanted)):
        return 0.0
    if not is_coarse(precise):
        return _capped(limit, spec, sample, precise, expected)
    args, kwargs = sample.on("cpu")
    own = rounding_error(lambda args, kwargs: spec.run("cpu", args, kwargs), args, kwargs)
    if own is None:
        return limit
    # An elementwise function may round an intermediate number as large as its inputs, or as 1, before a small result.
    passed = magnitude if is_elementwise(terms, arrays_of(args, kwargs), expected) else expected
    return by_rounding_error(own, precise, expected, terms, magnitude, passed)


def _capped(limit: Any, spec: OpSpec, sample: Sample, precise: Any, expected: Any) -> Any:
    """The limit if it is a small fraction of the results; otherwise what the function's rounding errors explain."""
    most = largest_size(expected)
    if not np.size(limit) or _largest(limit) <= _SHARE * most:
        return limit
    own = _rounding_errors(spec, sample) if epsilon(precise) > epsilon("float64") else None  # nothing is wider
    if own is None:
        return np.minimum(limit, FUNCTION.most * most) if most else limit
    return np.minimum(limit, rounding_limit(_largest(own[0]), precise, expected))
