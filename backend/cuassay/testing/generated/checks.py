"""The generated checks, one function each: what every operation must hold on every device, in every dtype.

More of them are in `forms`, `numbers`, `sizes`, `precision`, `side_effects`, `streams` and `relations`.

A check takes an OpSpec, a device and mostly a dtype, and raises `AssertionError`. Which specs it is for is written
next to it. Failures name op, device, dtype, sample, seed, and the line that runs them again.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from itertools import cycle, islice
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.core.device import Device
from cuassay.testing.check_names import CHECK_NAMES
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated import (  # noqa: F401  they register theirs
    aliasing,
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
    side_effects,
    signed_zeros,
    sizes,
    special,
    streams,
    threads,
    views,
)
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
    verify(spec, device, dtype, samples_of(spec, device, dtype, "values"))


@check(lambda spec: spec.op is None or not spec.op.schema.is_irregular)
def check_layouts(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Transposed, strided, reversed, offset inputs, and rows of a wider array, give what contiguous inputs do."""
    others = [name for name in LAYOUTS if name not in ("contiguous", "transposed")]
    samples = list(samples_of(spec, device, dtype, "values"))
    in_turn, of_each, met = cycle(others), max(2, -(-len(others) // max(len(samples), 1))), set[int]()
    for sample in samples:
        plain = functools.partial(verify, spec, device, dtype, [sample], _unchanging)
        axes = axes_of(sample)
        is_first = spec.op is None and axes not in met  # a function may look at the strides of matrices alone
        met.add(axes)
        for layout in (*(("transposed",) if axes > 1 else ()), *(others if is_first else islice(in_turn, of_each))):
            with explained(f"right for contiguous inputs, wrong for {layout} ones", plain):
                verify(spec, device, dtype, [sample.laid_out(layout)], _unchanging)
        if axes > 1 and is_first and len(arrays_of(*sample.host())) > 1:
            alone = sample.laid_out("transposed", only_first=True)
            with explained("right for contiguous inputs, wrong where the first one alone is transposed", plain):
                verify(spec, device, dtype, [alone], _unchanging)


def _unchanging(spec: OpSpec, device: Device, sample: Sample) -> Any:
    """The result; fails if the call writes an input: a function may copy contiguous inputs, and write into others."""
    return run_unchanging(spec, device, sample, _CHANGED)


@check(has("empty"))
def check_zero_size(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Arrays without elements give what the reference gives."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "empty"))


@check(has("scalar"))
def check_zero_dim(spec: OpSpec, device: Device, dtype: Any) -> None:
    """0-d arrays, or the least dimensions there may be."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "scalar"))


@check(has("broadcast"))
def check_broadcast(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Shapes of different lengths and extents of one."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "broadcast"))


@check(lambda spec: has("promotion")(spec) or says_what_promotes(spec))
def check_promotion(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Operands of two dtypes: the result's dtype is the promoted one, its values exact to that."""
    if has("promotion")(spec):
        verify(spec, device, dtype, promotions(spec, device, dtype))
    else:
        check_promoted(spec, device, dtype)


@check(lambda spec: has("python")(spec) and not _is_of_truth_values(spec))
def check_python_scalars(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Python numbers together with arrays do not widen them."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "python"))


def _is_of_truth_values(spec: OpSpec) -> bool:
    """Whether it is a function of truth values alone, which says nothing about numbers."""
    return spec.op is None and set(spec.dtypes) == {"bool"}


@check(has("extremal"))
def check_extremal(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Infinities, NaN, zeros of both signs, subnormals, the largest numbers, overflow."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "extremal"))


# ------------------------------------------------------------------------------------------------ conduct


@check()
def check_inputs_unchanged(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Inputs hold the same bits after the call as before."""
    for sample in few(spec, device, dtype):
        with on_sample(sample):
            args, kwargs = sample.on(device)
            with np.errstate(all="ignore"):
                spec.run(device, args, kwargs)
            with explained(_CHANGED) if spec.op is None else nullcontext():
                assert_inputs_held(sample, args, kwargs)


@check(lambda spec: is_function(spec) and "inputs_unchanged" in spec.without)
def check_written(spec: OpSpec, device: Device, dtype: Any) -> None:
    """A function that says that it changes its input does."""
    is_expected = False
    for sample in few(spec, device, dtype):
        args, kwargs = sample.on(device)
        with on_sample(sample), np.errstate(all="ignore"):
            spec.run(device, args, kwargs)
        try:
            assert_inputs_held(sample, args, kwargs)
        except AssertionError:
            return
        is_expected = is_expected or not _is_input(spec.expected(sample), sample)
    if is_expected:
        raise AssertionError(
            f"no call changed an input, although the declaration leaves inputs_unchanged out "
            f"({spec.without['inputs_unchanged']}); write the input, or leave that word out of without="
        )


def _is_input(expected: Any, sample: Sample) -> bool:
    """Whether a result is an input as it was: nothing need be written then."""
    return any(np.array_equal(expected, one, equal_nan=True) for one in arrays_of(*sample.host()))


_CHANGED = f"the call changed its input; work on a copy, or where it is meant to work in place say so: {IN_PLACE}"

#: Calls of a function that must repeat the first: sums in a random order agree at times.
_REPEATS = 3


@check(lambda spec: spec.deterministic)
def check_deterministic(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Two equal runs give the same bits; a run on other numbers computes again, whatever earlier runs have cached."""
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
    """Fail where a second call on other numbers is wrong and the first was right; `values` reports the rest."""
    other = turned(sample)
    if not is_safely_taken(spec, other):
        return
    try:
        verify(spec, device, dtype, [other])
    except AssertionError as error:
        if not _is_right(spec, dtype, sample, first):
            return
        if side_effects.is_wrong_at_first(spec, device, dtype, other):
            said = "right for some numbers and wrong for others, also in the first call with a shape: nothing is kept"
        else:
            said = (
                "right for some numbers, wrong for others of the same shape in the next call; does the function keep "
                "something of the first call?"
            )
        raise AssertionError(f"{said}\n  {error}") from None


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
                # Compiled, tuned and given memory on this very stream: nothing of it may happen in a capture.
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
    """Each bad input raises the declared error, with its message, twice, and is not changed; the next call is right.

    So does an ordinary input in which a number or two are wrong, where the reference refuses it by such an error.
    """
    ordinary = _right_sample(spec, device, dtype) if spec.op is None else None
    rows = ordinary_samples(spec, device, dtype) if spec.op is None and not spec.is_its_own_reference else []
    for bad in bad_inputs(spec, device, dtype):
        with on_sample(bad.sample):
            args, kwargs = bad.sample.on(device)
            must_raise(functools.partial(spec.run, device, args, kwargs), bad.error, bad.match)
            if _must_hold(spec, bad.sample):
                with explained("a call that was refused has changed its input; look for mistakes before writing"):
                    assert_inputs_held(bad.sample, args, kwargs)
        check_partial_errors(spec, device, dtype, bad.sample, bad.error, rows)
        if spec.op is None and not spec.is_its_own_reference:
            check_next_to_errors(spec, device, dtype, bad.sample)
        if ordinary is not None:
            with explained("wrong after a call that was refused: does the function set something before it raises?"):
                verify(spec, device, dtype, [ordinary])
        if spec.op is None:
            with on_sample(bad.sample), explained(_REFUSED_ONCE):
                must_raise(functools.partial(spec.run, device, *bad.sample.on(device)), bad.error, bad.match)
    if spec.op is None and not spec.is_its_own_reference:
        check_nearly_right(spec, device, dtype, list(bad_inputs(spec, device, dtype)))


_REFUSED_ONCE = "the same call was refused before: does the function keep something of a refused call?"


def _must_hold(spec: OpSpec, sample: Sample) -> bool:
    """Whether a refused call must leave its inputs as they were.

    Of functions that work in place only those of lists: they can look at all arrays before they write the first. A
    factorization in place finds a bad pivot when half of its work is done.
    """
    return "inputs_unchanged" not in spec.without or any(isinstance(one, list) for one in sample.args)


def _right_sample(spec: OpSpec, device: Device, dtype: Any) -> Sample | None:
    """An ordinary call that is right before others are refused; None where it is not, which `values` reports."""
    sample = one(spec, device, dtype, most=_FEW)
    try:
        verify(spec, device, dtype, [sample])
    except AssertionError:
        return None
    return sample


#: Elements of an ordinary call before and after one that is refused.
_FEW = 2048


@check(lambda spec: spec.op is not None)
def check_dtypes(spec: OpSpec, device: Device) -> None:
    """The claimed dtypes are exactly those that run: one too many or one too few is a failure."""
    claimed, supported = set(spec.claims(device)), set(devices.supported_dtypes(spec.declared, device))
    missing, unclaimed = sorted(claimed - supported), sorted(supported - claimed)
    if missing or unclaimed:
        raise AssertionError(
            f"{spec.name} on {device}: claimed but not supported: {', '.join(missing) or 'none'}; "
            f"supported but not claimed: {', '.join(unclaimed) or 'none'}; correct the spec's dtypes or the registry"
        )


#: Name to check, in the order they run.
CHECKS = {name: REGISTERED[name] for name in CHECK_NAMES}
