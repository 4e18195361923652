"""The generated checks: properties that every operation must have on every device and in every dtype.

Each check is a function that takes an OpSpec, a device and usually a dtype, and raises `AssertionError`. The argument
of the decorator selects the specs that it applies to. A failure names op, device, dtype, sample and seed, and the
command that repeats it. The modules imported here register further checks.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from itertools import cycle, islice
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.check_names import CHECK_NAMES
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated import (  # noqa: F401  importing these modules registers their checks
    aliasing,
    beyond_32_bits,
    combined,
    constants,
    forms,
    gradients,
    halves,
    infinities,
    lists,
    measured,
    numbers,
    precision,
    relations,
    second_calls,
    side_effects,
    signed_zeros,
    sizes,
    special,
    streams,
    threads,
    views,
)
from cuassay.testing.generated.broken import assert_dtype_of
from cuassay.testing.generated.cases import retold, showing_inputs
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import (
    IN_PLACE,
    REGISTERED,
    Check,
    assert_inputs_held,
    check,
    explained,
    has,
    is_function,
    is_op,
    is_safely_taken,
    must_raise,
    on_sample,
    overwrite,
    run_sample,
    run_unchanging,
    turned,
    verify,
)
from cuassay.testing.generated.forms import empty_out
from cuassay.testing.generated.partial_errors import (
    check_nearly_right,
    check_next_to_errors,
    check_partial_errors,
    ordinary_samples,
)
from cuassay.testing.generated.promoted import check_promoted, says_what_promotes
from cuassay.testing.generated.selection import axes_of, bad_inputs, few, one, promotions, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import LAYOUTS, Sample
from cuassay.testing.terms import arrays_of

__all__ = ["CHECKS", "Check"]


# ------------------------------------------------------------------------------------------------ values


@check()
def check_values(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Every ordinary sample agrees with the reference."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "values"), is_declared=True)


@check(lambda spec: spec.op is None or not spec.op.schema.is_irregular)
def check_layouts(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Transposed, strided, reversed and offset inputs, and rows of a wider array, give what contiguous inputs do."""
    others = [name for name in LAYOUTS if name not in ("contiguous", "transposed")]
    samples = list(samples_of(spec, device, dtype, "values"))
    in_turn, of_each, met = cycle(others), max(2, -(-len(others) // max(len(samples), 1))), set[int]()
    for sample in samples:
        plain = functools.partial(verify, spec, device, dtype, [sample], _run_unchanging)
        axes = axes_of(sample)
        is_first = spec.op is None and axes not in met  # a function may inspect the strides of matrices only
        met.add(axes)
        for layout in (*(("transposed",) if axes > 1 else ()), *(others if is_first else islice(in_turn, of_each))):
            with explained(f"right for contiguous inputs, wrong for {layout} ones", plain):
                verify(spec, device, dtype, [sample.laid_out(layout)], _run_unchanging)
        if axes > 1 and is_first and len(arrays_of(*sample.host())) > 1:
            alone = sample.laid_out("transposed", only_first=True)
            with explained("right for contiguous inputs, wrong where the first one alone is transposed", plain):
                verify(spec, device, dtype, [alone], _run_unchanging)


def _run_unchanging(spec: OpSpec, device: Device, sample: Sample) -> Any:
    """Run the sample, and fail if the call writes to an input.

    A function may copy contiguous inputs and write to others.
    """
    return run_unchanging(spec, device, sample, _CHANGED)


@check(has("empty"))
def check_zero_size(spec: OpSpec, device: Device, dtype: Any) -> None:
    """For arrays without elements the result is that of the reference, in the dtype that other calls give."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "empty"))
    if is_function(spec):
        _check_dtype_of_empty(spec, device, dtype)


def _check_dtype_of_empty(spec: OpSpec, device: Device, dtype: Any) -> None:
    usual = {_signature(sample): sample for sample in samples_of(spec, device, dtype, "values")}
    for sample in samples_of(spec, device, dtype, "empty"):
        if _signature(sample) in usual:
            assert_dtype_of(spec, device, sample, usual[_signature(sample)])


def _signature(sample: Sample) -> str:
    """The dtypes of a call's arrays, and its options, as text."""
    return repr(([dtype_name(array.dtype) for array in arrays_of(*sample.host())], sorted(sample.kwargs.items())))


@check(has("scalar"))
def check_zero_dim(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for 0-d arrays, or for arrays with the fewest dimensions that the function accepts."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "scalar"))


@check(has("broadcast"))
def check_broadcast(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for inputs with different numbers of dimensions, and with extents of 1."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "broadcast"))


@check(lambda spec: "promotion" in spec.kinds or says_what_promotes(spec))
def check_promotion(spec: OpSpec, device: Device, dtype: Any) -> None:
    """For operands of two dtypes the result has the promoted dtype, and its values are exact to that dtype."""
    if "promotion" in spec.kinds:
        verify(spec, device, dtype, promotions(spec, device, dtype))
    if says_what_promotes(spec):
        check_promoted(spec, device, dtype)


@check(lambda spec: "python" in spec.kinds and not _is_of_truth_values(spec))
def check_python_scalars(spec: OpSpec, device: Device, dtype: Any) -> None:
    """A Python number next to an array does not widen the result."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "python"))


def _is_of_truth_values(spec: OpSpec) -> bool:
    """Whether the function is declared for truth values only, so that its result for numbers is not defined."""
    return spec.op is None and set(spec.dtypes) == {"bool"}


@check(has("extremal"))
def check_extremal(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for infinities, NaN, signed zeros, subnormals and the largest numbers."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "extremal"))


# ------------------------------------------------------------------------------------------------ conduct


@check()
def check_inputs_unchanged(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Inputs have the same bits after the call as before."""
    for sample in few(spec, device, dtype):
        with on_sample(sample):
            args, kwargs = sample.on(device)
            with np.errstate(all="ignore"):
                spec.run(device, args, kwargs)
            with explained(_CHANGED) if spec.op is None else nullcontext():
                assert_inputs_held(spec, sample, args, kwargs)


@check(lambda spec: is_function(spec) and "inputs_unchanged" in spec.without)
def check_written(spec: OpSpec, device: Device, dtype: Any) -> None:
    """A function that is declared to change its input does change it."""
    is_expected = False
    for sample in few(spec, device, dtype):
        args, kwargs = sample.on(device)
        with on_sample(sample), np.errstate(all="ignore"):
            spec.run(device, args, kwargs)
        try:
            assert_inputs_held(spec, sample, args, kwargs)
        except AssertionError:
            return
        is_expected = is_expected or not _is_input(spec.expected(sample), sample)
    if is_expected:
        raise AssertionError(
            f"no call changed an input, although the declaration opts out of inputs_unchanged "
            f"({spec.without['inputs_unchanged']}); write to the input, or remove inputs_unchanged from without="
        )


def _is_input(expected: Any, sample: Sample) -> bool:
    """Whether the expected result equals an unchanged input; then a function in place has nothing to write."""
    return any(np.array_equal(expected, one, equal_nan=True) for one in arrays_of(*sample.host()))


_CHANGED = f"the call changed its input; work on a copy, or, if it is meant to work in place, declare {IN_PLACE}"

#: How often a function's call is repeated: two sums in a random order may agree by chance.
_REPEATS = 3


@check(lambda spec: spec.deterministic)
def check_deterministic(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Equal calls give the same bits; a call on other numbers computes again, whatever earlier calls have cached."""
    for sample in few(spec, device, dtype):
        with on_sample(sample):
            first = run_sample(spec, device, sample)
            first = devices.to_host(first) if hasattr(first, "shape") else first  # a function may give a Python number
            with explained("two calls on the same inputs give different results"):
                for _ in range(_REPEATS if spec.op is None else 1):
                    assert_same_bits(run_sample(spec, device, sample), first)
        if spec.op is None:
            _check_other_numbers(spec, device, dtype, sample, first)


def _check_other_numbers(spec: OpSpec, device: Device, dtype: Any, sample: Sample, first: Any) -> None:
    """Fail if a second call with other numbers is wrong although the first was right; `values` reports the rest."""
    other = turned(sample)
    if not is_safely_taken(spec, other):
        return
    try:
        verify(spec, device, dtype, [other])
    except AssertionError as error:
        if not _is_right(spec, dtype, sample, first):
            return
        if second_calls.is_wrong_at_first(spec, device, dtype, other):
            said = "right for some numbers, wrong for others, also in the first call with a shape: no cache is at fault"
        else:
            said = (
                "right for some numbers, wrong for others of the same shape in the next call; does the function cache "
                "something from the first call?"
            )
        raise retold(said, error) from None


def _is_right(spec: OpSpec, dtype: Any, sample: Sample, result: Any) -> bool:
    try:
        compare(spec, Device("cpu"), dtype, sample, result)
    except AssertionError:
        return False
    return True


@check(is_op, needs=("graphs",))
def check_graph_replay(spec: OpSpec, device: Device, dtype: Any) -> None:
    """A captured call, replayed after its inputs have changed, computes on the new numbers."""
    backend = devices.backend(device.kind)
    sample = one(spec, device, dtype)
    other = turned(sample)
    with on_sample(sample), backend.activate(device.index), np.errstate(all="ignore"):
        args, kwargs = sample.on(device)
        out = empty_out(spec, sample, "contiguous").on(device)
        main, side = backend.current_stream(device.index), backend.new_stream(device.index)
        side.wait_stream(main)
        capture = backend.new_capture(device.index)
        try:
            with backend.use_stream(side):
                # Compiling, tuning and allocating must happen on this stream before the capture begins.
                spec.run(device, args, {**kwargs, "out": out})
                side.synchronize()
                capture.begin()
                spec.run(device, args, {**kwargs, "out": out})
                capture.end()
                overwrite(device, args, other)
                capture.replay()
            side.synchronize()
            compare(spec, device, dtype, other, out)
        finally:  # a capture left open would fail every test after this one
            capture.reset()


# ------------------------------------------------------------------------------------------------ claims


@check(lambda spec: spec.error_inputs is not None)
def check_errors(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Each bad input raises the declared error and message, twice, and is left unchanged; the next valid call is right.

    The error must also be raised for an ordinary input in which one or two numbers are wrong, if the reference raises
    it for that input.
    """
    ordinary = _passing_sample(spec, device, dtype) if spec.op is None else None
    rows = ordinary_samples(spec, device, dtype) if spec.op is None and not spec.is_its_own_reference else []
    for bad in bad_inputs(spec, device, dtype):
        with on_sample(bad.sample):
            args, kwargs = bad.sample.on(device)
            with showing_inputs(bad.sample):
                must_raise(functools.partial(spec.run, device, args, kwargs), bad.error, bad.match)
            if _must_leave_inputs(spec, bad.sample):
                with explained("a call that raised an error has changed its input; validate before writing"):
                    assert_inputs_held(spec, bad.sample, args, kwargs)
        check_partial_errors(spec, device, bad.sample, bad.error, rows)
        if spec.op is None and not spec.is_its_own_reference:
            check_next_to_errors(spec, device, dtype, bad)
        if ordinary is not None:
            with explained("wrong after a call that raised an error: does the function set state before it raises?"):
                verify(spec, device, dtype, [ordinary])
        if spec.op is None:
            with on_sample(bad.sample), explained(_REFUSED_ONCE):
                must_raise(functools.partial(spec.run, device, *bad.sample.on(device)), bad.error, bad.match)
    if spec.op is None and not spec.is_its_own_reference:
        check_nearly_right(spec, device, dtype, list(bad_inputs(spec, device, dtype)))


_REFUSED_ONCE = "the same call has raised before: does the function keep something from a call that raises?"


def _must_leave_inputs(spec: OpSpec, sample: Sample) -> bool:
    """Whether a call that raises must leave its inputs unchanged.

    Among functions that work in place, this holds only for those of lists, which can validate all arrays before they
    write to the first. A factorization in place finds a bad pivot only when half of its work is done.
    """
    return "inputs_unchanged" not in spec.without or any(isinstance(one, list) for one in sample.args)


def _passing_sample(spec: OpSpec, device: Device, dtype: Any) -> Sample | None:
    """An ordinary call that is right before other calls raise; None if it is wrong, which `values` reports."""
    sample = one(spec, device, dtype, most=_MOST_ELEMENTS)
    try:
        verify(spec, device, dtype, [sample])
    except AssertionError:
        return None
    return sample


#: The most elements of the ordinary call that is run before and after a call that raises.
_MOST_ELEMENTS = 2048


@check(lambda spec: spec.op is not None)
def check_dtypes(spec: OpSpec, device: Device) -> None:
    """The claimed dtypes are exactly the supported ones: one too many or one too few is a failure."""
    claimed, supported = set(spec.claims(device)), set(devices.supported_dtypes(spec.declared, device))
    missing, unclaimed = sorted(claimed - supported), sorted(supported - claimed)
    if missing:
        raise AssertionError(
            f"{spec.name} has no implementation on {device} for {', '.join(missing)}, which dtypes= claims; add it, or "
            "list these dtypes in unclaimed="
        )
    if unclaimed:
        raise AssertionError(
            f"{spec.name} on {device} is also implemented for {', '.join(unclaimed)}, which dtypes= does not claim; "
            "claim them, as dtypes=op.schema.dtypes does for all"
        )


#: Name to check, in the order in which they run.
CHECKS = {name: REGISTERED[name] for name in CHECK_NAMES}
