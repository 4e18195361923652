"""Checks of the ways to call an op: with `out=`, in place, through a plan, and through `meta`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, DeviceError, DTypeError, RaceError, ShapeError
from cuassay.ops import functional
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import (
    assert_inputs_held,
    check,
    explained,
    is_op,
    is_safely_taken,
    moves,
    must_raise,
    on_sample,
    overwrite,
    refusal_of,
    turned,
)
from cuassay.testing.generated.inputs import parameters_of
from cuassay.testing.generated.selection import few, of_most_elements, one, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import LAYOUTS, MARGIN, HostArray, Kind, Sample, over_lists
from cuassay.testing.terms import arrays_of, is_elementwise

__all__ = ["empty_out"]


def empty_out(spec: OpSpec, sample: Sample, layout: str) -> HostArray:
    """An array of ones in the given layout, with the shape and dtype that the schema gives for the output."""
    args, kwargs = sample.host()
    meta = spec.declared.meta(*args, **kwargs)
    return HostArray(np.ones(meta.shape, meta.dtype), layout)


def _takes_out(spec: OpSpec) -> bool:
    """Whether a user's function has a parameter ``out=None``, as NumPy's functions do."""
    return any(one.name == "out" and one.default is None for one in parameters_of(spec.fn))


@check(lambda spec: is_op(spec) or _takes_out(spec))
def check_out(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The call writes to `out=` in any layout, returns it, and touches no memory around it."""
    if spec.op is None:
        _check_out_of_function(spec, device, dtype)
        return
    layouts = ("contiguous", "strided", "reversed") if devices.capabilities(device).answer("views") else ("contiguous",)
    for sample, layout in zip(few(spec, device, dtype), cycle(layouts), strict=False):
        with on_sample(sample):
            _write_out(spec, device, dtype, sample, empty_out(spec, sample, layout))


