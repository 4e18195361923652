"""Load a compiled kernel and launch it on a stream.

Arguments go through a block (see `block`) that is made once for each tuple of argument types. Threads never share a
block in use: the driver copies the arguments at launch, but without the GIL. A kernel may be loaded while any thread
captures: the loading thread relaxes its capture mode, because the driver would otherwise reject the calls and break the
capture.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple

from cuassay.core import callers, settings
from cuassay.core.handle import Handle
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.addresses import stream_at
from cuassay.devices.cuda.driver.check import check, error_of, guarded
from cuassay.devices.cuda.driver.graph_driver import relaxed
from cuassay.devices.cuda.launch.block import STREAM_WORD, Dims, Launch, argument_nbytes
from cuassay.devices.cuda.launch.source import Compiled, architecture, compile_source, kernel_source
from cuassay.errors import ArgumentError, DTypeError

__all__ = [
    "OWN",
    "TABLED",
    "Kernel",
    "Launch",
    "Launched",
    "Loaded",
    "conclude",
    "kernel",
    "note_launches",
    "stream_address",
    "watched",
]

#: The driver's handles of every kernel loaded here; graphs use them to distinguish these kernels from a library's.
OWN: set[int] = set()

#: Those kernels that find arrays through tables in device memory, so that their arguments do not show which arrays they
#: use.
TABLED: set[int] = set()

#: The files of such kernels.
_TABLED_FILES = frozenset({"multi_tensor.cu", "adam.cu"})

#: A kernel must request dynamic shared memory above this size; every architecture offers at least this much.
_SHARED_BY_DEFAULT = 48 * 1024

_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


def stream_address(stream: Any) -> int:
    """Return the address of `stream`, which may be None (CuPy's current stream), an address, or a stream object.

    Stream objects are cuassay's, CuPy's, and any object with ``__cuda_stream__``.

    Raises
    ------
    ArgumentError
        If `stream` is none of these.
    """
    if stream is None:
        return int(_current_stream()().ptr)
    if hasattr(stream, "ptr"):
        return int(stream.ptr)
    described = getattr(stream, "__cuda_stream__", None)
    if described is not None:
        return stream_at(int((described() if callable(described) else described)[1]))
    return stream_at(stream)


@cache
def _cupy() -> Any:
    with guarded("CuPy"):
        import cupy

    return cupy


@cache
def _current_stream() -> Any:
    return _cupy().cuda.get_current_stream


# ------------------------------------------------------------------------------------------------ kernels


class Launched(NamedTuple):
    """One call of a kernel, with its arguments, and the host's `time.perf_counter` at the call."""

    kernel: Kernel
    grid: Dims
    block: Dims
    shared: int
    arguments: tuple[Any, ...]
    stream: Any
    time: float = 0.0


class _Noted:
    """Replaces the list of launches, and describes each launch in words."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def append(self, launched: Launched) -> None:
        shape = f"grid {launched.grid}, block {launched.block}"
        self._note(f"kernel {launched.kernel.name}, {shape}, at {callers.line()}")


class _Watch(threading.local):
    launches: list[Launched] | _Noted | None = None


_watch = _Watch()


def note_launches(note: Callable[[str], None] | None) -> None:
    """Call `note` at each kernel call in this process, in every thread, except for calls inside `watched`."""
    _Watch.launches = None if note is None else _Noted(note)


@contextmanager
def watched() -> Iterator[list[Launched]]:
    """Yield a list that receives this thread's kernel calls inside the block, as does that of an enclosing block."""
    launches: list[Launched] = []
    former = vars(_watch).get("launches")  # this thread's own list, from an enclosing block
    _watch.launches = launches
    try:
        yield launches
    finally:
        if former is None:
            del _watch.launches  # it would hide what `note_launches` sets for all threads
        else:
            _watch.launches = former
            former += launches


class Loaded:
    """A kernel in the driver, for one architecture: its handle, parameter sizes and idle argument blocks."""

    def __init__(self, compiled: Compiled, name: str, *, is_tabled: bool = False) -> None:
        from cuda.bindings import driver

        doing = f"loading kernel {name!r}"
        runtime.init()
        self.cubin = compiled.cubin  # the driver may read it until the library is unloaded
        with relaxed():
            self.library = check(driver.cuLibraryLoadData(self.cubin, [], [], 0, [], [], 0), doing)
            lowered = compiled.names[name].encode()
            self.kernel = check(driver.cuLibraryGetKernel(self.library, lowered), doing)
            self.sizes = _parameter_sizes(self.kernel)
        self.handle = int(self.kernel)  # a CUkernel launches in whichever context is current
        OWN.add(self.handle)
        if is_tabled:
            TABLED.add(self.handle)
        self.idle: dict[tuple[type, ...], list[Launch]] = {}
        self.shared: dict[int, int] = {}

    def allow_shared(self, nbytes: int, device: int) -> None:
        """Allow blocks of `nbytes` of dynamic shared memory on `device`."""
        if nbytes <= self.shared.get(device, _SHARED_BY_DEFAULT):
            return
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        most = runtime.get_device_properties(device).shared_memory_per_block_optin
        doing = f"asking for {nbytes:,} bytes of shared memory a block (cuda:{device} has {most:,})"
        with relaxed():  # it may load the kernel into the device's context
            check(driver.cuKernelSetAttribute(attribute, nbytes, self.kernel, check(driver.cuDeviceGet(device))), doing)
        self.shared[device] = nbytes


def _parameter_sizes(handle: Any) -> tuple[int, ...]:
    from cuda.bindings import driver

    sizes: list[int] = []
    while True:
        status, _, size = driver.cuKernelGetParamInfo(handle, len(sizes))
        if status == _INVALID_CONTEXT:  # this thread has no context yet
            _cupy().cuda.runtime.free(0)
        elif status:
            return tuple(sizes)
        else:
            sizes.append(int(size))


class Kernel(Handle):
    """A kernel of some source, compiled and loaded for a device when it is first launched there.

    Parameters
    ----------
    build : callable
        Maps an architecture (``"sm_90"``) to what was compiled for it.
    name : str
        The kernel's name expression.
    shared_memory : int
        Dynamic shared memory of a block in bytes, for launches that do not give it.
    is_tabled : bool
        Whether the kernel finds arrays through tables in device memory.
    """

    def __init__(
        self, build: Callable[[str], Compiled], name: str, shared_memory: int = 0, *, is_tabled: bool = False
    ) -> None:
        self.name = name
        self._build = build
        self._is_tabled = is_tabled
        self._shared_memory = shared_memory
        self._by_arch: dict[str, Loaded] = {}
        self._by_device: dict[int, Loaded] = {}
        self._lock = threading.Lock()
        self._blocking: bool = settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {', '.join(self._by_arch) or 'not loaded'})"

    def __call__(
        self, grid: Dims, block: Dims, arguments: Sequence[Any], *, stream: Any = None, shared: int = 0
    ) -> None:
        """Launch on the current device, or, if `stream` belongs to another device, on that one.

        Parameters
        ----------
        grid, block : int or sequence of int
            The number of blocks, and of threads in a block, along x, y, z.
        arguments : sequence
            Device arrays (passed as pointers), bool, int (64 bits), float (double), NumPy scalars, structures.
        stream : object
            See `stream_address`.
        shared : int
            Dynamic shared memory of a block in bytes.

        Raises
        ------
        ArgumentError, DTypeError
            If the arguments do not match the kernel's parameters.
        CuassayError
            If the driver rejects the launch.
        """
        if stream is not None and not _is_single():
            where = _elsewhere(stream)
            if where is not None:
                with where:
                    Kernel.__call__(self, grid, block, arguments, stream=stream, shared=shared)
                return
        device = 0 if _is_single() else _current_device()
        loaded = self._by_device.get(device) or self._load(device)
        shared = shared or self._shared_memory
        if shared:
            loaded.allow_shared(shared, device)
        types = tuple(map(type, arguments))
        idle = loaded.idle.get(types)
        if idle is None:
            idle = self._admit(loaded, types, arguments)
        launch = idle.pop() if idle else self._new_launch(loaded, types)
        if _watch.launches is not None:  # before the launch, which may end the process
            launched = Launched(self, grid, block, shared, tuple(arguments), stream, perf_counter())
            _watch.launches.append(launched)
        launch.write(arguments)
        address = _current_stream()().ptr if stream is None else stream_address(stream)
        status = launch.launch(grid, block, shared, address)
        if status:
            status = self._retried(status, launch.bind(grid, block, shared, address))
        idle.append(launch)
        if status or self._blocking:
            self._conclude(status, (grid, block, shared), address)

    def bind(self, grid: Dims, block: Dims, arguments: Sequence[Any], *, shared: int = 0) -> Callable[[], None]:
        """Prepare a launch for the current device: return a call that launches on the stream that is current by then.

        The call keeps `arguments` alive; the kernel reads the arrays' data when it runs. Two threads must not use it at
        the same time. Parameters and errors are those of calling the kernel.
        """
        shared = shared or self._shared_memory
        launch = self.prepare(tuple(map(type, arguments)), shared=shared)
        launch.write(arguments)
        shape = grid, block, shared
        fire, words, current, blocking = launch.bind(*shape), launch.words, _current_stream(), self._blocking

        def run(kept: Sequence[Any] = arguments) -> None:
            words[STREAM_WORD] = current().ptr
            status = fire()
            if status or blocking:
                self._conclude(status and self._retried(status, fire), shape, stream_address(None))

        return run

    def prepare(self, types: Sequence[type], *, shared: int = 0) -> Launch:
        """Return a new argument block for arguments of `types` and `shared` bytes, on the current device."""
        device = _current_device()
        loaded = self._by_device.get(device) or self._load(device)
        if shared:
            loaded.allow_shared(shared, device)
        self._admit(loaded, tuple(types), None)
        return self._new_launch(loaded, types)

    def _load(self, device: int) -> Loaded:
        properties = runtime.get_device_properties(device)
        arch = architecture(properties.major, properties.minor)
        with self._lock:
            if arch not in self._by_arch:
                self._by_arch[arch] = Loaded(self._build(arch), self.name, is_tabled=self._is_tabled)
            self._by_device[device] = self._by_arch[arch]
        return self._by_device[device]

    def _new_launch(self, loaded: Loaded, types: Sequence[type]) -> Launch:
        return Launch(loaded.handle, types)

    def _admit(self, loaded: Loaded, types: tuple[type, ...], arguments: Sequence[Any] | None) -> list[Launch]:
        """Return the idle blocks for `types`, after checking the number and sizes of the arguments."""
        given = tuple(map(argument_nbytes, types))
        if len(given) != len(loaded.sizes):
            raise ArgumentError(
                f"{self.name} has {len(loaded.sizes)} parameters; got {len(given)} arguments; "
                "give one for each parameter"
            )
        for position, (got, wanted) in enumerate(zip(given, loaded.sizes, strict=True)):
            if got != wanted:
                raise DTypeError(
                    f"{self.name}: parameter {position} takes {wanted} bytes; got {types[position].__name__} of {got} "
                    "bytes; a Python int is passed as 64 bits and a float as double: give a NumPy scalar of its type"
                )
        return loaded.idle.setdefault(types, [])

    @staticmethod
    def _retried(status: int, fire: Callable[[], int]) -> int:
        """Bind the primary context and try once more: a thread that has never called the runtime has no context."""
        if status != _INVALID_CONTEXT:
            return status
        with relaxed():
            _cupy().cuda.runtime.free(0)
        return fire()

    def _conclude(self, status: int, shape: tuple[Any, Any, int], stream: int) -> None:
        grid, block, shared = shape
        conclude(status, stream, f"{self.name!r}, grid {grid}, block {block}, {shared:,} shared bytes")


