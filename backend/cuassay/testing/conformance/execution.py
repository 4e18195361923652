"""How a check runs: registered, inside the guards, each failure naming its case; and one sample compared.

What is checked stands in `checks`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cuassay.arrays.dtypes import as_dtype, dtype_name, epsilon, is_complex, is_float
from cuassay.core.device import Device
from cuassay.devices import to_host
from cuassay.testing import rerun
from cuassay.testing.compare import assert_close, describe_case
from cuassay.testing.conformance.selection import seed
from cuassay.testing.guards import LeakError, guarded
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse, rounding_error, rounding_errors
from cuassay.testing.samples import HostArray, Kind, Sample
from cuassay.testing.terms import arrays_of, is_elementwise
from cuassay.testing.tolerance import FUNCTION, allowed, by_rounding_error, rounding_limit

__all__ = [
    "CHECKS",
    "Check",
    "check",
    "compare",
    "compare_values",
    "has",
    "host_rounding",
    "is_function",
    "is_op",
    "is_taken",
    "moves",
    "on_sample",
    "overwrite",
    "result_dtype",
    "run_sample",
    "runs_on_host",
    "turned",
    "verify",
]


@dataclass(frozen=True, slots=True)
class Check:
    """One property: called with a spec, a device and (where `per_dtype`) a dtype, it raises `AssertionError`.

    Attributes
    ----------
    name, doc : str
        The property, and a sentence about it.
    applies : callable
        Whether it says something of a spec.
    needs : tuple of str
        Capabilities the device must have.
    per_dtype : bool
        It takes a dtype.
    """

    name: str
    doc: str
    function: Callable[..., None]
    applies: Callable[[OpSpec], bool]
    needs: tuple[str, ...]
    per_dtype: bool

    def __call__(self, spec: OpSpec, device: Any, *dtype: Any) -> None:
        """Run the check inside the guards; whatever it raises names the case.

        Twice where it leaves memory in use: a weight that is made at the first call and kept is no leak, which grows.
        """
        __tracebackhide__ = True
        if self.name in spec.without:
            pytest.skip(f"{spec.name} opts out of {self.name}: {spec.without[self.name]}")
        with _described(spec, device, *dtype):
            try:
                self._guarded(spec, device, *dtype)
            except LeakError:
                self._again(spec, device, *dtype)

    def _guarded(self, spec: OpSpec, device: Any, *dtype: Any) -> None:
        __tracebackhide__ = True
        with guarded(device):
            self.function(spec, Device(device), *dtype)

    def _again(self, spec: OpSpec, device: Any, *dtype: Any) -> None:
        try:
            self._guarded(spec, device, *dtype)
        except LeakError as leak:
            raise AssertionError(f"{leak}; run a second time it kept more again: it is nothing made once") from None


#: Name to check, in the order they run.
CHECKS: dict[str, Check] = {}


def _always(spec: OpSpec) -> bool:
    return True


def is_op(spec: OpSpec) -> bool:
    """Whether it is a declared op that makes an array."""
    return spec.op is not None and bool(spec.op.schema.outputs)


def is_function(spec: OpSpec) -> bool:
    """Whether it is a function of a user's."""
    return spec.op is None


def moves(spec: OpSpec) -> bool:
    """Whether its output may be on another device than its inputs."""
    return spec.op is not None and spec.op.schema.place is not None


def has(*kinds: Kind) -> Callable[[OpSpec], bool]:
    """Tell of a spec whether it has samples of any of these kinds."""
    return lambda spec: bool(spec.kinds & set(kinds))


Function = Callable[..., None]


