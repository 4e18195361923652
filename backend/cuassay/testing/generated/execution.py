"""How a check runs: it is registered by a decorator, runs inside the guards, and each failure names its case.

The properties themselves are defined in `checks`.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cuassay.arrays.dtypes import is_float
from cuassay.core.device import Device
from cuassay.errors import CuassayError, SpecError
from cuassay.testing.check_names import CHECK_NAMES
from cuassay.testing.declared import ONE_CALL
from cuassay.testing.generated.cases import explained, naming_case, on_sample
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.inputs import assert_inputs_held
from cuassay.testing.guards import LeakError, guarded
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Kind, Sample, each, is_sorted, over_lists

__all__ = [
    "IN_PLACE",
    "REGISTERED",
    "Check",
    "assert_inputs_held",
    "check",
    "compare_filled",
    "explained",
    "filled_from",
    "has",
    "is_function",
    "is_op",
    "is_raised_on_purpose",
    "is_safely_taken",
    "moves",
    "must_raise",
    "on_sample",
    "overwrite",
    "refusal_of",
    "run_sample",
    "run_unchanging",
    "runs_on_host",
    "turned",
    "verify",
]


@dataclass(frozen=True, slots=True)
class Check:
    """One property of an operation.

    Call it with a spec, a device and, if `per_dtype`, a dtype. It raises `AssertionError` if the property is violated.

    Attributes
    ----------
    name, doc : str
        The name of the property, and a docstring whose first paragraph states it.
    function : callable
        The check itself.
    applies : callable
        Whether the check applies to a spec.
    needs : tuple of str
        Capabilities that the device must have.
    per_dtype : bool
        Whether the check takes a dtype.
    dtypes : tuple of str
        The dtypes to which the check applies; empty means all.
    is_alone : bool
        Whether the check must run alone on its device, because it needs most of the memory.
    """

    name: str
    doc: str
    function: Callable[..., None]
    applies: Callable[[OpSpec], bool]
    needs: tuple[str, ...]
    per_dtype: bool
    dtypes: tuple[str, ...] = ()
    is_alone: bool = False

    def __call__(self, spec: OpSpec, device: Any, *dtype: Any) -> None:
        """Run the check inside the guards; any error that it raises names the case.

        If it leaves memory in use, it runs again: a weight cached by the first run does not count as a leak.
        """
        __tracebackhide__ = True
        if self.name in spec.without:
            pytest.skip(f"{spec.name} opts out of {self.name}: {spec.without[self.name]}")
        sentence = " ".join(self.doc.partition("\n\n")[0].split())
        with naming_case(f"check: {self.name}: {sentence}", spec, device, *dtype):
            try:
                self._guarded(spec, device, *dtype)
            except LeakError:
                self._run_again(spec, device, *dtype)

    def _guarded(self, spec: OpSpec, device: Any, *dtype: Any) -> None:
        __tracebackhide__ = True
        with guarded(device), np.errstate(invalid="ignore"):  # uninitialized memory may hold a signalling NaN
            self.function(spec, Device(device), *dtype)

    def _run_again(self, spec: OpSpec, device: Any, *dtype: Any) -> None:
        try:
            self._guarded(spec, device, *dtype)
        except LeakError as leak:
            raise AssertionError(
                f"{leak}; a second run of the check leaked again, so this is not a cache that is filled once"
            ) from None


#: Name to check, in the order in which modules are imported; `checks.CHECKS` has the order in which they run.
REGISTERED: dict[str, Check] = {}


def _always(spec: OpSpec) -> bool:
    return True


def is_op(spec: OpSpec) -> bool:
    """Whether the spec is of a declared op that returns one array."""
    return spec.op is not None and spec.op.schema.is_single


def is_function(spec: OpSpec) -> bool:
    """Whether the spec is of a user's function."""
    return spec.op is None


def moves(spec: OpSpec) -> bool:
    """Whether the output may be on another device than the inputs."""
    return spec.op is not None and spec.op.schema.place is not None


def has(kind: Kind) -> Callable[[OpSpec], bool]:
    """Make a predicate: whether a spec has samples of this kind."""
    return lambda spec: kind in spec.kinds


Function = Callable[..., None]


