"""Functions over arrays, captured once and called by replay.

The arrays that a function was captured with are its *static* inputs. A call copies other arguments into them. A replay
with other inputs instead points the graph's kernels at these, if the device kind can, and copies only the inputs that
it cannot re-point. Results are the arrays of the capture, and the next call overwrites them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from cuassay import devices, ops
from cuassay.core.graph_pools import graph_pool_handle
from cuassay.core.graphs import Graph
from cuassay.core.handle import Handle
from cuassay.cuda.capturing import graph, side_stream
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops import registry

if TYPE_CHECKING:
    from cuassay.core.graph_pools import PoolId

__all__ = ["GraphedCallable", "make_graphed_callables"]

Function = Callable[..., Any]
Pointer = Callable[[Any], bool]


#: The properties that an array must share with the captured one to replace it, read in one C call.
_signature: Callable[[Any], tuple[Any, Any, Any]] = attrgetter("shape", "dtype", "strides")


class _Input:
    """One static input: the array, the function that re-points the graph, and the array it points at now."""

    def __init__(self, array: Any, name: str, find: Callable[[Any], Pointer | None]) -> None:
        self.array = array
        self.name = name
        self.current = array
        self.signature = _signature(array)
        self._type = type(array)
        self._find = find

    @cached_property
    def point(self) -> Pointer | None:
        """The function that re-points the graph; found at first use, because finding it reads every node."""
        return self._find(self.array)

    def check(self, given: Any) -> None:
        """Raise unless `given` has the type, dtype and shape of the captured array."""
        shape, dtype, _ = self.signature
        if type(given) is not self._type:
            raise ArgumentError(f"{self.name} was captured as {type(self.array).__qualname__}; got {given!r}; give one")
        if given.dtype != dtype:
            raise DTypeError(
                f"{self.name} was captured with dtype {dtype}; got {given.dtype}; cast it, or capture again"
            )
        if given.shape != shape:
            raise ShapeError(f"{self.name} was captured with shape {shape}; got {given.shape}; capture that one too")

    def copy(self, given: Any) -> None:
        """Make the graph read the static array, after copying `given` into it."""
        if given is self.current and (given is self.array or self._is_pointed_at(given)):
            return
        self.check(given)
        self._return()
        self._fill(given)

    def use(self, given: Any) -> None:
        """Make the graph read `given` itself if possible, else a copy in the static array."""
        if given is self.current and (given is self.array or self._is_pointed_at(given)):
            return
        if type(given) is not self._type or _signature(given) != self.signature:
            self.check(given)  # if this raises nothing, only the strides differ
        elif self._is_pointed_at(given):
            self.current = given
            return
        self._return()
        self._fill(given)

    def _is_pointed_at(self, given: Any) -> bool:
        """Point the graph at `given` even if it already was: a graph updated since reads the static array again."""
        return self.point is not None and self.point(given)

    def _fill(self, given: Any) -> None:
        """Copy `given` into the static array, unless it is the same memory."""
        backend = registry.backend_of(type(given))
        if given is not self.array and (backend is None or backend.overlap(given, self.array) != "same"):
            ops.copy(given, out=self.array)

    def _return(self) -> None:
        if self.current is not self.array and self.point is not None:
            self.point(self.array)
        self.current = self.array


class GraphedCallable(Handle):
    """A function as a graph; made by `make_graphed_callables`.

    Attributes
    ----------
    graph : Graph
        The graph that is replayed.
    outputs : object
        The value that the function returned during the capture; its arrays hold the results of the last replay.
    """

    def __init__(self, function: Function, graph: Graph, arguments: tuple[Any, ...], outputs: Any) -> None:
        self.graph = graph
        self.outputs = outputs
        self._function = function
        self._arguments = arguments
        self._is_flat = not any(isinstance(argument, list | tuple | dict | None) for argument in arguments)
        arrays = list(_arrays(arguments))
        aliased = [*arrays, *_arrays(outputs)]
        self._inputs = [
            _Input(array, name, _none if _is_aliased(array, aliased) else graph.input_pointer)
            for name, array in zip(_names(arguments), arrays, strict=True)
        ]

    def __repr__(self) -> str:
        name = getattr(self._function, "__qualname__", repr(self._function))
        return f"GraphedCallable({name}, {len(self._inputs)} inputs, {self.graph!r})"

    @property
    def repointable(self) -> tuple[bool, ...]:
        """For each input, in order, whether `replay` can use another array of the same alignment without a copy."""
        return tuple(found.point is not None for found in self._inputs)

    def __call__(self, *args: Any) -> Any:
        """Call the function by replay; an argument other than the static input is first copied into it.

        Parameters
        ----------
        *args
            Arguments as at the capture: the same nesting, and arrays of the same shapes and dtypes.

        Returns
        -------
        object
            `outputs`.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If an argument does not match that of the capture.
        """
        for place, given in zip(self._inputs, self._flatten(args), strict=True):
            place.copy(given)
        self.graph.replay()
        return self.outputs

    def replay(self, inputs: Sequence[Any] | None = None) -> Any:
        """Replay on `inputs` directly; they must not change until the replay is done. None uses the last inputs again.

        The package's own kernels are pointed at them. An input is copied if another kernel reads it, or if its
        alignment differs from that of the static input.

        Parameters
        ----------
        inputs : sequence, optional
            Arguments as in a call.

        Returns
        -------
        object
            `outputs`.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If an input does not match that of the capture.
        """
        if inputs is not None:
            for place, given in zip(self._inputs, self._flatten(inputs), strict=True):
                place.use(given)
        self.graph.replay()
        return self.outputs

    def _flatten(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays in `args`, one per input; without nested arguments, each input checks its own."""
        if self._is_flat and len(args) == len(self._inputs):
            return args
        args = tuple(args)
        given = list(_arrays(args))
        if _shape(args) != _shape(self._arguments):
            raise ArgumentError(
                f"{self!r} was captured with {_shape(self._arguments)}; got {_shape(args)}; give arguments nested alike"
            )
        return given

    def reset(self) -> None:
        """Destroy the graph and free its memory; the results keep their values."""
        self.graph.reset()


