"""The driver's graph functions, by ctypes: handles are integers that are passed to prepared calls.

cuda.bindings changed the signatures of some functions between 12 and 13; the C interface of a symbol never changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cuassay.devices.cuda.driver.check import error_of

__all__ = [
    "Conditional",
    "KernelParams",
    "call",
    "capture_status",
    "capturing_graph",
    "node_count",
    "relaxed",
    "status",
]

_HANDLE, _INT, _UINT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_SIZE, _U64 = ctypes.c_size_t, ctypes.c_uint64
_OUT = ctypes.c_void_p  # for `byref` objects and ctypes arrays

#: The argument types of each symbol; names have no suffix if CUDA 12.4 added no arguments to them.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (_OUT,),
    "cuDeviceGet": (_OUT, _INT),
    "cuDeviceGraphMemTrim": (_INT,),
    "cuGraphAddNode": (_OUT, _HANDLE, _OUT, _SIZE, _OUT),
    "cuGraphConditionalHandleCreate": (_OUT, _HANDLE, _HANDLE, _UINT, _UINT),
    "cuGraphDebugDotPrint": (_HANDLE, ctypes.c_char_p, _UINT),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphExecKernelNodeSetParams_v2": (_HANDLE, _HANDLE, _OUT),
    "cuGraphExecUpdate_v2": (_HANDLE, _HANDLE, _OUT),
    "cuGraphGetNodes": (_HANDLE, _OUT, _OUT),
    "cuGraphInstantiateWithFlags": (_OUT, _HANDLE, _U64),
    "cuGraphKernelNodeGetParams_v2": (_HANDLE, _OUT),
    "cuGraphMemcpyNodeGetParams": (_HANDLE, _OUT),
    "cuGraphMemsetNodeGetParams": (_HANDLE, _OUT),
    "cuGraphNodeGetType": (_HANDLE, _OUT),
    "cuFuncGetParamInfo": (_HANDLE, _SIZE, _OUT, _OUT),
    "cuStreamBeginCapture_v2": (_HANDLE, _INT),
    "cuStreamBeginCaptureToGraph": (_HANDLE, _HANDLE, _OUT, _OUT, _SIZE, _INT),
    "cuStreamEndCapture": (_HANDLE, _OUT),
    "cuStreamGetCaptureInfo_v2": (_HANDLE, _OUT, _OUT, _OUT, _OUT, _OUT),
    "cuStreamIsCapturing": (_HANDLE, _OUT),
    "cuStreamUpdateCaptureDependencies": (_HANDLE, _OUT, _SIZE, _UINT),
    "cuThreadExchangeStreamCaptureMode": (_OUT,),
}

_RELAXED = 2
#: ``CUstreamCaptureStatus``.
_STATUSES = ("none", "active", "invalidated")
_SET_DEPENDENCIES = 1
_CONDITIONAL = 13  # CU_GRAPH_NODE_TYPE_CONDITIONAL
_KINDS = {"if": 0, "while": 1}


class KernelParams(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (
        ("function", _HANDLE),
        ("shape", _UINT * 7),  # grid, block, dynamic shared bytes
        ("arguments", ctypes.POINTER(_HANDLE)),
        ("extra", _HANDLE),
        ("kernel", _HANDLE),
        ("context", _HANDLE),
    )


class _ConditionalParams(ctypes.Structure):
    """``CUgraphNodeParams`` of a conditional node."""

    _fields_ = (
        ("type", _INT),
        ("reserved", _INT * 3),
        ("handle", _U64),
        ("kind", _INT),
        ("size", _UINT),
        ("bodies", ctypes.POINTER(_HANDLE)),
        ("context", _HANDLE),
        ("padding", ctypes.c_int64 * 25),
        ("reserved_at_end", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    for name, types in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes = types
    return library


def status(name: str, *arguments: Any) -> int:
    """Make one call and return its status."""
    found: int = getattr(_library(), name)(*arguments)
    return found


def call(name: str, *arguments: Any) -> None:
    """Make one call; raise the error of `check.ADVICE` for its status."""
    failed = status(name, *arguments)
    if failed:
        from cuda.bindings import driver

        raise error_of(driver.CUresult(failed), name)


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow this thread, inside the block, calls that its own or another thread's capture forbids.

    Use it for calls that touch no captured stream: allocating and freeing memory, destroying graphs, loading kernels.
    It works also in a thread that has no context yet.
    """
    mode = _INT(_RELAXED)
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def capture_status(stream: int) -> str:
    """Return ``none``, ``active``, or ``invalidated`` if a call has broken the capture of `stream`."""
    found = _INT()
    call("cuStreamIsCapturing", stream, ctypes.byref(found))
    return _STATUSES[found.value]


def capturing_graph(stream: int) -> tuple[int, Any, int]:
    """Return the graph that `stream` is captured into, the nodes that its next node depends on, and their number."""
    found, identity, graph = _INT(), _U64(), _HANDLE()
    nodes, number = ctypes.POINTER(_HANDLE)(), _SIZE()
    places = (found, identity, graph, nodes, number)
    call("cuStreamGetCaptureInfo_v2", stream, *map(ctypes.byref, places))
    return graph.value or 0, nodes, number.value


def node_count(graph: int) -> int:
    """Return the number of nodes in `graph`, not counting those of bodies and child graphs."""
    number = _SIZE()
    call("cuGraphGetNodes", graph, None, ctypes.byref(number))
    return number.value


class Conditional:
    """A conditional node of a capture: a kernel sets its handle, then `insert` adds it and returns its body's graph."""

    def __init__(self, graph: int) -> None:
        self._graph = graph
        self._context = _HANDLE()
        handle = _U64()
        call("cuCtxGetCurrent", ctypes.byref(self._context))
        call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, self._context, 0, 0)
        self.handle = handle.value

    def insert(self, stream: int, kind: str) -> int:
        """Add the node after the work of `stream` so far; later work of `stream` depends on it."""
        _, before, number = capturing_graph(stream)
        params = _ConditionalParams(
            type=_CONDITIONAL, handle=self.handle, kind=_KINDS[kind], size=1, context=self._context.value
        )
        node = _HANDLE()
        call("cuGraphAddNode", ctypes.byref(node), self._graph, before, number, ctypes.byref(params))
        call("cuStreamUpdateCaptureDependencies", stream, ctypes.byref(node), 1, _SET_DEPENDENCIES)
        body: int = params.bodies[0]
        return body
