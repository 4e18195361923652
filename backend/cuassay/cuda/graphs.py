"""Graphs of captured work under ``torch.cuda.graphs``' names; CuPy is imported at the first use of `CUDAGraph`.

`graph` and `make_graphed_callables` work for every device kind that captures, including `sim`. Differences from torch:
the error of a broken capture names the call that broke it; the host does not wait for the device before a capture, and
the garbage collector is paused during it; `GraphedCallable.replay` takes other inputs without copying them; memory is
returned when a pool's last graph is destroyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuassay.core.graph_hooks import Hook, HookHandle, register_hook
from cuassay.core.graph_pools import graph_pool_handle
from cuassay.cuda.capturing import graph
from cuassay.cuda.graphed import GraphedCallable, make_graphed_callables

if TYPE_CHECKING:
    from cuassay.devices.cuda.graphs.capture import CUDAGraph

__all__ = [
    "CUDAGraph",
    "GraphedCallable",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
]


def __getattr__(name: str) -> Any:
    if name != "CUDAGraph":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from cuassay.devices.cuda.driver import runtime

    runtime.init()
    from cuassay.devices.cuda.graphs import capture

    found = globals()[name] = capture.CUDAGraph
    return found


def is_current_stream_capturing() -> bool:
    """Return whether work submitted to the current CUDA stream is captured; makes no context."""
    from cuassay.devices.cuda.driver import forks

    if not forks.driver_is_up():
        return False
    from cuassay.devices.cuda.graphs import capture

    return capture.is_current_stream_capturing()


# ------------------------------------------------------------------------------------------------ hooks


def register_graph_capture_start_hook(hook: Hook) -> HookHandle:
    """Call ``hook(graph)`` after a capture begins; work that it submits to the stream is captured too."""
    return register_hook("capture_start", hook)


def register_graph_capture_end_hook(hook: Hook) -> HookHandle:
    """Call ``hook(graph)`` after a capture ends, before the graph is instantiated."""
    return register_hook("capture_end", hook)


def register_graph_instantiate_hook(hook: Hook) -> HookHandle:
    """Call ``hook(graph)`` after a graph is instantiated."""
    return register_hook("instantiate", hook)


def register_graph_replay_start_hook(hook: Hook) -> HookHandle:
    """Call ``hook(graph)`` before each replay of any graph; without such hooks, replays have no extra cost."""
    return register_hook("replay_start", hook)


def register_graph_replay_end_hook(hook: Hook) -> HookHandle:
    """Call ``hook(graph)`` after a replay is submitted to its stream, even if that raised."""
    return register_hook("replay_end", hook)


def register_graph_destroy_hook(hook: Hook) -> HookHandle:
    """Call ``hook(graph)`` before a graph that holds work is reset or collected."""
    return register_hook("destroy", hook)
