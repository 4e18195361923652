"""Reports to a sanitizer what CuPy's functions, methods and kernels read and write, by wrapping them.

While a watcher wants accesses, the functions of CuPy's namespaces, the methods and operators of its arrays, and kernels
made during that time are replaced by wrappers that call them and report. Nothing else of CuPy changes, and everything
is restored afterwards. A function reads the arrays that it is given. It writes ``out``, what the table names, and new
arrays that it returns. A function that returns only views accesses nothing.

It does not see functions imported by name before, kernels made before, and calls that CuPy's compiled code makes
without its Python interface. Taking a view of an array through a property is not an access.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from types import ModuleType
from typing import Any

import cupy
import numpy as np

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence, on_change
from cuassay.devices.cuda import accesses, cupy_order
from cuassay.devices.cuda.driver.cupy_private import listen_to_waits
from cuassay.devices.cuda.launch.userkernel import parse_reads
from cuassay.devices.cuda.streams.stream import current_stream

__all__ = ["register"]

_ndarray: Any = cupy.ndarray
_Method = Callable[..., Any]

_BINARY = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor divmod".split()

#: Methods that write the array they are called on.
_WRITING = frozenset(
    {
        *"fill put sort partition set scatter_add scatter_max scatter_min __setitem__".split(),
        *(f"__i{name}__" for name in _BINARY if name != "divmod"),
    }
)
#: Methods that read it; they return a new array, a view, or a value for which the host waits.
_READING = frozenset(
    {
        *"all any argmax argmin argpartition argsort astype byteswap choose clip compress conj conjugate copy".split(),
        *"cumprod cumsum diagonal dot dump dumps flatten get item max mean min nonzero prod ptp ravel repeat".split(),
        *"reshape round searchsorted squeeze std sum swapaxes take tobytes tofile tolist trace transpose var".split(),
        *(f"__{side}{name}__" for name in _BINARY for side in ("", "r")),
        *(f"__{name}__" for name in "eq ne lt le gt ge neg pos abs invert bool int float complex index".split()),
        *("__getitem__", "__copy__", "__deepcopy__", "__format__", "__str__", "__repr__"),
    }
)
#: Functions that use only shapes and dtypes.
_FACTS = frozenset(
    "shape ndim size result_type can_cast min_scalar_type iscomplexobj isrealobj iscomplex isfortran may_share_memory "
    "shares_memory common_type get_array_module broadcast_shapes isscalar issubdtype get_default_memory_pool "
    "get_default_pinned_memory_pool show_config is_available".split()
)
#: Functions that make an array like another one without reading it; `empty_like` also writes nothing.
_LIKE = frozenset("empty_like zeros_like ones_like full_like empty".split())
#: Functions that write one of their arguments: its position.
_WRITES = {"copyto": 0, "place": 0, "put": 0, "putmask": 0, "fill_diagonal": 0, "shuffle": 0, "put_along_axis": 0}


class _Local(threading.local):
    """Whether the host waited inside the function being reported, and this thread's hook of CuPy's memory pool."""

    has_waited = False
    hook: Any = None


_local = _Local()


def register() -> None:
    """Report from now on, while a watcher wants accesses."""
    on_change(_change, "accessed")


_undo: list[Callable[[], None]] = []


def _change(is_watched: bool) -> None:
    while _undo:
        _undo.pop()()
    if is_watched:
        for owner, name, stands_in in _replacements():
            _put(owner, name, stands_in)
        listen_to_waits("accesses", _host_waits)
        _undo.append(lambda: listen_to_waits("accesses", None))
        _hook_pool()


def _put(owner: Any, name: str, stands_in: Any) -> None:
    """Replace an attribute; if the class inherits it, undoing deletes the replacement."""
    if name in vars(owner):
        plain = vars(owner)[name]
        _undo.append(lambda: setattr(owner, name, plain))
    else:
        _undo.append(lambda: delattr(owner, name))
    setattr(owner, name, stands_in)


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    for name in sorted(_WRITING | _READING):
        plain = getattr(_ndarray, name, None)
        if plain is not None:
            yield _ndarray, name, _method(name, plain)
    yield _ndarray, "__array_ufunc__", _numpy_ufunc(_ndarray.__array_ufunc__)
    yield _ndarray, "__array_function__", _numpy_function(_ndarray.__array_function__)
    for module in (cupy, cupy.linalg, cupy.fft, cupy.random):
        yield from _functions_of(module)
    yield cupy, "ElementwiseKernel", _SeenElementwise
    yield cupy, "ReductionKernel", _SeenReduction
    yield cupy, "RawKernel", _SeenRaw
    yield from cupy_order.replacements()


def _functions_of(module: ModuleType) -> Iterator[tuple[Any, str, Any]]:
    for name, plain in vars(module).items():
        if name.startswith("_") or isinstance(plain, (type, ModuleType)) or not callable(plain) or name in _FACTS:
            continue
        if name != "ndarray":
            yield module, name, _SeenUfunc(plain) if isinstance(plain, cupy.ufunc) else _function(name, plain)


# ------------------------------------------------------------------------------------------------ functions


def _run(
    name: str,
    plain: _Method,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    written: Sequence[Any] = (),
    stream: Any = None,
) -> Any:
    """Run `plain`, then report its accesses: the arrays it was given, those it wrote, and those it made."""
    if accesses.is_inside():
        return plain(*args, **kwargs)
    if _local.hook is None:
        _hook_pool()
    _local.has_waited = False
    with accesses.inside():
        result = plain(*args, **kwargs)
    out = kwargs.get("out")
    given = _arrays((args, kwargs))
    writes = [one for one in (*written, *(out if isinstance(out, tuple) else (out,))) if isinstance(one, _ndarray)]
    results = _arrays(result)
    known = {id(array) for array in given}
    memories = {id(array.data.mem) for array in given}
    made = [array for array in results if id(array) not in known and id(array.data.mem) not in memories]
    is_view = bool(results) and not made and not writes
    if is_view or name in _LIKE:
        given = []
    if name.startswith("empty"):
        made = []
    is_write = {id(array) for array in writes}
    touched = [(array, False) for array in given if id(array) not in is_write]
    accesses.tell(name, [*touched, *_hosts(name, args, out), *((array, True) for array in (*writes, *made))], stream)
    if _local.has_waited:
        homes = [array.data.device_id for array in (*given, *results)]
        accesses.tell_wait(homes[0] if homes else cupy.cuda.runtime.getDevice(), stream)
    return result


def _hosts(name: str, args: Sequence[Any], out: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the host array that ``set`` reads or ``get`` writes; only pinned memory is reported."""
    for one in (*args, out) if name in ("get", "set") else ():
        if isinstance(one, np.ndarray):
            yield one, name == "get"