def _check_out_of_function(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The array given as `out` holds the result; a function may refuse one that is not contiguous."""
    written = []
    for sample in few(spec, device, dtype):
        if "out" in sample.kwargs or not is_safely_taken(spec, sample):
            continue
        with on_sample(sample), np.errstate(all="ignore"):
            with devices.backend(device.kind).activate(device.index):
                args, kwargs = sample.on(device)
                plain = spec.apply(device, args, kwargs)
                if not hasattr(plain, "dtype"):
                    continue  # a Python number, or several arrays, for which no single array is the `out`
                out = devices.from_host(np.ones(tuple(plain.shape), np.dtype(str(plain.dtype))), device)
                args, kwargs = sample.on(device)
                spec.apply(device, args, {**kwargs, "out": out})
            with explained(_NOT_WRITTEN):
                compare(spec, device, dtype, sample, out)
        written.append((sample, plain))
    for sample, plain in written:
        with on_sample(sample), np.errstate(all="ignore"):
            _check_out_is_input(spec, device, dtype, sample, plain)
            if devices.capabilities(device).answer("views"):
                _check_layouts_of_out(spec, device, dtype, sample, plain)


def _check_layouts_of_out(spec: OpSpec, device: Device, dtype: Any, sample: Sample, plain: Any) -> None:
    """An `out` in another layout is refused or written: its reshape(-1) may be a copy, which nobody reads."""
    args, kwargs = sample.on(device)
    for layout in ("strided", "transposed"):
        out = HostArray(np.ones(tuple(plain.shape), np.dtype(str(plain.dtype))), layout).on(device)
        if not _accepts(spec, device, args, {**kwargs, "out": out}):
            continue
        with explained(_NOT_WRITTEN_STRIDED.format(layout)):
            compare(spec, device, dtype, sample, out)


def _accepts(spec: OpSpec, device: Device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Call the function, and return whether it raised nothing; libraries refuse a layout by many errors."""
    with devices.backend(device.kind).activate(device.index):
        try:
            spec.apply(device, args, kwargs)
        except RaceError:
            raise
        except Exception:  # noqa: BLE001
            return False
    return True


_NOT_WRITTEN_STRIDED = (
    "a {} out= was given and not refused, but does not hold the result after the call: reshape() of it may be a copy"
)


def _check_out_is_input(spec: OpSpec, device: Device, dtype: Any, sample: Sample, plain: Any) -> None:
    """The `out` of a function of elements or of rows may be one of its inputs: these are read before they are written.

    A function that does not support this may raise an error.
    """
    expected = spec.expected(sample)
    arrays = arrays_of(*sample.host())
    is_of_elements = is_elementwise(spec.scale(sample, expected)[1], arrays, expected)
    if not is_of_elements and not _is_of_rows(spec, sample, expected):
        return
    for place, given in enumerate(sample.host()[0]):
        if not isinstance(given, np.ndarray) or given.shape != expected.shape or not given.size:
            continue
        args, kwargs = sample.on(device)
        if args[place].dtype != plain.dtype:
            continue
        kwargs = {**kwargs, "out": args[place]}
        if is_of_elements:
            with devices.backend(device.kind).activate(device.index), explained(_OUT_IS_INPUT.format(place)):
                spec.apply(device, args, kwargs)
        elif not _accepts(spec, device, args, kwargs):
            continue
        with explained(_OUT_IS_INPUT.format(place)):
            compare(spec, device, dtype, sample, args[place])


def _is_of_rows(spec: OpSpec, sample: Sample, expected: Any) -> bool:
    """Whether each row of the result depends only on the same row of the inputs."""
    if expected.ndim < 2 or expected.shape[0] < 2:
        return False
    last = expected.shape[0] - 1
    for rows in (slice(0, last), slice(last, None)):
        args, kwargs = sample.changed(partial(_only_rows, number=last + 1, rows=rows))
        part = replace(sample, args=args, kwargs=kwargs)
        if refusal_of(spec, part) is not None:
            return False
        got = spec.expected(part)
        if got.shape != expected[rows].shape or not np.allclose(got, expected[rows], equal_nan=True):
            return False
    return True


def _only_rows(array: Any, number: int, rows: slice) -> Any:
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.shape[0] != number:
        return array
    return HostArray(array[rows])


_OUT_IS_INPUT = "wrong where input {} is also out=: is it written before all inputs are read?"


_NOT_WRITTEN = "out= was given, but does not hold the result after the call: write the result into it"


def _write_out(spec: OpSpec, device: Device, dtype: Any, sample: Sample, host: HostArray) -> None:
    before = np.ones(host.base().size + 2 * MARGIN, host.dtype)  # a write beyond the end changes the margin
    _middle_of(before, host)[...] = host.base()
    around = devices.from_host(before, device)
    out = LAYOUTS[host.layout].view(_middle_of(around, host), host.shape)
    args, kwargs = sample.on(device)
    with np.errstate(all="ignore"):
        result = spec.run(device, args, {**kwargs, "out": out})
    if result is not out:
        raise AssertionError(f"out= was given, but another array came back: {result!r:.200}")
    compare(spec, device, dtype, sample, out)
    after = devices.to_host(around)
    LAYOUTS[host.layout].view(_middle_of(after, host), host.shape)[...] = host.values
    assert_same_bits(after, before)


def _middle_of(around: Any, host: HostArray) -> Any:
    """The base of `host`, taken from the middle of a flat array."""
    shape = LAYOUTS[host.layout].base(host.shape)
    return around[MARGIN : around.size - MARGIN].reshape(shape)


@check(is_op)
def check_out_refused(spec: OpSpec, device: Device, dtype: Any) -> None:
    """An `out=` of another shape, dtype or device, or one that partly overlaps an input, raises an error about that."""
    sample = one(spec, device, dtype)
    right = empty_out(spec, sample, "contiguous")
    with on_sample(sample):
        wider = HostArray(np.ones((*right.shape, 2), right.dtype))
        _check_out_rejected(spec, device, sample, wider.on(device), ShapeError, "shape")
        other = HostArray(np.ones(right.shape, np.bool_ if right.dtype != np.bool_ else np.int8))
        _check_out_rejected(spec, device, sample, other.on(device), DTypeError, "out must be")
        if device.kind != "cpu" and not moves(spec):
            _check_out_rejected(spec, device, sample, right.on("cpu"), DeviceError, str(device))
        _check_overlap_rejected(spec, device, sample, right)


def _check_overlap_rejected(spec: OpSpec, device: Device, sample: Sample, out: HostArray) -> None:
    """Let the first input and `out` share all but one element; skipped where slices are copies and cannot overlap."""
    first = sample.args[0]
    if not devices.capabilities(device).answer("views"):
        return
    if isinstance(first, list) or first.shape != out.shape or first.dtype != out.dtype or math.prod(out.shape) < 3:
        return
    base = devices.from_host(np.concatenate([sample.host()[0][0].ravel(), np.ones(1, out.dtype)]), device)
    a, shifted = base[:-1].reshape(out.shape), base[1:].reshape(out.shape)
    args, kwargs = sample.on(device)
    must_raise(lambda: spec.run(device, (a, *args[1:]), {**kwargs, "out": shifted}), ArgumentError, "shares memory")


def _check_out_rejected(
    spec: OpSpec, device: Device, sample: Sample, out: Any, error: type[BaseException], match: str
) -> None:
    args, kwargs = sample.on(device)
    must_raise(lambda: spec.run(device, args, {**kwargs, "out": out}), error, match)


@check(lambda spec: is_op(spec) and bool(spec.declared.schema.in_place))
def check_inplace(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The in-place form writes its first argument, whatever its layout, and returns it."""
    for sample in (*few(spec, device, dtype), *_strided_or_broadcast(spec, device, dtype)):
        right = empty_out(spec, sample, "contiguous")
        if (sample.args[0].dtype, sample.args[0].shape) == (right.dtype, right.shape):
            with on_sample(sample), np.errstate(all="ignore"):
                args, kwargs = sample.on(device)
                if spec.declared.inplace(*args, **kwargs) is not args[0]:
                    raise AssertionError("the in-place form returned another array than its first argument")
                compare(spec, device, dtype, sample, args[0])


def _writes(spec: OpSpec) -> bool:
    """Whether the spec is of a deterministic op that writes its arguments and makes no array."""
    schema = None if spec.op is None else spec.op.schema
    return schema is not None and bool(schema.written) and not schema.outputs and spec.deterministic


@check(_writes)
def check_functional(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The functional form of an op that writes its arguments gives what the op writes, also in `out=`, in copies."""
    form = spec.declared.functional
    for sample in few(spec, device, dtype):
        with on_sample(sample), np.errstate(all="ignore"):
            args, kwargs = sample.on(device)
            made = form(*args, **kwargs)
            with explained("the functional form changed its input: does the op write an argument without a `!`?"):
                assert_inputs_held(spec, sample, args, kwargs)
            out = _over_result(made, lambda one: devices.full(tuple(one.shape), 7, one.dtype, device))
            if form(*args, **kwargs, out=out) is not out:
                raise AssertionError("the functional form was given out=, but returned another object")
            meta = form.meta(*args, **kwargs)
            spec.declared(*args, **kwargs)
            bound = form.schema.bind(args, kwargs)
            forms = (made, out, meta, [bound[name] for name in form.schema.outputs])
            for got, in_out, described, written in zip(*map(functional.each, forms), strict=True):
                assert_same_bits(got, devices.to_host(written))
                assert_same_bits(in_out, devices.to_host(written))
                if (described.shape, described.dtype) != (tuple(got.shape), got.dtype):
                    raise AssertionError(f"meta says {described}, the result is {tuple(got.shape)} {got.dtype}")


def _over_result(made: Any, make: Callable[[Any], Any]) -> Any:
    """The result of a functional form with each array replaced by ``make(array)``."""
    is_several = isinstance(made, tuple)
    return tuple(functional.over(one, make) for one in made) if is_several else functional.over(made, make)


def _strided_or_broadcast(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """Samples that are not contiguous, or whose second array is smaller and is broadcast.

    A thread beyond the last element may compute the index of the first one from remainders. That shows only if the
    result replaces the input, because then the first element is computed twice.
    """
    if devices.capabilities(device).answer("views"):
        yield one(spec, device, dtype).laid_out("strided")
        yield from (sample.laid_out("strided") for sample in _of_first_shape(spec, device, dtype, "python"))
        yield from _of_first_shape(spec, device, dtype, "broadcast")


def _of_first_shape(spec: OpSpec, device: Device, dtype: Any, kind: Kind) -> Iterator[Sample]:
    """The largest sample of this kind whose result has the shape of the first argument; nothing if there is none."""
    drawn = list(samples_of(spec, device, dtype, kind)) if kind in spec.kinds else []
    ordered = (drawn[place] for place in of_most_elements(drawn))
    fitting = (one for one in ordered if np.shape(one.host()[0][0]) == empty_out(spec, one, "contiguous").shape)
    yield from islice(fitting, 1)


@check(is_op)
def check_plan(spec: OpSpec, device: Device, dtype: Any) -> None:
    """The plan that `prepare` returns computes the result, and computes it again when its inputs have changed."""
    for sample in few(spec, device, dtype)[-3:]:
        with on_sample(sample), np.errstate(all="ignore"):
            args, kwargs = sample.on(device)
            plan = spec.declared.prepare(*args, **kwargs)
            compare(spec, device, dtype, sample, plan.run())
            other = turned(sample)
            overwrite(device, args, other)
            compare(spec, device, dtype, other, plan.run())


@check(is_op)
def check_meta(spec: OpSpec, device: Device, dtype: Any) -> None:
    """`meta` predicts the result's shape and dtype without allocating, from arrays and from descriptions alike."""
    for sample in (*few(spec, device, dtype), *samples_of(spec, device, dtype, "scalar", "empty")):
        with on_sample(sample):
            args, kwargs = sample.on(device)
            described = [over_lists(a, _described) for a in args]
            meta = spec.declared.meta(*described, **kwargs)
            with np.errstate(all="ignore"):
                result = spec.run(device, args, kwargs)
            got, want = (tuple(result.shape), result.dtype), (meta.shape, meta.dtype)
            if got != want or meta != spec.declared.meta(*args, **kwargs):
                raise AssertionError(f"meta says {want}, the result is {got}")


def _described(value: Any) -> Any:
    return (tuple(value.shape), dtype_name(value.dtype)) if hasattr(value, "shape") else value
