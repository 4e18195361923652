"""The kind `cuda`, as a `cuassay.core.protocols.Backend`.

CuPy is imported by the first method that needs an array or a stream. `runtime` answers whether there is a device and
what it can do, without making a context.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from cuassay.core import settings
from cuassay.core.capability import NOT_DRAWN, Answer, absent, present
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.protocols import MemorySource
from cuassay.devices.cuda.driver import libraries, nvml, runtime, visible
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory.sources import make_source
from cuassay.devices.cuda.observable import ObservableBackend
from cuassay.devices.cuda.optional import OptionalMethods
from cuassay.errors import CaptureError
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Tagger

__all__ = ["CudaBackend"]

#: The lowest compute capability for features that some GPUs lack.
_NEEDS_COMPUTE: dict[str, float] = {"tf32": 8.0}

#: What this kind does not offer on any GPU, and why.
_ABSENT: dict[str, str] = {
    "complex_half": "NumPy and CuPy have no complex dtype of two float16",
    "fp8": "CuPy has no fp8 dtype",
    "race_detection": "the driver does not order-check accesses; use --cuassay-sanitize, or kind sim",
}


class CudaBackend(ObservableBackend, OptionalMethods):
    """The kind `cuda`; see `cuassay.core.protocols.Backend`."""

    kind = "cuda"

    def why_absent(self) -> str | None:
        """Return what is missing: CuPy, a driver, or a device."""
        return libraries.why_no_cupy() or runtime.why_unavailable()

    def count(self) -> int:
        """Return the number of visible devices; makes no context."""
        return runtime.device_count()

    def probe(self, index: int, name: str) -> Answer:
        """Answer from the device's properties; makes no context."""
        if (reason := _why_nowhere(name)) is not None:
            return absent(reason)
        if ":" in name:
            return _probe_dtype(name)
        properties = runtime.get_device_properties(index)
        compute = float(f"{properties.major}.{properties.minor}")
        if compute < _NEEDS_COMPUTE.get(name, 0.0):
            return absent(f"it needs compute capability {_NEEDS_COMPUTE[name]}; this device has {compute}")
        if name == "peer_access" and self.count() < 2:
            return absent("it needs two devices; one is visible")
        return present(self._quantity(index, name, compute))

    def _quantity(self, index: int, name: str, compute: float) -> float:
        properties = runtime.get_device_properties(index)
        quantities = {
            "compute": compute,
            "memory": properties.total_memory,
            "count": self.count(),
            "l2": properties.L2_cache_size,
        }
        return quantities.get(name, 0.0)

    #: Distributions whose versions can change a result on this kind; those that are not installed are omitted.
    packages = (
        *("cupy-cuda13x", "cupy-cuda12x", "torch", "cuda-bindings", "cuda-core", "nvmath-python", "triton"),
        *("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cuda-nvrtc"),
    )

    def identity(self, index: int) -> Mapping[str, str]:
        """Return name, uuid, compute capability, driver and the clock policy, if it is set or NVML reports it."""
        properties = runtime.get_device_properties(index)
        policy = settings.get("CUASSAY_CLOCKS") or nvml.clock_policy(str(properties.uuid))
        return {
            "name": properties.name,
            "uuid": str(properties.uuid),
            "capability": f"{properties.major}.{properties.minor}",
            "driver": nvml.driver_release(),
            "cuda": runtime.driver_version(),
            **({} if policy is None else {"clocks": policy}),
            **visible.sharing(index),
        }

    sharing = staticmethod(visible.sharing)
    visibility = staticmethod(visible.visibility)
    release_cached = staticmethod(allocators.release_cached)
    other_libraries = staticmethod(libraries.other_libraries)

    def conditions(self, index: int) -> dict[str, object]:
        """Return clocks, power, temperature, throttling and other processes of the GPU; without NVML, the reason."""
        return nvml.conditions(str(runtime.get_device_properties(index).uuid))

    def throttled(self, index: int) -> bool | None:
        """Whether power or temperature currently limits the clocks; None if NVML does not report it."""
        return nvml.is_throttled(str(runtime.get_device_properties(index).uuid))

    def libraries(self) -> list[tuple[str, str, str, str]]:
        """Return each CUDA library: name, path, version, and why it is absent."""
        return libraries.libraries()

    def health(self, index: int) -> str | None:
        """Return why the context is dead; None if it is not, or if there is none."""
        return runtime.poisoned(index)

    def note_launches(self, note: Callable[[str], None] | None) -> None:
        """Call `note` with the name, the shape and the line of each kernel that is launched through this package."""
        from cuassay.devices.cuda.launch import launch

        launch.note_launches(note)

    def memory_info(self, index: int) -> tuple[int, int]:
        """Return free and total memory of the GPU in bytes; memory cached by cuassay and CuPy counts as free."""
        with self.activate(index):
            free, total = _cupy().cuda.runtime.memGetInfo()
            pool = _cupy().get_default_memory_pool()
            return int(free) + int(pool.free_bytes()) + allocators.cached(index), int(total)

    def owns(self, array_type: type) -> bool:
        """Whether the type is `cupy.ndarray`; CuPy is not imported to check another type."""
        return _is_cupy_array(array_type)

    def device_of(self, array: Any) -> Device:
        """Return the device of `array`."""
        return _device(array.data.device_id)  # array.device makes an object first

    def namespace(self, index: int) -> Any:
        """Return CuPy if device `index` is current; otherwise CuPy with every call made on that device."""
        return _cupy() if self.is_current(index) else _Namespace(_cupy(), index)

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
        """Return a `cupy.ndarray` on cuassay's memory, in the order of `stream`, of any library."""
        _cupy()
        from cuassay.devices.cuda.memory import hook

        self.empty = hook.empty  # type: ignore[method-assign] # saves two calls for each array from now on
        return hook.empty(shape, dtype, index, stream)

    def allocator(self, index: int) -> CachingAllocator:
        """Return the allocator that `empty` uses on device `index`; it numbers streams by `stream_number`."""
        return allocators.allocator(index)

    def replay_target(self, index: int) -> tuple[Callable[[], MemorySource], Tagger]:
        """Return what makes separate sources on device `index`, and tags for their memory; for replays and tests."""
        _cupy()
        from cuassay.devices.cuda.memory.tags import CudaTagger

        backend = allocators.config().backend
        return lambda: make_source(backend, index), CudaTagger(index)

    def stream_number(self, stream: Any) -> int:
        """Return the number of `stream` for `allocator`: its address."""
        _cupy()
        from cuassay.devices.cuda.memory import hook

        return hook.address_of(stream)

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> Any:
        """Return a copy on that device, ordered on its current stream."""
        empty = self.empty(array.shape, array.dtype, index)
        with self.activate(index):
            if array.flags.c_contiguous or array.ndim == 0:
                if self.is_pinned(array):  # CuPy would not wait for the copy, and the caller may write next
                    self.transfer(array, empty)
                else:
                    empty.set(np.ascontiguousarray(array).reshape(array.shape))
                return empty
            order = tuple(int(axis) for axis in np.argsort([-abs(stride) for stride in array.strides], kind="stable"))
            return _cupy().asarray(np.ascontiguousarray(array.transpose(order))).transpose(np.argsort(order).tolist())

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy on the host, after waiting for the current stream of the array's device."""
        with self.activate(array.device.id):
            try:
                return np.asarray(_aligned()(array).get())
            except RuntimeError as error:
                if _cupy().cuda.get_current_stream().is_capturing():
                    raise CaptureError(
                        "the host cannot read an array while the current stream is being captured: "
                        "nothing has been computed; read it after the replay"
                    ) from error
                raise

    def empty_pinned(self, shape: tuple[int, ...], dtype: Any, index: int) -> np.ndarray[Any, Any]:
        """Return a `numpy.ndarray` in pinned memory, which all devices share."""
        from cuassay.devices.cuda.memory import pinned

        return pinned.empty(shape, dtype)

    def is_pinned(self, array: Any) -> bool:
        """Whether a `numpy.ndarray` is in pinned memory; initialises neither CuPy nor the driver."""
        if not isinstance(array, np.ndarray) or "cupy" not in sys.modules:
            return False
        from cuassay.devices.cuda.memory import pinned

        return pinned.is_pinned(array)

    def transfer(self, src: Any, dst: Any, *, non_blocking: bool = False) -> None:
        """Copy in order of the device's current stream; see `cuassay.devices.cuda.memory.transfer`."""
        _transfer()(src, dst, non_blocking=non_blocking)

    def overlap(self, a: Any, b: Any) -> str:
        """See `cuassay.devices.cuda.memory.overlap`."""
        from cuassay.devices.cuda.memory.overlap import overlap

        self.overlap = overlap  # type: ignore[method-assign] # saves calls, as in `empty`
        return overlap(a, b)

    def activate(self, index: int) -> AbstractContextManager[Any]:
        """Make device `index` the current one of this thread inside the block."""
        device: AbstractContextManager[Any] = _cupy().cuda.Device(index)
        return device

    def is_current(self, index: int) -> bool:
        """Whether device `index` is this thread's current device."""
        return _is_single() or bool(_cupy().cuda.runtime.getDevice() == index)

    def synchronize(self, index: int) -> None:
        """Block the host until all work submitted to device `index` is done."""
        _cupy().cuda.Device(index).synchronize()

    def current_stream(self, index: int) -> Any:
        """Return CuPy's current stream of this thread and device, as a cuassay stream."""
        return _streams().current_stream(index)

    def new_stream(self, index: int, priority: int = 0) -> Any:
        """Return a non-blocking stream of the pool, which has 32 streams for each priority, as in torch."""
        return _streams().Stream(index, priority)

    def use_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Submit this thread's work to `stream` inside the block: a stream object of any library, or an address."""
        entered: AbstractContextManager[Any] = _streams().use(stream)
        return entered

    def set_stream(self, stream: Any) -> None:
        """Submit this thread's work to `stream` from now on; None changes nothing."""
        _streams().set_stream(stream)

    def new_event(self, index: int, *, timing: bool = False) -> Any:
        """Return an event of device `index`."""
        return _streams().Event.of_device(index, enable_timing=timing)

    def spin(self, index: int, cycles: int) -> None:
        """Keep the current stream of device `index` busy for `cycles` of its clock, without touching memory."""
        _cupy()
        from cuassay.devices.cuda.launch import occupation

        occupation.spin(index, cycles)

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Any:
        """Return a graph of device `index`."""
        from cuassay.devices.cuda.graphs.capture import CUDAGraph

        with self.activate(index):
            return CUDAGraph(keep_graph)

    def memory_in_use(self, index: int) -> int:
        """Return the bytes that this process uses on device `index`, in cuassay's allocator and in CuPy's default pool.

        The work areas of FFT plans do not count, because CuPy caches up to 16 plans for each thread and device.
        """
        with self.activate(index):
            cupy = _cupy()
            plans = int(cupy.fft.config.get_plan_cache().get_curr_memsize())
            return int(cupy.get_default_memory_pool().used_bytes()) - plans + allocators.live(index)

    def flush_cache(self, index: int) -> None:
        """Read twice the size of the level-2 cache, on the current stream."""
        _cupy()
        from cuassay.devices.cuda.launch import occupation

        occupation.flush_cache(index)