@overload
def make_graphed_callables(
    callables: Function,
    sample_args: Sequence[Any],
    num_warmup_iters: int = 3,
    pool: PoolId | None = None,
    capture_error_mode: str = "global",
) -> GraphedCallable: ...


@overload
def make_graphed_callables(
    callables: Sequence[Function],
    sample_args: Sequence[Sequence[Any]],
    num_warmup_iters: int = 3,
    pool: PoolId | None = None,
    capture_error_mode: str = "global",
) -> tuple[GraphedCallable, ...]: ...


def make_graphed_callables(
    callables: Function | Sequence[Function],
    sample_args: Sequence[Any],
    num_warmup_iters: int = 3,
    pool: PoolId | None = None,
    capture_error_mode: str = "global",
) -> GraphedCallable | tuple[GraphedCallable, ...]:
    """Capture functions over arrays; several functions share memory, so replay them one after the other.

    Parameters
    ----------
    callables : function or sequence of function
        Functions of arrays, or of lists, tuples and dicts of arrays, that do the same work at every call.
    sample_args : sequence
        The arguments of the function, or of each function; they become the static inputs.
    num_warmup_iters : int
        Calls before the capture, so that compilation, loading and tuning are not captured.
    pool : tuple of int, optional
        Memory to share with other graphs; see `graph_pool_handle`.
    capture_error_mode : str
        See `cuassay.core.graphs.CAPTURE_ERROR_MODES`.

    Raises
    ------
    ArgumentError
        If an argument is not an array, or arrays are on several devices.
    CaptureError
        If the work cannot be captured; the message names the call.

    Examples
    --------
    >>> import numpy as np
    >>> from cuassay import cuda, from_host, ops, to_host
    >>> a, b = (from_host(np.full(3, n, np.float32), "sim") for n in (1, 2))
    >>> twice = cuda.make_graphed_callables(lambda a: ops.add(a, a), (a,))
    >>> to_host(twice(b)).tolist()
    [4.0, 4.0, 4.0]
    """
    if hasattr(sample_args, "dtype"):
        raise ArgumentError(f"sample_args is a tuple of arguments; got {sample_args!r}; give (it,)")
    if callable(callables):
        return _graphed((callables,), (sample_args,), num_warmup_iters, pool, capture_error_mode)[0]
    if not isinstance(callables, Sequence):
        raise ArgumentError(f"make_graphed_callables needs a function, or several; got {callables!r}; give one")
    if len(callables) != len(sample_args):
        raise ArgumentError(
            f"{len(callables)} callables need as many tuples of arguments; got {len(sample_args)}; give one for each"
        )
    return _graphed(tuple(callables), sample_args, num_warmup_iters, pool, capture_error_mode)


