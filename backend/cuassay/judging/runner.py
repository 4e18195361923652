"""The kernel tier's runner: compiles a candidate's CUDA C++, launches it by its plan, and times the launches.

It runs in the candidate's process, which is confined like any other, but all its host code is trusted: the candidate
cannot add a thread, a patch or a file. Each call has new buffers between guard bands, new numbers in them, and poison
in outputs and scratch. It is timed by the device's events like `cuassay.benchmarking`, with a cold cache and with the
stream held until everything is queued. The timed launches are the judged ones: nothing is launched twice on the same
buffers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.benchmarking.empty import empty_interval
from cuassay.benchmarking.sampling import TAKES, Series
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, CuassayError
from cuassay.judging.arena import poison, repeated
from cuassay.judging.expressions import ArrayFacts, Expression
from cuassay.judging.guarded import Guarded
from cuassay.judging.plan import KERNEL, PLAN, LaunchPlan, LaunchStep, parse_plan

__all__ = ["GuardBandError", "Kernels", "Ran", "Runner", "compiled_kernels", "load"]

#: The most bytes of an output or scratch buffer.
_MOST_NBYTES = 8 << 30


class GuardBandError(CuassayError):
    """A kernel wrote outside its arrays."""


class Kernels(Protocol):
    """Returns the function that launches a kernel of the candidate, by its name expression."""

    def __call__(self, name: str) -> Callable[..., Any]:
        """Return ``launch(grid, block, arguments, shared=nbytes)``, as made by `cuassay.cuda.compile_kernel`."""


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """The result of one call.

    Attributes
    ----------
    outputs, inputs : tuple of numpy.ndarray
        Host copies of the arrays after the call.
    seconds : float
        Seconds by the device's clock, from before the first launch to after the last.
    is_queued : bool
        Whether the device never waited for the host during that time.
    """

    outputs: tuple[NDArray[Any], ...]
    inputs: tuple[NDArray[Any], ...]
    seconds: float
    is_queued: bool


@dataclass(slots=True, eq=False)
class _Prepared:
    """The buffers of one call, and its launches with their numbers."""

    buffers: dict[str, Guarded]
    launches: list[Callable[[], Any]]

    def launch(self) -> None:
        for one in self.launches:
            one()

    def read(self) -> dict[str, NDArray[Any]]:
        """Return the contents of the buffers; raises `GuardBandError` if a band was written."""
        held = {name: buffer.read() for name, buffer in self.buffers.items()}
        broken = {name: nbytes for name, one in self.buffers.items() if (nbytes := one.broken_nbytes())}
        if broken:
            changes = ", ".join(f"{nbytes:,} bytes around {name}" for name, nbytes in broken.items())
            raise GuardBandError(
                f"the launches wrote outside of their arrays: {changes} have changed; check the indices"
            )
        return held


class Runner:
    """Runs one candidate on one device.

    Parameters
    ----------
    plan : LaunchPlan
        The plan of the launches.
    kernels : Kernels
        The compiled kernels.
    device : Device
        The device.
    """

    def __init__(self, plan: LaunchPlan, kernels: Kernels, device: Device) -> None:
        self._plan, self._kernels, self._device = plan, kernels, device
        self._backend = devices.backend(device.kind)
        self._series: dict[Any, Series] = {}

    def __repr__(self) -> str:
        return f"Runner({', '.join(step.kernel for step in self._plan.launches)} on {self._device})"

    def empty_s(self) -> float:
        """Return the seconds between two adjacent events of the device, which are part of every time."""
        found = empty_interval(self._device)
        return 0.0 if found is None else found.median_s

    def run(self, arrays: Sequence[NDArray[Any]], options: Mapping[str, Any]) -> Ran:
        """Make one call.

        Parameters
        ----------
        arrays : sequence of numpy.ndarray
            The inputs on the host; they are copied, and kernels get them C-contiguous.
        options : mapping
            The call's numbers by name, for the plan's expressions.

        Raises
        ------
        ArgumentError
            If the plan cannot be evaluated for these arrays.
        GuardBandError
            If a kernel wrote outside its arrays.
        CompileError, DriverError
            If the kernels do not compile, or a launch fails.
        """
        with self._backend.activate(self._device.index):
            stream = self._backend.new_stream(self._device.index)
            with self._backend.use_stream(stream):
                return self._timed(arrays, options)

    def _timed(self, arrays: Sequence[NDArray[Any]], options: Mapping[str, Any]) -> Ran:
        series = self._series_of(arrays, options)
        for _ in range(TAKES):
            prepared = self._prepare(arrays, options)
            series.call = prepared.launch
            seconds, _, is_queued = series.once()
            held = prepared.read()
            if is_queued or not series.queued:
                break
            series.hold_s = min(2 * series.hold_s, series.longest_hold)
        outputs = tuple(held[f"out{i}"] for i in range(len(self._plan.outputs)))
        return Ran(outputs, tuple(held[f"in{i}"] for i in range(len(arrays))), seconds, is_queued or not series.queued)

    def _series_of(self, arrays: Sequence[NDArray[Any]], options: Mapping[str, Any]) -> Series:
        """Return the series for calls of this kind, with the hold time of their launches, found on spare buffers."""
        key = (tuple((one.shape, one.dtype) for one in arrays), repr(sorted(options.items(), key=str)))
        if key not in self._series:
            spare = self._prepare([np.zeros_like(one) for one in arrays], options)
            series = Series(self._backend, self._device.index, spare.launch, "cold", queued=True)
            spare.launch()  # compiles and loads
            series.find_hold()
            self._series[key] = series
        return self._series[key]

    # ---------------------------------------------------------------------------------------- one call's buffers

    def _prepare(self, arrays: Sequence[NDArray[Any]], options: Mapping[str, Any]) -> _Prepared:
        held = {f"in{i}": np.ascontiguousarray(one).reshape(one.shape) for i, one in enumerate(arrays)}
        names: dict[str, Any] = {name: value for name, value in options.items() if isinstance(value, int)}
        names |= {name: ArrayFacts(one.shape, one.itemsize) for name, one in held.items()}
        for i, output in enumerate(self._plan.outputs):
            source = held.get(output.dtype)
            dtype = as_dtype(output.dtype) if source is None else source.dtype
            shape = tuple(one.value(names) for one in output.shape)
            held[f"out{i}"] = _poisoned(shape, dtype, f"output {i}")
            names[f"out{i}"] = ArrayFacts(shape, dtype.itemsize)
        for i, size in enumerate(self._plan.scratch):
            held[f"scratch{i}"] = _poisoned((size.value(names),), np.dtype(np.uint8), f"scratch {i}")
        order = list(held)
        random.SystemRandom().shuffle(order)
        buffers = {name: Guarded(held[name], self._device) for name in order}
        dtypes = {name: dtype_name(one.dtype) for name, one in held.items()}
        launches = [self._launch(step, buffers, dtypes, names, options) for step in self._plan.launches]
        return _Prepared(buffers, launches)

    def _launch(
        self,
        step: LaunchStep,
        buffers: Mapping[str, Guarded],
        dtypes: Mapping[str, str],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Callable[[], Any]:
        kernel = self._kernels(step.kernel_for(dtypes))
        grid, block = (tuple(one.value(names) for one in dims) for dims in (step.grid, step.block))
        shared = step.shared.value(names)
        arguments = [_argument(one, buffers, names, options) for one in step.arguments]
        return lambda: kernel(grid, block, arguments, shared=shared)


def _poisoned(shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    nbytes = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or nbytes > _MOST_NBYTES:
        raise ArgumentError(f"{what} of a launch plan has shape {shape}; give extents of 0 or more, less than 8 GiB")
    return repeated(poison(dtype, random.SystemRandom()), nbytes).view(dtype).reshape(shape)


def _argument(
    argument: str | tuple[str, Expression | float | str],
    buffers: Mapping[str, Guarded],
    names: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    if isinstance(argument, str):
        if argument not in buffers:
            raise ArgumentError(f"a launch has the argument {argument!r}; there are {', '.join(sorted(buffers))}")
        return buffers[argument].array
    dtype, what = argument
    if isinstance(what, Expression):
        return as_dtype(dtype).type(what.value(names))
    if isinstance(what, str):
        if not isinstance(options.get(what), int | float):
            raise ArgumentError(f"a launch has the number {what!r}; the call has {', '.join(options) or 'no options'}")
        what = options[what]
    return as_dtype(dtype).type(what)


# ------------------------------------------------------------------------------------------------ candidates' files


def compiled_kernels(source: str, options: Sequence[str]) -> Kernels:
    """Return the kernels of a CUDA C++ source, each compiled at its first launch."""
    from cuassay import cuda

    known: dict[str, Callable[..., Any]] = {}

    def kernel(name: str) -> Callable[..., Any]:
        if name not in known:
            known[name] = cuda.compile_kernel(source, name, options=tuple(options))
        return known[name]

    return kernel


def load(folder: Path, device: Device) -> Runner:
    """Return the runner of the candidate in a folder.

    Raises
    ------
    ArgumentError
        If its launch plan is invalid.
    """
    plan = parse_plan((folder / PLAN).read_bytes())
    source = (folder / KERNEL).read_text(encoding="utf-8", errors="replace")
    return Runner(plan, compiled_kernels(source, plan.options), device)