def check(applies: Callable[[OpSpec], bool] = _always, *, needs: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Register a check: the specs it is for, the capabilities it needs of the device."""

    def register(function: Function) -> Function:
        name = function.__name__.removeprefix("check_")
        per_dtype = "dtype" in inspect.signature(function).parameters
        CHECKS[name] = Check(name, function.__doc__ or "", function, applies, tuple(needs), per_dtype)
        return function

    return register


@contextmanager
def _described(spec: OpSpec, device: Any, dtype: Any = None) -> Iterator[None]:
    """Whatever is raised inside says which case it was and how to run it again."""
    where = f"{spec.name} on {device}" + ("" if dtype is None else f" in {dtype_name(dtype)}")
    lines = [f"op: {where}", f"seed: {seed()}"]
    if target := rerun.TARGET.get():
        lines.append(f"reproduce: {rerun.line(target, device)}")
    with describe_case(*lines), _noted(*lines):
        yield


@contextmanager
def _noted(*lines: str) -> Iterator[None]:
    """Add `lines` to whatever is raised inside, unless its text has them: a comparison's does."""
    try:
        yield
    except Exception as error:
        if lines[0] not in str(error):
            error.add_note("\n".join(f"  {line}" for line in lines))
        raise


@contextmanager
def on_sample(sample: Sample) -> Iterator[None]:
    """Whatever is raised inside names the sample."""
    line = f"sample: {sample.label}"
    with describe_case(line), _noted(line):
        yield


def compare(spec: OpSpec, device: Device, dtype: Any, sample: Sample, actual: Any, *, expected: Any = None) -> None:
    """`actual` is what the reference says for `sample`, or `expected`: dtype, shape, place and values."""
    __tracebackhide__ = True
    expected = spec.expected(sample) if expected is None else expected
    magnitude, terms = spec.scale(sample, expected)
    wanted = result_dtype(spec, sample)
    precise = _coarsest(sample, dtype if wanted is None else wanted) if spec.op is None else wanted
    matmul = spec.op_class == "matmul"
    limit = allowed(spec.rule, precise, terms=terms, magnitude=magnitude, matmul=matmul)
    if spec.rule is FUNCTION:
        limit = _as_rounded(limit, spec, sample, wanted, precise, expected, terms, magnitude)
    _agree(spec, device, sample, actual, expected, limit, wanted)


def _agree(spec: OpSpec, device: Device, sample: Sample, actual: Any, expected: Any, limit: Any, wanted: Any) -> None:
    __tracebackhide__ = True
    place = None if isinstance(actual, (bool, int, float, complex)) else device
    given = sample.host() if spec.op is None else None
    assert_close(
        *(actual, expected),
        tolerance=limit, dtype=wanted, device=place, check_dtype=wanted is not None, inputs=given,
    )  # fmt: skip


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
    """`actual` is what the reference of a function says for numbers that the check has chosen.

    Parameters
    ----------
    expected : numpy.ndarray, optional
        What the reference says, where it is known already.
    limit : numpy.ndarray, optional
        The absolute tolerance; otherwise some units of the result and what rounding does to the function on the host.
    excuse : bool
        Leave out elements that leave the range of the dtype on the way, on the host as well.
    floor : float
        Also allowed: what a device takes for zero.
    each : bool
        What rounding does is asked for each element; otherwise the largest of all.
    """
    __tracebackhide__ = True
    expected = spec.expected(sample) if expected is None else expected
    wanted = result_dtype(spec, sample)
    if wanted is not None and not (is_float(wanted) or is_complex(wanted)):
        _agree(spec, device, sample, actual, expected, 0.0, wanted)
        return
    precise = _coarsest(sample, dtype if wanted is None else wanted)
    own = _rounding_errors(spec, sample) if excuse or limit is None else None
    if own is not None and excuse and own[1].shape == expected.shape and own[1].any():
        got = np.asarray(to_host(actual)) if hasattr(actual, "shape") else np.asarray(actual)
        if got.shape == expected.shape:
            expected = np.where(own[1], got.astype(expected.dtype), expected)
    if limit is None:
        magnitude, terms = spec.scale(sample, expected)
        limit = allowed(FUNCTION, precise, terms=terms, magnitude=magnitude)
        if own is not None and epsilon(precise) > epsilon("float64"):
            limit = np.minimum(limit, rounding_limit(own[0] if each else _most(own[0]), precise, expected))
    _agree(spec, device, sample, actual, expected, limit + floor, wanted)


def host_rounding(spec: OpSpec, sample: Sample) -> float:
    """The largest rounding error of a function on the host; 0 where it does not run there."""
    own = rounding_errors(lambda args, kwargs: spec.run("cpu", args, kwargs), *sample.on("cpu"), runs=1)
    return 0.0 if own is None else _most(own[0])


def _rounding_errors(spec: OpSpec, sample: Sample) -> Any:
    args, kwargs = sample.on("cpu")
    return rounding_errors(lambda args, kwargs: spec.run("cpu", args, kwargs), args, kwargs)


def _most(errors: Any) -> float:
    return float(np.max(errors, initial=0.0))


def runs_on_host(spec: OpSpec, sample: Sample) -> bool:
    """Whether the function itself takes these inputs on the host, in their own dtypes; an op takes all."""
    if spec.op is not None:
        return True
    try:
        with np.errstate(all="ignore"):
            spec.run("cpu", *sample.copied())
    except (ValueError, TypeError, IndexError, ArithmeticError):
        return False
    except Exception:  # noqa: BLE001  a function of one library only is not for the host's arrays
        return True
    return True


def is_taken(spec: OpSpec, sample: Sample) -> bool:
    """Whether the reference takes these inputs, and the function itself on the host."""
    return spec.refusal(sample) is None and runs_on_host(spec, sample)


def overwrite(device: Device, arrays: Sequence[Any], sample: Sample) -> None:
    """Put the numbers of `sample` into `arrays` of `device`."""
    from cuassay import ops

    for array, fresh in zip(arrays, sample.args, strict=True):
        if isinstance(fresh, HostArray):
            ops.copy(fresh.on(device), out=array)


#: A tolerance beyond this part of the largest result must be explained by rounding errors of the function itself.
_SHARE = 1 / 16


def _as_rounded(
    limit: Any, spec: OpSpec, sample: Sample, wanted: Any, precise: Any, expected: Any, terms: int, magnitude: Any
) -> Any:
    """What is known of a user's function beyond a bound for all: whole numbers are exact; what rounding does to it."""
    if wanted is not None and not (is_float(wanted) or is_complex(wanted)):
        return 0.0
    if not is_coarse(precise):
        return _capped(limit, spec, sample, precise, expected)
    args, kwargs = sample.on("cpu")
    own = rounding_error(lambda args, kwargs: spec.run("cpu", args, kwargs), args, kwargs)
    if own is None:
        return limit
    # Element by element, numbers as large as the inputs, or as 1, may be rounded on the way to a small result.
    passed = magnitude if is_elementwise(terms, arrays_of(args, kwargs), expected) else expected
    return by_rounding_error(own, precise, expected, terms, magnitude, passed)


def _capped(limit: Any, spec: OpSpec, sample: Sample, precise: Any, expected: Any) -> Any:
    """The limit where it is a small part of the results, else what the function's own rounding errors explain."""
    most = _most(np.abs(np.nan_to_num(expected, nan=0.0, posinf=0.0, neginf=0.0)))
    if not np.size(limit) or _most(limit) <= _SHARE * most:
        return limit
    own = _rounding_errors(spec, sample) if epsilon(precise) > epsilon("float64") else None  # none is wider
    if own is None:
        return np.minimum(limit, FUNCTION.most * most) if most else limit
    return np.minimum(limit, rounding_limit(_most(own[0]), precise, expected))


def _coarsest(sample: Sample, dtype: Any) -> Any:
    """The least precise float among a function's inputs and result: some step may be rounded to it."""
    found = [dtype, *(array.dtype for array in sample.host()[0] if isinstance(array, np.ndarray))]
    inexact = [one for one in found if is_float(one) or is_complex(one)]
    return max(inexact, key=epsilon, default=dtype)


def result_dtype(spec: OpSpec, sample: Sample) -> np.dtype[Any] | None:
    """The schema's; of a function what it says, else what NumPy gives for the same dtypes, None where NumPy cannot."""
    args, kwargs = sample.host()
    if spec.op is not None and spec.op.schema.outputs:
        return spec.op.meta(*args, **kwargs).dtype
    if callable(spec.result_dtype):
        return as_dtype(spec.result_dtype(*(dtype_name(one.dtype) for one in args if isinstance(one, np.ndarray))))
    if spec.result_dtype is not None:
        return as_dtype(spec.result_dtype)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(spec.run("cpu", *sample.copied())).dtype
    except (TypeError, ValueError, NotImplementedError):
        return None


def turned(sample: Sample) -> Sample:
    """The same call on the same numbers in another order."""
    args = (HostArray(np.roll(a, 1)) if isinstance(a, np.ndarray) else a for a in sample.host()[0])
    return replace(sample, args=tuple(args), label=f"{sample.label}, new numbers")


def run_sample(spec: OpSpec, device: Device, sample: Sample) -> Any:
    """The result on `device`; NumPy's floating-point warnings are no news here."""
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        return spec.run(device, args, kwargs)


def verify(spec: OpSpec, device: Device, dtype: Any, samples: Iterator[Sample]) -> None:
    """Run each sample and compare it with the reference; what that refuses, the device must refuse too."""
    __tracebackhide__ = True
    refused, compared = None, False
    for sample in samples:
        with on_sample(sample):
            refusal = spec.refusal(sample)
            if refusal is not None:
                _must_refuse(spec, device, sample, refusal)
                refused = refused or refusal
            else:
                compare(spec, device, dtype, sample, run_sample(spec, device, sample))
                compared = True
    if refused is not None and not compared:
        pytest.skip(f"{spec.name} refuses these inputs itself, on every device: {type(refused).__name__}: {refused}")


def _must_refuse(spec: OpSpec, device: Device, sample: Sample, refusal: Exception) -> None:
    try:
        got = run_sample(spec, device, sample)
    except Exception:  # noqa: BLE001  libraries refuse by different types
        return
    raise AssertionError(
        f"the reference refuses these inputs ({type(refusal).__name__}: {refusal}); {device} gives {got!r:.200}; "
        "refuse them on every device, let the reference take them, or give samples= without them"
    ) from refusal
