"""Load a compiled kernel and launch it through an argument block that is built once.

The block is one buffer of slots and one array of pointers to them; launching writes the slots and hands the driver an
address. A tuple of arguments, packed by cuda.bindings at each launch, was measured 0.9 µs slower on the H200 host.
A thread never sees another's block: the driver copies the arguments at launch, but without the GIL.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cuassay.core import settings
from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.check import check, error_of
from cuassay.devices.cuda.source import Compiled, architecture, compile_source, kernel_source
from cuassay.errors import ArgumentError, DTypeError

__all__ = ["Kernel", "Launch", "kernel", "stream_address"]

Dims = int | Sequence[int]

#: Above this a block's dynamic shared memory must be asked for; every architecture offers at least this.
_SHARED_BY_DEFAULT = 48 * 1024


class Launch:
    """One kernel's argument block for one tuple of argument types.

    `write` stores the values; `launch` hands the block to the driver. `slots` may be written directly, one integer
    an argument of up to 8 bytes: ``launch.slots[0] = array.data.ptr``.
    """

    __slots__ = ("_address", "_buffer", "_call", "_handle", "_pointers", "_writers", "slots")

    def __init__(self, handle: Any, types: Sequence[type]) -> None:
        sizes = [_nbytes(kind) for kind in types]
        words = [-(-size // 8) for size in sizes]
        from cuda.bindings import driver

        self._call = driver.cuLaunchKernel
        self._handle = handle
        self.slots = (ctypes.c_uint64 * (sum(words) or 1))()
        self._buffer = memoryview(self.slots).cast("B")
        starts = [sum(words[:position]) for position in range(len(words))]
        base = ctypes.addressof(self.slots)
        self._pointers = (ctypes.c_void_p * (len(types) or 1))(*(base + 8 * start for start in starts))
        self._address = ctypes.addressof(self._pointers)
        self._writers = tuple(
            (start, size, _as_word(kind) if size <= 8 else None)
            for kind, start, size in zip(types, starts, sizes, strict=True)
        )

    def write(self, arguments: Sequence[Any]) -> None:
        """Store `arguments`, whose types are those the block was made for."""
        slots = self.slots
        for (start, size, as_word), argument in zip(self._writers, arguments, strict=True):
            if as_word is not None:
                slots[start] = as_word(argument)
            else:
                self._buffer[8 * start : 8 * start + size] = _as_bytes(argument)

    def launch(self, grid: Sequence[int], block: Sequence[int], shared: int, stream: int) -> Any:
        """Give the kernel to `stream` as the block stands; returns the driver's status."""
        return self._call(self._handle, *grid, *block, shared, stream, self._address, 0)[0]


# ------------------------------------------------------------------------------------------------ arguments


@cache
def _nbytes(kind: type) -> int:
    """Bytes that an argument of type `kind` takes.

    Raises
    ------
    DTypeError
        If a kernel cannot be given such a thing.
    """
    if kind is bool:
        return 1
    if kind in (int, float) or _is_array(kind):
        return 8
    if issubclass(kind, np.generic):
        return int(np.dtype(kind).itemsize)
    if issubclass(kind, ctypes.Structure | ctypes.Union | ctypes.Array):
        return ctypes.sizeof(kind)
    hint = "copy it to the device first (cupy.asarray)" if issubclass(kind, np.ndarray) else "pass its parts"
    raise DTypeError(
        f"a kernel takes device arrays, bool, int (64 bits), float (double), NumPy scalars and ctypes structures; "
        f"got {kind.__module__}.{kind.__qualname__}; {hint}"
    )


def _is_array(kind: type) -> bool:
    return hasattr(kind, "__cuda_array_interface__")


def _as_word(kind: type) -> Callable[[Any], int]:
    """How a value of type `kind` becomes the integer with the same low bytes."""
    if kind is float:
        return _double_bits
    if kind in (int, bool):
        return _checked_int
    if issubclass(kind, np.generic):
        return _scalar_bits
    if _is_array(kind):
        return _cupy_address if kind.__module__.partition(".")[0] == "cupy" else _interface_address
    return lambda value: int.from_bytes(bytes(value), "little")


