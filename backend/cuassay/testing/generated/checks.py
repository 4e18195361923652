"""The generated checks, one function each: what every operation must hold on every device, in every dtype.

More of them are in `numbers`, `sizes`, `precision`, `side_effects`, `streams` and `relations`.

A check takes an OpSpec, a device and mostly a dtype, and raises `AssertionError`. Which specs it is for is written
next to it. Failures name op, device, dtype, sample, seed, and the line that runs them again.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from cuassay.testing.check_names import CHECK_NAMES
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated import (  # noqa: F401  they register theirs
    measured,
    numbers,
    precision,
    relations,
    side_effects,
    sizes,
    special,
    streams,
    threads,
)
from cuassay.testing.generated.comparison import compare, result_dtype
from cuassay.testing.generated.execution import (
    REGISTERED,
    Check,
    check,
    explained,
    has,
    is_op,
    is_safely_taken,
    moves,
    on_sample,
    overwrite,
    run_sample,
    turned,
    verify,
)
from cuassay.testing.generated.selection import bad_inputs, few, of_most_elements, one, promotions, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import LAYOUTS, MARGIN, HostArray, Kind, Sample, each

__all__ = ["CHECKS", "Check"]


# ------------------------------------------------------------------------------------------------ values


@check()
def check_values(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Every ordinary sample agrees with the reference."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "values"))


@check(lambda spec: spec.op is None or not spec.op.schema.is_irregular)
def check_layouts(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Transposed, strided, reversed and offset inputs give what contiguous ones do."""
    layouts = cycle([name for name in LAYOUTS if name != "contiguous"])
    for sample in samples_of(spec, device, dtype, "values"):
        plain = functools.partial(verify, spec, device, dtype, [sample])
        for layout in islice(layouts, 2):
            with explained(f"right for contiguous inputs, wrong for {layout} ones", plain):
                verify(spec, device, dtype, [sample.laid_out(layout)])


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


