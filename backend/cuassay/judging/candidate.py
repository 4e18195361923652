"""The code in a candidate's process: load one file, and answer calls.

Nothing here is secret or a safeguard: the candidate shares the address space and may change anything in it. No reply is
trusted; see `cuassay.judging.process` for what counts. This process knows the protocol and the device kinds, and has
neither the declaration nor an answer in its memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core.capability import DTYPE_NAMES
from cuassay.core.device import HOST_KINDS, Device
from cuassay.core.generator import GeneratorState
from cuassay.judging import protocol
from cuassay.judging.device_memory import DeviceMemory
from cuassay.judging.heap import keep_memory
from cuassay.judging.protocol import Bell, Claim, Placed, RawReply, Request, Room
from cuassay.ops import registry

__all__ = ["Server", "load", "load_kernels", "load_program", "preload", "serve"]

#: Seconds between two checks of the request counter while sleeping: a candidate that forks may lose a ring.
_NAP_SECONDS = 0.05

#: Iterations of polling the counter before sleeping: about 100 µs.
_POLLS = 200

#: Seconds of polling after the judge has asked for readiness, so that no candidate gains by waiting differently.
_READY_SECONDS = 0.1

#: Times that the last call is made again before the next one, on a device that shares memory with the judge.
_REHEARSALS = 3

#: Only a call that took fewer seconds is made again: on a longer one the state of the host has little influence.
_SHORT_SECONDS = 0.005

#: The module name that a candidate's file is loaded under.
_MODULE = "candidate"


def preload(kind: str) -> None:
    """Import what candidates of this device kind need, without initialising a device.

    Whether there is a device is asked once, for all processes that are forked later: for a GPU it takes a process.
    """
    devices.backend(kind).why_absent()


def load(path: Path) -> Callable[..., Any]:
    """Return the function ``run`` of a file.

    Raises
    ------
    NameError
        If the file has no such function; and any error that the file raises.
    """
    module = types.ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102  the task of this process
    run = module.__dict__.get("run")
    if callable(run):
        return run  # type: ignore[no-any-return]
    raise NameError(f"{path.name} has no function run(xp, *arrays)")


#: The answer to a call: the claims about its outputs, seconds by the device's clock, and whether the call was queued.
Answer = tuple[tuple[Claim, ...], float, bool]


@dataclass(frozen=True, slots=True)
class Server:
    """Answers the calls of one judge.

    Parameters
    ----------
    device : Device
        The device of the candidate's arrays.
    control, arena : memoryview
        Memory that is shared with the judge.
    bell : Bell
        Wakes the judge, and is rung by the judge.
    memory : DeviceMemory, optional
        Memory of the device that is shared with the judge, for requests whose arrays are there.
    kept : dict
        The results of empty calls, by their number of bytes.
    """

    device: Device
    control: memoryview
    arena: memoryview
    bell: Bell
    memory: DeviceMemory | None = None
    kept: dict[int, Any] = field(default_factory=dict)

    def answer(self, number: int, answering: Callable[[], Answer]) -> None:
        """Reply with the result of `answering`, or with the exception that it raises."""
        try:
            claims, seconds, is_queued = answering()
            reply = RawReply(number, claims, None, seconds, is_queued)
        except Exception as error:  # noqa: BLE001  any exception of the candidate is its answer
            reply = RawReply(number, error=(type(error).__qualname__.encode(), _text(error)))
        protocol.write_reply(self.control, reply)
        self.bell.ring()

    def run(self, call: Callable[[Server, Request], Answer]) -> None:
        """Answer calls until the judge has closed the connection."""
        last = 0  # the number of the last request; none yet
        again: Callable[[], Answer] | None = None
        while self._wait(last):
            request = protocol.read_request(self.control)
            last = request.number
            if request.form:
                calling, began = partial(call, self, request), time.perf_counter()
                self.answer(last, calling)
                is_short = time.perf_counter() - began < _SHORT_SECONDS
                if not request.is_empty:
                    again = calling if is_short and self._memory_of(request) is not None else None
            else:
                self.answer(last, partial(_rehearsed, again))
                self._poll(last)

    def _poll(self, last: int) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while protocol.request_number(self.control) == last and time.monotonic() < deadline:
            os.sched_yield()

    def _wait(self, last: int) -> bool:
        for _ in range(_POLLS):
            if protocol.request_number(self.control) != last:
                return True
            os.sched_yield()
        while protocol.request_number(self.control) == last:
            if not self.bell.wait(_NAP_SECONDS):
                return False
        return True

    def arguments(
        self, request: Request, place: Callable[[Placed], Any]
    ) -> tuple[list[Any], dict[str, Any], dict[int, Any]]:
        """Return positional and named arguments, and the arrays among them by number; `place` makes each array."""
        given: dict[int, Any] = {}

        def array(index: int) -> Any:
            given[index] = place(request.arrays[index])
            return given[index]

        memory = self._memory_of(request)
        on_host = self.host if memory is None else memory.host

        def scalar(index: int) -> Any:
            return on_host(request.arrays[index]).copy()[()]

        args, options = _decoded(request.form, array, scalar)
        return args, options, given

    def nothing(self, request: Request) -> list[Any]:
        """Return results that fill the rooms of an empty call. On a GPU this keeps the device busy for a known time."""
        if self.device.kind not in HOST_KINDS:
            backend: Any = devices.backend(self.device.kind)
            backend.spin(self.device.index, protocol.BUSY_CYCLES)
        for nbytes in {room.nbytes for room in request.rooms} - self.kept.keys():
            self.kept[nbytes] = devices.zeros((nbytes,), "uint8", self.device)
        return [self.kept[room.nbytes] for room in request.rooms]

    def write(self, results: Sequence[Any], request: Request) -> tuple[Claim, ...]:
        """Write outputs to their rooms, and return claims that describe them."""
        rooms = [*request.rooms, *[None] * (protocol.MAX_OUTPUTS - len(request.rooms))]
        memory = self._memory_of(request)
        return tuple(self._write(result, room, memory) for result, room in zip(results, rooms, strict=False))

    def _memory_of(self, request: Request) -> DeviceMemory | None:
        return self.memory if request.is_on_device else None

    def host(self, placed: Placed) -> np.ndarray[Any, Any]:
        """Return an array of the arena."""
        dtype = as_dtype(DTYPE_NAMES[placed.dtype])
        return np.ndarray(placed.shape, dtype, self.arena, placed.first, placed.strides)

    def array_of(self, request: Request) -> Callable[[Placed], Any]:
        """Return what makes each input of a request: in the device's arena a view of it, elsewhere see `array`."""
        memory = self._memory_of(request)
        return self.array if memory is None else memory.array

    def array(self, placed: Placed) -> Any:
        """Return an input on the device with the requested layout: on the host the arena itself, elsewhere a copy."""
        host = self.host(placed)
        if self.device.kind == "cpu":
            return host
        if host.flags.c_contiguous:
            return devices.from_host(host, self.device)
        whole = np.frombuffer(self.arena, host.dtype, placed.nbytes // host.itemsize, placed.low)
        base = devices.from_host(whole, self.device)
        start = (placed.first - placed.low) // host.itemsize
        strides = devices.namespace(self.device).lib.stride_tricks
        return strides.as_strided(base[start:], placed.shape, placed.strides)

    def give_back(self, given: Mapping[int, Any], request: Request) -> None:
        """Copy inputs that are copies of the arena back to it, so that the judge sees whether they have changed."""
        if self.device.kind != "cpu" and self._memory_of(request) is None:
            for index, one in given.items():
                self.host(request.arrays[index])[...] = devices.to_host(one)

    def _write(self, result: Any, room: Room | None, memory: DeviceMemory | None) -> Claim:
        """Write one output to its room, and return the claim that describes it."""
        try:
            array = self._array_of(result, memory)
            number = protocol.dtype_number(dtype_name(array.dtype))
        except (TypeError, ValueError):
            return Claim((), 0, "unknown dtype" if hasattr(result, "dtype") else "not an array")
        shape = tuple(array.shape)
        if array.ndim > protocol.MAX_NDIM:
            return Claim((), number, "too large")
        if room is None or array.nbytes > room.nbytes:
            return Claim(shape, number, "too large")
        if memory is None:
            np.ndarray(shape, array.dtype, self.arena, room.offset)[...] = array
        else:
            memory.put(array, room)
        return Claim(shape, number)

    def _array_of(self, result: Any, memory: DeviceMemory | None) -> Any:
        """Return a result as an array: of the host, or, where the arena is on the device, also of the device."""
        if isinstance(result, np.ndarray):
            return result
        if isinstance(result, bool | int | float | complex | np.generic):
            return np.asarray(result)
        if memory is None:
            return devices.to_host(result)
        registry.owner_of(result, "the output")
        return result


def _rehearsed(again: Callable[[], Answer] | None) -> Answer:
    """Make the last call again and drop its results: the next call would take longer after a pause of this process.

    Its inputs are those that the candidate has had, so that it learns nothing of the next ones.
    """
    if again is not None:
        for _ in range(_REHEARSALS):
            again()
    return (), 0.0, False


def load_program(path: Path) -> Callable[[Server, Request], Answer]:
    """Return the function that answers calls of a Python file: its own function runs on arrays of the device."""
    function = load(path)
    namespaces: list[Any] = []  # of the device, which is found in the first call: finding it takes time

    def call(server: Server, request: Request) -> Answer:
        backend, device = devices.backend(server.device.kind), server.device
        with backend.activate(device.index):
            if not namespaces:
                namespaces.append(devices.namespace(device))
            args, options, given = server.arguments(request, server.array_of(request))
            result = server.nothing(request) if request.is_empty else function(namespaces[0], *args, **options)
            claims = server.write(list(result) if isinstance(result, tuple | list) else [result], request)
            server.give_back(given, request)
            backend.synchronize(device.index)  # work on other streams counts as part of the call
        return claims, 0.0, False

    return call


def load_kernels(path: Path, device: Device) -> Callable[[Server, Request], Answer]:
    """Return the function that answers calls of a kernel with a launch plan: a runner launches it."""
    from cuassay.judging import runner

    keep_memory()  # its times are the device's, and contain nothing of the host
    ours = runner.load(path.parent, device)

    def call(server: Server, request: Request) -> Answer:
        args, options, given = server.arguments(request, lambda placed: server.host(placed).copy())
        numbers = {**{f"arg{i}": one for i, one in enumerate(args)}, **options}
        ran = ours.run(list(given.values()), {name: _number(one) for name, one in numbers.items()})
        for index, one in zip(given, ran.inputs, strict=True):
            server.host(request.arrays[index])[...] = one
        return server.write(ran.outputs, request), ran.seconds, ran.is_queued

    return call


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def serve(path: Path, server: Server, confine: Callable[[], None], *, tier: str) -> None:
    """Run a candidate's process until the judge has closed the connection.

    Parameters
    ----------
    path : Path
        The candidate's file, or its kernel's.
    server : Server
        The server that answers calls.
    confine : callable
        Called after this module's own imports and before the candidate's first line.
    tier : str
        ``program`` or ``kernel``.
    """
    preload(server.device.kind)
    if tier == "kernel":
        import_module("cuassay.judging.runner")
    confine()
    loaded: list[Callable[[Server, Request], Answer]] = []

    def loading() -> Answer:
        loaded.append(load_program(path) if tier == "program" else load_kernels(path, server.device))
        return (), 0.0, False

    server.answer(protocol.LOADED, loading)
    if loaded:
        server.run(loaded[0])
    os._exit(0)


#: The number of characters of an exception's message, so that the judge, which shortens it, keeps the line after it.
_MESSAGE = 400


def _text(error: BaseException) -> bytes:
    """Return the message of an exception, and the last line of the candidate's file that it passed."""
    try:
        text, line = str(error), _line_of(error)
        if line and len(text) > _MESSAGE:
            text = f"{text[:_MESSAGE]}..."
        return f"{text}{line}".encode(errors="replace")
    except Exception:  # noqa: BLE001  the exception class is the candidate's own
        return b"(its message raises)"


def _line_of(error: BaseException) -> str:
    """Return file and line in brackets; empty if no frame is the candidate's, as in a syntax error."""
    line, step = "", error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__") == _MODULE:
            line = f" ({Path(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno})"
        step = step.tb_next
    return line


def _decoded(
    form: bytes, array: Callable[[int], Any], scalar: Callable[[int], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments of a form; see `cuassay.judging.arena.form_of`."""
    kinds: dict[str, Callable[[Any], Any]] = {
        "array": array,
        "scalar": scalar,
        "complex": lambda parts: complex(*parts),
        "generator": lambda parts: GeneratorState(*parts),
        "mapping": lambda pairs: {value(key): value(one) for key, one in pairs},
        "tuple": lambda several: tuple(map(value, several)),
    }

    def value(encoded: Any) -> Any:
        if isinstance(encoded, list):
            return [value(one) for one in encoded]
        if not isinstance(encoded, dict):
            return encoded
        ((kind, what),) = encoded.items()
        return kinds[kind](what)

    positional, named = json.loads(form)
    return [value(one) for one in positional], {name: value(one) for name, one in named.items()}