def _double_bits(value: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits


def _checked_int(value: int) -> int:
    if not -(2**63) <= value < 2**64:
        raise ArgumentError(f"{value} does not fit the 64 bits an int is passed in; give a smaller one, or a float")
    return value


def _scalar_bits(value: np.generic[Any]) -> int:
    return int.from_bytes(value.tobytes(), "little")


def _cupy_address(array: Any) -> int:
    address: int = array.data.ptr
    return address


def _interface_address(array: Any) -> int:
    address: int = array.__cuda_array_interface__["data"][0]
    return address


def _as_bytes(value: Any) -> bytes:
    return value.tobytes() if isinstance(value, np.generic) else bytes(value)


def stream_address(stream: Any) -> int:
    """The address of `stream`: None is CuPy's current one; an address; CuPy's or ours; any ``__cuda_stream__`` object.

    Raises
    ------
    ArgumentError
        If it is none of these.
    """
    if stream is None:
        return int(_current_stream()().ptr)
    if hasattr(stream, "ptr"):
        return int(stream.ptr)
    described = getattr(stream, "__cuda_stream__", None)
    if described is not None:
        return int((described() if callable(described) else described)[1])
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    raise ArgumentError(
        f"{stream!r} is no CUDA stream; give None, an address, CuPy's, or an object with __cuda_stream__"
    )


@cache
def _cupy() -> Any:
    import cupy

    return cupy


@cache
def _current_stream() -> Any:
    return _cupy().cuda.get_current_stream


# ------------------------------------------------------------------------------------------------ kernels


class _Loaded:
    """A kernel in the driver, for one architecture: the handle, its parameters' sizes, idle argument blocks."""

    def __init__(self, compiled: Compiled, name: str) -> None:
        from cuda.bindings import driver

        doing = f"loading kernel {name!r}"
        runtime.init()
        self.cubin = compiled.cubin  # the driver may read it until the library is unloaded
        self.library = check(driver.cuLibraryLoadData(self.cubin, [], [], 0, [], [], 0), doing)
        lowered = compiled.names[name].encode()
        self.kernel = check(driver.cuLibraryGetKernel(self.library, lowered), doing)
        self.handle = driver.CUfunction(int(self.kernel))  # a CUkernel launches in whichever context is current
        self.sizes = _parameter_sizes(self.kernel)
        self.idle: dict[tuple[type, ...], list[Launch]] = {}
        self.shared: dict[int, int] = {}

    def allow_shared(self, nbytes: int, device: int) -> None:
        """Let a block have `nbytes` of dynamic shared memory on `device`."""
        if nbytes <= self.shared.get(device, _SHARED_BY_DEFAULT):
            return
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        most = runtime.get_device_properties(device).shared_memory_per_block_optin
        doing = f"asking for {nbytes:,} bytes of shared memory a block (cuda:{device} has {most:,})"
        check(driver.cuKernelSetAttribute(attribute, nbytes, self.kernel, check(driver.cuDeviceGet(device))), doing)
        self.shared[device] = nbytes


def _parameter_sizes(handle: Any) -> tuple[int, ...]:
    from cuda.bindings import driver

    sizes: list[int] = []
    while True:
        status, _, size = driver.cuKernelGetParamInfo(handle, len(sizes))
        if status:
            return tuple(sizes)
        sizes.append(int(size))


class Kernel:
    """A kernel of some source, compiled and loaded for a device when first launched on it.

    Parameters
    ----------
    build : callable
        From an architecture (``"sm_90"``) to what was compiled for it.
    name : str
        The kernel's name expression.
    """

    def __init__(self, build: Callable[[str], Compiled], name: str) -> None:
        self.name = name
        self._build = build
        self._by_arch: dict[str, _Loaded] = {}
        self._by_device: dict[int, _Loaded] = {}
        self._lock = threading.Lock()
        self._blocking: bool = settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {', '.join(self._by_arch) or 'not loaded'})"

    def __call__(
        self, grid: Dims, block: Dims, arguments: Sequence[Any], *, stream: Any = None, shared: int = 0
    ) -> None:
        """Launch on the current device.

        Parameters
        ----------
        grid, block : int or sequence of int
            Blocks, and threads a block, along x, y, z.
        arguments : sequence
            Device arrays (passed as pointers), bool, int (64 bits), float (double), NumPy scalars, structures.
        stream : object
            See `stream_address`.
        shared : int
            Dynamic shared memory a block, bytes.

        Raises
        ------
        ArgumentError, DTypeError
            If the arguments are not the kernel's.
        CuassayError
            If the driver refuses the launch.
        """
        device = _current_device()
        loaded = self._by_device.get(device) or self._load(device)
        if shared:
            loaded.allow_shared(shared, device)
        types = tuple(map(type, arguments))
        idle = loaded.idle.get(types)
        if idle is None:
            idle = self._admit(loaded, types)
        launch = idle.pop() if idle else Launch(loaded.handle, types)
        launch.write(arguments)
        address = stream_address(stream)
        dims = _dims(grid), _dims(block)
        status = launch.launch(*dims, shared, address)
        if status:
            status = self._retried(status, launch, dims, shared, address)
        idle.append(launch)
        if status:
            raise error_of(status, f"launching {self.name!r}, grid {dims[0]}, block {dims[1]}, {shared:,} shared bytes")
        if self._blocking:
            _wait(address, self.name)

    def prepare(self, types: Sequence[type]) -> Launch:
        """An argument block of one's own, for arguments of `types`, on the current device."""
        device = _current_device()
        loaded = self._by_device.get(device) or self._load(device)
        self._admit(loaded, tuple(types))
        return Launch(loaded.handle, types)

    def _load(self, device: int) -> _Loaded:
        properties = runtime.get_device_properties(device)
        arch = architecture(properties.major, properties.minor)
        with self._lock:
            if arch not in self._by_arch:
                self._by_arch[arch] = _Loaded(self._build(arch), self.name)
            self._by_device[device] = self._by_arch[arch]
        return self._by_device[device]

    def _admit(self, loaded: _Loaded, types: tuple[type, ...]) -> list[Launch]:
        """The idle blocks for `types`, once number and sizes of the arguments are found right."""
        given = tuple(map(_nbytes, types))
        if len(given) != len(loaded.sizes):
            raise ArgumentError(
                f"{self.name} has {len(loaded.sizes)} parameters; got {len(given)} arguments; give each"
            )
        for position, (got, wanted) in enumerate(zip(given, loaded.sizes, strict=True)):
            if got != wanted:
                raise DTypeError(
                    f"{self.name}: parameter {position} takes {wanted} bytes; got {types[position].__name__} of {got} "
                    "bytes; a Python int is passed as 64 bits and a float as double: give a NumPy scalar of its type"
                )
        return loaded.idle.setdefault(types, [])

    @staticmethod
    def _retried(status: Any, launch: Launch, dims: tuple[Any, Any], shared: int, address: int) -> Any:
        """A thread that never called the runtime has no context: bind the primary one and try once more."""
        if status.name != "CUDA_ERROR_INVALID_CONTEXT":
            return status
        _cupy().cuda.runtime.free(0)
        return launch.launch(*dims, shared, address)


def _current_device() -> int:
    return 0 if _is_single() else int(_cupy().cuda.runtime.getDevice())


@cache
def _is_single() -> bool:
    return runtime.device_count() == 1


def _dims(dims: Dims) -> tuple[int, int, int]:
    if not isinstance(dims, tuple | list):  # not Sequence: asking an abstract class costs 0.3 µs
        return dims, 1, 1  # type: ignore[return-value] # an int, or NumPy's
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


def _wait(stream: int, name: str) -> None:
    from cuda.bindings import driver

    check(driver.cuStreamSynchronize(stream), f"running {name!r} (CUASSAY_LAUNCH_BLOCKING is set)")


@cache
def kernel(file: str, name: str) -> Kernel:
    """The kernel of name expression `name` in our own ``kernels/<file>``, kept for the process."""

    def build(arch: str) -> Compiled:
        return compile_source(kernel_source(file), name_expressions=[name], arch=arch, file=file)

    return Kernel(build, name)
