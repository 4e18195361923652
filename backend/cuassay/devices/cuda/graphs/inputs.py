"""Where an input's address is in an executable graph, and how to replace it.

A kernel of cuassay takes addresses as arguments of 8 bytes, which can be found by their value and replaced, unless it
finds its arrays through a table in device memory, which would keep the old address. The arguments of a library's kernel
cannot be interpreted from outside: cuBLAS's kernels for sm_90 take one buffer of 1,720 bytes with TMA descriptors,
which show an address today, though nothing guarantees it. So an input's address is replaced only if nothing else can
hold it; see `Inputs.pointer`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.context import at
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.driver.graph_driver import KernelParams, call, capturing_graph, node_count, status
from cuassay.devices.cuda.launch.launch import OWN, TABLED
from cuassay.ops.operation import Call

__all__ = ["Inputs", "Witness"]

_KERNEL, _MEMCPY, _MEMSET = 0, 1, 2
#: EMPTY, WAIT_EVENT, EVENT_RECORD: these nodes do not access the arrays.
_HARMLESS = (5, 6, 7)

#: Arguments of a library's kernel may hold a descriptor from this size on.
_DESCRIPTOR_NBYTES = 128
#: A kernel may have been chosen for its arrays' alignment; the driver's own allocations have no larger alignment.
_ALIGNMENT = 256

#: Bytes of ``CUDA_MEMCPY3D`` and ``CUDA_MEMSET_NODE_PARAMS``; their addresses are found among their words.
_COPY_NBYTES = {_MEMCPY: 200, _MEMSET: 40}
_GETTERS = {_MEMCPY: "cuGraphMemcpyNodeGetParams", _MEMSET: "cuGraphMemsetNodeGetParams"}

_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_...

Range = tuple[int, int]


class Witness:
    """Records calls of ops during a capture: the nodes that each call added, and its operands.

    Parameters
    ----------
    stream : int
        The captured stream; calls on other streams of the capture are not distinguished.
    """

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._calls: list[tuple[int, int, tuple[Range, ...]]] = []

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """Record one call; its inner calls are recorded before it, so that the innermost call is found first."""
        graph = capturing_graph(self._stream)[0]
        before = node_count(graph) if graph else 0
        result = proceed(call)
        if graph:
            self._calls.append((before, node_count(graph), tuple(map(_range, _arrays(call)))))
        return result

    def operands(self, node: int) -> tuple[Range, ...] | None:
        """Return the memory of the operands of the call that added node number `node`, or None if no call added it."""
        return next((ranges for first, last, ranges in self._calls if first <= node < last), None)


def _arrays(call: Call) -> Iterator[Any]:
    for value in (*call.arguments.values(), call.out):
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(one, "__cuda_array_interface__"):
                yield one


def _range(array: Any) -> Range:
    """Return the addresses that `array` may touch: the whole allocation if it is a view with gaps."""
    if is_c_contiguous(array):
        return array.data.ptr, array.data.ptr + array.nbytes
    return array.data.mem.ptr, array.data.mem.ptr + array.data.mem.size


@dataclass(slots=True)
class _Node:
    """One node as it was captured.

    Attributes
    ----------
    words : dict of int to int
        Position to value: for a kernel of cuassay its arguments of 8 bytes, for other nodes every word.
    others : tuple of int
        Values that cannot be replaced: the longer arguments of cuassay's kernels.
    is_opaque : bool
        Whether it may hold addresses that are not visible.
    """

    number: int
    handle: int
    is_ours: bool = False
    is_opaque: bool = False
    words: dict[int, int] = field(default_factory=dict)
    others: tuple[int, ...] = ()
    settable: _Settable | None = None


class _Settable:
    """A kernel node's arguments as a block of memory, and the call that passes them to the executable graph."""

    def __init__(self, executable: int, node: int) -> None:
        self._params, self._values = _kernel_arguments(node)
        self._pointers = (ctypes.c_void_p * max(len(self._values), 1))(*map(ctypes.addressof, self._values))
        self._params.arguments = ctypes.cast(self._pointers, ctypes.POINTER(ctypes.c_void_p))
        handles = (ctypes.byref(ctypes.c_char.from_address(handle)) for handle in (executable, node))
        self.apply: Callable[[], int] = partial(_set_params(), *handles, ctypes.byref(self._params))

    def share(self, position: int, word: ctypes.c_uint64) -> None:
        """Read argument `position`, which has 8 bytes, from `word`, which other nodes may share."""
        self._values[position] = word
        self._pointers[position] = ctypes.addressof(word)


@cache
def _set_params() -> Callable[..., int]:
    """Return the function without declared argument types: ctypes then passes `byref` objects on, which is fastest."""
    found: Callable[..., int] = ctypes.CDLL("libcuda.so.1").cuGraphExecKernelNodeSetParams_v2
    return found


def _kernel_arguments(node: int) -> tuple[KernelParams, list[Any]]:
    """Return the node's parameters and a copy of each argument, or of the packed buffer if it was launched with one."""
    params = KernelParams()
    call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
    if not params.arguments:
        return params, _packed(params.extra)
    values: list[Any] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    # The driver rejects an index beyond the last parameter.
    while not status("cuFuncGetParamInfo", params.function, len(values), ctypes.byref(offset), ctypes.byref(size)):
        copy = (ctypes.c_ubyte * size.value)()
        ctypes.memmove(copy, params.arguments[len(values)], size.value)
        values.append(copy)
    return params, values