@cache
def _cupy() -> Any:
    """Return CuPy when a device can be used; raise in a forked child, where CuPy would crash in the driver."""
    import cupy

    runtime.init()
    return cupy


os.register_at_fork(after_in_child=_cupy.cache_clear)


@cache
def _transfer() -> Any:
    """Return the function, cached because importing it at each copy would take a microsecond."""
    from cuassay.devices.cuda.memory import transfer

    return transfer.transfer


@cache
def _aligned() -> Any:
    """Return the function that copies misaligned arrays, which CuPy cannot read."""
    from cuassay.devices.cuda.memory import alignment

    return alignment.aligned


@cache
def _is_cupy_array(array_type: type) -> bool:
    return array_type.__module__.partition(".")[0] == "cupy" and issubclass(array_type, _cupy().ndarray)


@cache
def _is_single() -> bool:
    """Whether the device is the only one, and can be used."""
    _cupy()
    return runtime.device_count() == 1


os.register_at_fork(after_in_child=_is_single.cache_clear)


@cache
def _streams() -> Any:
    """Return the module of streams, when a device can be used."""
    _cupy()
    from cuassay.devices.cuda.streams import stream

    return stream


os.register_at_fork(after_in_child=_streams.cache_clear)


@cache
def _device(index: int) -> Device:
    return Device("cuda", index)


