"""Where an input's address is in an executable graph, and how to put another there.

A kernel of ours takes addresses as arguments of 8 bytes, which can be found by their value and replaced; unless it
finds its arrays through a table in device memory, which still has the old address then. What a library's kernel was
given cannot be known from outside: cuBLAS's for sm_90 take one buffer of 1,720 bytes with TMA descriptors in it, which
show an address today, though nothing promises it. So an input is re-pointed only if nothing else can have seen it; see
`Inputs.pointer`.
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
#: EMPTY, WAIT_EVENT, EVENT_RECORD: these touch no memory of ours.
_HARMLESS = (5, 6, 7)

#: Arguments of a library's kernel from this size on may hold a descriptor.
_DESCRIPTOR_NBYTES = 128
#: A kernel may have been chosen for its arrays' alignment; the driver's own memory has no more than this.
_ALIGNMENT = 256

#: Bytes of ``CUDA_MEMCPY3D`` and ``CUDA_MEMSET_NODE_PARAMS``; their addresses are words like any other.
_COPY_NBYTES = {_MEMCPY: 200, _MEMSET: 40}
_GETTERS = {_MEMCPY: "cuGraphMemcpyNodeGetParams", _MEMSET: "cuGraphMemsetNodeGetParams"}

_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_...

Range = tuple[int, int]


class Witness:
    """Sees the calls of ops while they are captured: which nodes each gave, and what it was called with.

    Parameters
    ----------
    stream : int
        What is captured; calls on streams that join are not told apart.
    """

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._calls: list[tuple[int, int, tuple[Range, ...]]] = []

    def __call__(self, call: Call, proceed: Callable[[Call], Any]) -> Any:
        """One call; those it makes itself are seen first, so that the innermost is found first."""
        graph = capturing_graph(self._stream)[0]
        before = node_count(graph) if graph else 0
        result = proceed(call)
        if graph:
            self._calls.append((before, node_count(graph), tuple(map(_range, _arrays(call)))))
        return result

    def operands(self, node: int) -> tuple[Range, ...] | None:
        """The memory that the call which gave node number `node` was called with; None where no call did."""
        return next((ranges for first, last, ranges in self._calls if first <= node < last), None)


def _arrays(call: Call) -> Iterator[Any]:
    for value in (*call.arguments.values(), call.out):
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(one, "__cuda_array_interface__"):
                yield one


def _range(array: Any) -> Range:
    """What `array` may touch: its whole allocation where it is a view with gaps."""
    if is_c_contiguous(array):
        return array.data.ptr, array.data.ptr + array.nbytes
    return array.data.mem.ptr, array.data.mem.ptr + array.data.mem.size


@dataclass(slots=True)
class _Node:
    """One node as it was captured.

    Attributes
    ----------
    words : dict of int to int
        Position to value: of a kernel of ours its arguments of 8 bytes, of others every word there is.
    others : tuple of int
        Values in what cannot be re-pointed: longer arguments of our kernels.
    is_opaque : bool
        Whether it may hold addresses that do not show.
    """

    number: int
    handle: int
    is_ours: bool = False
    is_opaque: bool = False
    words: dict[int, int] = field(default_factory=dict)
    others: tuple[int, ...] = ()
    settable: _Settable | None = None


class _Settable:
    """A kernel node's arguments as a block of memory, and the call that gives them to the executable graph."""

    def __init__(self, executable: int, node: int) -> None:
        self._params, self._values = _kernel_arguments(node)
        self._pointers = (ctypes.c_void_p * max(len(self._values), 1))(*map(ctypes.addressof, self._values))
        self._params.arguments = ctypes.cast(self._pointers, ctypes.POINTER(ctypes.c_void_p))
        handles = (ctypes.byref(ctypes.c_char.from_address(handle)) for handle in (executable, node))
        self.apply: Callable[[], int] = partial(_set_params(), *handles, ctypes.byref(self._params))

    def share(self, position: int, word: ctypes.c_uint64) -> None:
        """Argument `position`, of 8 bytes, is read from `word`, which other nodes may read too."""
        self._values[position] = word
        self._pointers[position] = ctypes.addressof(word)


@cache
def _set_params() -> Callable[..., int]:
    """Without declared types: what `byref` gives is passed on as it is, the fastest there is in ctypes."""
    found: Callable[..., int] = ctypes.CDLL("libcuda.so.1").cuGraphExecKernelNodeSetParams_v2
    return found


def _kernel_arguments(node: int) -> tuple[KernelParams, list[Any]]:
    """The node's parameters, and a copy of each argument; of one launched with a packed buffer, that buffer."""
    params = KernelParams()
    call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
    if not params.arguments:
        return params, _packed(params.extra)
    values: list[Any] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    # The driver refuses a number beyond the last parameter's.
    while not status("cuFuncGetParamInfo", params.function, len(values), ctypes.byref(offset), ctypes.byref(size)):
        copy = (ctypes.c_ubyte * size.value)()
        ctypes.memmove(copy, params.arguments[len(values)], size.value)
        values.append(copy)
    return params, values


def _packed(extra: int | None) -> list[Any]:
    """The buffer of ``CU_LAUNCH_PARAM_BUFFER_POINTER`` and ``..._SIZE``."""
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
    """An executable graph's nodes, in search of addresses.

    Parameters
    ----------
    graph, executable : int
        The recorded graph, kept, and what was made of it.
    witness : Witness, optional
        What was seen of the capture.
    """

    def __init__(self, graph: int, executable: int, witness: Witness | None) -> None:
        self._executable = executable
        self._witness = witness
        #: By captured address: what all arguments that were it are read from.
        self._words: dict[int, ctypes.c_uint64] = {}
        self._nodes = [_read(number, handle) for number, handle in enumerate(_handles(graph))]

    def pointer(self, array: Any) -> Callable[[Any], bool] | None:
        """A call that makes replays use another array instead; None where that may not be enough.

        That is so where a node other than a kernel of ours was given an address in `array`, or may have been: its
        arguments are large enough for a descriptor and the op that launched it was called with `array`, or is unknown.
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
    """One input's words, each with its distance from the input's address, and what gives them to the nodes' arguments.

    Called with an array, it puts its address there: a word for all nodes that were captured with the same address, then
    one call of the driver for each node, 0.2 µs from C and 0.4 from here on an H200.
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
    """The same where there are several devices: nodes are set with theirs current, and read no other's memory."""
    if array.data.device_id != device:
        return False
    with at(device):
        return pointer(array)


def _handles(graph: int) -> list[int]:
    """The nodes of `graph`, in the order they were captured."""
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
    """Every 8 bytes that begin at a multiple of 4."""
    raw = bytes(value)
    return (int.from_bytes(raw[start : start + 8], "little") for start in range(0, len(raw) - 7, 4))
