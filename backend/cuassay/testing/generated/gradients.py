"""Checks of derivatives: central differences in float64, other dtypes against float64, layouts, streams and graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import FLOATS, as_dtype, dtype_name, epsilon, largest
from cuassay.autograd import gradcheck, vjp
from cuassay.autograd.trees import leaves
from cuassay.core.device import Device
from cuassay.errors import GradientError
from cuassay.ops.rules import Formula, derivative_of
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated.execution import check, is_safely_taken, on_sample, overwrite, run_sample, turned
from cuassay.testing.generated.extents import elements_of, extents_of, has_expected_shape, resized
from cuassay.testing.generated.filling import free_floats, refilled
from cuassay.testing.generated.selection import axes_of, by_options, one, options_key, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

#: The most elements of a sample, the elements perturbed in each array, and the most broadcast samples.
_MOST, _CHANGED, _BROADCAST = 600, 4, 3

#: How many roundings of its largest element a gradient may be off by: those of its formula and of the forward call.
_ROUNDINGS = 24


def _supported(spec: OpSpec) -> bool:
    return spec.supports_grad


@check(_supported)
def check_gradients(spec: OpSpec, device: Device) -> None:
    """Gradients agree with central differences in each dtype and layout, and repeat exactly."""
    here = _dtypes(spec, device)
    for dtype in here:
        for sample in _samples(spec, device, dtype):
            with on_sample(replace(sample, label=f"{sample.label}, {dtype}")):
                coarsest = max((dtype, _value_dtype(spec, sample)), key=_rounding)
                if coarsest == "float64":  # differences of a rounded value would be noise
                    _check_differences(spec, device, sample)
                else:
                    _check_rounding(spec, device, dtype, sample, _rounding(coarsest))
        _check_far(spec, device, dtype)


def _value_dtype(spec: OpSpec, sample: Sample) -> str:
    args, kwargs = sample.host()
    return dtype_name(spec.declared.meta(*args, **kwargs).dtype)


def _rounding(dtype: str) -> float:
    """Half a unit in the last place of a number near 1; 0 for dtypes without a gradient, such as integers."""
    return 0.5 * epsilon(dtype) if dtype in FLOATS else 0.0


@check(_supported, needs=("streams",))
def check_gradients_streams(spec: OpSpec, device: Device) -> None:
    """Gradients that are recorded and computed on a side stream equal those of the default stream."""
    dtype = _dtypes(spec, device)[0]
    backend, sample = devices.backend(device.kind), _samples(spec, device, dtype)[0]
    with on_sample(sample), backend.activate(device.index):
        expected = _gradients(spec, device, sample)
        main, side = backend.current_stream(device.index), backend.new_stream(device.index)
        call = _Call(spec, device, sample)
        side.wait_stream(main)
        with backend.use_stream(side):
            found = call.gradients()
        main.wait_stream(side)
        for grad, right in zip(found, expected, strict=True):
            assert_same_bits(grad, right)


@check(_supported, needs=("graphs",))
def check_gradients_graph(spec: OpSpec, device: Device) -> None:
    """A captured gradient, replayed after its inputs have changed, is that of the new numbers."""
    dtype = _dtypes(spec, device)[0]
    backend, sample = devices.backend(device.kind), _samples(spec, device, dtype)[0]
    other = turned(sample)
    with on_sample(sample), backend.activate(device.index):
        expected = _gradients(spec, device, other)
        call, side = _Call(spec, device, sample), backend.new_stream(device.index)
        side.wait_stream(backend.current_stream(device.index))
        capture = backend.new_capture(device.index)
        try:
            with backend.use_stream(side):
                call.gradients()  # compiles and allocates before the capture begins
                side.synchronize()
                capture.begin()
                found = call.gradients()
                capture.end()
                overwrite(device, call.args, other)
                capture.replay()
            side.synchronize()
            for grad, right in zip(found, expected, strict=True):
                assert_same_bits(grad, right)
        finally:
            capture.reset()


def _dtypes(spec: OpSpec, device: Device) -> list[str]:
    """The real floating-point dtypes of the op that run on the device, the widest first."""
    names = [name for name in reversed(FLOATS) if name in spec.dtypes]
    found = [name for name in names if spec.why_unsupported(device, name) is None]
    if not found:
        pytest.skip(f"{device}: {spec.name} has no floating dtype here")
    return found


def _samples(spec: OpSpec, device: Device, dtype: str) -> list[Sample]:
    """Small samples: one of each set of options and number of axes, some broadcast ones, and one in two layouts."""
    small = by_options(spec, device, as_dtype(dtype), most=_MOST) or [one(spec, device, as_dtype(dtype), most=_MOST)]
    small += _of_other_options(spec, device, as_dtype(dtype), small)
    others = [
        sample for sample in samples_of(spec, device, as_dtype(dtype), "values") if 0 < elements_of(sample) <= _MOST
    ]
    by_axes = {
        axes_of(sample): sample for sample in (*sorted(others, key=elements_of), *small) if spec.refusal(sample) is None
    }
    small += [sample for sample in by_axes.values() if all(sample is not other for other in small)]
    plain = [_where_defined(spec, sample) for sample in small]
    drawn = samples_of(spec, device, as_dtype(dtype), "broadcast")
    wide = [_where_defined(spec, sample) for sample in drawn if elements_of(sample) <= _MOST]
    shaped = max(plain, key=axes_of)
    laid_out = [shaped.laid_out(layout) for layout in ("transposed", "strided")]
    return [*plain, *wide[:_BROADCAST], *laid_out]


def _of_other_options(spec: OpSpec, device: Device, dtype: Any, small: Sequence[Sample]) -> list[Sample]:
    """A small sample of each set of options that `small` lacks: its smallest sample, with shorter axes if need be."""
    tried = set(map(options_key, small))
    found = []
    for sample in sorted(samples_of(spec, device, dtype, "values"), key=elements_of):
        key = options_key(sample)
        if key in tried or not elements_of(sample):
            continue
        tried.add(key)
        fitting = sample if elements_of(sample) <= _MOST else _shortened(sample)
        if elements_of(fitting) <= _MOST and has_expected_shape(spec, fitting):
            found.append(fitting)
    return found


def _shortened(sample: Sample) -> Sample:
    """The sample with the extents 2, 3, 4 and so on in place of its own, the shortest first; 1 stays 1."""
    return resized(sample, dict(zip(extents_of(sample), count(2))))


def _where_defined(spec: OpSpec, sample: Sample) -> Sample:
    """The sample; if the op is undefined for some of its numbers, as the logarithm is, one with positive numbers."""
    if np.isfinite(spec.expected(sample)).all():
        return sample
    args, _ = sample.changed(lambda one: np.abs(one) + one.dtype.type(0.25) if isinstance(one, np.ndarray) else one)
    return replace(sample, args=args)


class _Call:
    """The op as a function of those arguments that have a derivative formula.

    Attributes
    ----------
    args : list
        All arguments of the call, on the device.
    places : list of int
        The indices of the arguments to differentiate by.
    """

    def __init__(self, spec: OpSpec, device: Device, sample: Sample) -> None:
        assert_has_derivative(spec)
        self._spec, self._device = spec, device
        self.args, self._kwargs = sample.on(device)
        self.places = [place for place in _differentiable(spec) if _are_floats(self.args[place])]
        self._cotangent: Any = None

    def __call__(self, *given: Any) -> Any:
        args = list(self.args)
        for place, value in zip(self.places, given, strict=True):
            args[place] = value
        with np.errstate(all="ignore"):
            return self._spec.run(self._device, args, self._kwargs)

    def chosen(self) -> list[Any]:
        """The arguments to differentiate by."""
        return [self.args[place] for place in self.places]

    def gradients(self) -> Sequence[Any]:
        """The gradients by each chosen argument, for a cotangent that is drawn once and then kept."""
        value, pull = vjp(self, *self.chosen())
        if self._cotangent is None:
            drawn = np.random.default_rng(0).uniform(0.5, 1.5, tuple(value.shape)).astype(value.dtype)
            self._cotangent = devices.from_host(drawn, self._device)
        with np.errstate(all="ignore"):
            return list(leaves(pull(self._cotangent)))


def _are_floats(given: Any) -> bool:
    """Whether it is an array of floats, or a list of such arrays."""
    return all(hasattr(one, "dtype") and str(one.dtype) in FLOATS for one in leaves(given))


def assert_has_derivative(spec: OpSpec) -> None:
    """Raise if the op has no derivative formula."""
    derivative = derivative_of(spec.name)
    if isinstance(derivative, str):
        raise GradientError(f"{spec.name} claims supports_grad and has no derivative: {derivative}")


def _differentiable(spec: OpSpec) -> Iterator[int]:
    derivative = derivative_of(spec.name)
    for place, param in enumerate(spec.declared.schema.arrays):
        if not isinstance(derivative, str) and isinstance(derivative.get(param.name), Formula):
            yield place


def _gradients(spec: OpSpec, device: Device, sample: Sample) -> list[NDArray[Any]]:
    call = _Call(spec, device, sample)
    first, second = ([devices.to_host(one) for one in call.gradients()] for _ in range(2))
    for grad, other in zip(first, second, strict=True):
        assert_same_bits(grad, other)
    return first


def _check_differences(spec: OpSpec, device: Device, sample: Sample, elements: int = _CHANGED) -> None:
    """Compare gradients in float64 with central differences."""
    for place, grad in enumerate(_gradients(spec, device, sample)):
        numbers = grad[np.isfinite(grad) & (grad != 0)]
        with np.errstate(over="ignore"):
            is_narrow = numbers.size > 0 and np.array_equal(numbers, numbers.astype(np.float32))
        if is_narrow:  # the cotangents are not float32 numbers, so these are not either unless they were rounded
            raise AssertionError(f"gradient {place} in float64 was rounded to float32: each number in it is float32's")
    call = _Call(spec, device, sample)
    try:
        gradcheck(call, call.chosen(), elements=elements)
    except GradientError as error:
        raise AssertionError(str(error)) from error


def _check_rounding(spec: OpSpec, device: Device, dtype: str, sample: Sample, rounding: float) -> None:
    """Compare with float64 gradients of the same numbers on the host; `rounding` is that of the coarsest dtype."""
    wide, _ = sample.changed(lambda one: one.astype(np.float64) if _has_dtype(one, dtype) else one)
    right = _gradients(spec, Device("cpu"), replace(sample, args=wide))
    for place, (found, expected) in enumerate(zip(_gradients(spec, device, sample), right, strict=True)):
        most = largest(dtype)  # larger numbers are infinite in this dtype
        numbers, wanted = np.clip(found.astype(np.float64), -most, most), np.clip(expected, -most, most)
        size = float(np.max(np.abs(wanted), initial=0.0))
        error = float(np.max(np.abs(numbers - wanted), initial=0.0))
        allowed = _ROUNDINGS * rounding * max(size, 1.0)
        if not error <= allowed:
            raise AssertionError(
                f"gradient {place} in {dtype} differs by up to {error:.3g} from that in float64, whose largest element "
                f"is {size:.3g}; {allowed:.3g} is allowed"
            )


#: Factors for ordinary numbers: one to get beyond the bends of activations, one to make an exponential overflow.
_BEYOND, _OVERFLOWING = 16.0, 512.0


def _check_far(spec: OpSpec, device: Device, dtype: str) -> None:
    """Check larger numbers than those of the samples, if these are free and the value is finite.

    At 16 times the numbers, float64 gradients must agree with differences. At both factors, gradients in float32 and
    float64 must be finite.
    """
    if dtype not in ("float32", "float64"):
        return
    sample = _samples(spec, device, dtype)[0]
    if not free_floats(sample):
        return
    for factor in (_BEYOND, _OVERFLOWING):
        far = refilled(sample, lambda array, factor=factor: array * factor, f"times {factor:g}")  # type: ignore[misc]
        if not is_safely_taken(spec, far):
            continue
        with on_sample(replace(far, label=f"{far.label}, {dtype}")):
            value = devices.to_host(run_sample(spec, device, far))
            if not np.isfinite(value.astype(np.float64)).all():
                continue
            if factor == _BEYOND and dtype == _value_dtype(spec, far) == "float64":
                _check_differences(spec, device, far, elements=2 * _CHANGED)
            _assert_finite(_gradients(spec, device, far))


def _assert_finite(gradients: Sequence[NDArray[Any]]) -> None:
    for place, grad in enumerate(gradients):
        bad = ~np.isfinite(grad.astype(np.float64))
        if bad.any():
            where = tuple(int(at) for at in np.argwhere(bad)[0])
            raise AssertionError(
                f"gradient {place} is {grad[where].item()!r} at {where}, where the value is finite: does a step of the "
                "formula overflow?"
            )


def _has_dtype(value: Any, dtype: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == as_dtype(dtype)
