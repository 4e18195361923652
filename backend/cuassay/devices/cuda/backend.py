"""The kind `cuda` as `cuassay.core.protocols.Backend` asks for it.

CuPy is imported by the first method that needs an array or a stream; whether there is a device, and what it
can do, is asked of `runtime`, which leaves no context behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
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
from cuassay.errors import CaptureError
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Tagger

__all__ = ["CudaBackend"]

#: Lowest compute capability of what not every card has.
_NEEDS_COMPUTE: dict[str, float] = {"tf32": 8.0}

#: What this kind does not offer, whatever the card, and why.
_ABSENT: dict[str, str] = {
    "complex_half": "NumPy and CuPy have no complex dtype of two float16",
    "fp8": "CuPy has no fp8 dtype",
    "race_detection": "the driver does not order-check accesses; use --cuassay-sanitize, or kind sim",
}


class CudaBackend(ObservableBackend):
    """The kind `cuda`; see `cuassay.core.protocols.Backend`."""

    kind = "cuda"

    def why_absent(self) -> str | None:
        """What is missing: CuPy, a driver, or a device."""
        if find_spec("cupy") is None:
            return "CuPy is not installed; install cuassay[cuda13], or cuassay[cuda12] for a CUDA 12 driver"
        return runtime.why_unavailable()

    def count(self) -> int:
        """Visible devices; makes no context."""
        return runtime.device_count()

    def probe(self, index: int, name: str) -> Answer:
        """From the device's properties; makes no context."""
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

    #: Distributions whose versions can change a result on this kind; those that are not installed are left out.
    packages = (
        *("cupy-cuda13x", "cupy-cuda12x", "torch", "cuda-bindings", "cuda-core", "nvmath-python", "triton"),
        *("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cuda-nvrtc"),
    )

    def identity(self, index: int) -> Mapping[str, str]:
        """Name, uuid, compute capability, driver and the clock policy, if it is set or NVML reports it."""
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
        """Clocks, power, temperature, throttling and neighbours of the GPU now; if NVML is absent, the reason."""
        return nvml.conditions(str(runtime.get_device_properties(index).uuid))

    def throttled(self, index: int) -> bool | None:
        """Whether power or temperature holds the clocks down now; None if NVML does not report it."""
        return nvml.is_throttled(str(runtime.get_device_properties(index).uuid))

    def libraries(self) -> list[tuple[str, str, str, str]]:
        """Each CUDA library: name, path, version, and why it is absent."""
        return libraries.libraries()

    def health(self, index: int) -> str | None:
        """Why the context is dead; None if it is not, or if none was ever made."""
        return runtime.poisoned(index)

    def note_launches(self, note: Callable[[str], None] | None) -> None:
        """Call `note` with the name, the shape and the line of each kernel that is launched through this package."""
        from cuassay.devices.cuda.launch import launch

        launch.note_launches(note)

    def memory_info(self, index: int) -> tuple[int, int]:
        """Free and total memory of the card, what our allocator and CuPy's pool keep counted as free, bytes."""
        with self.activate(index):
            free, total = _cupy().cuda.runtime.memGetInfo()
            pool = _cupy().get_default_memory_pool()
            return int(free) + int(pool.free_bytes()) + allocators.cached(index), int(total)

    def owns(self, array_type: type) -> bool:
        """`cupy.ndarray`; CuPy is not imported to find out about another type."""
        return _is_cupy_array(array_type)

    def device_of(self, array: Any) -> Device:
        """Where `array` lives."""
        return _device(array.data.device_id)  # array.device makes an object first

    def namespace(self, index: int) -> Any:
        """CuPy itself where device `index` is current; else CuPy, each call with that device current."""
        return _cupy() if self.is_current(index) else _Namespace(_cupy(), index)

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
        """A `cupy.ndarray` on our memory, in the order of `stream`: ours, CuPy's, an address, ``__cuda_stream__``."""
        _cupy()
        from cuassay.devices.cuda.memory import hook

        self.empty = hook.empty  # type: ignore[method-assign] # from here the function itself: two calls less an array
        return hook.empty(shape, dtype, index, stream)

    def allocator(self, index: int) -> CachingAllocator:
        """What `empty` takes memory from on device `index`; it numbers streams by `stream_number`."""
        return allocators.allocator(index)

    def replay_target(self, index: int) -> tuple[Callable[[], MemorySource], Tagger]:
        """What makes sources of one's own on device `index`, and tags for their memory; for replays and tests."""
        _cupy()
        from cuassay.devices.cuda.memory.tags import CudaTagger

        backend = allocators.config().backend
        return lambda: make_source(backend, index), CudaTagger(index)

    def stream_number(self, stream: Any) -> int:
        """The number of `stream`, ours or another's, for `allocator`: its address."""
        _cupy()
        from cuassay.devices.cuda.memory import hook

        return hook.address_of(stream)

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> Any:
        """A copy on that device, ordered on its current stream."""
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
        """A copy; waits for the current stream of its device."""
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
        """A `numpy.ndarray` in pinned memory, which all devices share."""
        from cuassay.devices.cuda.memory import pinned

        return pinned.empty(shape, dtype)

    def is_pinned(self, array: Any) -> bool:
        """Whether a `numpy.ndarray` is in pinned memory; brings neither CuPy nor the driver up."""
        if not isinstance(array, np.ndarray) or "cupy" not in sys.modules:
            return False
        from cuassay.devices.cuda.memory import pinned

        return pinned.is_pinned(array)

    def transfer(self, src: Any, dst: Any, *, non_blocking: bool = False) -> None:
        """In order of the device's current stream; see `cuassay.devices.cuda.memory.transfer`."""
        _transfer()(src, dst, non_blocking=non_blocking)

    def overlap(self, a: Any, b: Any) -> str:
        """See `cuassay.devices.cuda.memory.overlap`."""
        from cuassay.devices.cuda.memory.overlap import overlap

        self.overlap = overlap  # type: ignore[method-assign] # as in `empty`
        return overlap(a, b)

    def activate(self, index: int) -> AbstractContextManager[Any]:
        """Make device `index` the current one of this thread inside the block."""
        device: AbstractContextManager[Any] = _cupy().cuda.Device(index)
        return device

    def is_current(self, index: int) -> bool:
        """Whether device `index` is this thread's current one."""
        return _is_single() or bool(_cupy().cuda.runtime.getDevice() == index)

    def synchronize(self, index: int) -> None:
        """Block the host until everything given to device `index` is done."""
        _cupy().cuda.Device(index).synchronize()

    def current_stream(self, index: int) -> Any:
        """CuPy's current stream of this thread and device, as one of ours."""
        return _streams().current_stream(index)

    def new_stream(self, index: int, priority: int = 0) -> Any:
        """A non-blocking stream of the pool: the 33rd of one priority is the first again, as with torch."""
        return _streams().Stream(index, priority)

    def use_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Work of this thread goes to `stream`: ours, CuPy's, an address, or any ``__cuda_stream__`` object."""
        entered: AbstractContextManager[Any] = _streams().use(stream)
        return entered

    def set_stream(self, stream: Any) -> None:
        """Work of this thread goes to `stream` from here; None changes nothing."""
        _streams().set_stream(stream)

    def new_event(self, index: int, *, timing: bool = False) -> Any:
        """An event of device `index`."""
        return _streams().Event.of_device(index, enable_timing=timing)

    def spin(self, index: int, cycles: int) -> None:
        """Keep the current stream of device `index` busy for `cycles` of its clock, without touching memory."""
        _cupy()
        from cuassay.devices.cuda.launch import occupation

        occupation.spin(index, cycles)

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Any:
        """A graph of device `index`."""
        from cuassay.devices.cuda.graphs.capture import CUDAGraph

        with self.activate(index):
            return CUDAGraph(keep_graph)

    def memory_in_use(self, index: int) -> int:
        """Bytes that this process has in use on device `index`, of our allocator's and of CuPy's default pool.

        The work areas of FFT plans do not count: CuPy caches up to 16 plans for each thread and device.
        """
        with self.activate(index):
            cupy = _cupy()
            plans = int(cupy.fft.config.get_plan_cache().get_curr_memsize())
            return int(cupy.get_default_memory_pool().used_bytes()) - plans + allocators.live(index)

    def flush_cache(self, index: int) -> None:
        """Read twice what the level-2 cache holds, on the current stream."""
        _cupy()
        from cuassay.devices.cuda.launch import occupation

        occupation.flush_cache(index)