def _graphed(
    functions: Sequence[Function], samples: Sequence[Sequence[Any]], warmups: int, pool: PoolId | None, mode: str
) -> tuple[GraphedCallable, ...]:
    pool = graph_pool_handle() if pool is None else pool
    nbytes = [sum(array.nbytes for array in _arrays(tuple(sample))) for sample in samples]
    made: dict[int, GraphedCallable] = {}
    # The largest first, so that the memory it frees serves the others.
    for place in sorted(range(len(functions)), key=lambda place: -nbytes[place]):
        made[place] = _capture(functions[place], tuple(samples[place]), warmups, pool, mode)
    return tuple(made[place] for place in range(len(functions)))


def _capture(function: Function, arguments: tuple[Any, ...], warmups: int, pool: PoolId, mode: str) -> GraphedCallable:
    backend, index = _home(arguments)
    made = backend.new_capture(index)
    stream, current = side_stream(made.device), backend.current_stream(index)
    stream.wait_stream(current)
    with backend.use_stream(stream):
        for _ in range(warmups):
            function(*arguments)
    current.wait_stream(stream)
    with graph(made, pool=pool, stream=stream, capture_error_mode=mode), made.observed():
        outputs = function(*arguments)
    return GraphedCallable(function, made, arguments, outputs)


def _home(arguments: tuple[Any, ...]) -> tuple[Any, int]:
    found = {devices.backend(owner.kind).device_of(array) for array in _arrays(arguments) if (owner := _owner(array))}
    if len(found) != 1:
        names = ", ".join(sorted(map(str, found))) or "none"
        raise ArgumentError(f"a function is captured on one device; its arguments are on {names}; give arrays of one")
    (device,) = found
    return devices.backend(device.kind), device.index


def _owner(array: Any) -> Any:
    return registry.backend_of(type(array))


def _none(array: Any) -> None:
    """Return no pointer, so that the input is always copied."""


def _arrays(value: Any, name: str = "argument") -> Iterator[Any]:
    """Yield the arrays in nested lists, tuples and dicts. Raises `ArgumentError` for anything else but None."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _arrays(one, name)
    elif value is not None:
        if _owner(value) is None:
            raise ArgumentError(
                f"a graphed function takes and gives arrays, in lists, tuples and dicts; got {value!r}; "
                "bind other values with functools.partial"
            )
        yield value


def _names(arguments: tuple[Any, ...]) -> Iterator[str]:
    """Yield, for each array, the name of the argument that contains it."""
    for place, argument in enumerate(arguments):
        for _ in _arrays(argument):
            yield f"argument {place}"


def _shape(value: Any) -> Any:
    """Return the nesting without its arrays."""
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shape(one) for one in value]
    return "array" if value is not None else None


def _is_aliased(array: Any, others: list[Any]) -> bool:
    """Return whether `array` shares memory with another input or a result, which would still use the static array."""
    backend = devices.backend(_owner(array).kind)
    return sum(backend.overlap(array, other) != "none" for other in others) > 1