def _why_nowhere(name: str) -> str | None:
    """Return why no device has the capability `name`; None if the device itself must be checked."""
    if name == "cublaslt":
        return libraries.why_no_cublaslt()
    if name == "conditional_graphs" and _version() < (12, 4):
        return f"they need CUDA 12.4; this driver serves {runtime.driver_version()}"
    return _ABSENT.get(name)


def _version() -> tuple[int, ...]:
    """Return the newest CUDA version that the driver supports."""
    return tuple(map(int, runtime.driver_version().split(".")))


def _probe_dtype(name: str) -> Answer:
    op_class, _, dtype = name.partition(":")
    if dtype.startswith("float8"):
        return absent(_ABSENT["fp8"])
    if op_class == "random" and dtype in NOT_DRAWN:
        return absent(NOT_DRAWN[dtype])
    return present()


class _Namespace(Handle):
    """CuPy, one of its modules or functions, on one of several devices: each call runs with that device current."""

    def __init__(self, found: Any, index: int) -> None:
        self._found = found
        self._index = index

    def __repr__(self) -> str:
        return f"<{getattr(self._found, '__name__', self._found)} on {_device(self._index)}>"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._found, name)
        if isinstance(found, ModuleType) or (callable(found) and not isinstance(found, type)):
            return _Namespace(found, self._index)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _cupy().cuda.Device(self._index):
            return self._found(*args, **kwargs)