def conclude(status: int, stream: int, what: str) -> None:
    """Raise the error of a rejected launch; otherwise wait until `stream` has run what was launched.

    Called after a launch that failed, and after every launch if launches are blocking.

    Parameters
    ----------
    status : int
        The driver's status of the launch.
    stream : int
        The address of its stream. A stream that is capturing is not waited for: it runs nothing, and the wait would end
        the capture with an error.
    what : str
        What was launched, for messages.
    """
    from cuda.bindings import driver

    if status:
        raise error_of(driver.CUresult(status), f"launching {what}")
    doing = f"running {what} (CUASSAY_LAUNCH_BLOCKING is set)"
    if not check(driver.cuStreamIsCapturing(stream), doing):
        check(driver.cuStreamSynchronize(stream), doing)


def _elsewhere(stream: Any) -> AbstractContextManager[Any] | None:
    """Return a context that makes the device of `stream` current, or None if it is current."""
    from cuassay.devices.cuda.driver.context import at, device_of_stream

    where = device_of_stream(stream_address(stream), stream)
    return None if where in (None, _current_device()) else at(where)


def _current_device() -> int:
    return 0 if _is_single() else int(_cupy().cuda.runtime.getDevice())


@cache
def _is_single() -> bool:
    return runtime.device_count() == 1


@cache
def kernel(file: str, name: str, *, own_features: bool = False) -> Kernel:
    """Return the kernel of name expression `name` in ``kernels/<file>``, which is kept for the process.

    With `own_features` it is compiled for the exact architecture (``sm_90a``), and may use features that no other one
    has.
    """

    def build(arch: str) -> Compiled:
        arch += "a" if own_features else ""
        return compile_source(kernel_source(file), name_expressions=[name], arch=arch, file=file)

    return Kernel(build, name, is_tabled=file in _TABLED_FILES)