def check(
    applies: Callable[[OpSpec], bool] = _always,
    *,
    needs: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    is_alone: bool = False,
) -> Callable[[Function], Function]:
    """Register a check.

    Parameters
    ----------
    applies : callable
        Whether the check applies to a spec.
    needs : sequence of str
        Capabilities that the device must have.
    dtypes : sequence of str
        The dtypes to which the check applies; empty means all.
    is_alone : bool
        Whether the check must run alone on its device.

    Raises
    ------
    SpecError
        If `CHECK_NAMES` does not list the check.
    """

    def register(function: Function) -> Function:
        name = function.__name__.removeprefix("check_")
        per_dtype = "dtype" in inspect.signature(function).parameters
        if name not in CHECK_NAMES:
            raise SpecError(
                f"the check {name!r} has no place in the order of checks; add it to CHECK_NAMES in "
                "cuassay.testing.check_names"
            )
        REGISTERED[name] = Check(
            name, function.__doc__ or "", function, applies, tuple(needs), per_dtype, tuple(dtypes), is_alone
        )
        return function

    return register


@contextmanager
def filled_from(
    spec: OpSpec, device: Device, dtype: Any, base: Sample, filled: Sample, advice: str = ""
) -> Iterator[None]:
    """Name `filled` in any error raised inside; if `base` passes, say which numbers make the function wrong."""
    what = filled.label.removeprefix(f"{base.label}, ")
    sentence = f"right for the sample's own numbers, wrong for others: {what}{advice}"
    with on_sample(filled), explained(sentence, lambda: verify(spec, device, dtype, [base])):
        yield


def compare_filled(spec: OpSpec, device: Device, dtype: Any, base: Sample, filled: Sample) -> None:
    """Compare a call with other numbers than `base`, if reference and function accept it."""
    if is_safely_taken(spec, filled):
        with filled_from(spec, device, dtype, base, filled):
            compare(spec, device, dtype, filled, run_sample(spec, device, filled))


def runs_on_host(spec: OpSpec, sample: Sample) -> bool:
    """Whether the function accepts these inputs on the host in their own dtypes; always true for an op."""
    if spec.op is not None:
        return True
    try:
        with np.errstate(all="ignore"):
            spec.run("cpu", *sample.copied())
    except (ValueError, TypeError, IndexError, ArithmeticError):
        return False
    except Exception as error:  # noqa: BLE001  a function for one library may break in any way on the host's arrays
        return isinstance(error, CuassayError) or not is_raised_on_purpose(error)
    return True


#: The instruction of the statements `raise` and `assert`.
_RAISE = dis.opmap["RAISE_VARARGS"]


def is_raised_on_purpose(error: BaseException) -> bool:
    """Whether a statement `raise` or `assert` raised the error, and not C code, such as most of NumPy's."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code.co_code[step.tb_lasti] == _RAISE


def is_safely_taken(spec: OpSpec, sample: Sample) -> bool:
    """Whether the reference accepts these inputs, and the function does so on the host.

    Nobody declared the inputs, so any error counts as a rejection: a reference may assert what its samples keep.
    """
    return refusal_of(spec, sample) is None and runs_on_host(spec, sample)


def refusal_of(spec: OpSpec, sample: Sample) -> Exception | None:
    """The error with which the reference rejects `sample`, of whatever type; None if it accepts it."""
    try:
        return spec.refusal(sample)
    except Exception as error:  # noqa: BLE001  an undeclared input may be rejected with any error
        return error


def overwrite(device: Device, arrays: Sequence[Any], sample: Sample) -> None:
    """Copy the numbers of `sample` into `arrays`, which are on `device`."""
    from cuassay import ops

    for array, fresh in zip(each(arrays), each(sample.args), strict=True):
        if isinstance(fresh, HostArray):
            ops.copy(fresh.on(device), out=array)


def turned(sample: Sample) -> Sample:
    """The same call with its numbers in another order.

    If there are several arrays, sorted ones stay sorted. Floats drawn from the default range are also halved, so that
    an extremum or a sum changes.
    """
    several = sum(isinstance(a, np.ndarray) for a in sample.host()[0]) > 1

    def rolled(given: Any) -> Any:
        array = given.values if isinstance(given, HostArray) else given
        if not isinstance(array, np.ndarray):
            return given
        if several and is_sorted(array):
            return HostArray(array)
        moved = np.roll(array, 1)
        if isinstance(given, HostArray) and given.is_free and is_float(array.dtype):
            return replace(given, values=(moved * array.dtype.type(0.5)).astype(array.dtype), layout="contiguous")
        return HostArray(moved)

    args = tuple(over_lists(a, rolled) for a in sample.args)
    return replace(sample, args=args, label=f"{sample.label}, new numbers")


#: How to declare a function that works in place.
IN_PLACE = 'without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"}'


def run_sample(spec: OpSpec, device: Device, sample: Sample) -> Any:
    """Run the sample on `device`, without NumPy's floating-point warnings."""
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        return spec.run(device, args, kwargs)