def _packed(extra: int | None) -> list[Any]:
    """Return a copy of the buffer of ``CU_LAUNCH_PARAM_BUFFER_POINTER`` and ``..._SIZE``."""
    if not extra:
        return []
    words = (ctypes.c_uint64 * 5).from_address(extra)
    given = dict(zip(words[0:4:2], words[1:4:2], strict=True))
    if _BUFFER_POINTER not in given or _BUFFER_SIZE not in given:
        return []
    nbytes = ctypes.c_size_t.from_address(given[_BUFFER_SIZE]).value
    copy = (ctypes.c_ubyte * nbytes)()
    ctypes.memmove(copy, given[_BUFFER_POINTER], nbytes)
    return [copy]


class Inputs:
    """The nodes of an executable graph, to be searched for addresses.

    Parameters
    ----------
    graph, executable : int
        The recorded graph, which must be kept, and the executable graph made from it.
    witness : Witness, optional
        The calls recorded during the capture.
    """

    def __init__(self, graph: int, executable: int, witness: Witness | None) -> None:
        self._executable = executable
        self._witness = witness
        #: By captured address: the word that all arguments with this address are read from.
        self._words: dict[int, ctypes.c_uint64] = {}
        self._nodes = [_read(number, handle) for number, handle in enumerate(_handles(graph))]

    def pointer(self, array: Any) -> Callable[[Any], bool] | None:
        """Return a call that makes replays use another array instead of `array`, or None if that may not be sufficient.

        It is not sufficient if a node other than a kernel of cuassay holds an address in `array`, or may hold one: its
        arguments are large enough for a descriptor, and the op that launched it had `array` as an operand or is
        unknown.
        """
        if not is_c_contiguous(array) or not array.size:
            return None
        low, high = _range(array)
        places: list[tuple[_Settable, int, int]] = []
        for node in self._nodes:
            positions = [position for position, value in node.words.items() if low <= value < high]
            if self._hides(node, low, high) or (positions and not node.is_ours):
                return None
            for position in positions:
                if node.settable is None:
                    node.settable = _Settable(self._executable, node.handle)
                places.append((node.settable, position, node.words[position]))
        if not places:
            return None
        found = self._pointer(low, places)
        return found if runtime.device_count() == 1 else partial(_pointed_on, array.data.device_id, found)

    def _pointer(self, low: int, places: list[tuple[_Settable, int, int]]) -> _Pointer:
        for settable, position, address in places:
            settable.share(position, self._words.setdefault(address, ctypes.c_uint64(address)))
        offsets = {address: address - low for _, _, address in places}
        words = [(memoryview(self._words[address]).cast("B").cast("Q"), offset) for address, offset in offsets.items()]
        return _Pointer(low, words, list(dict.fromkeys(settable.apply for settable, _, _ in places)))

    def _hides(self, node: _Node, low: int, high: int) -> bool:
        if any(low <= value < high for value in node.others):
            return True
        if not node.is_opaque:
            return False
        operands = None if self._witness is None else self._witness.operands(node.number)
        return operands is None or any(first < high and low < last for first, last in operands)


class _Pointer:
    """The words of one input, each with its offset from the input's address, and the calls that update the nodes.

    Calling it with an array stores the array's address: once for all nodes that were captured with the same address.
    Then the driver is called once for each node, which takes 0.2 µs from C and 0.4 from here on an H200 host.
    """

    def __init__(self, address: int, words: list[tuple[memoryview, int]], apply: list[Callable[[], int]]) -> None:
        self._address = address
        self._words = words
        self._apply = apply

    def __call__(self, array: Any) -> bool:
        address = array.data.ptr
        if (address ^ self._address) % _ALIGNMENT:
            return False
        for word, offset in self._words:
            word[0] = address + offset
        for apply in self._apply:
            failed = apply()
            if failed:
                from cuda.bindings import driver

                from cuassay.devices.cuda.driver.check import error_of

                raise error_of(driver.CUresult(failed), "re-pointing an input of a graph")
        return True


def _pointed_on(device: int, pointer: _Pointer, array: Any) -> bool:
    """Call `pointer` with `device` current, if the array is on it; used with several devices."""
    if array.data.device_id != device:
        return False
    with at(device):
        return pointer(array)


def _handles(graph: int) -> list[int]:
    """Return the nodes of `graph` in the order in which they were captured."""
    number = ctypes.c_size_t(node_count(graph))
    found = (ctypes.c_void_p * max(number.value, 1))()
    call("cuGraphGetNodes", graph, found, ctypes.byref(number))
    return [handle or 0 for handle in found[: number.value]]


def _read(number: int, handle: int) -> _Node:
    kind = ctypes.c_int()
    call("cuGraphNodeGetType", handle, ctypes.byref(kind))
    if kind.value in _COPY_NBYTES:
        raw = (ctypes.c_ubyte * _COPY_NBYTES[kind.value])()
        if status(_GETTERS[kind.value], handle, raw):
            return _Node(number, handle, is_opaque=True)
        return _Node(number, handle, words=dict(enumerate(_words(raw))))
    if kind.value != _KERNEL:
        return _Node(number, handle, is_opaque=kind.value not in _HARMLESS)
    params, values = _kernel_arguments(handle)
    if params.kernel in OWN:
        single = {position: _word(value) for position, value in enumerate(values) if len(value) == 8}
        others = tuple(word for value in values if len(value) != 8 for word in _words(value))
        return _Node(number, handle, True, params.kernel in TABLED, single, others)
    is_opaque = not values or any(len(value) >= _DESCRIPTOR_NBYTES for value in values)
    return _Node(number, handle, False, is_opaque, dict(enumerate(w for value in values for w in _words(value))))


def _word(value: Any) -> int:
    return int.from_bytes(value, "little")


def _words(value: Any) -> Iterator[int]:
    """Yield every 8 bytes that begin at a multiple of 4."""
    raw = bytes(value)
    return (int.from_bytes(raw[start : start + 8], "little") for start in range(0, len(raw) - 7, 4))