def _arrays(value: Any, found: list[Any] | None = None) -> list[Any]:
    """Return the arrays inside `value`, a nest of lists, tuples and dicts, each once."""
    found = [] if found is None else found
    if isinstance(value, _ndarray):
        if not any(value is one for one in found):
            found.append(value)
    elif isinstance(value, (tuple, list)):
        for one in value:
            _arrays(one, found)
    elif isinstance(value, dict):
        _arrays(tuple(value.values()), found)
    return found


def _method(name: str, plain: _Method) -> _Method:
    is_writing, shown = name in _WRITING, name.strip("_")

    @wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _run(shown, plain, (self, *args), kwargs, (self,) if is_writing else (), kwargs.get("stream"))

    return method


def _function(name: str, plain: _Method) -> _Method:
    place = _WRITES.get(name)

    @wraps(plain)
    def function(*args: Any, **kwargs: Any) -> Any:
        return _run(name, plain, args, kwargs, () if place is None else args[place : place + 1])

    return function


def _numpy_ufunc(plain: _Method) -> _Method:
    def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        written = inputs[:1] if method == "at" else ()
        return _run(ufunc.__name__, plain, (self, ufunc, method, *inputs), kwargs, written)

    return array_ufunc


def _numpy_function(plain: _Method) -> _Method:
    def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name in _FACTS:
            return plain(self, function, types, args, kwargs)
        place = _WRITES.get(name)
        written = [*(() if place is None else args[place : place + 1]), kwargs.get("out")]
        return _run(name, lambda *_: plain(self, function, types, args, kwargs), (args, kwargs), {}, written)

    return array_function


