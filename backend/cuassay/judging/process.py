"""The judge's handle on one candidate: start it in its own process, call it, and end everything that it started.

Only data in the judge's own memory decides: its copies of the outputs, its clock, and whether the process answered. The
candidate's exit status, its messages and its printed output are only shown to people.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NoReturn

from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.core.handle import Closing
from cuassay.errors import CandidateLostError, CapabilityError, StateError
from cuassay.judging import protocol, shared
from cuassay.judging.arena import Arena, Asked, Layout
from cuassay.judging.device_arena import DeviceArena
from cuassay.judging.exchange import Exchange, Prepared
from cuassay.judging.limits import MOST_SOURCE_NBYTES, JailOptions, Limits
from cuassay.judging.plan import files_of
from cuassay.judging.protocol import Bell, ProtocolError, RawReply, Request
from cuassay.judging.reply import LOSSES, Reply, escaped, heard, polled, printed, raised_of
from cuassay.judging.supervisor import GO_ON, STOP, Order
from cuassay.judging.zygote import Zygote

__all__ = ["CandidateProcess"]

#: Seconds of polling the reply counter before the judge sleeps until the bell rings.
_POLL_SECONDS = 0.002

#: Seconds between two checks while the judge sleeps: a candidate may answer without ringing.
_NAP_SECONDS = 0.01

#: Seconds that killing may take.
_PATIENCE_SECONDS = 2.0


class CandidateProcess(Closing):
    """One candidate in its own process; `close` kills everything that it has started.

    Parameters
    ----------
    path : str or Path
        The candidate's file: Python with a function ``run(xp, *arrays, **options)``, or for tier ``kernel`` CUDA C++
        with a ``launch.json`` in the same folder. It is read once, by the constructor.
    device : str or Device
        The device of the candidate's arrays.
    limits : Limits
        The limits of its process.
    jail : JailOptions or None
        The confinement; None for no jail.
    tier : str
        ``program``, or ``kernel``: a trusted runner compiles, launches and times it; see `cuassay.judging.runner`.
    zygote : Zygote, optional
        A warm process to fork from, shared with other candidates; by default a new one.

    Attributes
    ----------
    source : bytes
        The content of the candidate's files, one after another.
    jail : mapping
        Each part of the jail: ``on``, or why it is missing; see `cuassay.judging.jail.PARTS`. Set by `load`.
    group : str
        Whether a control group limits its memory: ``on``, or why not. Set by `load`, with a jail.
    output : str
        What the candidate printed, shortened and unescaped. Set by `close`, or after a loss.
    late_writes : int
        The number of calls whose outputs in shared memory changed after the snapshot.
    supervisor : int
        The id of the process that watches it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str | Device,
        limits: Limits | None = None,
        jail: JailOptions | None = None,
        tier: Literal["program", "kernel"] = "program",
        zygote: Zygote | None = None,
    ) -> None:
        self.path = Path(path)
        self.tier = tier
        self.files = files_of(self.path, tier)
        self.source = b"".join(self.files.values())
        self.device = Device(device)
        self.limits = limits or Limits()
        self.options = jail
        self.jail: Mapping[str, str] = {}
        self.group = ""
        self.output = ""
        self.supervisor = -1
        self.late_writes = 0
        self._arenas: list[Arena] = []
        self._taken: tuple[Arena, Layout, list[NDArray[Any]]] | None = None
        self._call: Prepared | None = None
        self._lifeline = -1
        self._is_stopped = False
        self._zygote, self._owns_zygote = zygote, zygote is None
        self._last = 0
        self._lost: CandidateLostError | None = None
        self._ended: dict[str, Any] | None = None
        self._state = "new"

    def __repr__(self) -> str:
        return f"CandidateProcess({self.path.name} on {self.device}, {self._state})"

    # ---------------------------------------------------------------------------------------- life

    def load(self) -> None:
        """Start the process, and wait until it has loaded the candidate's file.

        Raises
        ------
        CandidateLostError
            If the file cannot be loaded, or the process is lost first.
        CapabilityError
            If this system is not Linux.
        StateError
            If it was loaded before.
        """
        if self._state != "new":
            raise StateError(f"a candidate is loaded once; got a second call on {self!r}; make another")
        if not hasattr(os, "memfd_create"):
            raise CapabilityError(
                f"a candidate is judged on Linux, with memfd_create; got {sys.platform}; judge it on another machine"
            )
        if max(map(len, self.files.values())) > MOST_SOURCE_NBYTES:
            self._lose("load", f"a file of it has more than {MOST_SOURCE_NBYTES:,} bytes")
        if self._zygote is None:
            self._zygote = Zygote(self.device.kind)
        self._state = "loading"
        self._start(self._zygote)
        self._wait(protocol.LOADED, time.monotonic(), self.limits.load_s)
        self._hear()  # the state of the jail was reported before the reply
        reply = self._read(())
        self._state = "loaded"
        if reply.error is not None:
            raised = raised_of(reply.error)
            self._lose("load", f"{raised.kind}: {raised.message}")

    def _start(self, zygote: Zygote) -> None:
        with ExitStack() as theirs, ExitStack() as ours, ExitStack() as life:
            control = shared.create("control", protocol.CONTROL_NBYTES, theirs)
            arena = shared.create("arena", self.limits.arena_nbytes, theirs)
            sources = shared.create("sources", len(self.source), theirs)
            os.pwrite(sources, self.source, 0)
            self._scratch = tempfile.mkdtemp(prefix="cuassay-judge-")
            ours.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            self._control = shared.mapped(control)
            ours.callback(self._control.release)
            self._arenas = [Arena(shared.mapped(arena))]
            ours.callback(self._arenas[-1].close)
            requests, ring = shared.pipe(theirs, ours)
            self._listen, replies = shared.pipe(ours, theirs)
            self._report, report = shared.pipe(ours, theirs)
            lifeline, held = shared.pipe(theirs, life)
            os.set_blocking(self._report, False)
            self._bell = Bell(self._listen, ring)
            self._reported = bytearray()
            self._ended = None
            self._poll = polled(self._listen, self._report)
            sent = [control, arena, requests, replies, report, lifeline, sources]
            on_device = (
                None if self.tier == "kernel" else DeviceArena.made(self.device, self.limits.device_arena_nbytes)
            )
            if on_device is not None:
                self._arenas.insert(0, on_device)
                ours.callback(on_device.close)
                sent.append(on_device.descriptor())
                theirs.callback(os.close, sent[-1])
            files = tuple((name, len(text)) for name, text in self.files.items())
            zygote.spawn(Order(str(self.device), self.tier, files, self._scratch, self.limits, self.options), sent)
            self._ours, self._life, self._lifeline = ours.pop_all(), life.pop_all(), held

    def close(self) -> None:
        """Kill the process and everything that it has started; a second call does nothing."""
        self._end()
        if self._owns_zygote and self._zygote is not None:
            self._zygote.close()
        self._state = "closed"

    def _end(self) -> None:
        """Let the supervisor kill everything, and wait until it has."""
        if self._lifeline < 0:
            return
        self._look_for_late_writes()
        self._life.close()
        self._lifeline = -1
        deadline = time.monotonic() + _PATIENCE_SECONDS
        reports = polled(self._report)  # not the bell, whose last ring nobody has read
        while self._hear() and time.monotonic() < deadline:
            reports.poll(_NAP_SECONDS * 1000)
        if self._ended is None and self.supervisor > 0:
            with suppress(OSError):  # the kernel kills what the supervisor watches with it
                os.kill(self.supervisor, signal.SIGKILL)
        ended = self._ended or {}
        self.output = printed(ended)
        self._ours.close()

    # ---------------------------------------------------------------------------------------- calls

    def call(
        self,
        arguments: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        outputs: Sequence[Asked] = (),
        *,
        seed: int | None = None,
        limit_s: float | None = None,
    ) -> Reply:
        """Call ``run`` once.

        Parameters
        ----------
        arguments, options : sequence and mapping
            The arguments after ``xp``: arrays (with their strides), numbers, strings, None, and lists, tuples and
            mappings of them.
        outputs : sequence
            For each expected output its shape and dtype, or only the bytes of room that it may take.
        seed : int, optional
            Decides the places of the arrays and the poison between them; random by default.
        limit_s : float, optional
            Seconds that it may take, by default ``limits.call_s``.

        Raises
        ------
        CandidateLostError
            If the process is lost during the call, or was lost before.
        ArgumentError
            If the arguments cannot be passed to a candidate.
        StateError
            If `load` was not called, or `close` was.
        """
        made = self._exchange(self._placed(arguments, options or {}, outputs, seed), limit_s or self.limits.call_s)
        taken = made.take()
        self._taken = made.call.arena, made.call.layout, taken
        return made.read(taken, len(outputs))

    def time(
        self, arguments: Sequence[Any], options: Mapping[str, Any], outputs: Sequence[Asked], *, limit_s: float
    ) -> float | None:
        """Call ``run`` once; return its seconds as those of `call`, or None if it raised. Nobody reads the outputs."""
        return self._exchange(self._placed(arguments, options, outputs), limit_s).seconds

    def empty(self, *, limit_s: float) -> float | None:
        """Make the last call again without ``run``; return its seconds, or None if there is none or it raised.

        On a GPU this call keeps the device busy for `protocol.BUSY_CYCLES` instead.
        """
        self._look_for_late_writes()
        if self._call is None:
            return None
        return self._exchange(self._call, limit_s, is_empty=True).seconds

    def _placed(
        self, arguments: Sequence[Any], options: Mapping[str, Any], outputs: Sequence[Asked], seed: int | None = None
    ) -> Prepared:
        """Prepare the next call, after a last look at the outputs of the one before."""
        if self._lost is not None:
            raise self._lost
        if self._state != "loaded":
            raise StateError(f"a candidate is called between load() and close(); got {self!r}; call load() first")
        self._look_for_late_writes()
        self._call = Prepared.of(self._arenas, arguments, options, outputs, seed)
        return self._call

    def _exchange(self, call: Prepared, limit_s: float, *, is_empty: bool = False) -> Exchange:
        """Send one call and wait for its reply. The clock runs only from the inputs to the copies of the outputs."""
        arena, layout, asked_ns = call.arena, call.layout, time.perf_counter_ns()
        number = self._wake(limit_s) + 1
        message = call.message(number, is_empty=is_empty)
        arena.rouse()
        begun_ns = time.perf_counter_ns()
        arena.give(layout, call.arrays)
        self._ask(message, number, limit_s)
        take = arena.take(layout)
        ended_ns = time.perf_counter_ns()
        return Exchange(call, take, self._read(layout.rooms), asked_ns, begun_ns, ended_ns)

    def _wake(self, limit_s: float) -> int:
        """Wait until the process polls for the next call, however it slept; return the number of this request."""
        number = max(self._last, protocol.LOADED) + 1
        self._ask(protocol.packed(Request(number, b"", (), ())), number, limit_s)
        return number

    def _ask(self, message: bytes, number: int, limit_s: float) -> None:
        protocol.send(self._control, message)
        self._bell.ring()
        self._wait(number, time.monotonic(), limit_s)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop every process of the candidate while something else is measured.

        Raises
        ------
        CandidateLostError
            If it is lost, or does not stop.
        """
        self._order(STOP)
        try:
            yield
        finally:
            self._order(GO_ON)

    def _order(self, word: bytes) -> None:
        if self._lost is not None:
            raise self._lost
        os.write(self._lifeline, word)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._is_stopped != (word == STOP):
            if not self._hear():
                self._lose_as_reported()
            if time.monotonic() > deadline:
                self._lose("hang", "its processes do not stop")
            self._poll.poll(_NAP_SECONDS * 1000)

    def _look_for_late_writes(self) -> None:
        """Count the last call as late if an output's memory has changed since the snapshot."""
        if self._taken is not None:
            arena, layout, taken = self._taken
            self.late_writes += not arena.is_as_taken(layout, taken)
        self._taken = None

    def _read(self, rooms: Sequence[protocol.Room]) -> RawReply:
        try:
            return protocol.read_reply(self._control, self._last, rooms)
        except ProtocolError as error:
            self._lose("protocol", str(error))

    def _wait(self, number: int, begun: float, seconds: float) -> None:
        """Wait for reply `number` until `seconds` after `begun`: poll for a moment, then sleep until the bell rings."""
        polled = time.monotonic() + _POLL_SECONDS
        while True:
            current = protocol.reply_number(self._control)
            if current == number:
                self._last = number
                return
            if current != self._last:
                self._lose("protocol", f"reply {current} where reply {number} was due")
            if (now := time.monotonic()) - begun > seconds:
                self._lose("hang", f"no answer after {seconds:g} s")
            if now > polled:
                self._sleep(number)
            else:
                os.sched_yield()

    def _sleep(self, number: int) -> None:
        events = dict(self._poll.poll(_NAP_SECONDS * 1000))
        is_known = number == protocol.LOADED == protocol.reply_number(self._control)
        if self._report in events and not self._hear() and not is_known:  # otherwise the reply has the reason
            self._lose_as_reported()
        if self._listen in events and not self._bell.wait(0):
            time.sleep(_NAP_SECONDS)  # the candidate's end is closed; the supervisor will report it

    def _hear(self) -> bool:
        """Read the supervisor's reports; return False after it has ended."""
        found, is_open = heard(self._report, self._reported)
        for words in found:
            self._note(words)
        return is_open and self._ended is None

    def _note(self, words: dict[str, Any]) -> None:
        self.supervisor = words.get("supervisor", self.supervisor)
        self.jail = words.get("jail", self.jail)
        self.group = words.get("group", self.group)
        self._is_stopped = words.get("stopped", self._is_stopped)
        if "failed" in words:
            self._ended = {"reason": "jail", "detail": words["failed"]}
        elif "ended" in words:
            self._ended = {**words["ended"], **{k: v for k, v in (self._ended or {}).items() if k != "output"}}

    def _lose_as_reported(self) -> NoReturn:
        loss = {"reason": "jail", "detail": "its supervisor ended without a report", **(self._ended or {})}
        self._lose(loss["reason"], loss["detail"])

    def _lose(self, reason: str, detail: str) -> NoReturn:
        self._end()
        found = self._ended or {}
        if reason != found.get("reason") and found.get("reason") in ("memory", "processes"):
            reason, detail = found["reason"], found["detail"]
        self._state = "lost"
        detail = escaped(detail)
        self._lost = CandidateLostError(
            f"{self.path.name}: {LOSSES[reason]}; {detail}; judge it as failed", reason=reason, detail=detail
        )
        raise self._lost