@check(has("promotion"))
def check_promotion(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Operands of two dtypes: the result's dtype is the promoted one, its values exact to that."""
    verify(spec, device, dtype, promotions(spec, device, dtype))


@check(has("python"))
def check_python_scalars(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Python numbers together with arrays do not widen them."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "python"))


@check(has("extremal"))
def check_extremal(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Infinities, NaN, zeros of both signs, subnormals, the largest numbers, overflow."""
    verify(spec, device, dtype, samples_of(spec, device, dtype, "extremal"))


# ------------------------------------------------------------------------------------------------ forms of the call


def _empty_out(spec: OpSpec, sample: Sample, layout: str) -> HostArray:
    """The output the schema asks for, filled with ones, in a layout."""
    args, kwargs = sample.host()
    meta = spec.declared.meta(*args, **kwargs)
    return HostArray(np.ones(meta.shape, meta.dtype), layout)


@check(is_op)
def check_out(spec: OpSpec, device: Device, dtype: Any) -> None:
    """`out=` is written, returned, and nothing around it is touched, whatever its layout."""
    layouts = ("contiguous", "strided", "reversed") if devices.capabilities(device).answer("views") else ("contiguous",)
    for sample, layout in zip(few(spec, device, dtype), cycle(layouts), strict=False):
        with on_sample(sample):
            _write_out(spec, device, dtype, sample, _empty_out(spec, sample, layout))


def _write_out(spec: OpSpec, device: Device, dtype: Any, sample: Sample, host: HostArray) -> None:
    before = np.ones(host.base().size + 2 * MARGIN, host.dtype)  # a tail that writes too far changes what is around
    _within(before, host)[...] = host.base()
    around = devices.from_host(before, device)
    out = LAYOUTS[host.layout].view(_within(around, host), host.shape)
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        result = spec.run(device, args, {**kwargs, "out": out})
    if result is not out:
        raise AssertionError(f"out= was given, but another array came back: {result!r:.200}")
    compare(spec, device, dtype, sample, out)
    after = devices.to_host(around)
    LAYOUTS[host.layout].view(_within(after, host), host.shape)[...] = host.values
    assert_same_bits(after, before)


def _within(around: Any, host: HostArray) -> Any:
    """The base of `host` in the middle of a flat array."""
    shape = LAYOUTS[host.layout].base(host.shape)
    return around[MARGIN : around.size - MARGIN].reshape(shape)


@check(is_op)
def check_out_refused(spec: OpSpec, device: Device, dtype: Any) -> None:
    """An `out=` of another shape, dtype, device, or one that overlaps an input in part, is refused by name."""
    sample = one(spec, device, dtype)
    right = _empty_out(spec, sample, "contiguous")
    with on_sample(sample):
        wider = HostArray(np.ones((*right.shape, 2), right.dtype))
        _refused(spec, device, sample, wider.on(device), ShapeError, "shape")
        other = HostArray(np.ones(right.shape, np.bool_ if right.dtype != np.bool_ else np.int8))
        _refused(spec, device, sample, other.on(device), DTypeError, "out must be")
        if device.kind != "cpu" and not moves(spec):
            _refused(spec, device, sample, right.on("cpu"), DeviceError, str(device))
        _overlap_refused(spec, device, sample, right)


def _overlap_refused(spec: OpSpec, device: Device, sample: Sample, out: HostArray) -> None:
    """The first input and `out` share all but one element; where slices are copies, no two arrays can."""
    first = sample.args[0]
    if not devices.capabilities(device).answer("views"):
        return
    if isinstance(first, list) or first.shape != out.shape or first.dtype != out.dtype or math.prod(out.shape) < 3:
        return
    base = devices.from_host(np.concatenate([sample.host()[0][0].ravel(), np.ones(1, out.dtype)]), device)
    a, shifted = base[:-1].reshape(out.shape), base[1:].reshape(out.shape)
    args, kwargs = sample.on(device)
    _raises(lambda: spec.run(device, (a, *args[1:]), {**kwargs, "out": shifted}), ArgumentError, "shares memory")


def _refused(spec: OpSpec, device: Device, sample: Sample, out: Any, error: type[BaseException], match: str) -> None:
    args, kwargs = sample.on(device)
    _raises(lambda: spec.run(device, args, {**kwargs, "out": out}), error, match)


def _raises(call: Callable[[], Any], error: type[BaseException], match: str) -> None:
    try:
        got = call()
    except error as raised:
        if re.search(match, str(raised)) is None:
            raise AssertionError(f"{type(raised).__name__} does not say {match!r}: {raised}") from raised
    except Exception as raised:
        raise AssertionError(
            f"{error.__name__} was declared, {type(raised).__name__} was raised: {raised}; correct one of the two"
        ) from raised
    else:
        raise AssertionError(f"{error.__name__} ({match!r}) was not raised; got {got!r:.200}")


@check(lambda spec: is_op(spec) and spec.declared.schema.elementwise)
def check_inplace(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The in-place form writes its first argument, whatever its layout, and returns it."""
    for sample in (*few(spec, device, dtype), *_not_dense(spec, device, dtype)):
        if sample.args[0].dtype == result_dtype(spec, sample):
            with on_sample(sample), np.errstate(all="ignore"):
                args, kwargs = sample.on(device)
                if spec.declared.inplace(*args, **kwargs) is not args[0]:
                    raise AssertionError("the in-place form gave back another array than its first argument")
                compare(spec, device, dtype, sample, args[0])


def _not_dense(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """The largest sample, and one with a number, without contiguous arrays; and an array next to a smaller one.

    A thread beyond the last element may reach the first one, by the remainders that an index is made of. That shows
    only where the result replaces the input: the first element is then computed twice.
    """
    if devices.capabilities(device).answer("views"):
        yield one(spec, device, dtype).laid_out("strided")
        yield from (sample.laid_out("strided") for sample in _of_first_shape(spec, device, dtype, "python"))
        yield from _of_first_shape(spec, device, dtype, "broadcast")


def _of_first_shape(spec: OpSpec, device: Device, dtype: Any, kind: Kind) -> Iterator[Sample]:
    """The largest sample of this kind whose result has the shape of the first argument, if there is one."""
    drawn = list(samples_of(spec, device, dtype, kind)) if has(kind)(spec) else []
    ordered = (drawn[place] for place in of_most_elements(drawn))
    fitting = (one for one in ordered if np.shape(one.host()[0][0]) == _empty_out(spec, one, "contiguous").shape)
    yield from islice(fitting, 1)


@check(is_op)
def check_plan(spec: OpSpec, device: Device, dtype: Any) -> None:
    """`prepare` gives a plan that computes, and computes again when its inputs have changed."""
    for sample in few(spec, device, dtype)[-3:]:
        with on_sample(sample), np.errstate(all="ignore"):
            args, kwargs = sample.on(device)
            plan = spec.declared.prepare(*args, **kwargs)
            compare(spec, device, dtype, sample, plan.run())
            other = turned(sample)
            overwrite(device, args, other)
            compare(spec, device, dtype, other, plan.run())


# ------------------------------------------------------------------------------------------------ conduct


@check()
def check_inputs_unchanged(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Inputs hold the same bits after the call as before."""
    for sample in few(spec, device, dtype):
        with on_sample(sample):
            args, kwargs = sample.on(device)
            with np.errstate(all="ignore"):
                spec.run(device, args, kwargs)
            for given, array in zip(each(*sample.host()), each(args, kwargs), strict=True):
                if isinstance(given, np.ndarray):
                    assert_same_bits(array, given)


@check(is_op)
def check_meta(spec: OpSpec, device: Device, dtype: Any) -> None:
    """`meta` says, without memory, what shape and dtype come out, from arrays and from descriptions alike."""
    for sample in (*few(spec, device, dtype), *samples_of(spec, device, dtype, "scalar", "empty")):
        with on_sample(sample):
            args, kwargs = sample.on(device)
            described = [(tuple(a.shape), dtype_name(a.dtype)) if hasattr(a, "shape") else a for a in args]
            meta = spec.declared.meta(*described, **kwargs)
            with np.errstate(all="ignore"):
                result = spec.run(device, args, kwargs)
            got, want = (tuple(result.shape), result.dtype), (meta.shape, meta.dtype)
            if got != want or meta != spec.declared.meta(*args, **kwargs):
                raise AssertionError(f"meta says {want}, the result is {got}")


@check(lambda spec: spec.deterministic)
def check_deterministic(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Two equal runs give the same bits; a run on other numbers computes again, whatever earlier runs have cached."""
    for sample in few(spec, device, dtype):
        with on_sample(sample):
            first = run_sample(spec, device, sample)
            first = devices.to_host(first) if hasattr(first, "shape") else first  # a function may give a Python number
            with explained("two calls on the same inputs give different results"):
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
        raise AssertionError(
            "right for some numbers, wrong for others of the same shape in the next call; does the function keep "
            f"something of the first call?\n  {error}"
        ) from None


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
        out = _empty_out(spec, sample, "contiguous").on(device)
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
    """Each bad input raises the declared error, with a message that says what was wrong."""
    for bad in bad_inputs(spec, device, dtype):
        with on_sample(bad.sample):
            args, kwargs = bad.sample.on(device)
            _raises(functools.partial(spec.run, device, args, kwargs), bad.error, bad.match)


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