class _SeenUfunc:
    """A CuPy ufunc that reports its accesses; everything else is the original ufunc's."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self.__name__ = plain.name.removeprefix("cupy_")
        self.__doc__ = plain.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self.__name__, self._plain, args, kwargs, args[self._plain.nin :])

    def at(self, array: Any, *args: Any, **kwargs: Any) -> Any:
        """See `numpy.ufunc.at`."""
        return _run(f"{self.__name__}.at", self._plain.at, (array, *args), kwargs, (array,))

    @property  # type: ignore[misc] # mypy knows it as an attribute
    def __class__(self) -> Any:
        """The ufunc's class: code that looks for ufuncs, such as `cupyx.jit`, must recognize this object."""
        return type(self._plain)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._plain, name)
        if name in ("reduce", "accumulate", "reduceat", "outer"):
            return lambda *args, **kwargs: _run(f"{self.__name__}.{name}", found, args, kwargs)
        return found

    def __repr__(self) -> str:
        return repr(self._plain)


# ------------------------------------------------------------------------------------------------ kernels


class _SeenElementwise(cupy.ElementwiseKernel):  # type: ignore[misc] # cupy ships no types
    """CuPy's elementwise kernel, made while accesses are reported; the arrays after its inputs are written."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self.name, super().__call__, args, kwargs, args[self.nin :], kwargs.get("stream"))


class _SeenReduction(cupy.ReductionKernel):  # type: ignore[misc] # cupy ships no types
    """CuPy's reduction kernel, made while accesses are reported; the arrays after its inputs are written."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self.name, super().__call__, args, kwargs, args[self.nin :], kwargs.get("stream"))


class _SeenRaw(cupy.RawKernel):  # type: ignore[misc] # cupy ships no types
    """CuPy's raw kernel; the arrays of parameters that do not point to const are written."""

    def __call__(self, grid: Any, block: Any, args: Any, **kwargs: Any) -> Any:
        reads = parse_reads(self.code or "", self.name)
        written = [one for place, one in enumerate(args) if not (place < len(reads) and reads[place])]
        return _run(self.name, super().__call__, (grid, block, args), kwargs, written)


# ------------------------------------------------------------------------------------------------ order


def _host_waits() -> None:
    """Handle a wait in CuPy: inside a function it is for the current stream, otherwise it is `Device.synchronize`."""
    if accesses.is_inside():
        _local.has_waited = True
    elif watchers.state.watchers:
        watchers.tell(Occurrence("device_synchronized", f"cuda:{cupy.cuda.runtime.getDevice()}"))


# ------------------------------------------------------------------------------------------------ CuPy's pool


class _PoolHook(cupy.cuda.MemoryHook):  # type: ignore[misc] # cupy ships no types
    """Reports the allocations and frees of CuPy's own pool in this thread."""

    name = "cuassay accesses"

    def __init__(self) -> None:
        self._streams: dict[int, int] = {}

    def malloc_postprocess(self, **facts: Any) -> None:
        """See `cupy.cuda.MemoryHook`."""
        index, address = facts["device_id"], facts["mem_ptr"]
        if address and "accessed" in watchers.state.wanted:
            stream = self._streams[address] = int(current_stream(index).ptr)
            watchers.tell(Occurrence("memory_taken", f"cuda:{index}", address, stream, facts["mem_size"]))

    def free_postprocess(self, **facts: Any) -> None:
        """See `cupy.cuda.MemoryHook`."""
        index, address = facts["device_id"], facts["mem_ptr"]
        stream = self._streams.pop(address, None)
        if stream is not None and "accessed" in watchers.state.wanted:
            watchers.tell(Occurrence("memory_returned", f"cuda:{index}", address, stream, facts["mem_size"]))


def _hook_pool() -> None:
    """Set this thread's hook; it stays set, and reports nothing while no watcher wants accesses."""
    if _local.hook is None:
        _local.hook = _PoolHook()
        _local.hook.__enter__()