@cache
def _cupy() -> Any:
    """CuPy, once a device may be used; a forked child is refused here rather than crash in the driver."""
    import cupy

    runtime.init()
    return cupy


os.register_at_fork(after_in_child=_cupy.cache_clear)


@cache
def _transfer() -> Any:
    """The function: importing it at each copy would take a microsecond."""
    from cuassay.devices.cuda.memory import transfer

    return transfer.transfer


@cache
def _aligned() -> Any:
    """The function: CuPy cannot read an array whose elements are not aligned."""
    from cuassay.devices.cuda.memory import alignment

    return alignment.aligned


@cache
def _is_cupy_array(array_type: type) -> bool:
    return array_type.__module__.partition(".")[0] == "cupy" and issubclass(array_type, _cupy().ndarray)


@cache
def _is_single() -> bool:
    """Whether the device is the only one, and may be used."""
    _cupy()
    return runtime.device_count() == 1


os.register_at_fork(after_in_child=_is_single.cache_clear)


@cache
def _streams() -> Any:
    """The module of streams, once a device may be used."""
    _cupy()
    from cuassay.devices.cuda.streams import stream

    return stream


os.register_at_fork(after_in_child=_streams.cache_clear)


@cache
def _device(index: int) -> Device:
    return Device("cuda", index)


def _why_nowhere(name: str) -> str | None:
    """Why no device here has the capability `name`; None where the device itself must be asked."""
    if name == "cublaslt":
        return libraries.why_no_cublaslt()
    if name == "conditional_graphs" and _version() < (12, 4):
        return f"they need CUDA 12.4; this driver serves {runtime.driver_version()}"
    return _ABSENT.get(name)


def _version() -> tuple[int, ...]:
    """The newest CUDA version the driver serves."""
    return tuple(map(int, runtime.driver_version().split(".")))


def _probe_dtype(name: str) -> Answer:
    op_class, _, dtype = name.partition(":")
    if dtype.startswith("float8"):
        return absent(_ABSENT["fp8"])
    if op_class == "random" and dtype in NOT_DRAWN:
        return absent(NOT_DRAWN[dtype])
    return present()


class _Namespace(Handle):
    """CuPy, a module of it or a function, on one of several devices: each call runs with that device current."""

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