def run_unchanging(spec: OpSpec, device: Device, sample: Sample, sentence: str, plain: Sample | None = None) -> Any:
    """Run the sample; fail with `sentence` if a function writes to an input, unless its spec opts out of that check.

    If it writes to those of the sample `plain` as well, the sentence says only that it does.
    """
    if spec.op is not None or "inputs_unchanged" in spec.without:
        return run_sample(spec, device, sample)
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        result = spec.run(device, args, kwargs)
    otherwise = None if plain is None else functools.partial(run_unchanging, spec, device, plain, sentence)
    with on_sample(sample), explained(sentence, otherwise, "the function writes an input"):
        assert_inputs_held(spec, sample, args, kwargs)
    return result


def verify(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    samples: Iterable[Sample],
    run: Callable[..., Any] = run_sample,
    *,
    is_declared: bool = False,
) -> None:
    """Run each sample and compare it with the reference; the device must reject each sample that the reference rejects.

    `run` is called with the spec, the device and a sample, and returns the result. If the samples are those that the
    spec declares, the reference must accept each of them in one of the spec's dtypes at least.
    """
    __tracebackhide__ = True
    refused, compared = None, False
    for sample in samples:
        with on_sample(sample):
            refusal = spec.refusal(sample)
            if refusal is not None:
                _must_reject(spec, device, sample, refusal)
                if is_declared:
                    _assert_accepted_in_some_dtype(spec, sample, refusal)
                refused = refused or refusal
            else:
                compare(spec, device, dtype, sample, run(spec, device, sample), keeps_ratio=True)
                compared = True
    if refused is not None and not compared:
        pytest.skip(f"{spec.name} refuses these inputs itself, on every device: {type(refused).__name__}: {refused}")


def _must_reject(spec: OpSpec, device: Device, sample: Sample, refusal: Exception) -> None:
    try:
        got = run_sample(spec, device, sample)
    except Exception:  # noqa: BLE001  libraries refuse by different types
        return
    shown = " ".join(repr(got).split())
    raise AssertionError(
        f"the reference refuses these inputs ({type(refusal).__name__}: {refusal}); {device} gives "
        f"{shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + ' ...'}; "
        "refuse them on every device, let the reference take them, or give samples= without them"
    ) from refusal


#: The most characters of a result that a message shows.
_MOST_SHOWN = 200


def _assert_accepted_in_some_dtype(spec: OpSpec, sample: Sample, refusal: Exception) -> None:
    """Fail if the reference rejects a declared sample in all dtypes: it would test nothing.

    Samples of two dtypes are the same one if they have the same label. One that is not drawn in each dtype is left out,
    because it may be meant for some of them.
    """
    if spec.op is not None or spec.has_default_samples:
        return
    same = [one for name in spec.dtypes for one in spec.draw(0, name, "values") if one.label == sample.label]
    if len(same) < len(spec.dtypes) or any(refusal_of(spec, one) is None for one in same):
        return
    raise AssertionError(
        f"reference= and the function both reject this sample of samples= in every dtype, so it tests nothing "
        f"({type(refusal).__name__}: {refusal}); correct it, or list it in error_inputs= if it is meant to raise"
        f"{f'; {ONE_CALL}' if isinstance(refusal, TypeError) else ''}"
    ) from refusal


def must_raise(call: Callable[[], Any], error: type[BaseException], match: str) -> None:
    """Assert that the call raises `error` with a message in which the regular expression `match` is found."""
    try:
        got = call()
    except error as raised:
        if re.search(match, str(raised)) is None:
            hint = "; match is a regular expression: give re.escape(...)" if match in str(raised) else ""
            raise AssertionError(f"{type(raised).__name__} does not say {match!r}: {raised}{hint}") from raised
    except Exception as raised:
        raise AssertionError(
            f"{error.__name__} was declared, {type(raised).__name__} was raised: {raised}; correct one of the two"
        ) from raised
    else:
        raise AssertionError(f"{error.__name__} ({match!r}) was not raised; got {got!r:.200}")
